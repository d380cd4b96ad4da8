//! Starts processes for tests, above all real PostgreSQL servers, injects faults into them, and leaves nothing behind.
//!
//! Only tests use this crate; it knows nothing about our code. It panics if something is unavailable: a test that
//! cannot run must fail visibly.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "only tests run this"
)]

mod cleanup;
mod cluster;
mod ports;
mod process;
mod proxy;
mod server;
mod template;
mod tools;

pub use cluster::{Cluster, Options};
pub use ports::free_port;
pub use process::Process;
pub use proxy::{Fault, Proxy};
