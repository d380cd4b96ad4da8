//! Continuing after a term by agreement of the standbys: three candidates that also talk to each other, a store with
//! the core's own decisions, and faults between all of them.
//!
//! Time is as in `roles`. The model begins when A is primary and knows B, and C unless C is a newcomer; what goes wrong
//! before is covered by that model.

use wayleave_core::roles::{Mode, Peer};
use wayleave_elect::{Decline, Wish};

use crate::prelude::*;
use crate::timed_model::budget::Budget;
use crate::timed_model::messages::{Message, Messages, What, believes};
use crate::timed_model::roles::{History, name, uuid};
use crate::timed_model::store::{Fault, Store};

const T_MS: u64 = 5_000;
const I_MS: u64 = 1_200;
/// How long a primary may continue.
const G_MS: u64 = 2_500;
/// By then all candidates know each other.
const BEGIN_MS: u64 = 2_700;
const CLIENTS: usize = 3;
/// The one that may come late.
const NEWCOMER: usize = 2;

/// The third candidate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Third {
    /// Known to the primary from the beginning.
    Member,
    /// Starts at any moment after the beginning.
    Newcomer,
    /// Never there.
    Absent,
}

/// What is modelled.
#[derive(Clone, Debug)]
pub struct GoingOn {
    pub until_ms: u64,
    pub budget: Budget,
    /// Faults come at the first quiet moment of every slot of this length.
    pub slot_ms: u64,
    /// What C is.
    pub third: Third,
    /// Whether only questions and bids are delayed.
    pub late_asks: bool,
    /// What the store gets wrong.
    pub fault: Fault,
    /// Whether a standby promises although its own bid is in flight.
    pub promises_blindly: bool,
    /// Whether a standby forgets what it has promised.
    pub forgets: bool,
    /// Whether the primary counts a promise from its receipt.
    pub counts_from_receipt: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct World {
    pub now: u64,
    pub clients: Vec<Client>,
    pub store: Store,
    messages: Messages,
    left: Budget,
    pub history: History,
    /// No server answers.
    away: bool,
    /// These two cannot reach each other.
    cut: Option<(usize, usize)>,
    /// Whether a fault may come at this moment.
    open: bool,
    /// Whether a candidate ever worked after the end of its term by the store's time.
    went_on: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Client {
    pub candidate: Candidate,
    started: bool,
    paused: bool,
    /// No server is reachable.
    cut_off: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    Start,
    Wake(usize),
    Deliver,
    Delay,
    DelayAnswer,
    Arrive(usize),
    Pass,
    Pause(usize),
    Resume(usize),
    CutOff(usize, bool),
    Cut(Option<(usize, usize)>),
    Away(bool),
    /// The work ends by itself: the role is released.
    End(usize),
    Set(Mode),
    FailOver(usize),
}

pub const ONE_BELIEVER: &str = "no two running candidates believe to be primary at once";
pub const ONE_HOLDER: &str = crate::timed_model::roles::ONE_HOLDER;
pub const EPOCHS_GROW: &str = crate::timed_model::roles::EPOCHS_GROW;

impl Model for GoingOn {
    type State = World;
    type Action = Action;

    fn init_states(&self) -> Vec<World> {
        let wish = Wish { interval: Some(Millis(I_MS)), grace: Millis(0) };
        let client = Client { candidate: Candidate::new(wish), started: false, paused: false, cut_off: false };
        let mut world = World {
            now: 0,
            clients: vec![client; CLIENTS],
            store: Store::going_on(T_MS, G_MS, self.fault),
            messages: Messages::default(),
            left: self.budget,
            history: History::default(),
            away: false,
            cut: None,
            open: true,
            went_on: false,
        };
        // They start one after the other, so that their heartbeats do not coincide.
        let starts = [Some(0), Some(100), Some(500).filter(|_| self.third == Third::Member)];
        while world.now < BEGIN_MS {
            for (client, _) in
                world.clients.iter_mut().zip(starts).filter(|(_, at)| at.is_some_and(|at| at <= world.now))
            {
                client.started = true;
            }
            for index in (0..CLIENTS).filter(|index| world.is_due(*index)).collect::<Vec<_>>() {
                world.wake(index);
                while !world.messages.fresh.is_empty() {
                    world.deliver(self, false);
                }
            }
            world.now += 50;
        }
        vec![world]
    }

    fn actions(&self, world: &World, actions: &mut Vec<Action>) {
        if let Some(message) = world.messages.fresh.first() {
            actions.push(Action::Deliver);
            let asks = matches!(&message.what, What::Question(..))
                || matches!(&message.what, What::Beat(beat) if beat.take_over.is_some());
            if world.left.delays > 0 && world.can_travel(message) && (asks || !self.late_asks) {
                actions.push(Action::Delay);
                if matches!(message.what, What::Beat(_) | What::Question(..)) {
                    actions.push(Action::DelayAnswer);
                }
            }
            return;
        }
        let due: Vec<usize> = (0..CLIENTS).filter(|index| world.is_due(*index)).collect();
        actions.extend(due.iter().copied().map(Action::Wake));
        actions.extend((0..world.messages.slow.len()).filter(|index| world.can_arrive(*index)).map(Action::Arrive));
        if due.is_empty() {
            actions.push(Action::Pass);
            if world.open {
                self.faults(world, actions);
            }
        }
    }

    fn next_state(&self, last: &World, action: Action) -> Option<World> {
        let mut world = last.clone();
        match action {
            Action::Start => world.clients[NEWCOMER].started = true,
            Action::Wake(index) => world.wake(index),
            Action::Deliver => world.deliver(self, false),
            Action::DelayAnswer => {
                world.left.delays -= 1;
                world.deliver(self, true);
            }
            Action::Delay => {
                world.left.delays -= 1;
                let message = world.messages.fresh.remove(0);
                world.messages.put_slow(message);
            }
            Action::Arrive(index) => {
                let message = world.messages.slow.remove(index);
                world.arrive(self, message, false);
            }
            Action::Pass => world.pass(self.slot_ms),
            Action::Pause(index) => {
                world.left.pauses -= 1;
                world.clients[index].paused = true;
            }
            Action::Resume(index) => world.clients[index].paused = false,
            Action::CutOff(index, cut_off) => {
                world.left.cuts -= u8::from(cut_off);
                world.clients[index].cut_off = cut_off;
            }
            Action::Cut(cut) => {
                world.left.cuts -= u8::from(cut.is_some());
                world.cut = cut;
            }
            Action::Away(away) => {
                world.left.outages -= u8::from(away);
                world.away = away;
            }
            Action::End(index) => {
                world.left.ends -= 1;
                world.messages.end_work(world.now, index, &mut world.clients[index].candidate);
            }
            Action::Set(mode) => {
                world.left.sets -= 1;
                world.store.set_mode(world.now, mode);
            }
            Action::FailOver(lost) => {
                world.left.failovers -= 1;
                world.store.fail_over(lost, true);
            }
        }
        world.went_on |= !world.believers().is_empty() && world.store.has_expired(world.now);
        Some(world)
    }

    fn within_boundary(&self, world: &World) -> bool {
        world.now <= self.until_ms
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(ONE_BELIEVER, |_, world: &World| world.believers().len() <= 1),
            Property::always(ONE_HOLDER, |_, world: &World| !world.history.broken.contains(&ONE_HOLDER)),
            Property::always(EPOCHS_GROW, |_, world: &World| !world.history.broken.contains(&EPOCHS_GROW)),
            Property::sometimes("the role changes hands", |_, world: &World| world.history.holders.len() > 1),
            Property::sometimes("a primary goes on after its term", |model: &Self, world: &World| {
                world.went_on || model.budget.outages == 0
            }),
        ]
    }
}

impl GoingOn {
    fn faults(&self, world: &World, actions: &mut Vec<Action>) {
        let left = world.left;
        if self.third == Third::Newcomer && !world.clients[NEWCOMER].started {
            actions.push(Action::Start);
        }
        for index in (0..CLIENTS).filter(|index| world.clients[*index].started) {
            let client = &world.clients[index];
            if client.paused {
                actions.push(Action::Resume(index));
            } else if left.pauses > 0 {
                actions.push(Action::Pause(index));
            }
            if left.cuts > 0 && !client.cut_off {
                actions.push(Action::CutOff(index, true));
            }
            if client.cut_off {
                actions.push(Action::CutOff(index, false));
            }
            if left.ends > 0 && !client.paused && believes(&client.candidate, world.now).is_some() {
                actions.push(Action::End(index));
            }
        }
        match world.cut {
            Some(_) => actions.push(Action::Cut(None)),
            None if left.cuts > 0 => actions.extend([(0, 1), (0, 2)].map(|pair| Action::Cut(Some(pair)))),
            None => {}
        }
        if world.away {
            actions.push(Action::Away(false));
        } else if left.outages > 0 {
            actions.push(Action::Away(true));
        }
        if left.sets > 0 && !world.away {
            actions.push(Action::Set(Mode::Strict));
        }
        if left.failovers > 0 {
            actions.extend((0..=world.store.losable()).map(Action::FailOver));
        }
    }
}

impl World {
    /// A line for people.
    pub fn line(&self) -> String {
        let lead = |(index, client): (usize, &Client)| {
            let epoch = believes(&client.candidate, self.now)?;
            let on = if client.candidate.goes_on(Moment(self.now)) { " by agreement" } else { "" };
            Some(format!("{} leads in epoch {epoch}{on}{}", name(index), if client.paused { " (paused)" } else { "" }))
        };
        let leads: Vec<String> = self.clients.iter().enumerate().filter_map(lead).collect();
        format!("{:>6} ms{}  {}", self.now, if self.away { " (no server)" } else { "" }, leads.join(", "))
    }

