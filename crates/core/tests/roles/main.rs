//! Roles: transcripts, and a naive model against random histories.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::disallowed_methods)]

mod agreement;
mod history;
mod slots;
mod story;
mod traps;
mod world;
