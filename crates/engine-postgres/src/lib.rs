//! The store shared by many nodes: implements the engine contract over the PostgreSQL wire protocol.
//!
//! A batch is acknowledged once the database has committed it. Reads see it before that, through an overlay of batches
//! in flight. This crate knows SQL, connections and the database's clock. It must not know what the rows mean, nor any
//! other engine. The SQL is portable, so that databases that only speak the wire protocol work too; what only
//! PostgreSQL itself has is in `vendor.rs`, and the engine works without it. Sessions keep settings and prepared
//! statements, so a connection pooler must use session pooling.
//!
//! All queued batches become one pipelined transaction in one round trip: advance the fences, check expectations under
//! row locks, write in key order, commit (`transaction`). A failed check raises division_by_zero and aborts the
//! transaction; bisection finds the failing batch, and the fence resolves a lost answer (`committer`). Whether COMMIT
//! waits for a standby is in `durability` and `vendor`. Node leases have their own committer and connections, so neither
//! slow reads nor many commits delay a lease.

mod bulk_load;
mod clock;
mod committer;
mod durability;
mod engine;
mod identity;
mod look;
mod open_error;
mod overlay;
mod own;
mod past_damage;
mod pending_batch;
mod pipeline;
mod pool;
mod queue;
mod reader;
mod reads;
mod schema;
mod session;
#[cfg(test)]
mod simulated;
mod statements;
mod target;
pub mod timekeeper;
mod timelines;
mod tls;
mod transaction;
mod transaction_batch;
mod trouble;
mod vendor;
mod wire;

pub use bulk_load::BulkLoad;
pub use durability::Durability;
pub use engine::{Options, Postgres};
pub use identity::settle;
pub use open_error::OpenError;
pub use reader::Reader;
