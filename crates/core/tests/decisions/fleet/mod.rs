//! The fleet: transcripts, bad input, and a naive model against random histories.

mod bad_input;
mod history;
mod lasting;
mod probing;
mod story;
pub mod world;
