//! Model of roles in bounded time: candidates, a store, and faults between them.
//!
//! Each candidate calls a server of its own. Where the store's clock may step ahead, servers watch it with the timekeeper of
//! production, at each heartbeat; a look may take long, so that the clock is read long after it was sent, and a server may
//! start at any moment.
//!
//! Time is in milliseconds and jumps from one wake-up of a running candidate to the next: a candidate that is not
//! paused never sleeps past the requested moment, as on an idle machine. Faults are drawn from a budget, at any such
//! moment.

use wayleave_elect::Wish;

use crate::prelude::*;
use crate::timed_model::budget::Budget;
use crate::timed_model::messages::{Message, Messages, What, believes};
use crate::timed_model::store::{Granted, Store};
use crate::timed_model::watch::{Watch, Watching};

/// T and I of the model.
pub const T_MS: u64 = 5_000;
pub const I_MS: u64 = 1_000;
/// By this much clocks step: more than T.
const STEP_MS: i64 = 6_000;

/// What is modelled.
#[derive(Clone, Debug)]
pub struct Roles {
    pub clients: usize,
    pub until_ms: u64,
    pub budget: Budget,
    /// Whether a promoted store has a new incarnation.
    pub incarnations: bool,
    /// Whether a restart may find its clock ahead of time.
    pub steps_ahead: bool,
    /// How servers watch the clock. Each candidate has one of its own.
    pub watching: Watching,
    /// Whether the clock of a promoted store may be behind.
    pub steps_behind: bool,
    /// Whether receivers of guarded writes remember the highest epoch.
    pub guarded: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct State {
    pub now: u64,
    pub clients: Vec<Client>,
    pub store: Store,
    /// Empty where the clock does not step ahead.
    servers: Vec<Watch>,
    messages: Messages,
    left: Budget,
    pub history: History,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Client {
    pub candidate: Candidate,
    /// Not running. It may hold a permit for a write that it got just before.
    pub paused: bool,
    permit: Option<u64>,
    link: Link,
}

/// What a candidate's connection does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Link {
    Whole,
    /// Nothing reaches the store.
    Cut,
    /// Requests reach the store, responses are lost.
    Deaf,
}

/// What the laws check: everything ever granted and written.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct History {
    pub holders: BTreeMap<u64, String>,
    highest_granted: u64,
    /// The highest epoch that a receiver has seen, and whose it was.
    written: Option<(u64, usize)>,
    pub broken: Vec<&'static str>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// A candidate's moment has come.
    Wake(usize),
    /// The oldest fresh message arrives at once, and so does its answer.
    Deliver,
    /// It arrives later, or its answer does.
    Delay,
    DelayAnswer,
    /// It arrives at its server, whose look at the store takes long.
    LookSlowly,
    /// A server restarts.
    StartServer(usize),
    /// A slow message arrives.
    Arrive(usize),
    /// Time passes until something is due.
    Pass,
    Pause(usize),
    Resume(usize),
    Join(usize, Link),
    /// The work ends by itself: the role is released.
    End(usize),
    Restart(i64),
    /// This many writes are lost, and the clock steps.
    FailOver(usize, i64),
}

pub const ONE_HOLDER: &str = "one holder per epoch";
pub const EPOCHS_GROW: &str = "epochs grow";
pub const ONE_BELIEVER: &str = "no two running candidates believe to be primary at once";
pub const NO_OVERLAP: &str = "accepted writes of two primaries never overlap";

