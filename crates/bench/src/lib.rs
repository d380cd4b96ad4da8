//! The benchmark: drives a frontier through its public APIs and compares it with a null server in the same run.
//!
//! It prints a table of rates and latencies, as ratios that hold on any machine. It must not know how any server works
//! inside; it uses the wire protocols like any client, and asks the kernel for a process's resource usage.

mod args;
mod chunks;
mod churn;
mod codec;
mod get;
mod herds;
mod latency;
mod matches;
mod native;
mod null;
mod null_native;
mod process;
mod put;
mod report;
mod rounds;
mod scenario;
mod source;
mod target;
mod wire;

pub use args::BenchArgs;
pub use null::{NullServer, serve_null};
pub use report::{Line, Measured};
pub use rounds::{measure, run};
pub use target::Unreachable;
