//! The embedded store: implements the engine contract over the LSM tree of fjall (pure Rust) in one folder.
//!
//! A batch is acknowledged once group commit has made it durable in a write-ahead journal. Its rows stay in memtables
//! until a flush writes them to the tree as one sorted table. This crate knows the folder, its files and the machine's
//! clocks. It must not know what the rows mean, nor any other engine.

mod arena;
mod around;
mod background;
mod blocks;
mod bulk_load;
mod careful;
mod check;
mod clock;
mod damage;
mod disk;
mod engine;
mod fence_row;
mod flusher;
mod folder;
mod group_commit;
mod journal;
mod journal_reader;
mod loading;
mod lsm;
mod manifest;
mod memtable;
mod merger;
mod open_error;
mod orphans;
mod own_rows;
mod partitions;
pub mod private;
mod reads;
mod rebuilt_tables;
mod record;
mod repaired;
mod replay;
mod salvaged;
mod scrub;
#[cfg(any(test, feature = "simulation"))]
pub mod simulated;
mod snapshot;
mod store;
mod syncer;
mod tables;
mod timekeeper;
mod trouble;
mod versions;
mod watchdog;

pub use bulk_load::{BulkLoad, LoadError};
pub use check::{CheckReport, CheckedFile, check};
pub use engine::{Fjall, Numbers, Options};
pub use open_error::OpenError;
pub use snapshot::Snapshot;
