//! The calls of a visit: taking URLs, keeping them, reporting on them.

use serde::{Deserialize, Serialize};
use wayleave_core::frontier::request::{HandOut, Release, Reserve};
use wayleave_core::ids::Token;
use wayleave_core::names::HostName;
use wayleave_core::time::Millis;

/// Taking URLs to visit. This may be asked of any shard, or of a node for all its shards.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Take {
    HandOut(HandOut),
    Reserve(Reserve),
}

/// A call of a visit.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum VisitCall {
    Take(Take),
    Release(Release),
    Renew {
        token: Token,
        lease: Millis,
    },
    /// Keeps a reservation alive while its release stores what was found on these pages; tells what that inherits.
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

    /// Whether a worker stands still until it is answered.
    pub(super) const fn is_waited_for(&self) -> bool {
        match self {
            Self::Take(_) | Self::Release(_) => true,
            Self::Renew { .. } | Self::Keep { .. } => false,
        }
    }
}
