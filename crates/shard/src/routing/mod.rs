//! From a call to the owner that serves it: which node owns a shard, forwarding to other nodes, and admission control.

pub(crate) mod admission;
pub(crate) mod forward;
pub mod links;
pub(crate) mod move_hints;
pub mod protocol;
pub(crate) mod repeated_requests;
pub(crate) mod router;
pub(crate) mod service_call;
