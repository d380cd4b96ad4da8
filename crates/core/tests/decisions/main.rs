//! What the core decides: stories as transcripts, and random commands against naive models. What measures memory has a binary of
//! its own, `memory`.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, reason = "a test fails by panicking")]
#![allow(clippy::disallowed_types, clippy::disallowed_methods, reason = "tests read files and may use any collection")]

#[macro_use]
mod transcript;

mod chunks;
mod fleet;
mod matches;
mod page_limits;
mod placement;
mod properties;
mod quotas;
mod roles;
mod story;
mod support;
mod transcripts;
mod weights;
