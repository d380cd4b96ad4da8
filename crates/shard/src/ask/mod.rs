//! What a shard can be asked, and what it tells: plain values, so that an owner on another node is asked in the same
//! words as one in this process.
//!
//! Calls are split by what they may do and what they need, and every match on them is exhaustive: a new call that nobody
//! handles does not compile.
//!
//! | | answered from memory | reads rows of the store |
//! |---|---|---|
//! | changes nothing | [`Look`] | [`Query`] |
//! | changes | [`AdminChange`], [`JobChange`] | [`UrlChange`], [`VisitCall`], [`HostMove`] |

mod change;
mod look;
mod told;
mod visit;

use serde::{Deserialize, Serialize};
use wayleave_core::names::HostName;

pub use change::Revoke;
pub(crate) use change::{AdminChange, HostMove, JobChange, UrlChange};
pub(crate) use look::{Look, Query, UrlPage, UrlPlace};
pub(crate) use told::{Slice, Told};
pub(crate) use visit::{Take, VisitCall};

/// One call to the owner of a shard.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Ask {
    Look(Look),
    Query(Query),
    Admin(AdminChange),
    Job(JobChange),
    Url(UrlChange),
    Visit(VisitCall),
    Move(HostMove),
}

/// Makes the way from each part to the whole.
macro_rules! parts {
    ($($variant:ident($part:ident),)+) => {
        $(
            impl From<$part> for Ask {
                fn from(part: $part) -> Self {
                    Self::$variant(part)
                }
            }
        )+
    };
}

parts! {
    Look(Look),
    Query(Query),
    Admin(AdminChange),
    Job(JobChange),
    Url(UrlChange),
    Visit(VisitCall),
    Move(HostMove),
}

impl Ask {
    /// The host that must live in the shard, else the call came to the wrong one.
    pub fn host(&self) -> Option<&HostName> {
        match self {
            Self::Look(look) => look.host(),
            Self::Query(query) => query.host(),
            Self::Admin(change) => change.host(),
            Self::Url(change) => change.host(),
            Self::Visit(visit) => visit.host(),
            // Jobs concern all hosts, and a move finds out for itself where its hosts live.
            Self::Job(_) | Self::Move(_) => None,
        }
    }

    /// Whether somebody waits who fetches pages.
    pub const fn is_visit(&self) -> bool {
        match self {
            Self::Visit(visit) => visit.is_waited_for(),
            Self::Look(_) | Self::Query(_) | Self::Admin(_) | Self::Job(_) | Self::Url(_) | Self::Move(_) => false,
        }
    }

    /// Whether it is a slice of a listing, which waits for everything else.
    pub const fn is_listing(&self) -> bool {
        match self {
            Self::Look(look) => look.is_listing(),
            Self::Query(query) => query.is_listing(),
            Self::Admin(_) | Self::Job(_) | Self::Url(_) | Self::Visit(_) | Self::Move(_) => false,
        }
    }

    /// Whether the answer changes nothing: if it is lost, the same may simply be asked again.
    pub const fn only_looks(&self) -> bool {
        match self {
            Self::Look(_) | Self::Query(_) => true,
            Self::Admin(_) | Self::Job(_) | Self::Url(_) | Self::Visit(_) | Self::Move(_) => false,
        }
    }
}
