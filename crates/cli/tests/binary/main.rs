//! The built binary as people and programs use it: commands, servers that are killed, documents, a browser, containers. One
//! binary, so that the crates under test are linked once.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

mod browser;
mod chunks;
mod commands;
mod concurrent_matches;
mod containers;
mod copy;
mod damage;
mod descriptors;
mod documents;
mod early_signals;
mod elect;
mod export_import;
mod first_hour;
mod fleet;
mod full_disk;
mod generators;
mod great_crawl;
mod helpful_output;
mod hostile_files;
mod image;
mod killed_commands;
mod match_run;
mod match_wait;
mod pipeline;
mod pool_nodes;
mod pool_reasons;
mod pools;
mod prelude;
mod replaced;
mod roles;
mod schema;
mod serving;
mod sixteen_workers;
mod snapshot;
mod strangers;
mod support;
mod unit;
mod worker_guide;
mod workers;
