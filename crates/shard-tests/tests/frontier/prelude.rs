//! What most tests of this binary name.

pub use std::collections::{BTreeMap, BTreeSet};
pub use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
pub use std::sync::{Arc, Mutex};
pub use std::time::Duration;

pub use futures::FutureExt;
pub use tokio::task::JoinHandle;
pub use tokio::time::Instant;
pub use wayleave_core::frontier::bulk_job::JobState;
pub use wayleave_core::frontier::refusal::Refusal;
pub use wayleave_core::frontier::request::{
    HandOut, Outcome, Put, PutKind, PutOutcome, Release, Reservation, Reserve, UrlResult,
};
pub use wayleave_core::frontier::requeue::BulkAction;
pub use wayleave_core::frontier::view::{State, UrlFilter, UrlState};
pub use wayleave_core::ids::{ChunkId, ShardId, Token};
pub use wayleave_core::matches::{MatchStage, PoolSpec, RuntimeKind};
pub use wayleave_core::names::PoolName;
pub use wayleave_core::pipeline::request::{Claim, Claimed, EndChunk, OperatorAction, ReportLinks, Stage};
pub use wayleave_core::pipeline::row::{Artifact, ChunkState};
pub use wayleave_core::pipeline::view::ChunkFilter;
pub use wayleave_core::settings::{Change, CrawlChanges, PaceChanges, Revisit};
pub use wayleave_core::time::{Millis, Time};
pub use wayleave_engine::memory::LostAnswer;
pub use wayleave_engine::rows::{Kind, key};
pub use wayleave_engine::{Batch, Commit, Engine, Memory, Row, Scan};
pub use wayleave_shard::pipeline::Pipeline;
pub use wayleave_shard::{Config, Frontier, Revoke, home};
