//! The doors as clients see them: HTTP, gRPC and pages, over a frontier in memory. One binary, so
//! that the crates under test are linked once.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

mod bad_input;
mod bounds_stories;
mod browsers;
mod chunk_stories;
mod document_stories;
mod examples;
mod fleet_stories;
mod floods;
mod generators;
mod keys_stories;
mod match_stories;
mod metrics_page;
mod one_port;
mod openapi;
mod placement_stories;
mod pool_stories;
mod prelude;
mod roles_stories;
mod secrets_stories;
mod steering_stories;
mod store_stories;
mod streaming;
mod support;
mod urlfrontier;
mod urlfrontier_differences;
mod urlfrontier_get;
mod urlfrontier_put;
mod urlfrontier_rest;
mod waits;
mod work_stories;
