//! What most tests of this binary name.

pub use std::collections::{BTreeMap, BTreeSet};
pub use std::hash::Hash;
pub use std::ops::Range;
pub use std::path::{Path, PathBuf};
pub use std::sync::Arc;
pub use std::sync::atomic::Ordering;
pub use std::time::{Duration, Instant};

pub use futures::StreamExt;
pub use rustix::process::Signal;
pub use stateright::{Model, Property};
pub use tempfile::TempDir;
pub use tokio::task::JoinHandle;
pub use wayleave_api::Patch;
pub use wayleave_api::crawls::SetCrawlRequest;
pub use wayleave_api::reservations::{
    ReleaseReservationRequest, RenewReservationRequest, Reservation, ReserveGroupsRequest,
};
pub use wayleave_api::roles::{GetRoleQuery, HeartbeatRequest, SetRoleRequest};
pub use wayleave_api::urls::{AddStatus, AddUrlsRequest, UrlState, UrlToAdd};
pub use wayleave_client::{Client, Retry};
pub use wayleave_core::ids::{Epoch, NodeId, ShardId, Token};
pub use wayleave_core::invariants::Span;
pub use wayleave_core::settings::Change;
pub use wayleave_core::time::{Millis, Time};
pub use wayleave_elect::{Candidate, Effect, Moment};
pub use wayleave_engine::{Batch, Engine, Fence, Row, Scan, Write};
pub use wayleave_testbed::Process;
