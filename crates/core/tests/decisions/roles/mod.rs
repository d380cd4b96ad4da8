//! Roles: transcripts, and a naive model against random histories.

mod agreement;
mod history;
mod slots;
mod story;
mod traps;
mod world;
