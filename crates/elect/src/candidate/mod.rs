//! The candidate's algorithm as a pure state machine: a moment and an event in, effects out. No clock, no randomness,
//! no I/O.
//!
//! It is the election of the "HA-extended model" with its gaps closed. Its steps, and where they are:
//!
//! | step of the document | here |
//! |---|---|
//! | 1. make a unique id at start | [`Candidate::new`]; an identity that the server refuses is replaced by a new one |
//! | 2. `GetPrimary` every I | a standby's heartbeat is both query and application: [`Candidate::on_wake`]; a push that the role is free comes by [`Candidate::on_vacancy`] |
//! | 3. empty → `UpdateHeartBeat` | the same heartbeat: acquire-or-renew is one call that answers at once |
//! | 4a. it is me → work as primary | [`Candidate::on_answer`] with [`HeartbeatReply::Primary`] → [`Effect::Lead`] |
//! | 4b. another one → back to 2 | [`HeartbeatReply::Standby`] |
//! | 4c. a wrong answer → retry 3 | the caller reports it as lost: [`Candidate::on_lost`] |
//! | 4d. still empty → retry 3 | [`HeartbeatReply::Standby`] with nothing remaining: retried soon |
//! | 5. heartbeat every I | [`Candidate::on_wake`] while leading |
//! | 5a. not me, or no answer for T − I → exit | [`Effect::StepDown`], then [`Effect::Release`] once the work has stopped |
//!
//! All safety rests on one rule: a term lasts until **the sending of the last acknowledged heartbeat + the remaining
//! time in its response − a margin**. The server counted from the heartbeat's arrival, which is later than its sending;
//! so the candidate's term ends before the server's, however long the response took. Nothing else extends it: no read,
//! no response of another term, no assumption. The one exception is a role in mode `continue`: while no server
//! responds, the promises of *all* candidates that could take over extend it, counted in the same way ([`agree`]).

mod event;
mod promises;
mod reading;
mod types;

use wayleave_core::time::Millis;

pub use promises::{Decline, Question};
pub use types::{Call, Effect, Heartbeat, HeartbeatReply, Reason, Then};

use crate::clock::Moment;
use crate::plan::{Plan, TooTight, Wish};
use types::{CandidateStage, Held};

/// Until the server has announced T: the timeout of the first response, and the base of pauses.
const FIRST_TIMEOUT: Millis = Millis(2_000);
/// After a lost response a primary retries after at most this fraction of I.
const RETRY_PART: u64 = 4;
/// Standbys that cannot reach a server double their pauses at most this often, then stay at I.
const DOUBLINGS_MAX: u32 = 2;

/// One candidate for one role.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Candidate {
    wish: Wish,
    plan: Option<Plan>,
    stage: CandidateStage,
    /// The index of its current identity; the next one is used when the server refuses this one.
    identity: u32,
    /// The heartbeat whose response is pending.
    in_flight: Option<Moment>,
    next_send: Moment,
    /// The number of consecutive lost responses.
    losses: u32,
    /// The highest epoch that this candidate ever led in; a response with that or a lower one starts nothing.
    led: u64,
    /// It must leave as soon as the pending response arrives: a grant in flight must be released, not forgotten.
    leaving: bool,
    /// Whether it ever received a usable T. A candidate that starts with too short a T ends; a running one waits.
    fitted: bool,
    /// T is currently too short; it stands by without taking the role.
    unfit: Option<TooTight>,
    /// The token of a term that could be continued and that no server has taken back yet: until one does, no candidate
    /// may newly take over the role, this one included.
    unreleased: Option<String>,
    /// As primary: the agreement by which it may continue.
    agreement: promises::Agreement,
    /// As standby: what it has promised and asked for.
    line: promises::Line,
}

impl Candidate {
    /// Step 1: a candidate that has not sent anything yet. It wants to be woken at once.
    #[must_use]
    pub fn new(wish: Wish) -> Self {
        Self {
            wish,
            plan: None,
            stage: CandidateStage::Standing(None),
            identity: 0,
            in_flight: None,
            next_send: Moment(0),
            losses: 0,
            led: 0,
            leaving: false,
            fitted: false,
            unfit: None,
            unreleased: None,
            agreement: promises::Agreement::default(),
            line: promises::Line::default(),
        }
    }

    /// When it wants to be woken; `None` if it waits for something other than time.
    #[must_use]
    pub fn wake_at(&self) -> Option<Moment> {
        let speak = match self.in_flight {
            _ if !self.speaks() => None,
            Some(sent) => Some(sent.after(self.timeout())),
            None => Some(self.next_send),
        };
        let stop = if let CandidateStage::Leading(held) = &self.stage { Some(self.stop_at(held)) } else { None };
        [speak, stop, self.ask_at()].into_iter().flatten().min()
    }

    /// The plan, once the server has announced T.
    #[must_use]
    pub const fn plan(&self) -> Option<&Plan> {
        self.plan.as_ref()
    }

    /// Why it stands by without taking the role: T was changed and is now too short.
    #[must_use]
    pub fn too_tight(&self) -> Option<TooTight> {
        self.unfit.filter(|_| self.fitted)
    }

