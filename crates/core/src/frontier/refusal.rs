//! Refusals are values: each names the thing and the remedy. The API layers map them to their codes.

use serde::{Deserialize, Serialize};

use crate::ids::ChunkId;
use crate::pipeline::refusal::ChunkRefusal;
use crate::{fleet, matches, placement};

/// Why a request was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[allow(missing_docs, reason = "the messages say it")]
pub enum Refusal {
    #[error("the reservation token is not current: it was released, has expired, or was never granted; reserve again")]
    NotCurrent,
    #[error("host '{0}' is not known; add a URL of it, or set it up first")]
    UnknownHost(String),
    #[error("group '{0}' is not known; set it up with its hosts first")]
    UnknownGroup(String),
    #[error("crawl '{0}' is not known; add a URL to it, or set it up first")]
    UnknownCrawl(String),
    #[error("host '{host}' has no queue of crawl '{crawl}'")]
    UnknownQueue { host: String, crawl: String },
    #[error("host '{host}' belongs to alias '{alias}'; take it out of there first")]
    HostTaken { host: String, alias: String },
    #[error(
        "'{0}' is both the name of an alias and of a host or queue key, which would be ambiguous; choose another name"
    )]
    NameInUse(String),
    #[error("{0}")]
    OverLimit(String),
    #[error("{0}")]
    HostsFull(String),
    #[error("{0}")]
    CrawlsFull(String),
    #[error("result for '{0}', which is not in this reservation; send results for its own URLs only")]
    ForeignResult(String),
    #[error(
        "request_id '{0}' was used for a different request whose reservations are still live; use a fresh id for every request, and repeat a request unchanged"
    )]
    RequestReused(String),
    #[error("the 'after' cursor was not issued by this server; start again without it")]
    BadCursor,
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
    #[error("the outcome is unknown; check the current state and try again: {0}")]
    OutcomeUnknown(String),
    #[error("the store is damaged: {0}")]
    Corrupt(String),
    /// Rows of a host cannot be read; all others can.
    #[error(
        "rows of host '{host}' cannot be read: {cause}; other hosts are not affected. Run `wayleave check` on the stopped store, and `wayleave salvage` or a restore to replace it"
    )]
    Damaged { host: String, cause: String },
    /// The row of a chunk cannot be read; all others can.
    #[error(
        "chunk '{chunk}'{} cannot be read: {cause}; other chunks are not affected. Run `wayleave check` on the stopped store, and `wayleave salvage` or a restore to replace it",
        of_host(.host.as_deref())
    )]
    DamagedChunk {
        chunk: ChunkId,
        /// Its host, if it is of one and that can be read.
        host: Option<String>,
        cause: String,
    },
    /// The store takes no new URLs for now; nothing was changed.
    #[error("the store takes no new URLs at the moment: {0}")]
    StoreFull(String),
    #[error("internal error, please report it: {0}")]
    Internal(String),
    #[error("{0}")]
    Contradiction(String),
    #[error(
        "{0} listings are running or queued, which is the limit; visits go first. Try again in a moment, and read one page at a time"
    )]
    ManyListings(usize),
    #[error(transparent)]
    Chunk(#[from] ChunkRefusal),
    #[error(transparent)]
    Fleet(#[from] fleet::Refusal),
    #[error(transparent)]
    Placement(#[from] placement::Refusal),
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
            Self::Corrupt(_) | Self::Damaged { .. } | Self::DamagedChunk { .. } | Self::Internal(_) => 2,
            Self::Elsewhere => 0,
            _ => 1,
        };
        if weight(&other) > weight(&self) { other } else { self }
    }

    /// The refusal after part of a call has been applied: it must not claim that nothing was changed.
    #[must_use]
    pub fn after_partial_change(self, done: &str) -> Self {
        if self.is_unavailable() { Self::OutcomeUnknown(format!("{done}; the rest was refused: {self}")) } else { self }
    }
}

fn of_host(host: Option<&str>) -> String {
    host.map(|host| format!(" of host '{host}'")).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_outcome_is_never_hidden_by_a_refusal() {
        let unknown = || Refusal::OutcomeUnknown("lost".to_owned());
        let unavailable = || Refusal::Unavailable("away".to_owned());
        assert_eq!(unknown().or_worse(unavailable()), unknown());
        assert_eq!(unavailable().or_worse(unknown()), unknown());
        assert_eq!(Refusal::Elsewhere.or_worse(unavailable()), unavailable());
        assert_eq!(unavailable().or_worse(Refusal::Elsewhere), unavailable());
        assert!(matches!(unavailable().after_partial_change("one was moved"), Refusal::OutcomeUnknown(_)));
        assert_eq!(Refusal::NotCurrent.after_partial_change("one was moved"), Refusal::NotCurrent);
    }
}
