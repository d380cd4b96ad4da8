//! The URLFrontier API: the protocol of existing crawlers, mapped to the frontier.
//!
//! It converts URLFrontier messages to core types and the frontier's answers back. It must not know how URLs are stored
//! or when a host may be visited; it translates and never decides.

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
mod switches;
mod url_status;

pub(crate) use messages::Messages;
pub use metrics::GrpcMetrics;
pub use service::{Nodes, routes};
