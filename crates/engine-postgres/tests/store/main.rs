//! What the conformance suite cannot show: several nodes on one database, outages, lost responses, failover, and how a
//! store opens.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "everything here is part of a test"
)]

mod against_memory;
mod clock_steps;
mod faults;
mod loads;
mod locks;
mod many_nodes;
mod opening;
mod outages;
mod resolving;
mod stream;
mod timelines;
mod tls;

use wayleave_engine_postgres::{Options, Postgres};

/// Opens a store that must open.
async fn open(url: &str) -> Postgres {
    Postgres::open(url, Options::default()).await.unwrap()
}