    pub fn believers(&self) -> Vec<usize> {
        let running = |index: &usize| !self.clients[*index].paused;
        (0..CLIENTS)
            .filter(running)
            .filter(|index| believes(&self.clients[*index].candidate, self.now).is_some())
            .collect()
    }

    fn is_due(&self, index: usize) -> bool {
        let client = &self.clients[index];
        client.started && !client.paused && client.candidate.wake_at().is_some_and(|at| at.0 <= self.now)
    }

    fn hears(&self, a: usize, b: usize) -> bool {
        self.cut != Some((a.min(b), a.max(b)))
    }

    /// Whether a message is worth delaying: it would arrive at once.
    fn can_travel(&self, message: &Message) -> bool {
        match &message.what {
            What::Question(other, _) | What::Promise(other, _) => self.hears(message.client, *other),
            _ => !self.away && !self.clients[message.client].cut_off,
        }
    }

    fn can_arrive(&self, index: usize) -> bool {
        let message = &self.messages.slow[index];
        match &message.what {
            What::Answer(..) | What::Promise(..) => !self.clients[message.client].paused,
            What::Question(to, _) => !self.clients[*to].paused,
            What::Beat(_) | What::Looking(..) | What::Release { .. } => true,
        }
    }

    fn pass(&mut self, slot_ms: u64) {
        let running = self.clients.iter().filter(|client| client.started && !client.paused);
        let next = running.filter_map(|client| client.candidate.wake_at()).map(|at| at.0).min();
        let (last, now) = (self.now, next.unwrap_or(self.now + I_MS));
        self.now = now;
        self.open = now / slot_ms != last / slot_ms;
        self.messages.lose(now);
    }

