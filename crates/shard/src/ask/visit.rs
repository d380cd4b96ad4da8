//! The calls that make up a visit: take URLs, renew, report results.

use serde::{Deserialize, Serialize};
use wayleave_core::frontier::request::{HandOut, Release, Reserve};
use wayleave_core::ids::Token;
use wayleave_core::names::HostName;
use wayleave_core::time::Millis;

/// Takes URLs to visit. Can be sent to one shard, or to a node for whichever of its shards is ready.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Take {
    HandOut(HandOut),
    Reserve(Reserve),
}

/// A call that is part of a visit.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum VisitCall {
    Take(Take),
    Release(Release),
    Renew {
        token: Token,
        lease: Millis,
    },
    /// Extends a reservation while its release stores the links found on these pages. Returns what those links inherit.
    Keep {
        token: Token,
        lease: Millis,
        pages: Vec<Box<str>>,
    },
}

impl VisitCall {
    pub(super) const fn host(&self) -> Option<&HostName> {
        match self {
            Self::Take(Take::HandOut(request)) => request.host.as_ref(),
            Self::Take(Take::Reserve(_)) | Self::Release(_) | Self::Renew { .. } | Self::Keep { .. } => None,
        }
    }

    /// Whether it is in vain once its caller has left. A request with an id is granted for its repetition.
    pub(super) const fn needs_caller(&self) -> bool {
        match self {
            Self::Take(Take::HandOut(_)) => true,
            Self::Take(Take::Reserve(request)) => request.request.is_none(),
            Self::Release(_) | Self::Renew { .. } | Self::Keep { .. } => false,
        }
    }

    /// Whether a worker is blocked until this call is answered.
    pub(super) const fn is_waited_for(&self) -> bool {
        match self {
            Self::Take(_) | Self::Release(_) => true,
            Self::Renew { .. } | Self::Keep { .. } => false,
        }
    }
}
