//! Matches: transcripts, bad input, random histories with crashes, and an exhaustive model against the order of steps of
//! the design that this one replaces.

mod bad_input;
mod corners;
mod exhaustive;
mod history;
mod replaced_order;
mod runtime;
mod story;
mod world;
