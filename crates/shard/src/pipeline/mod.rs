//! The pipeline as callers hold it: chunks claimed, reported and ended, wherever the shard that they belong to is owned.
//! Its messages between nodes are a service of their own.

pub(crate) mod call;
mod claims;
mod departed;
mod handle;
pub(crate) mod readiness;

pub use handle::Pipeline;
