//! Makers: they carry out what pools order. A [`Maker`] fetches orders from pools, starts and ends workers through a
//! [`Runtime`], calls workers, and tells pools what came of it.
//!
//! Nothing is decided here: which worker is made, asked or ended is `core::matches`' business, and what it orders is
//! durable before it comes here. This crate must not know shards, stores or the API. Whatever goes wrong becomes a
//! reason that is told; nothing is fatal, and what is lost is ordered again.

mod calls;
mod listening;
mod maker;
pub mod runtime;

pub use calls::{Calls, RESERVATION_HEADER, RESERVATION_MS_HEADER};
pub use listening::await_listening;
pub use maker::{Maker, Pools, Site};
pub use runtime::{Failure, Runtime};
