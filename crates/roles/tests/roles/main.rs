//! Roles over real engines: every scenario on memory and on disk, races between nodes, outages, lost responses, long
//! polls.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

mod failures;
mod led;
mod locked;
mod races;
mod slots;
mod stories;
mod support;
mod waiting;
