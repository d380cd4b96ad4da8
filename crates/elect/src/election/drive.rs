//! The event loop: waits for the next event, passes it to the candidate, carries out its effects.

use std::future::pending;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use wayleave_api::roles::Role;
use wayleave_client::Error as Failure;
use wayleave_core::time::Millis;

use super::contact::{Contact, News};
use super::peers::Asked;
use super::state::{Control, Error, State};
use super::talk::Talk;
use super::wire::{Heard, Pending, Released, Reply, Wire};
use super::work::{Outcome, Patience, Running};
use crate::candidate::{Call, Candidate, Effect, Question, Reason, Then};
use crate::clock::{Clock, Moment};
use crate::identity::entropy;
use crate::options::{Options, millis};
use crate::plan::{Plan, TooTight};
use crate::term::Term;
use crate::watchdog::{LastLine, Watchdog};

/// Between two long polls, so that a server that does not let callers wait is not polled in a tight loop.
const LOOK_PAUSE: Duration = Duration::from_millis(50);
/// After a failed long poll. If the server is away, the next lost heartbeat ends the polling.
const LOOK_PAUSE_FAILED: Duration = Duration::from_millis(500);

/// After this many unanswered heartbeats a candidate that must not wait gives up; each goes to the next server, if
/// there are several.
const TRIES_WITHOUT_WAITING: u32 = 4;

/// What happens.
enum Event<B> {
    Woken,
    Heard(Call, Heard),
    Looked(Result<Role, Failure>),
    Released(Released),
    Ended(Outcome<B>),
    Overdue,
    Stopped,
    Asked(Asked),
    Answered(Question, Result<(), String>),
}

pub(super) struct Driver<B> {
    wire: Wire,
    candidate: Candidate,
    clock: Arc<dyn Clock>,
    state: watch::Sender<State>,
    watchdog: Watchdog,
    talk: Talk,
    patience: Patience,
    last_line: LastLine,
    call: Option<(Call, Pending<Heard>)>,
    look: Option<Pending<Result<Role, Failure>>>,
    release: Option<Pending<Released>>,
    /// Set while the slot's work is done but not yet recorded.
    slot_run: bool,
    waits: bool,
    /// Consecutive unanswered heartbeats while standing.
    lost_in_a_row: u32,
    running: Option<Running<B>>,
    plan: Option<Plan>,
    tight: Option<TooTight>,
    contact: Contact,
    stopped: bool,
    /// The result once the candidate has finished.
    result: Result<Option<B>, Error>,
}

