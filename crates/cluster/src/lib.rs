//! Cluster membership: several Wayleave processes over one store. Nodes discover each other through the engine alone,
//! own shards by leases in it, and forward requests for shards that they do not own.
//!
//! It opens and closes the shards of a frontier, and knows the addresses of their owners. It must not know the HTTP
//! API, rows other than its own, or any particular store.
//!
//! **A node dies.** Its lease expires by the store's clock. The others wake at that instant, compute the same plan from the
//! same rows (`wayleave_core::cluster`), and each takes its part of the free seats in one write that expects seats and
//! the dead node's row as seen ([`cluster_rows`]). Owning a shard raises its epoch, so whatever the dead node still sends is
//! fenced.
//!
//! **Two nodes believe that they own a shard.** Only the newer epoch commits. The other owner is fenced and cannot own the
//! shard again without its seat (`seats`). Its reads wait for a fenced commit while its node is unsure; a node whose
//! lease lapsed closes all owners from before the lapse, however soon it is renewed (`lapses`).

mod address;
pub mod cluster_rows;
mod dial;
mod join_error;
mod lapses;
mod lease_renewal;
mod membership;
mod network;
mod readiness_stream;
mod seats;
mod service;

pub use dial::Dial;
pub use join_error::JoinError;
pub use membership::{Membership, NodeState, NodeView, Options, agree};
pub use network::Network;
pub use readiness_stream::readiness_stream;
pub use service::service;
pub use wayleave_engine::format::VERSION as FORMAT;
pub use wayleave_registry::Hints;
