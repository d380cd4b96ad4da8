//! The built binary as people and programs use it: commands, servers that are killed, documents, a browser, containers. One
//! binary, so that the crates under test are linked once.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

mod bombs;
mod browser;
mod chunks;
mod commands;
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
mod image;
mod kill_loop;
mod killed_commands;
mod manners;
mod match_run;
mod match_wait;
mod pipeline;
mod pool_nodes;
mod pool_reasons;
mod pools;
mod replaced;
mod roles;
mod rush;
mod schema;
mod serving;
mod sixteen_workers;
mod snapshot;
mod strangers;
mod support;
mod unit;
mod worker_guide;
mod workers;
