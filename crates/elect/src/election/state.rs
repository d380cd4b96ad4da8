//! What others see of an election, and how they speak to it.

use tokio::sync::watch;

use crate::clock::Moment;
use crate::plan::TooTight;

/// How an election stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// Not primary, and counted on by the server.
    Standby {
        /// Who is, if somebody is.
        primary: Option<String>,
        /// How the role stands, in the server's words.
        reason: String,
    },
    /// Primary.
    Primary {
        /// The term's epoch.
        epoch: u64,
        /// The end of the term if no further heartbeat is acknowledged.
        until: Moment,
    },
    /// The server does not answer. A primary stays one until its term ends; this is said of standbys.
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
    /// The server will not have this candidate.
    #[error("cannot stand for the role: {0}")]
    Refused(#[source] wayleave_client::Error),
    /// The role's T cannot be used with these options.
    #[error(transparent)]
    TooTight(#[from] TooTight),
    /// The work panicked; the role was given back.
    #[error("the guarded work panicked")]
    Panicked,
    /// Another is primary, and this one was not to wait.
    #[error("{primary} is primary in epoch {epoch}; not waiting")]
    Standby {
        /// Who.
        primary: String,
        /// In which epoch.
        epoch: u64,
    },
    /// No server answers, and this one was not to wait.
    #[error("no server has answered {tries} heartbeats: {why}; not waiting")]
    NoServer {
        /// How many heartbeats.
        tries: u32,
        /// What became of the last one.
        why: String,
    },
    /// The work of a slot was done, but the role does not remember it for sure.
    #[error(
        "slot '{slot}' was run, but no server has acknowledged that: {why}. Unless it was recorded all the same (`wayleave roles \
         show`), another will run it again"
    )]
    Unrecorded {
        /// The slot.
        slot: String,
        /// What the server said, or that it said nothing.
        why: String,
    },
    /// The address for the primary's questions cannot be listened on.
    #[error("cannot take the primary's questions at {0}: {1}; is the address in use, or another machine's?")]
    Peer(std::net::SocketAddr, #[source] std::io::Error),
    /// The machine lacks something: threads, random numbers.
    #[error("cannot stand for the role: {0}")]
    Machine(#[source] std::io::Error),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Control {
    pub stop: bool,
    pub ready: bool,
}

/// Speaks to a running election; cheap to clone.
#[derive(Clone, Debug)]
pub struct Stopper(pub(super) watch::Sender<Control>);

impl Stopper {
    /// Ends the election: stops the work, gives the role back, returns.
    pub fn stop(&self) {
        self.0.send_modify(|control| control.stop = true);
    }

    /// Says whether the work could be done now. A primary that is not ready stays primary; it should end its work instead.
    pub fn set_ready(&self, ready: bool) {
        self.0.send_modify(|control| control.ready = ready);
    }
}
