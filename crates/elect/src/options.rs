//! A candidate's options: what it announces, and how its work is ended.

use std::net::SocketAddr;
use std::time::Duration;

use wayleave_core::time::Millis;
use wayleave_outgoing::Policy;

use crate::plan::{Plan, TooTight, Wish};
use crate::watchdog::LastLine;

/// The time between the end of the grace period and the end of the term, for ending work that did not stop: a quarter
/// of the grace period within these bounds. Threads and timers need some time to end anything.
const RESERVE_MIN: Duration = Duration::from_millis(20);
const RESERVE_MAX: Duration = Duration::from_millis(500);

/// The listener for the primary's questions, for roles in mode `continue`. There is no TLS: use it only on a trusted
/// network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerDoor {
    /// Where to listen; port 0 lets the system choose.
    pub listen: SocketAddr,
    /// Where other candidates reach it, if that is another address.
    pub advertised: Option<String>,
}

/// How to ask for a role. T is not here: the server owns it and announces it.
#[derive(Clone, Debug)]
pub struct Options {
    /// The address of this process once it is primary.
    pub address: Option<String>,
    /// Further information for callers; host, pid and boot id are added.
    pub metadata: Vec<(String, String)>,
    /// Whether it could do the work now; a candidate that could not stands by and never becomes primary. Can be changed
    /// later ([`Stopper::set_ready`](crate::Stopper::set_ready)).
    pub ready: bool,
    /// 0 to 9: among ready candidates 9 takes precedence.
    pub priority: u8,
    /// The interval between heartbeats; derived from T by default.
    pub interval: Option<Duration>,
    /// How long the work may take to stop once it was asked to, whether or not a server answers meanwhile. Then it is
    /// cancelled; and if it is still running after a further [`Options::reserve`], the last line is called. All of
    /// this happens before the end of the term.
    pub grace: Duration,
    /// What ends work that cannot be stopped.
    pub last_line: LastLine,
    /// The listener for the primary's questions. Without it, a primary must stop at the end of its term when no server
    /// responds, even in mode `continue`.
    pub peer: Option<PeerDoor>,
    /// Which addresses of other candidates may be called, besides public ones and the source of a candidate's
    /// heartbeats: the allowed networks, and loopback if the server is reached there, because then its loopback is
    /// this machine.
    pub policy: Policy,
    /// A slot: work that a schedule wants done once. The election ends without work if the role has recorded the slot
    /// as run; work that calls [`Term::mark_slot_run`](crate::Term::mark_slot_run) has it recorded.
    pub slot: Option<String>,
    /// Whether to stand by while another candidate is primary; otherwise the election ends with
    /// [`Error::Standby`](crate::Error::Standby).
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
            policy: Policy::new([], false),
            slot: None,
            wait: true,
        }
    }
}

impl Options {
    pub(crate) fn wish(&self) -> Wish {
        Wish { interval: self.interval.map(millis), grace: millis(self.grace.saturating_add(self.reserve())) }
    }

    /// The plan for a term of this length. Fails if it is too short: check before the role's T is set to it, because a
    /// T that is too short keeps all candidates from the role.
    pub fn plan(&self, ttl: Duration) -> Result<Plan, TooTight> {
        Plan::new(millis(ttl), self.wish())
    }

    /// How long ending work that did not stop may take: this long before the end of the term it is ended.
    #[must_use]
    pub fn reserve(&self) -> Duration {
        (self.grace / 4).clamp(RESERVE_MIN, RESERVE_MAX)
    }
}

pub(crate) fn millis(span: Duration) -> Millis {
    Millis(u64::try_from(span.as_millis()).unwrap_or(u64::MAX))
}
