//! Several nodes over one store, in one process and on tokio's paused clock: real calls between them, and links that
//! are cut.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "helpers of tests may fail loudly"
)]

mod crawl_settings;
mod fleet;
mod formats;
mod herds;
mod hints;
mod in_flight;
mod lapse;
mod late_renewal;
mod limited_crawls;
mod locked;
mod page_limits;
mod prelude;
mod same_address;
mod stories;
mod support;
mod unopened;
