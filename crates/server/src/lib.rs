//! Listens: HTTP/JSON, gRPC, metrics and health on one port, with limits in front.
//!
//! This crate must not know how anything is decided or kept: it parses what arrives into the core's values, asks the
//! frontier and tells the answer. In: bytes of many connections. Out: answers, problems with stable codes, logs, numbers.

mod answers;
pub mod budget;
mod coalescing_stream;
pub mod config;
mod connection_slots;
pub mod grpc;
pub mod http;
pub mod metrics;
pub mod peers;
mod repeated;
pub mod server;
pub mod store;

pub use config::Config;
pub use metrics::Metrics;
pub use peers::Peers;
pub use server::{Port, Server};
pub use store::{Health, Store};
