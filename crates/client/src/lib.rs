//! A client of the native HTTP API, and of the one URLFrontier call that restores completed URLs.
//!
//! It takes and returns the API's own types, or an error with the server's problem. It knows which requests may be
//! retried; it must not know how a server decides or stores anything.

mod add_lines;
mod call;
mod chunks;
mod client;
mod crawls;
mod error;
mod fleet;
mod groups;
mod hosts;
mod jobs;
mod lines;
mod list_lines;
mod matches;
mod nodes;
mod pages;
mod placements;
mod pools;
mod put_items;
mod reservations;
mod retry;
mod roles;
mod servers;
mod snapshot;
mod stats;
mod urls;
mod waiting;
mod window;

pub use add_lines::Uploaded;
pub use call::Repeat;
pub use client::Client;
pub use error::Error;
pub use jobs::ReworkResponse;
pub use put_items::{ItemStatus, PutItems};
pub use retry::Retry;
pub use waiting::Waiting;
