//! Starts real PostgreSQL servers for tests, breaks them on order, and leaves nothing behind.
//!
//! Only tests use this crate; it knows nothing of ours. It panics where something cannot be had: a test that cannot run
//! must be seen to fail.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "only tests run this"
)]

mod cluster;
mod guard;
mod proxy;
mod server;
mod tools;

pub use cluster::{Cluster, Options};
pub use proxy::{Fault, Proxy};
