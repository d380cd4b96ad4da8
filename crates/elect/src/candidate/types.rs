//! Inputs and outputs of a candidate.

use wayleave_api::roles::{GoingOn, LastTerm, TakeOver};
use wayleave_core::time::Millis;

use crate::clock::Moment;
use crate::plan::{Plan, TooTight};

use super::promises::Question;

/// Identifies a heartbeat: its sender, and when it was sent. The content of its response counts from the sending.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Call {
    /// The index of the candidate's identity.
    pub identity: u32,
    /// When it was sent; read from the clock *before* the first byte leaves.
    pub sent: Moment,
}

/// A heartbeat to send. An earlier one in flight is abandoned.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Heartbeat {
    /// Its identification.
    pub call: Call,
    /// The term's token, if it renews.
    pub token: Option<String>,
    /// Whether it could take the role: false while T is too short.
    pub ready: bool,
    /// From a primary: the version of its member list.
    pub heard: Option<u64>,
    /// From a standby: the term that it bids for.
    pub take_over: Option<TakeOver>,
}

/// The server's response to a heartbeat.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum HeartbeatReply {
    /// The candidate is primary.
    Primary {
        /// Of this term.
        epoch: u64,
        /// The term's token.
        token: String,
        /// T.
        ttl: Millis,
        /// The remaining term by the server's clock, when it responded.
        remaining: Millis,
        /// An operator asks it to step down.
        step_down: bool,
        /// The agreement by which it may continue after the term.
        going_on: Option<GoingOn>,
    },
    /// The candidate is not primary.
    Standby {
        /// T.
        ttl: Millis,
        /// The remaining time of the current term, or of whatever else is in the way; zero if nothing is.
        remaining: Millis,
        /// The term that it may bid for, where a take-over needs a bid.
        last: Option<LastTerm>,
    },
    /// The identity is primary but its token is missing or not that of the term: this identity must be abandoned.
    NotCurrent,
}

/// Why a primary steps down.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reason {
    /// No heartbeat was acknowledged in time.
    OutOfTime,
    /// Moreover, not all standbys promised to wait, or the time to continue is used up.
    OutOfAgreement,
    /// The server says that the term is over.
    Superseded,
    /// Its process is ending.
    Resigned,
    /// An operator asked for it.
    Asked,
    /// T was changed and is now too short.
    TooTight,
}

impl std::fmt::Display for Reason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::OutOfTime => "no heartbeat was acknowledged in time",
            Self::OutOfAgreement => {
                "no server answers, and not every standby has promised to wait, or the time to continue is used up"
            }
            Self::Superseded => "the server says that the term is over",
            Self::Resigned => "the process is ending",
            Self::Asked => "an operator asked it to step down",
            Self::TooTight => "the role's T was changed and is now too short",
        })
    }
}

/// What follows the end of a term.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Then {
    /// Ask for the role again, after a pause.
    StandAgain(Millis),
    /// Stop for good.
    Finish,
    /// Stop for good: the role's T is unusable.
    Fail(TooTight),
}

/// What the caller must do.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Effect {
    /// Send a heartbeat, and report its response.
    Send(Heartbeat),
    /// Ask a member for a promise, and report whether it gave it.
    Ask(Question),
    /// Step 4a: start the guarded work. It must have stopped by `until`.
    Lead {
        /// The fencing token of all its writes.
        epoch: u64,
        /// The end of the term.
        until: Moment,
    },
    /// The end of the term has moved: usually later, earlier if T was lowered or another member has joined.
    Extend {
        /// Which one.
        epoch: u64,
        /// Its new end.
        until: Moment,
    },
    /// Step 5a: stop the work and report when it has stopped.
    StepDown {
        /// The term's.
        epoch: u64,
        /// The reason, for people.
        why: Reason,
    },
    /// The work has stopped, or there was none: release the role, and report when that is done or has failed.
    Release {
        /// The identity that held it.
        identity: u32,
        /// The term's token; `None` for a standby that leaves.
        token: Option<String>,
    },
    /// The candidate has ended.
    Finished(Result<(), TooTight>),
}

/// A term as its holder knows it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Held {
    pub epoch: u64,
    pub token: String,
    /// The end of the term, or of the promises by which it is continued.
    pub until: Moment,
    /// When the last acknowledged heartbeat was sent.
    pub acknowledged: Moment,
    /// The remaining time in its response.
    pub remaining: Millis,
    /// The allowance for clock drift.
    pub margin: Millis,
    /// Whether the server may still attribute it to us, so that it is worth renewing and releasing.
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
pub(super) enum CandidateStage {
    /// Neither works nor may work. Has a term if one was granted by a response that arrived too late to begin with: the
    /// next heartbeat renews it.
    Standing(Option<Held>),
    /// The work runs.
    Leading(Held),
    /// The work was asked to stop and may still be running. `next`: a later term that was granted meanwhile.
    Stopping {
        held: Held,
        then: Then,
        next: Option<Held>,
    },
    /// The work has stopped; the role is being released.
    Releasing(Then),
    Finished,
}