    /// The term in which guarded work may be running now: its epoch and its end.
    #[must_use]
    pub const fn working(&self) -> Option<(u64, Moment)> {
        match &self.stage {
            CandidateStage::Leading(held) | CandidateStage::Stopping { held, .. } => Some((held.epoch, held.until)),
            _ => None,
        }
    }

    /// Whether it is neither primary nor leaving.
    #[must_use]
    pub const fn is_standing(&self) -> bool {
        matches!(self.stage, CandidateStage::Standing(_))
    }

    /// Steps 2, 3 and 5, and the clock's half of 5a: the requested wake-up time has come.
    pub fn on_wake(&mut self, now: Moment, entropy: u64) -> Vec<Effect> {
        let mut effects = Vec::new();
        if let CandidateStage::Leading(held) = &self.stage
            && now >= self.stop_at(held)
        {
            let why = if self.agreement.is_given() { Reason::OutOfAgreement } else { Reason::OutOfTime };
            self.step_down(why, Then::StandAgain(self.pause(entropy)), &mut effects);
        }
        if let Some(sent) = self.in_flight
            && now >= sent.after(self.timeout())
        {
            self.lose(now, entropy);
            effects.extend(self.leave());
        }
        self.ask(now, &mut effects);
        if self.speaks() && self.in_flight.is_none() && now >= self.next_send {
            effects.push(self.send(now));
        }
        effects
    }

    /// Step 2 by a push: the role is free, or may be.
    pub fn on_vacancy(&mut self, now: Moment) {
        if self.is_standing() && self.in_flight.is_none() {
            self.next_send = self.next_send.min(now);
        }
    }

    /// Whether heartbeats are sent. Also while the work is being stopped: a longer term is a safer one.
    const fn speaks(&self) -> bool {
        match &self.stage {
            CandidateStage::Standing(_) | CandidateStage::Leading(_) => true,
            CandidateStage::Stopping { held, .. } => held.current,
            CandidateStage::Releasing(_) | CandidateStage::Finished => false,
        }
    }

    fn send(&mut self, now: Moment) -> Effect {
        self.in_flight = Some(now);
        let token = match &self.stage {
            CandidateStage::Standing(held) => held.as_ref().map(|held| held.token.clone()),
            CandidateStage::Leading(held) | CandidateStage::Stopping { held, .. } => Some(held.token.clone()),
            CandidateStage::Releasing(_) | CandidateStage::Finished => None,
        };
        let (heard, take_over) = match &self.stage {
            CandidateStage::Leading(_) | CandidateStage::Stopping { .. } => (self.agreement.heard(), None),
            CandidateStage::Standing(None) if !self.leaving => (None, self.line.take_offer(now)),
            _ => (None, None),
        };
        // A candidate that has promised to wait must not take the role at all, not even from a store that knows no
        // term.
        let waits = matches!(self.stage, CandidateStage::Standing(None)) && self.line.waits(now);
        let (call, ready) = (Call { identity: self.identity, sent: now }, self.unfit.is_none() && !waits);
        Effect::Send(Heartbeat { call, token, ready, heard, take_over })
    }

    /// The moment by which the work must be asked to stop.
    const fn stop_at(&self, held: &Held) -> Moment {
        held.until.before(self.wish.grace)
    }

    /// The response timeout of a heartbeat.
    #[must_use]
    pub fn timeout(&self) -> Millis {
        self.plan.map_or(FIRST_TIMEOUT, |plan| plan.timeout)
    }

    fn interval(&self) -> Millis {
        self.plan.map_or(FIRST_TIMEOUT, |plan| plan.interval)
    }

    /// Jitter against a thundering herd: when a server comes back, its clients must not all reconnect at once.
    fn pause(&self, entropy: u64) -> Millis {
        random_fraction(self.interval(), entropy)
    }

    /// A response is lost: a primary retries soon, because its term is running; others back off.
    fn lose(&mut self, now: Moment, entropy: u64) {
        self.in_flight = None;
        let soon = self.interval().0 / RETRY_PART;
        let pause = match self.stage {
            CandidateStage::Standing(None) => Millis(soon << self.losses.min(DOUBLINGS_MAX)),
            _ => Millis(soon),
        };
        self.losses = self.losses.saturating_add(1);
        self.begin_asking(now);
        self.next_send = now.after(jittered(pause, entropy, 2));
    }

    /// Asks the work to stop; the term is kept until it has.
    fn step_down(&mut self, why: Reason, then: Then, effects: &mut Vec<Effect>) {
        if let CandidateStage::Leading(held) = &self.stage {
            effects.push(Effect::StepDown { epoch: held.epoch, why });
            self.stage = CandidateStage::Stopping { held: held.clone(), then, next: None };
        }
    }
}

/// A random fraction of a span.
fn random_fraction(span: Millis, entropy: u64) -> Millis {
    Millis(u64::try_from((u128::from(span.0) * u128::from(entropy)) >> 64).unwrap_or(span.0))
}

/// A span shortened at random by up to one `nth` of it. Never lengthened: the tolerance is computed with whole
/// intervals.
fn jittered(span: Millis, entropy: u64, nth: u64) -> Millis {
    let varied = Millis(span.0 / nth);
    Millis(span.0 - varied.0 + random_fraction(varied, entropy).0)
}

#[cfg(test)]
mod promises_tests;
#[cfg(test)]
mod tests;
