//! Matches as callers hold them: pools, their workers, and clients that ask for one. Each pool is kept by the owner of the
//! shard that its name hashes to, wherever that is. Its messages between nodes are a service of their own.
//!
//! Effects are fetched, not sent: a Maker holds a long poll per shard ([`Matches::orders`]) and tells the outcomes
//! ([`Matches::tell`]).

pub(crate) mod call;
mod handle;
mod makers;

pub use call::{MatchPage, Orders, PoolPage, WorkerReport};
pub use handle::Matches;