impl Model for Roles {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let wish = Wish { interval: Some(Millis(I_MS)), grace: Millis(0) };
        let client = Client { candidate: Candidate::new(wish), paused: false, permit: None, link: Link::Whole };
        let store = Store::new(T_MS);
        let servers = if self.steps_ahead { self.clients } else { 0 };
        vec![State {
            now: 0,
            clients: vec![client; self.clients],
            servers: vec![Watch::start(self.watching, 0, store.now(0)); servers],
            store,
            messages: Messages::default(),
            left: self.budget,
            history: History::default(),
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        if let Some(message) = state.messages.fresh.first() {
            actions.push(Action::Deliver);
            if state.left.looks > 0 && matches!(message.what, What::Beat(_)) {
                actions.push(Action::LookSlowly);
            }
            if state.left.delays > 0 && state.clients[message.client].link == Link::Whole {
                actions.push(Action::Delay);
                if matches!(message.what, What::Beat(_)) {
                    actions.push(Action::DelayAnswer);
                }
            }
            return;
        }
        let due = |index: &usize| state.is_due(*index);
        let running: Vec<usize> = (0..self.clients).filter(|index| !state.clients[*index].paused).collect();
        actions.extend(running.iter().copied().filter(due).map(Action::Wake));
        actions.extend((0..state.messages.slow.len()).filter(|index| state.can_arrive(*index)).map(Action::Arrive));
        // Faults come when no candidate is due: a fault at a due moment equals one just before it.
        if !running.iter().any(due) {
            actions.push(Action::Pass);
            self.faults(state, &running, actions);
        }
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = last.clone();
        match action {
            Action::Wake(index) => state.messages.wake(state.now, index, &mut state.clients[index].candidate),
            Action::Deliver => {
                let message = state.messages.fresh.remove(0);
                state.arrive(self, message, false);
            }
            Action::Delay => {
                state.left.delays -= 1;
                let message = state.messages.fresh.remove(0);
                state.messages.put_slow(message);
            }
            Action::DelayAnswer => {
                state.left.delays -= 1;
                let message = state.messages.fresh.remove(0);
                state.arrive(self, message, true);
            }
            Action::LookSlowly => {
                state.left.looks -= 1;
                let message = state.messages.fresh.remove(0);
                let What::Beat(beat) = message.what else { unreachable!("a heartbeat") };
                if state.clients[message.client].link != Link::Cut {
                    state.messages.put_slow(Message { what: What::Looking(beat, state.now), ..message });
                }
            }
            Action::StartServer(index) => {
                state.left.crashes -= 1;
                state.servers[index] = Watch::start(self.watching, state.now, state.store.now(state.now));
            }
            Action::Arrive(index) => {
                let message = state.messages.slow.remove(index);
                state.arrive(self, message, false);
            }
            Action::Pass => state.pass(),
            Action::Pause(index) => {
                state.left.pauses -= 1;
                let client = &mut state.clients[index];
                client.paused = true;
                client.permit = believes(&client.candidate, state.now);
            }
            Action::Resume(index) => {
                state.clients[index].paused = false;
                if let Some(epoch) = state.clients[index].permit.take() {
                    state.write(self, index, epoch);
                }
            }
            Action::Join(index, link) => {
                state.left.cuts -= u8::from(link != Link::Whole);
                state.clients[index].link = link;
            }
            Action::End(index) => {
                state.left.ends -= 1;
                state.messages.end_work(state.now, index, &mut state.clients[index].candidate);
            }
            Action::Restart(step_ms) => {
                state.left.restarts -= 1;
                state.store.restart(step_ms);
            }
            Action::FailOver(lost, step_ms) => {
                state.left.failovers -= 1;
                state.store.fail_over(lost, self.incarnations);
                state.store.restart(step_ms);
            }
        }
        state.first_writes(self);
        Some(state)
    }

    fn within_boundary(&self, state: &State) -> bool {
        state.now <= self.until_ms
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(ONE_HOLDER, |_, state: &State| !state.history.broken.contains(&ONE_HOLDER)),
            Property::always(EPOCHS_GROW, |_, state: &State| !state.history.broken.contains(&EPOCHS_GROW)),
            Property::always(NO_OVERLAP, |_, state: &State| !state.history.broken.contains(&NO_OVERLAP)),
            Property::always(ONE_BELIEVER, |_, state: &State| state.believers().len() <= 1),
            // Liveness checks: without these the model could be safe because nothing happens in it.
            Property::sometimes("there is a primary", |_, state: &State| !state.believers().is_empty()),
            Property::sometimes("the role changes hands", |_, state: &State| state.history.holders.len() > 1),
        ]
    }
}

impl Roles {
    fn faults(&self, state: &State, running: &[usize], actions: &mut Vec<Action>) {
        let left = state.left;
        for index in 0..self.clients {
            let client = &state.clients[index];
            if client.paused {
                actions.push(Action::Resume(index));
            }
            if left.cuts > 0 && client.link == Link::Whole {
                actions.extend([Action::Join(index, Link::Cut), Action::Join(index, Link::Deaf)]);
            }
            if client.link != Link::Whole {
                actions.push(Action::Join(index, Link::Whole));
            }
        }
        for index in running {
            if left.pauses > 0 {
                actions.push(Action::Pause(*index));
            }
            if left.ends > 0 && believes(&state.clients[*index].candidate, state.now).is_some() {
                actions.push(Action::End(*index));
            }
        }
        if left.restarts > 0 {
            actions.extend([Action::Restart(0), Action::Restart(-STEP_MS)]);
            if self.steps_ahead {
                actions.push(Action::Restart(STEP_MS));
            }
        }
        if left.crashes > 0 {
            actions.extend((0..state.servers.len()).map(Action::StartServer));
        }
        if left.failovers > 0 {
            for lost in 0..=state.store.losable() {
                actions.push(Action::FailOver(lost, 0));
                if self.steps_behind {
                    actions.push(Action::FailOver(lost, -STEP_MS));
                }
            }
        }
    }
}

pub fn name(client: usize) -> char {
    char::from(b'A' + client as u8)
}

