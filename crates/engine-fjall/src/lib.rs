//! Keeps: the embedded store, the engine contract over fjall (a log-structured tree in pure Rust) in one folder.
//!
//! In go batches, out come answers once a group sync has made them durable. This crate knows the folder, the files in
//! it and the machine's clocks; it must not know what the rows mean, nor any other engine.

mod clock;
mod engine;
mod fence_row;
mod folder;
mod journal;
mod open_error;
mod syncer;
mod timekeeper;
mod trouble;

pub use engine::{Fjall, Options};
pub use open_error::OpenError;
