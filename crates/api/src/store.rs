//! The store of a server.

use serde::{Deserialize, Serialize};
use utoipa::IntoParams;

/// How to take a snapshot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct GetSnapshotQuery {
    /// Whether to leave out what cannot be read, and to name it at the end of the file; otherwise the snapshot fails.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub partial: Option<bool>,
}
