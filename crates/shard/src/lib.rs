//! Runs: one owner task per shard drains commands, reads facts, lets the core decide, commits and then replies.
//!
//! Shards may be owned by several nodes; then calls go to the owners by [`links::Links`].
//!
//! This crate must not know of HTTP, gRPC, networks or any particular store. In: requests through [`Frontier`], the one handle.
//! Out: batches for an engine, and answers that leave only when what they say is durable.

mod ask;
mod bell;
pub mod config;
mod crawl_beats;
mod crawl_turns;
mod cursor;
mod cycle;
mod deadline;
mod decide;
mod facts;
mod filter;
mod finished;
mod forward;
mod frontier;
mod handle;
mod head;
mod heads;
mod held;
mod host_count;
mod hot_log;
mod inbox;
mod jobs;
mod lanes;
#[cfg(test)]
mod layout_tests;
mod line;
pub mod links;
mod listing;
mod listings;
mod mark;
mod message;
mod moving;
mod open;
mod owed;
mod owner;
mod ownership;
mod page_shares;
mod pieces;
mod pulse;
mod put;
mod rarely;
mod recent;
mod refusing;
mod requests;
mod revoke;
mod rework;
mod right_of_way;
mod router;
mod run;
mod seen;
mod settings;
mod sweep;
mod term;
mod totals;
mod views;
mod visits;

pub use ask::Revoke;
pub use bell::{Bell, Listener};
pub use config::Config;
pub use deadline::{Deadline, Moment};
pub use frontier::Frontier;
pub use lanes::Lanes;
pub use links::{LinkError, Links};
pub use message::Outcomes;
pub use pulse::NodeBeat;
pub use router::{Answer, home};
