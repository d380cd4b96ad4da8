//! Keeps: the engine contract in our own words, the rows and their codecs, the memory engine that is the reference,
//! and the conformance suite that every engine must pass.
//!
//! This crate must not know of any particular store, nor of shards, servers or requests.

pub mod batch;
pub mod clock;
pub mod contract;
pub mod entropy;
pub mod error;
pub mod fences;
pub mod health;
pub mod memory;
pub mod rows;
pub mod suite;

pub use batch::{Batch, Expect, Fence, Key, Look, Row, Scan, Value, Write};
pub use contract::{Commit, Engine, Pending};
pub use entropy::Entropy;
pub use error::Error;
pub use health::Health;
pub use memory::Memory;
