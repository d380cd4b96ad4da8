//! Makers carry out the orders of pools. A [`Maker`] fetches orders, starts and stops workers through a [`Runtime`], calls
//! workers, and reports the outcomes.
//!
//! Nothing is decided here: `core::matches` decides which worker is started, asked or stopped, and its decisions are durable
//! before they arrive. This crate must not know shards, stores or the API. Every failure becomes a reported reason; nothing
//! is fatal, and pools repeat lost orders.

mod calls;
mod limits;
mod listening;
mod maker;
pub mod private;
pub mod process_name;
pub mod runtime;

pub use calls::{Calls, RESERVATION_HEADER, RESERVATION_MS_HEADER};
pub use listening::await_listening;
pub use maker::{Maker, Pools, Site};
pub use runtime::{Failure, Runtime};
