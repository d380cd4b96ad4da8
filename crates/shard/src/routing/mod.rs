//! From a call to the owner that serves it: which node owns a shard, forwarding to other nodes, and admission control.
//!
//! Calls are plain values: they go to a local inbox, or as bytes to the owning node, which answers for its own shards only,
//! so nothing is forwarded twice. "Not here" makes the router look up the owner and retry within a bound. A lost answer
//! is reported as "outcome unknown" and never retried. Reservations and claims ask whole nodes, by the readiness that
//! each node streams.

pub(crate) mod admission;
pub(crate) mod forward;
pub mod links;
pub(crate) mod move_hints;
pub mod protocol;
pub(crate) mod repeated_requests;
pub(crate) mod router;
pub(crate) mod service_call;
