//! The proofs: seeds of the simulator, models checked within bounds, real nodes and disks that fail, and fixtures of the storage format.
//!
//! One binary, so that the crates under test are linked once. `cargo xtask verify` runs `three_nodes` and `timed_model` beside
//! everything else, each in a process of its own.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

mod fixtures;
mod kill_loop;
mod load;
mod parallel_seeds;
mod power_cut;
mod prelude;
mod processes;
mod seeds;
mod three_nodes;
mod timed_model;
mod upgrade;
