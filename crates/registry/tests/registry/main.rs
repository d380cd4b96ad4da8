//! The interleavings of the crate's header, on the memory engine and on a real PostgreSQL.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

mod lookups;
mod support;
mod updates;
mod watches;
