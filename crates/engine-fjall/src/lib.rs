//! The embedded store: implements the engine contract over fjall (an LSM tree in pure Rust) in one folder.
//!
//! A batch is acknowledged once group commit has made it durable in a write-ahead journal. Its rows stay in memtables
//! until a flush writes them to fjall as one sorted table. This crate knows the folder, its files and the machine's
//! clocks. It must not know what the rows mean, nor any other engine.

mod arena;
mod background;
mod blocks;
mod bulk_load;
mod clock;
mod db_journal;
mod disk;
mod engine;
mod fence_row;
mod flusher;
mod folder;
mod group_commit;
mod journal;
mod loading;
mod memtable;
mod open_error;
mod partitions;
mod reads;
mod record;
mod replay;
#[cfg(any(test, feature = "simulation"))]
pub mod simulated;
mod snapshot;
mod store;
mod syncer;
mod tables;
mod timekeeper;
mod trouble;
mod watchdog;

pub use bulk_load::{BulkLoad, LoadError};
pub use engine::{Fjall, Options};
pub use open_error::OpenError;
pub use snapshot::Snapshot;
