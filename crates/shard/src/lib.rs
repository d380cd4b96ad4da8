//! Runs: one owner task per shard drains commands, reads facts, lets the core decide, commits and then replies.
//!
//! Shards may be owned by several nodes; then calls go to the owners by [`routing::links::Links`].
//!
//! This crate must not know of HTTP, gRPC, networks or any particular store. In: requests through [`Frontier`], the one handle.
//! Out: batches for an engine, and answers that leave only when what they say is durable.

mod ask;
mod cache;
pub mod config;
mod handle;
#[cfg(test)]
mod layout_tests;
mod message;
mod owner;
mod routing;
mod shared;

pub use ask::Revoke;
pub use config::Config;
pub use handle::frontier::Frontier;
pub use message::Outcomes;
pub use owner::owner_threads::OwnerThreads;
pub use routing::links;
pub use routing::links::{LinkError, Links};
pub use routing::router::{Answer, home};
pub use shared::broadcast::{Broadcast, Subscriber};
pub use shared::deadline::{Deadline, Moment};
pub use shared::readiness::NodeReadiness;