pub fn uuid(client: usize, identity: u32) -> String {
    format!("{}{identity}", name(client))
}

impl State {
    /// A line for people: when, and who leads in which epoch.
    pub fn line(&self) -> String {
        let lead = |(index, client): (usize, &Client)| {
            let epoch = believes(&client.candidate, self.now)?;
            Some(format!("{} leads in epoch {epoch}{}", name(index), if client.paused { " (paused)" } else { "" }))
        };
        let leads: Vec<String> = self.clients.iter().enumerate().filter_map(lead).collect();
        format!("{:>6} ms  {}", self.now, leads.join(", "))
    }

    pub fn believers(&self) -> Vec<usize> {
        let running = |index: &usize| !self.clients[*index].paused;
        (0..self.clients.len())
            .filter(running)
            .filter(|i| believes(&self.clients[*i].candidate, self.now).is_some())
            .collect()
    }

    fn is_due(&self, index: usize) -> bool {
        self.clients[index].candidate.wake_at().is_some_and(|at| at.0 <= self.now)
    }

    fn can_arrive(&self, index: usize) -> bool {
        let message = &self.messages.slow[index];
        let to_client = matches!(message.what, What::Answer(..));
        !(to_client && self.clients[message.client].paused)
    }

    /// Time continues to the next wake-up of a running client; with all paused, by an interval.
    fn pass(&mut self) {
        let running = self.clients.iter().filter(|client| !client.paused);
        let next = running.filter_map(|client| client.candidate.wake_at()).map(|at| at.0).min();
        self.now = next.unwrap_or(self.now + I_MS);
        self.messages.lose(self.now);
    }

    fn carry_out(&mut self, client: usize, effects: Vec<Effect>) {
        self.messages.carry_out(self.now, client, &mut self.clients[client].candidate, effects);
    }

    fn arrive(&mut self, model: &Roles, message: Message, answer_is_slow: bool) {
        let Message { client, sent, what } = message;
        let link = self.clients[client].link;
        if link == Link::Cut && !matches!(what, What::Looking(..)) {
            return;
        }
        let look_sent = if let What::Looking(_, sent) = what { sent } else { self.now };
        match what {
            What::Beat(beat) | What::Looking(beat, _) => {
                if let Some(server) = self.servers.get_mut(client) {
                    let store = self.store.now(self.now);
                    self.store.steady_since = server.look(model.watching, look_sent, self.now, store);
                }
                let name = uuid(client, beat.call.identity);
                let (answer, granted) = self.store.heartbeat(self.now, &name, &beat, (I_MS, None));
                if let Some(granted) = granted {
                    self.history.grant(granted);
                }
                let answer = Message { client, sent, what: What::Answer(beat.call, answer) };
                if answer_is_slow || self.clients[client].paused {
                    self.messages.put_slow(answer);
                } else if link == Link::Whole {
                    self.arrive(model, answer, false);
                }
            }
            What::Release { identity, token } => {
                self.store.release(self.now, &uuid(client, identity), token.as_deref());
            }
            What::Answer(..) if link == Link::Deaf => {}
            // No role of this model may be continued.
            What::Question(..) | What::Promise(..) => {}
            What::Answer(call, answer) => {
                let effects = self.clients[client].candidate.on_answer(Moment(self.now), call, answer, 0);
                self.carry_out(client, effects);
            }
        }
    }

    /// The first thing that a primary does is a guarded write.
    fn first_writes(&mut self, model: &Roles) {
        for index in self.believers() {
            if let Some(epoch) = believes(&self.clients[index].candidate, self.now) {
                self.write(model, index, epoch);
            }
        }
    }

    /// A guarded write reaches its receiver, which admits it as [`wayleave_elect::Guard`] does.
    fn write(&mut self, model: &Roles, client: usize, epoch: u64) {
        let (highest, whose) = self.history.written.unwrap_or((0, client));
        if model.guarded && epoch < highest {
            return;
        }
        if epoch < highest || (epoch == highest && whose != client) {
            self.history.broken.push(NO_OVERLAP);
        } else {
            self.history.written = Some((epoch, client));
        }
    }
}

impl History {
    pub fn grant(&mut self, granted: Granted) {
        let Granted { epoch, uuid, new } = granted;
        let holder = self.holders.entry(epoch).or_insert_with(|| uuid.clone());
        if *holder != uuid {
            self.broken.push(ONE_HOLDER);
        }
        // A new term must be above all earlier ones. (One that was restored by a failover may be renewed by a message
        // in flight; no candidate leads in it, which the other laws ensure.)
        if new && epoch <= self.highest_granted {
            self.broken.push(EPOCHS_GROW);
        }
        self.highest_granted = self.highest_granted.max(epoch);
    }
}
