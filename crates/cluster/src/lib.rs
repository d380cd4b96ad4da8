//! Joins: several Wayleave processes over one store. Nodes find each other through the engine alone, own shards by leases
//! in it, and forward to each other what they do not own.
//!
//! In: an engine, a frontier, a way to other nodes. Out: shards opened and closed, and the addresses of their owners.
//! This crate must not know of HTTP's resources, of rows other than its own, or of any particular store.

mod address;
mod beats;
pub mod claims;
mod dial;
mod join_error;
mod lapses;
mod lease_renewal;
pub mod local;
mod member;
mod network;
mod pause;
mod seats;
mod service;

pub use beats::beats;
pub use dial::Dial;
pub use join_error::JoinError;
pub use member::{Member, NodeState, NodeView, Options, agree};
pub use network::Network;
pub use service::{Hints, service};
