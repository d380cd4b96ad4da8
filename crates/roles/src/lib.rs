//! Leader election: who is the primary of a role, decided on any node by one compare-and-swap in the store.
//!
//! Role rows are outside the shards. A call is one update of the registry: read the role with the store's own time, let
//! the core decide, write only if the rows are unchanged. So no in-memory state matters to who is primary: any number
//! of processes may do this concurrently, and the loss of one demotes no primary.
//!
//! **A heartbeat** reads the role, its standbys and the store's time and incarnation in one look; the core decides
//! acquire, renew or stand by; one compare-and-swap writes it. After a conflict all of it is done again; after an
//! unknown outcome the token in the row shows whether the write was applied. Then waiters are hinted: those of this
//! process look at once, those of other nodes after one message.
//!
//! This crate must not know HTTP, shards or a particular store. It serves candidates, callers and operators with
//! answers that are durable, or refusals.

mod config;
mod counters;
mod led;
mod list;
mod roles;
mod store;

pub use config::Config;
pub use counters::{Counters, Totals};
pub use led::{Lead, led};
pub use list::RolesPage;
pub use roles::{Roles, Wait, WaitFor};
