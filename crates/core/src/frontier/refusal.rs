//! Refusals are values: each names the thing and the remedy. The API layers map them to their codes.

use serde::{Deserialize, Serialize};

use crate::pipeline::refusal::ChunkRefusal;
use crate::{fleet, matches, placement};

/// Why a request was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
pub enum Refusal {
    /// The reservation has ended, was never granted, or belongs to another store.
    #[error("the reservation token is not current: it was released, has expired, or was never granted; reserve again")]
    NotCurrent,
    /// No such host.
    #[error("host '{0}' is not known; add a URL of it, or set it up first")]
    UnknownHost(String),
    /// No such group.
    #[error("group '{0}' is not known; set it up with its hosts first")]
    UnknownGroup(String),
    /// No such crawl.
    #[error("crawl '{0}' is not known; add a URL to it, or set it up first")]
    UnknownCrawl(String),
    /// No such queue.
    #[error("host '{host}' has no queue of crawl '{crawl}'")]
    UnknownQueue {
        /// The host.
        host: String,
        /// The crawl.
        crawl: String,
    },
    /// The host belongs to another alias.
    #[error("host '{host}' belongs to alias '{alias}'; take it out of there first")]
    HostTaken {
        /// The host.
        host: String,
        /// The alias that has it.
        alias: String,
    },
    /// An alias would have the name of a host, or vice versa.
    #[error(
        "'{0}' is both the name of an alias and of a host or queue key, which would be ambiguous; choose another name"
    )]
    NameInUse(String),
    /// A limit was exceeded.
    #[error("{0}")]
    OverLimit(String),
    /// The server holds the maximum number of hosts.
    #[error("{0}")]
    HostsFull(String),
    /// A result names a URL that is not in the reservation.
    #[error("result for '{0}', which is not in this reservation; send results for its own URLs only")]
    ForeignResult(String),
    /// The same request id was used for something else.
    #[error(
        "request_id '{0}' was used for a different request whose reservations are still live; use a fresh id for every request, and repeat a request unchanged"
    )]
    RequestReused(String),
    /// The cursor of a listing is not valid.
    #[error("the 'after' cursor was not issued by this server; start again without it")]
    BadCursor,
    /// Too many requests are queued.
    #[error("too many requests are waiting; try again in a moment")]
    Overloaded,
    /// The store cannot be reached or the server is shutting down; nothing was changed.
    #[error("unavailable, try again: {0}")]
    Unavailable(String),
    /// The shard has no owner here. Routers look for the owner and retry; callers see this only if none is found in
    /// time.
    #[error("unavailable, try again: the shard is being handed over to another owner")]
    Elsewhere,
    /// The host does not live in the shard that was asked: it has joined or left an alias, or is about to. Routers
    /// reload their hints and ask the right shard; callers see this only if that fails.
    #[error("unavailable, try again: the host is moving to another group")]
    Moved,
    /// The store did not report whether the change was made.
    #[error("the outcome is unknown; check the current state and try again: {0}")]
    OutcomeUnknown(String),
    /// The store is damaged.
    #[error("the store is damaged: {0}")]
    Corrupt(String),
    /// Rows of a host cannot be read; all others can.
    #[error(
        "rows of host '{host}' cannot be read: {cause}; other hosts are not affected. Run `wayleave check` on the stopped store, and `wayleave salvage` or a restore to replace it"
    )]
    Damaged {
        /// The host.
        host: String,
        /// What the store said.
        cause: String,
    },
    /// The store takes no new URLs for now; nothing was changed.
    #[error("the store takes no new URLs at the moment: {0}")]
    StoreFull(String),
    /// A bug.
    #[error("internal error, please report it: {0}")]
    Internal(String),
    /// A setting contradicts another one.
    #[error("{0}")]
    Contradiction(String),
    /// Too many listings are queued.
    #[error(
        "{0} listings are running or queued, which is the limit; visits go first. Try again in a moment, and read one page at a time"
    )]
    ManyListings(usize),
    /// A call to the pipeline does not fit.
    #[error(transparent)]
    Chunk(#[from] ChunkRefusal),
    /// A call about machines does not fit.
    #[error(transparent)]
    Fleet(#[from] fleet::Refusal),
    /// A call about placements does not fit.
    #[error(transparent)]
    Placement(#[from] placement::Refusal),
    /// A call about pools and matches does not fit.
    #[error(transparent)]
    Match(#[from] matches::Refusal),
}

impl Refusal {
    /// Whether it promises that nothing was changed and a retry is safe.
    #[must_use]
    pub const fn is_unavailable(&self) -> bool {
        matches!(
            self,
            Self::Unavailable(_)
                | Self::StoreFull(_)
                | Self::Elsewhere
                | Self::Moved
                | Self::Overloaded
                | Self::ManyListings(_)
        )
    }

    /// Combines two refusals of one call, from two shards: doubt is never overwritten by a promise.
    #[must_use]
    pub fn or_worse(self, other: Self) -> Self {
        let weight = |refusal: &Self| match refusal {
            Self::OutcomeUnknown(_) => 3,
            Self::Corrupt(_) | Self::Damaged { .. } | Self::Internal(_) => 2,
            Self::Elsewhere => 0,
            _ => 1,
        };
        if weight(&other) > weight(&self) { other } else { self }
    }

    /// The refusal after part of a call has been applied: it must not claim that nothing was changed.
    #[must_use]
    pub fn after_a_part(self, done: &str) -> Self {
        if self.is_unavailable() { Self::OutcomeUnknown(format!("{done}; the rest was refused: {self}")) } else { self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn doubt_is_never_overwritten_by_a_promise() {
        let unknown = || Refusal::OutcomeUnknown("lost".to_owned());
        let unavailable = || Refusal::Unavailable("away".to_owned());
        assert_eq!(unknown().or_worse(unavailable()), unknown());
        assert_eq!(unavailable().or_worse(unknown()), unknown());
        assert_eq!(Refusal::Elsewhere.or_worse(unavailable()), unavailable());
        assert_eq!(unavailable().or_worse(Refusal::Elsewhere), unavailable());
        assert!(matches!(unavailable().after_a_part("one was moved"), Refusal::OutcomeUnknown(_)));
        assert_eq!(Refusal::NotCurrent.after_a_part("one was moved"), Refusal::NotCurrent);
    }
}
