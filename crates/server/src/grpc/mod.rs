//! The URLFrontier door: the protocol of existing crawlers, mapped on to the frontier.
//!
//! In: URLFrontier messages. Out: requests to the frontier, in the core's words, and its answers as messages again.
//! This room must not know how URLs are kept or when a host may be visited; it translates, it never decides.

mod convert;
mod delete;
mod get_stats;
mod get_urls;
mod health;
mod list_queues;
mod list_urls;
mod messages;
pub mod metrics;
mod pace;
mod put_discovered;
mod put_stream;
mod put_urls;
mod refused;
mod service;
mod slots;
mod switches;
mod url_status;

pub(crate) use messages::Messages;
pub use metrics::GrpcMetrics;
pub use service::{Nodes, routes};
