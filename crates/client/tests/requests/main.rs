//! The client against servers that answer in every way.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

mod calls;
mod fleet;
mod several;
