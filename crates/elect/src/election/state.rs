//! The public state of an election, and its control handle.

use tokio::sync::watch;

use crate::clock::Moment;
use crate::plan::TooTight;

/// The state of an election.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// Not primary, and registered as a standby.
    Standby {
        /// The primary, if there is one.
        primary: Option<String>,
        /// The state of the role, in the server's words.
        reason: String,
    },
    /// Primary.
    Primary {
        /// The term's epoch.
        epoch: u64,
        /// The end of the term if no further heartbeat is acknowledged.
        until: Moment,
    },
    /// The server does not respond. A primary stays one until its term ends; this is reported for standbys.
    Unavailable {
        /// Why.
        why: String,
    },
    /// It has ended.
    Ended,
}

/// Why an election ended.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The server refuses this candidate.
    #[error("cannot stand for the role: {0}")]
    Refused(#[source] wayleave_client::Error),
    /// The role's T is unusable with these options.
    #[error(transparent)]
    TooTight(#[from] TooTight),
    /// The work panicked; the role was released.
    #[error("the guarded work panicked")]
    Panicked,
    /// Another candidate is primary, and this one was not to wait.
    #[error("{primary} is primary in epoch {epoch}; not waiting")]
    Standby {
        /// The primary.
        primary: String,
        /// Its epoch.
        epoch: u64,
    },
    /// No server responds, and this one was not to wait.
    #[error("no server has answered {tries} heartbeats: {why}; not waiting")]
    NoServer {
        /// The number of heartbeats.
        tries: u32,
        /// The outcome of the last one.
        why: String,
    },
    /// The work of a slot was done, but it is uncertain whether the role has recorded it.
    #[error(
        "slot '{slot}' was run, but no server has acknowledged that: {why}. Unless it was recorded all the same (`wayleave roles \
         show`), another will run it again"
    )]
    Unrecorded {
        /// The slot.
        slot: String,
        /// The server's response, or that there was none.
        why: String,
    },
    /// Cannot listen on the address for the primary's questions.
    #[error("cannot listen for the primary's questions on {0}: {1}; is the address in use, or another machine's?")]
    Peer(std::net::SocketAddr, #[source] std::io::Error),
    /// The machine lacks a resource: threads, random numbers.
    #[error("cannot stand for the role: {0}")]
    Machine(#[source] std::io::Error),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Control {
    pub stop: bool,
    pub ready: bool,
}

/// Controls a running election; cheap to clone.
#[derive(Clone, Debug)]
pub struct Stopper(pub(super) watch::Sender<Control>);

impl Stopper {
    /// Ends the election: stops the work, releases the role, returns.
    pub fn stop(&self) {
        self.0.send_modify(|control| control.stop = true);
    }

    /// Sets whether the work could be done now. A primary that is not ready stays primary; it should end its work
    /// instead.
    pub fn set_ready(&self, ready: bool) {
        self.0.send_modify(|control| control.ready = ready);
    }
}
