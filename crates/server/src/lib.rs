//! The server: HTTP/JSON, gRPC, metrics and health on one port, with limits in front.
//!
//! It parses requests into core types, calls the frontier or the roles, and renders their answers, problems with stable
//! codes, logs and metrics. It must not know how anything is decided or stored.

pub mod config;
pub mod grpc;
pub mod http;
pub mod metrics;
pub mod peers;
pub mod server;
pub mod services;
pub mod store;
pub mod worker_logs;

pub use config::Config;
pub use metrics::Metrics;
pub use peers::Peers;
pub use server::{Port, Server};
pub use services::Services;
pub use store::{Health, Store};
pub use worker_logs::{KeptLog, LogOf, WorkerLogs};
