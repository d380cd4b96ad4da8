//! The embedded store: implements the engine contract over the LSM tree of fjall (pure Rust) in one folder.
//!
//! A batch is acknowledged once group commit has made it durable in a write-ahead journal. Its rows stay in memtables
//! until a flush writes them to the tree as one sorted table. This crate knows the folder, its files and the machine's
//! clocks. It must not know what the rows mean, nor any other engine.
//!
//! | question | module |
//! |---|---|
//! | When is a batch durable, and who syncs? | `store`, `group_commit`, `syncer`, `journal` |
//! | How do rows get from memory to tables, and tables together? | `memtable`, `flusher`, `lsm`, `merger`; merges around damage: `around` |
//! | What is a torn tail, and what is damage? | `replay`, `manifest`, `scrub`, `careful` |
//! | What does a repair drop, and what can be salvaged? | `repaired`; `salvaged`, `versions`, `rebuilt_tables`, `table_blocks` |
//! | What if the disk is full or hangs? | `watchdog` |
//! | How is a store copied? | `snapshot`, `bulk_load`. The result has a new *incarnation*, so roles treat it like a store after failover. |

mod arena;
mod around;
mod background;
mod blocks;
mod bulk_load;
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
mod journal_damage;
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
mod row_reader;
mod salvaged;
mod scrub;
#[cfg(any(test, feature = "simulation"))]
pub mod simulated;
mod snapshot;
mod store;
mod syncer;
mod table_blocks;
mod tables;
mod timekeeper;
mod trouble;
mod versions;
mod watchdog;

pub use bulk_load::{BulkLoad, LoadError, is_copied, settle};
pub use check::{CheckReport, CheckedFile, check};
pub use engine::{Fjall, Numbers, Options};
pub use open_error::OpenError;
pub use snapshot::Snapshot;
