//! Elections against servers that are slow, silent or wrong.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

mod long_polls;
mod no_overlap;
mod stopping;
