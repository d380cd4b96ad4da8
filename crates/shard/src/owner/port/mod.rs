//! What every service of a shard reaches the store, the clock and its callers through: [`Port`]. It makes the commits of the
//! shard one after the other, under its fence, and knows which answers wait for them. It must not know a service.

mod answers;
mod commits;
pub(crate) mod cycle;
pub(crate) mod hot_log;
mod read_only;
pub(crate) mod term;

pub(crate) use answers::{Decided, Pending};
pub(crate) use commits::Port;
