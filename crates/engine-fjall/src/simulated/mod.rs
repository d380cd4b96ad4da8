//! The embedded store on a simulated disk: the same journal, group commit, flush and folder as in production, with a
//! simulator scheduling every step and the LSM tree modelled as a store of tables.
//!
//! Nothing here is part of the product. It must not know what the rows mean.

mod disk;
mod engine;
mod node;
mod tables;

pub use disk::{Fault, SimDisk, SyncPoint};
pub use engine::{Reading, Simulated};
pub use tables::SimTables;

#[cfg(test)]
mod seeds_tests;
