//! Several nodes over one store, in one process and on tokio's paused clock: real calls between them, and links that
//! are cut.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "helpers of tests may fail loudly"
)]

mod fleet;
mod herds;
mod hints;
mod in_flight;
mod lapse;
mod late_sign;
mod locked;
mod page_limits;
mod same_address;
mod stories;
mod support;
