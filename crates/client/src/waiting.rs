//! Progress of slow and retried calls, for callers that want to show it.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::error::Error;

/// A response slower than this is reported, unless the call is a long poll.
pub(crate) const SLOW: Duration = Duration::from_millis(1_500);

/// The progress of a call that was not answered at the first attempt, or not soon.
#[derive(Debug)]
pub enum Waiting<'a> {
    /// The server has not responded yet.
    Slow {
        /// The server.
        server: &'a str,
        /// Since the call began.
        elapsed: Duration,
    },
    /// One of several servers failed; the next one is tried at once.
    Next {
        /// Why.
        error: &'a Error,
        /// The next server.
        server: &'a str,
    },
    /// An attempt failed; another one follows.
    Again {
        /// Why.
        error: &'a Error,
        /// Since the call began.
        elapsed: Duration,
        /// The attempt that failed, from 1.
        attempt: u32,
        /// Attempts in all.
        attempts: u32,
    },
    /// The last attempt failed, and it was not the first.
    GaveUp {
        /// Since the call began.
        elapsed: Duration,
        /// Attempts in all.
        attempts: u32,
    },
    /// A response arrived after something else had been reported.
    Answered {
        /// The server.
        server: &'a str,
        /// Since the call began.
        elapsed: Duration,
    },
}

/// Receives the progress of calls; see [`Client::with_observer`](crate::Client::with_observer).
#[derive(Clone)]
pub(crate) struct Observer(pub Arc<dyn Fn(&Waiting<'_>) + Send + Sync>);

impl fmt::Debug for Observer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Observer")
    }
}
