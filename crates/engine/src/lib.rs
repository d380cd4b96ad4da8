//! Defines the engine contract, the row kinds with their codecs, the in-memory reference engine, and the conformance
//! suite that every engine must pass.
//!
//! This crate must not know any particular store, nor shards, servers or requests.

pub mod batch;
pub mod clock;
pub mod contract;
pub mod entropy;
pub mod error;
pub mod fences;
pub mod format;
pub mod health;
pub mod memory;
pub mod rows;
pub mod salvage;
pub mod snapshot_file;
pub mod suite;
pub mod transplant;

pub use batch::{Batch, Expect, Fence, Key, Look, Row, Scan, Value, Write};
pub use contract::{Commit, Engine, Pending};
pub use entropy::Entropy;
pub use error::Error;
pub use health::Health;
pub use memory::Memory;
