//! What goes into a candidate and what comes out.

use wayleave_api::roles::{GoingOn, LastTerm, TakeOver};
use wayleave_core::time::Millis;

use crate::clock::Moment;
use crate::plan::{Plan, TooTight};

use super::promises::Question;

/// Names a heartbeat: who sent it, and when. The moment of sending is what its answer counts from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Call {
    /// Which of the candidate's identities.
    pub identity: u32,
    /// When it was sent; read from the clock *before* the first byte leaves.
    pub sent: Moment,
}

/// A heartbeat to send. An earlier one that is still on its way is given up.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Heartbeat {
    /// Its name.
    pub call: Call,
    /// The term's token, if it is to renew.
    pub token: Option<String>,
    /// Whether it could take the role: not while T is too short for it.
    pub ready: bool,
    /// From one that works: which list of members it has.
    pub heard: Option<u64>,
    /// From a standby: the term that it wants to take over.
    pub take_over: Option<TakeOver>,
}

/// What the server said to a heartbeat.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Answer {
    /// You are primary.
    Primary {
        /// Of this term.
        epoch: u64,
        /// Its secret.
        token: String,
        /// T.
        ttl: Millis,
        /// What remains of the term, by the server's clock, when it answered.
        remaining: Millis,
        /// An operator wants it to let go.
        step_down: bool,
        /// By whose agreement it may go on after the term.
        going_on: Option<GoingOn>,
    },
    /// You are not.
    Standby {
        /// T.
        ttl: Millis,
        /// What remains of the present term, or of whatever else is in the way; zero if nothing is.
        remaining: Millis,
        /// The term that it may ask for, where that takes an ask of its own.
        last: Option<LastTerm>,
    },
    /// The identity is primary but the token is not its term's, or it is missing: this identity is used up.
    NotCurrent,
}

/// Why a primary steps down.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reason {
    /// No heartbeat was acknowledged in time.
    OutOfTime,
    /// Nor did all standbys promise to wait, or the time to go on is used up.
    OutOfAgreement,
    /// The server says that the term is over.
    Superseded,
    /// Its own process wants to end.
    Resigned,
    /// An operator asked for it.
    Asked,
    /// T was changed, and is too short now.
    TooTight,
}

impl std::fmt::Display for Reason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::OutOfTime => "no heartbeat was acknowledged in time",
            Self::OutOfAgreement => {
                "no server answers, and not every standby promises to wait or the time to go on is used up"
            }
            Self::Superseded => "the server says that the term is over",
            Self::Resigned => "the process is ending",
            Self::Asked => "an operator asked it to step down",
            Self::TooTight => "the role's T was changed and is too short now",
        })
    }
}

/// What follows on the end of a term.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Then {
    /// Stand again, after a pause.
    StandAgain(Millis),
    /// Stop for good.
    Finish,
    /// Stop for good: the role's T cannot be used.
    Fail(TooTight),
}

/// What the caller must do.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Effect {
    /// Send a heartbeat, and tell its answer.
    Send(Heartbeat),
    /// Ask a member for a promise, and tell if it gave it.
    Ask(Question),
    /// Step 4a: start the guarded work. It must have stopped by `until`.
    Lead {
        /// What fences all its writes.
        epoch: u64,
        /// The end of the term.
        until: Moment,
    },
    /// The end of the term has moved: later as a rule, earlier if T was lowered or another member has joined.
    Extend {
        /// Which one.
        epoch: u64,
        /// Its new end.
        until: Moment,
    },
    /// Step 5a: stop the work and tell when it has stopped.
    StepDown {
        /// The term's.
        epoch: u64,
        /// For people to read.
        why: Reason,
    },
    /// The work has stopped, or there was none: give the role back, and tell when that is done or has failed.
    Release {
        /// Which identity's.
        identity: u32,
        /// The term's token; none for a standby that leaves.
        token: Option<String>,
    },
    /// It is over.
    Finished(Result<(), TooTight>),
}

/// A term as its holder knows it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Held {
    pub epoch: u64,
    pub token: String,
    /// The end of the term, or of the promises by which it is gone on with.
    pub until: Moment,
    /// When the heartbeat was sent that was acknowledged last.
    pub acknowledged: Moment,
    /// What remained of the term by the answer to it.
    pub remaining: Millis,
    /// What is taken off for clocks that disagree.
    pub margin: Millis,
    /// Whether the server may still count it as ours, so that it is worth renewing and releasing.
    pub current: bool,
}

impl Held {
    pub fn new(epoch: u64, token: String, sent: Moment, (ttl, remaining): (Millis, Millis)) -> Self {
        let mut held =
            Self { epoch, token, until: sent, acknowledged: sent, remaining, margin: Plan::margin(ttl), current: true };
        held.until = held.own_end();
        held
    }

    /// The end of the term by the last acknowledged heartbeat alone.
    pub const fn own_end(&self) -> Moment {
        self.acknowledged.after(self.remaining).before(self.margin)
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Stage {
    /// Neither works nor may work. Holds a term if one was granted by an answer that came too late to begin with: the
    /// next heartbeat renews it.
    Standing(Option<Held>),
    /// The work runs.
    Leading(Held),
    /// The work was told to stop and may still run. `next`: a later term that was granted meanwhile.
    Stopping {
        held: Held,
        then: Then,
        next: Option<Held>,
    },
    /// The work has stopped; the server is being told.
    Releasing(Then),
    Finished,
}
