//! What somebody who waits for a call may want to know meanwhile.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::error::Error;

/// An answer that takes longer than this is worth a word, unless the call waits on purpose.
pub(crate) const SLOW: Duration = Duration::from_millis(1_500);

/// How a call stands that has not been answered at the first attempt, or not soon.
#[derive(Debug)]
pub enum Waiting<'a> {
    /// The server has been asked and has not answered yet.
    Slow {
        /// The server.
        server: &'a str,
        /// Since the call began.
        elapsed: Duration,
    },
    /// One of several servers did not answer; the next one is asked at once.
    Next {
        /// Why.
        error: &'a Error,
        /// The server that is asked now.
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
    /// An answer came after something else had been told.
    Answered {
        /// The server.
        server: &'a str,
        /// Since the call began.
        elapsed: Duration,
    },
}

/// Hears how calls stand; see [`Client::with_observer`](crate::Client::with_observer).
#[derive(Clone)]
pub(crate) struct Observer(pub Arc<dyn Fn(&Waiting<'_>) + Send + Sync>);

impl fmt::Debug for Observer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Observer")
    }
}
