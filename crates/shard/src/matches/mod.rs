//! Matches as callers hold them: pools, their workers, and clients that ask for one. Each pool is kept by the owner of the
//! shard that its name hashes to, wherever that is. Its messages between nodes are a service of their own.
//!
//! Effects are fetched, not sent: a Maker waits for what each shard orders ([`Matches::orders`]) and tells the outcomes
//! ([`Matches::tell`]). What is waited for on other nodes comes with their beats: orders (`readiness`), and news of
//! clients (`news`).

pub(crate) mod call;
mod handle;
mod makers;
pub(crate) mod news;
pub(crate) mod readiness;

pub use call::{MatchPage, Orders, PoolPage, WorkerReport};
pub use handle::Matches;