    fn wake(&mut self, index: usize) {
        self.messages.wake(self.now, index, &mut self.clients[index].candidate);
    }

    fn deliver(&mut self, model: &GoingOn, answer_is_slow: bool) {
        let message = self.messages.fresh.remove(0);
        self.arrive(model, message, answer_is_slow);
    }

    fn carry_out(&mut self, client: usize, effects: Vec<Effect>) {
        self.messages.carry_out(self.now, client, &mut self.clients[client].candidate, effects);
    }

    fn arrive(&mut self, model: &GoingOn, message: Message, answer_is_slow: bool) {
        let Message { client, sent, what } = message;
        let reached = !self.away && !self.clients[client].cut_off;
        match what {
            What::Beat(beat) if reached => {
                let peer = Peer { address: name(client).to_string().into(), secret: Token([client as u8; 16]) };
                let uuid = uuid(client, beat.call.identity);
                let (answer, granted) = self.store.heartbeat(self.now, &uuid, &beat, (I_MS, Some(peer)));
                if let Some(granted) = granted {
                    self.history.grant(granted);
                }
                let answer = Message { client, sent, what: What::Answer(beat.call, answer) };
                self.pass_on(model, client, answer, answer_is_slow);
            }
            What::Release { identity, token } if reached => {
                self.store.release(self.now, &uuid(client, identity), token.as_deref());
            }
            What::Answer(call, answer) if reached => {
                let effects = self.clients[client].candidate.on_answer(Moment(self.now), call, answer, 0);
                self.carry_out(client, effects);
            }
            What::Question(to, question) if self.hears(client, to) => {
                if self.clients[to].paused {
                    // The latest one waits for it; older ones are abandoned by then.
                    self.messages
                        .slow
                        .retain(|m| !(m.client == client && matches!(m.what, What::Question(other, _) if other == to)));
                    self.messages.put_slow(Message { client, sent, what: What::Question(to, question) });
                    return;
                }
                let standby = &mut self.clients[to].candidate;
                let before = standby.clone();
                let answer = standby.on_question(Moment(self.now), question.epoch, question.span);
                if model.forgets {
                    *standby = before;
                }
                if answer.is_ok() || model.promises_blindly && answer == Err(Decline::Asked) {
                    let promise = Message { client, sent, what: What::Promise(to, question) };
                    self.pass_on(model, client, promise, answer_is_slow);
                }
            }
            What::Promise(from, mut question) if self.hears(client, from) => {
                if model.counts_from_receipt {
                    question.sent = Moment(self.now);
                }
                let effects = self.clients[client].candidate.on_promise(&question);
                self.carry_out(client, effects);
            }
            _ => {}
        }
    }

    /// A response travels back, at once or slowly, or waits for a paused candidate.
    fn pass_on(&mut self, model: &GoingOn, client: usize, answer: Message, slowly: bool) {
        if slowly || self.clients[client].paused {
            self.messages.put_slow(answer);
        } else {
            self.arrive(model, answer, false);
        }
    }
}
