//! The calls that a shard owner accepts and the answers it returns. Both are plain serialisable values, so an owner on
//! another node is called exactly like a local one.
//!
//! Calls are grouped by whether they change state and whether they read rows. Every match on them is exhaustive, so a
//! new call that is not handled does not compile.
//!
//! | | answered from memory | reads rows from the store |
//! |---|---|---|
//! | read-only | [`StateQuery`] | [`RowQuery`] |
//! | changes state | [`AdminChange`], [`JobChange`] | [`UrlChange`], [`VisitCall`], [`HostMove`] |

mod change;
mod query;
mod response;
mod visit;

use serde::{Deserialize, Serialize};
use wayleave_core::ids::ShardId;
use wayleave_core::names::HostName;

use crate::message::{Message, Reply};
use crate::routing::links::{NodeCall, encode};
use crate::routing::protocol::Service;
use crate::routing::service_call::ServiceCall;

pub use change::Revoke;
pub(crate) use change::{AdminChange, CrawlChange, CrawlSet, CrawlSettled, HostMove, JobChange, UrlChange};
pub(crate) use query::{RowQuery, StateQuery, UrlCursor, UrlPage};
pub(crate) use response::{HoldsEnded, Purged, Response, Slice, Sliced};
pub(crate) use visit::{Take, VisitCall};

/// Defines [`Ask`], and the way from each kind of call to it.
macro_rules! ask {
    ($($variant:ident($kind:ident),)+) => {
        /// One call to a shard owner.
        #[derive(Clone, Debug, Serialize, Deserialize)]
        pub(crate) enum Ask { $($variant($kind),)+ }

        $(
            impl From<$kind> for Ask {
                fn from(call: $kind) -> Self {
                    Self::$variant(call)
                }
            }
        )+
    };
}

ask! {
    StateQuery(StateQuery),
    RowQuery(RowQuery),
    Admin(AdminChange),
    Job(JobChange),
    Url(UrlChange),
    Visit(VisitCall),
    Move(HostMove),
}

impl From<CrawlChange> for Ask {
    fn from(change: CrawlChange) -> Self {
        Self::Admin(AdminChange::Crawl(change))
    }
}

impl Ask {
    /// The host that must live in this shard. If it does not, the call was routed to the wrong shard.
    pub fn host(&self) -> Option<&HostName> {
        match self {
            Self::StateQuery(query) => query.host(),
            Self::RowQuery(query) => query.host(),
            Self::Admin(change) => change.host(),
            Self::Url(change) => change.host(),
            Self::Visit(visit) => visit.host(),
            // Jobs concern all hosts, and a move checks the location of its hosts itself.
            Self::Job(_) | Self::Move(_) => None,
        }
    }

    /// Whether this is a slice of a listing. Slices have the lowest priority in the inbox.
    pub const fn is_listing(&self) -> bool {
        match self {
            Self::StateQuery(query) => query.is_listing(),
            Self::RowQuery(query) => query.is_listing(),
            Self::Admin(_) | Self::Job(_) | Self::Url(_) | Self::Visit(_) | Self::Move(_) => false,
        }
    }

    /// Whether it is in vain once its caller has left: nobody reads the list or asks for its next slice, and what is
    /// handed out would keep its group from others until it expires.
    pub const fn needs_caller(&self) -> bool {
        match self {
            Self::Visit(visit) => visit.needs_caller(),
            Self::StateQuery(_) | Self::RowQuery(_) => self.is_listing(),
            Self::Admin(_) | Self::Job(_) | Self::Url(_) | Self::Move(_) => false,
        }
    }
}

impl ServiceCall for Ask {
    type Response = Response;
    const SERVICE: Service = Service::Frontier;

    fn is_read_only(&self) -> bool {
        match self {
            Self::StateQuery(_) | Self::RowQuery(_) => true,
            Self::Admin(_) | Self::Job(_) | Self::Url(_) | Self::Visit(_) | Self::Move(_) => false,
        }
    }

    fn is_visit(&self) -> bool {
        match self {
            Self::Visit(visit) => visit.is_waited_for(),
            Self::StateQuery(_) | Self::RowQuery(_) | Self::Admin(_) | Self::Job(_) | Self::Url(_) | Self::Move(_) => {
                false
            }
        }
    }

    fn takes_permit(&self) -> bool {
        self.is_listing()
    }

    fn message(self, reply: Reply) -> Message {
        Message::Ask { ask: self, reply }
    }

    fn encode(&self, shard: ShardId) -> Result<Vec<u8>, String> {
        encode(&NodeCall::Ask { shard, ask: self.clone() })
    }
}
