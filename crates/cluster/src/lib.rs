//! Cluster membership: several Wayleave processes over one store. Nodes discover each other through the engine alone,
//! own shards by leases in it, and forward requests for shards that they do not own.
//!
//! It opens and closes the shards of a frontier, and knows the addresses of their owners. It must not know the HTTP
//! API, rows other than its own, or any particular store.

mod address;
mod beats;
pub mod claims;
mod dial;
mod join_error;
mod lapses;
mod lease_renewal;
mod member;
mod network;
mod seats;
mod service;

pub use beats::beats;
pub use dial::Dial;
pub use join_error::JoinError;
pub use member::{Member, NodeState, NodeView, Options, agree};
pub use network::Network;
pub use service::service;
pub use wayleave_registry::Hints;
