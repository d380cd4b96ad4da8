//! Runs: one owner task per shard drains commands, reads facts, lets the core decide, commits and then replies.
//!
//! This crate must not know of HTTP, gRPC or any particular store.

pub mod frontier;

pub use frontier::Frontier;
