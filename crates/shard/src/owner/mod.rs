//! The owner of a shard: receives calls, reads the facts they need, lets the core decide, commits, and answers once the
//! commit is durable.
//!
//! [`owner_loop::Owner`] has what every shard needs and four services: [`frontier`], [`pipeline`], [`control`] and [`pools`].
//! Each has its memory to itself, in a folder of its own, and reaches the store, the clock and its callers through the
//! [`port`] alone. The pipeline may use the frontier, and no other service another one.

pub(crate) mod control;
mod courier;
pub(crate) mod frontier;
pub(crate) mod inbox;
pub(crate) mod limited_log;
pub(crate) mod open;
pub(crate) mod owner_loop;
pub(crate) mod owner_threads;
pub(crate) mod pipeline;
pub(crate) mod pools;
pub(crate) mod port;
pub(crate) mod read_facts;
pub(crate) mod run;
