//! Elects: who is the primary of a role, from any node, by one conditional write to the store.
//!
//! Role rows lie outside the shards. A call reads the role with the store's own time, lets the core decide, and writes what
//! it decided only if the rows are still the same; else it reads and decides again. So nothing that is kept in memory here
//! matters to who is primary: any number of processes may do this at once, and the loss of one demotes nobody.
//!
//! This crate must not know HTTP, shards or a particular store. In: asks of candidates, callers and operators. Out: answers
//! that are durable, or refusals.

mod config;
mod counters;
mod list;
mod locks;
mod roles;
mod store;
mod watch;

pub use config::{Changed, Config};
pub use counters::{Counters, Totals};
pub use list::RolesPage;
pub use roles::{Roles, Wait, WaitFor};