impl<B: Send + 'static> Driver<B> {
    pub fn new(
        wire: Wire,
        options: &Options,
        clock: Arc<dyn Clock>,
        state: watch::Sender<State>,
        (watchdog, talk): (Watchdog, Talk),
    ) -> Self {
        Self {
            wire,
            candidate: Candidate::new(options.wish()),
            clock,
            state,
            watchdog,
            talk,
            patience: Patience { grace: millis(options.grace), reserve: millis(options.reserve()) },
            last_line: options.last_line.clone(),
            call: None,
            look: None,
            release: None,
            slot_run: false,
            waits: options.wait,
            lost_in_a_row: 0,
            running: None,
            plan: None,
            tight: None,
            contact: Contact::default(),
            stopped: false,
            result: Ok(None),
        }
    }

    pub async fn run<W, F>(mut self, mut work: W, mut control: watch::Receiver<Control>) -> Result<Option<B>, Error>
    where
        W: FnMut(Term) -> F,
        F: Future<Output = ControlFlow<B, Duration>> + Send + 'static,
    {
        tracing::info!(role = self.wire.role(), uuid = self.wire.uuid(), "standing for the role");
        loop {
            let event = self.next(&mut control).await;
            let effects = self.handle(event);
            self.log_plan();
            self.talk.log_going_on(&self.candidate, self.clock.now());
            for effect in effects {
                if let Effect::Lead { epoch, until } = effect {
                    self.lead(epoch, until, &mut work);
                } else if let Some(finished) = self.apply(effect)? {
                    self.state.send_replace(State::Ended);
                    finished?;
                    return self.result;
                }
            }
        }
    }

    async fn next(&mut self, control: &mut watch::Receiver<Control>) -> Event<B> {
        let wake_at = self.candidate.wake_at();
        let drop_at = self.running.as_ref().and_then(Running::drop_at);
        let stopped = self.stopped;
        tokio::select! {
            // Ends and deadlines take precedence.
            biased;
            () = until(&*self.clock, drop_at) => Event::Overdue,
            outcome = ended(&mut self.running) => Event::Ended(outcome),
            () = asked_to_stop(control, stopped) => Event::Stopped,
            (call, heard) = answered(&mut self.call) => Event::Heard(call, heard),
            () = until(&*self.clock, wake_at) => Event::Woken,
            asked = self.talk.door.asked() => Event::Asked(asked),
            (question, answer) = self.talk.asking.next() => Event::Answered(question, answer),
            released = done(&mut self.release) => Event::Released(released),
            role = done(&mut self.look) => Event::Looked(role),
        }
    }

    fn handle(&mut self, event: Event<B>) -> Vec<Effect> {
        let now = self.clock.now();
        match event {
            Event::Woken => self.candidate.on_wake(now, entropy()),
            Event::Heard(call, heard) => {
                self.call = None;
                self.handle_heard(now, call, heard)
            }
            Event::Looked(role) => {
                self.look = None;
                match role {
                    Ok(role) if role.primary.is_none() => self.candidate.on_vacancy(now),
                    // Timed out or failed: a standby must keep a long poll open until its next heartbeat, or it would
                    // miss a release in between.
                    Ok(_) if self.candidate.is_standing() => self.look = Some(self.wire.vacancy(LOOK_PAUSE)),
                    Err(_) if self.candidate.is_standing() => self.look = Some(self.wire.vacancy(LOOK_PAUSE_FAILED)),
                    _ => {}
                }
                Vec::new()
            }
            Event::Released(Released { answered, unrecorded }) => {
                self.release = None;
                if let Some(why) = unrecorded {
                    self.result = Err(self.unrecorded(why));
                }
                if answered { self.candidate.on_released(now) } else { self.candidate.on_release_lost(now) }
            }
            Event::Ended(outcome) => {
                let then = self.after(outcome);
                let slot_run = self.running.take().is_some_and(|running| running.term.is_slot_run());
                self.slot_run = slot_run && self.wire.slot().is_some();
                self.candidate.on_stopped(now, then)
            }
            Event::Overdue => {
                tracing::warn!(role = self.wire.role(), "the work did not stop in time and is cancelled");
                self.end_work(now);
                Vec::new()
            }
            Event::Stopped => {
                self.stopped = true;
                self.candidate.on_resign()
            }
            Event::Asked(asked) => {
                Talk::answer(&mut self.candidate, now, asked);
                Vec::new()
            }
            Event::Answered(question, Ok(())) => self.candidate.on_promise(&question),
            Event::Answered(question, Err(why)) => {
                self.talk.log_declined(&question, &why);
                Vec::new()
            }
        }
    }

    fn handle_heard(&mut self, now: Moment, call: Call, heard: Heard) -> Vec<Effect> {
        match heard {
            Heard::Answer(answer, reply) => {
                if let Some(News::Back(away)) = self.contact.on_heard(now) {
                    tracing::info!(role = self.wire.role(), away.ms = away.0, "heartbeats are answered again");
                }
                let effects = self.candidate.on_answer(now, call, answer, entropy());
                self.talk.on_heard(&self.candidate, reply.mode, self.wire.has_peer());
                if !self.candidate.is_standing() {
                    return effects;
                }
                self.lost_in_a_row = 0;
                if self.leaves(&reply) {
                    // It is leaving, so it is not reported as a standby.
                    self.show(State::Standby { primary: reply.primary, reason: reply.reason });
                    return self.resign_after(effects);
                }
                self.stand_by(reply);
                effects
            }
            Heard::Lost(why) => {
                // It may hang at the same server; the next one starts where the next heartbeat is answered.
                self.look = None;
                self.log_lost(now, &why);
                let effects = self.candidate.on_lost(now, call, entropy());
                if !self.candidate.is_standing() {
                    return effects;
                }
                self.lost_in_a_row += 1;
                self.show(State::Unavailable { why: why.clone() });
                if self.waits || self.lost_in_a_row < TRIES_WITHOUT_WAITING {
                    return effects;
                }
                self.result = Err(Error::NoServer { tries: self.lost_in_a_row, why });
                self.resign_after(effects)
            }
            Heard::Refused(error) if self.candidate.is_standing() => {
                if !self.stopped {
                    self.result = Err(Error::Refused(error));
                }
                let lost = self.candidate.on_lost(now, call, entropy());
                self.resign_after(lost)
            }
            Heard::Refused(error) => {
                self.log_lost(now, &format!("the server refuses it: {error}"));
                self.candidate.on_lost(now, call, entropy())
            }
        }
    }

    /// Resigns; what had to be done before is done first.
    fn resign_after(&mut self, mut effects: Vec<Effect>) -> Vec<Effect> {
        effects.extend(self.candidate.on_resign());
        effects
    }

    /// Whether a standby has learned all that it wanted to know.
    fn leaves(&mut self, reply: &Reply) -> bool {
        if let Some(run) = &reply.slot_run {
            let (role, slot, epoch) = (self.wire.role(), &run.slot, run.epoch);
            tracing::info!(role, slot, epoch, "the slot was already run; nothing left to do");
            return true;
        }
        match &reply.primary {
            Some(primary) if !self.waits && self.wire.is_another(primary) => {
                self.result = Err(Error::Standby { primary: primary.clone(), epoch: reply.epoch });
                true
            }
            _ => false,
        }
    }

    fn unrecorded(&self, why: String) -> Error {
        Error::Unrecorded { slot: self.wire.slot().unwrap_or_default().to_owned(), why }
    }

    fn stand_by(&mut self, reply: Reply) {
        if self.look.is_none() && reply.primary.is_some() {
            self.look = Some(self.wire.vacancy(Duration::ZERO));
        }
        self.talk.log_primary(&reply);
        self.show(State::Standby { primary: reply.primary, reason: reply.reason });
    }

    /// What follows the end of the work.
    fn after(&mut self, outcome: Outcome<B>) -> Then {
        match outcome {
            Ok(ControlFlow::Continue(pause)) => Then::StandAgain(millis(pause)),
            Ok(ControlFlow::Break(value)) => {
                self.result = Ok(Some(value));
                self.leave()
            }
            Err(error) if error.is_panic() => {
                self.result = Err(Error::Panicked);
                self.leave()
            }
            // Cancelled, as the candidate wanted; it knows what follows.
            Err(_) => Then::StandAgain(Millis(0)),
        }
    }

    /// Also a candidate that is already stopping its work, to ask again, must leave now.
    fn leave(&mut self) -> Then {
        _ = self.candidate.on_resign();
        Then::Finish
    }

    fn lead<W, F>(&mut self, epoch: u64, until: Moment, work: &mut W)
    where
        W: FnMut(Term) -> F,
        F: Future<Output = ControlFlow<B, Duration>> + Send + 'static,
    {
        self.look = None;
        self.talk.forget_primary();
        tracing::info!(role = self.wire.role(), epoch, "primary");
        let term = Term::new(epoch, until, self.wire.uuid(), self.clock.clone());
        self.running = Some(Running::start(term, work, &self.watchdog, self.patience, self.last_line.clone()));
        self.show(State::Primary { epoch, until });
    }

    fn apply(&mut self, effect: Effect) -> Result<Option<Result<(), TooTight>>, Error> {
        match effect {
            Effect::Send(beat) => {
                if self.call.is_some() {
                    let within = self.candidate.timeout().0;
                    self.log_lost(self.clock.now(), &format!("no answer within {within} ms"));
                }
                self.call = Some((beat.call, self.wire.heartbeat(&beat, self.candidate.timeout())?));
            }
            Effect::Ask(question) => self.talk.asking.ask(question, self.candidate.timeout()),
            // Needs the work, which the caller has.
            Effect::Lead { .. } => {}
            Effect::Extend { epoch, until } => {
                if let Some(running) = &mut self.running {
                    running.move_end(until);
                }
                self.show(State::Primary { epoch, until });
            }
            Effect::StepDown { epoch, why } => {
                tracing::warn!(role = self.wire.role(), epoch, why = %why, "stepping down");
                let now = self.clock.now();
                match (why, &mut self.running) {
                    (Reason::Superseded, _) => self.end_work(now),
                    (_, Some(running)) => running.ask_to_stop(now),
                    (_, None) => {}
                }
            }
            Effect::Release { token, .. } => {
                self.call = None;
                self.look = None;
                self.release = Some(match token {
                    Some(token) if std::mem::take(&mut self.slot_run) => self.wire.release_after(token),
                    token => self.wire.release(token),
                });
            }
            Effect::Finished(how) => {
                if self.slot_run {
                    // The term passed to another candidate before it could be released.
                    self.result = Err(self.unrecorded("the term was over before it could be released".into()));
                }
                return Ok(Some(how));
            }
        }
        Ok(None)
    }

    fn end_work(&mut self, now: Moment) {
        if let Some(running) = &mut self.running {
            running.end_now(now);
        }
    }

    fn log_plan(&mut self) {
        let tight = self.candidate.too_tight();
        if let Some(error) = tight.filter(|_| tight != self.tight) {
            tracing::warn!(role = self.wire.role(), "{error}; standing by without taking the role until it fits");
        }
        if tight.is_some() {
            // The plan is reported again once there is one.
            self.plan = None;
        }
        self.tight = tight;
        let plan = self.candidate.plan().copied();
        if plan.is_some() && plan != self.plan {
            self.plan = plan;
            if let Some(plan) = plan {
                tracing::info!(role = self.wire.role(), "{plan}");
            }
        }
    }

    /// A heartbeat was not acknowledged: logs it if that is news.
    fn log_lost(&mut self, now: Moment, why: &str) {
        let (news, role) = (self.contact.on_lost(now), self.wire.role());
        match (news, self.candidate.working()) {
            (Some(News::Away), Some((epoch, until))) => {
                let left = until.since(now).0;
                let text = "a heartbeat was not acknowledged; trying again until the term ends";
                tracing::warn!(role, epoch, why, term.left_ms = left, "{text}");
            }
            (Some(News::Away), None) => {
                tracing::warn!(role, why, "a heartbeat was not acknowledged; trying again, not working meanwhile");
            }
            (Some(News::StillAway(away)), _) => {
                tracing::warn!(role, why, away.ms = away.0, "still no heartbeat is acknowledged; trying again");
            }
            (Some(News::Back(_)) | None, _) => {}
        }
    }

    /// Publishes the state to watchers.
    fn show(&self, state: State) {
        self.state.send_if_modified(|old| {
            let changed = *old != state;
            *old = state;
            changed
        });
    }
}

async fn until(clock: &dyn Clock, at: Option<Moment>) {
    match at {
        Some(at) => clock.sleep_until(at).await,
        None => pending().await,
    }
}

async fn done<T>(what: &mut Option<Pending<T>>) -> T {
    match what {
        Some(what) => what.await,
        None => pending().await,
    }
}

async fn answered(call: &mut Option<(Call, Pending<Heard>)>) -> (Call, Heard) {
    match call {
        Some((call, heard)) => (*call, heard.await),
        None => pending().await,
    }
}

async fn ended<B: Send + 'static>(running: &mut Option<Running<B>>) -> Outcome<B> {
    match running {
        Some(running) => running.ended().await,
        None => pending().await,
    }
}

async fn asked_to_stop(control: &mut watch::Receiver<Control>, stopped: bool) {
    if stopped || control.wait_for(|control| control.stop).await.is_err() {
        // No sender is left.
        pending().await
    }
}
