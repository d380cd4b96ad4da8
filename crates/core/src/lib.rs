//! Decides: command + facts + now → decision. Commands, facts and decisions are plain comparable values; the frontier,
//! the fleet, placement and matches also keep state, which they change in place (see [`frontier`], [`fleet`],
//! [`placement`], [`mod@matches`]).
//!
//! This crate must not know clocks, randomness, threads, async or I/O: `now` and random bits are arguments. It depends
//! on no other crate of this workspace.

pub mod asked;
pub mod cluster;
pub mod codec;
mod counted;
pub mod crawl_url;
pub mod fleet;
pub mod frontier;
pub mod ids;
pub mod invariants;
pub mod limits;
pub mod matches;
pub mod metadata;
pub mod names;
pub mod pipeline;
pub mod placement;
pub mod plain;
pub mod redact;
pub mod roles;
pub mod settings;
pub mod time;
pub mod whole;
mod words;
