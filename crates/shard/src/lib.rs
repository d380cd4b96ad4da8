//! Runs the frontier: one owner task per shard drains its inbox, reads facts, lets the core decide, commits, and
//! replies once the commit is durable.
//!
//! Shards may be owned by several nodes; calls then reach their owners through [`routing::links::Links`].
//!
//! This crate must not know HTTP, gRPC, networks or any particular store. In: calls on [`Frontier`], the only handle.
//! Out: batches for an engine, and answers that are sent once what they say is durable.

mod ask;
mod cache;
pub mod config;
pub mod fleet;
mod handle;
#[cfg(test)]
mod layout_tests;
pub mod matches;
mod message;
mod owner;
mod patience;
pub mod pipeline;
mod routing;
mod shared;
mod spawn;

pub use ask::Revoke;
pub use config::Config;
pub use handle::frontier::Frontier;
pub use message::Outcomes;
pub use owner::owner_threads::OwnerThreads;
pub use patience::Patience;
pub use routing::links::{LinkError, Links};
pub use routing::protocol::Service;
pub use routing::router::{CallResult, home};
pub use shared::broadcast::{Broadcast, Subscriber};
pub use shared::damage_report::DamageReport;
pub use shared::deadline::{Deadline, Moment};
pub use shared::node_readiness::{Beats, NodeReadiness};
pub use spawn::Spawn;
