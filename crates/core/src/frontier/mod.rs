//! The frontier: which host may be visited now, by whom, and which of its URLs.
//!
//! This module decides. It must not know the time, where rows are stored, who asked, or how an answer is sent. In: a
//! request, the rows it needs, and *now*. Out: a reply, which is a plain value, and what must be written.
//!
//! Decisions are not free of side effects. [`State`] is changed in place, and a call changes it in several steps: it
//! pushes row writes into the caller's list, and notes which hot rows have changed in the state itself
//! (`State::take_changes`). The order matters in two ways. Within a list, a later write to the same row wins. And
//! decisions must be committed in the order in which they were made: each builds on the state that the ones before have
//! left. A refusal comes before the first change, so a refused call leaves nothing behind. If a commit fails, the
//! state is ahead of the store and must be dropped and loaded again; the owner of a shard does that.

pub mod bulk_job;
pub mod changes;
mod crawl_order;
mod crawl_view;
pub mod damage;
mod delete;
mod deleted;
mod expire;
mod explain;
mod finished;
mod hand_out;
mod hosts;
pub mod link;
pub mod listing;
pub mod load;
pub mod move_host;
mod pace;
pub mod page_ledger;
pub mod page_limits;
pub mod put;
mod queue;
pub mod readiness;
pub mod refusal;
mod release;
mod renew;
pub mod request;
pub mod requested;
pub mod requeue;
pub mod reserve;
mod revoke;

pub mod conclude_jobs;
pub mod row;
mod schedule;
mod self_check;
mod set;
mod slab;
mod state;
pub mod url_key;
mod url_view;
pub mod view;
pub mod visit;

pub use changes::Changes;
pub use state::{HostRoom, State};
