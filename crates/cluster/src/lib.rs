//! Cluster membership: several Wayleave processes over one store. Nodes discover each other through the engine alone,
//! own shards by leases in it, and forward requests for shards that they do not own.
//!
//! It opens and closes the shards of a frontier, and knows the addresses of their owners. It must not know the HTTP
//! API, rows other than its own, or any particular store.

mod address;
pub mod claims;
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
pub use wayleave_registry::Hints;
