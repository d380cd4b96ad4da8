//! Keeps: the store of many nodes, the engine contract over PostgreSQL's wire.
//!
//! In go batches, out come answers once the database has committed them. Reads see batches before that, through an
//! overlay of what is in flight. This crate knows SQL, connections and the database's clock; it must not know what the
//! rows mean, nor any other engine. SQL is portable, so that databases that only speak the wire can serve too; what
//! only PostgreSQL itself has lies in `vendor.rs`, and the engine works without it. Sessions keep settings and prepared
//! statements, so a pooler before the database must leave a session to its client.

mod clock;
mod committer;
mod durability;
mod engine;
mod job;
mod link;
mod look;
mod open_error;
mod overlay;
mod own;
mod pipeline;
mod pool;
mod queue;
mod reads;
mod schema;
#[cfg(test)]
mod simulated;
mod statements;
mod target;
mod timekeeper;
mod timelines;
mod tls;
mod transaction;
mod transaction_batch;
mod trouble;
mod vendor;
mod wire;

pub use durability::Durability;
pub use engine::{Options, Postgres};
pub use open_error::OpenError;
