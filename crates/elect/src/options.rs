//! What a candidate says of itself, and how its work is ended.

use std::net::SocketAddr;
use std::time::Duration;

use wayleave_core::time::Millis;

use crate::plan::{Plan, TooTight, Wish};
use crate::watchdog::LastLine;

/// What lies between the end of the grace and the end of the term, for ending work that did not stop: a quarter of the grace
/// within these bounds. Threads and timers need some time to end anything.
const RESERVE_MIN: Duration = Duration::from_millis(20);
const RESERVE_MAX: Duration = Duration::from_millis(500);

/// Where a candidate takes the primary's questions, for roles whose mode is `continue`. There is no TLS: it belongs on a network
/// that is trusted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerDoor {
    /// Where to listen; port 0 lets the system choose.
    pub listen: SocketAddr,
    /// Where other candidates reach that, if it is another address.
    pub advertised: Option<String>,
}

/// How to stand for a role. T is not here: the server owns it and hands it out.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where this process is reached once it is primary.
    pub address: Option<String>,
    /// Whatever else callers should know; host, pid and boot id are added.
    pub metadata: Vec<(String, String)>,
    /// Whether it could do the work now; one that could not stands by and is never made primary. Can be changed later
    /// ([`Stopper::set_ready`](crate::Stopper::set_ready)).
    pub ready: bool,
    /// 0 to 9: where several are ready, 9 comes first.
    pub priority: u8,
    /// The interval between heartbeats; where none is given it is made to fit T.
    pub interval: Option<Duration>,
    /// How long the work may take to stop once it was told to. Then it is dropped; and if that has not ended it either when
    /// the term ends, the last line is called. All of it lies before the end of the term.
    pub grace: Duration,
    /// What ends work that cannot be stopped.
    pub last_line: LastLine,
    /// Where to take the primary's questions; without it, a primary has to stop at the end of its term when no server answers,
    /// though the role's mode is `continue`.
    pub peer: Option<PeerDoor>,
    /// What a schedule wants to be done once. The election ends without work if the role remembers it as run; work that calls
    /// [`Term::mark_slot_run`](crate::Term::mark_slot_run) has it remembered.
    pub slot: Option<String>,
    /// Whether to stand by while another is primary; else the election ends with [`Error::Standby`](crate::Error::Standby).
    pub wait: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            address: None,
            metadata: Vec::new(),
            ready: true,
            priority: 5,
            interval: None,
            grace: Duration::from_secs(1),
            last_line: LastLine::AbortProcess,
            peer: None,
            slot: None,
            wait: true,
        }
    }
}

impl Options {
    pub(crate) fn wish(&self) -> Wish {
        Wish { interval: self.interval.map(millis), grace: millis(self.grace.saturating_add(self.reserve())) }
    }

    /// How a term of this length would be spent.
    ///
    /// # Errors
    /// If it is too short: ask before the role's T is set to it, because a T that is too short keeps all who stand from the role.
    pub fn plan(&self, ttl: Duration) -> Result<Plan, TooTight> {
        Plan::new(millis(ttl), self.wish())
    }

    /// How long before the end of the term work that did not stop is ended.
    #[must_use]
    pub fn reserve(&self) -> Duration {
        (self.grace / 4).clamp(RESERVE_MIN, RESERVE_MAX)
    }
}

pub(crate) fn millis(span: Duration) -> Millis {
    Millis(u64::try_from(span.as_millis()).unwrap_or(u64::MAX))
}
