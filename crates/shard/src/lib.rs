//! Runs: one owner task per shard drains commands, reads facts, lets the core decide, commits and then replies.
//!
//! This crate must not know of HTTP, gRPC or any particular store. In: requests through [`Frontier`], the one handle.
//! Out: batches for an engine, and answers that leave only when what they say is durable.

pub mod config;
mod cursor;
mod cycle;
mod facts;
mod filter;
mod frontier;
mod handle;
mod heads;
mod hot_log;
mod inbox;
mod listing;
mod message;
mod moving;
mod open;
mod owner;
mod pulse;
mod put;
mod recent;
mod router;
mod settings;
mod sweep;
mod views;

pub use config::Config;
pub use frontier::Frontier;
pub use message::Outcomes;
pub use router::{Answer, home};
