//! Keeps: the embedded store, the engine contract over fjall (a log-structured tree in pure Rust) in one folder.
//!
//! In go batches, out come answers once a group sync has made them durable in the journal. Rows stay in memory until there
//! are enough of them for a table; then they go to fjall in one sorted stream. This crate knows the folder, the files in
//! it and the machine's clocks; it must not know what the rows mean, nor any other engine.

mod arena;
mod background;
mod blocks;
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
mod restore;
#[cfg(any(test, feature = "simulation"))]
pub mod simulated;
mod snapshot;
mod snapshot_file;
mod store;
mod syncer;
mod tables;
mod timekeeper;
mod trouble;
mod watchdog;

pub use engine::{Fjall, Options};
pub use open_error::OpenError;
pub use restore::{RestoreError, restore};
pub use snapshot::Snapshot;
pub use snapshot_file::{SnapshotCounts, SnapshotError, SnapshotHeader, SnapshotReader};
