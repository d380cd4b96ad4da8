//! What most tests of this binary name.

pub use std::collections::BTreeSet;
pub use std::sync::Arc;
pub use std::sync::atomic::Ordering;
pub use std::time::Duration;

pub use futures::FutureExt;
pub use tokio::sync::watch;
pub use wayleave_cluster::JoinError;
pub use wayleave_core::frontier::request::{Put, PutOutcome, Reservation, Reserve};
pub use wayleave_core::ids::{NodeId, ShardId};
pub use wayleave_core::settings::PaceChanges;
pub use wayleave_core::time::Millis;
pub use wayleave_engine::rows::node;
pub use wayleave_engine::{Batch, Commit, Engine, Look, Memory, Pending, Scan, Write};
pub use wayleave_shard::{Frontier, home};

pub use crate::support::{Node, SHARDS, TTL, World, ask, pass, put};
