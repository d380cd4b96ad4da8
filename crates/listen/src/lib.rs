//! Accepts connections for every port of Wayleave, the server's and the workers': HTTP/1.1 and HTTP/2 without TLS,
//! bounded in number, time and memory, and only under host names that a web page cannot rebind to the process.
//!
//! A router goes in, connections come and go. It must not know what is served, nor any type of the API.

pub mod bounds;
pub mod budget;
mod coalescing_stream;
mod connection_limit;
pub mod guard;
pub mod plain;
pub mod repeated;
pub mod responses;
pub mod serve;
pub mod waits;

pub use bounds::Bounds;
pub use budget::{Budget, Share};
pub use guard::{Foreign, Guard, proxy_header};
pub use repeated::Repeated;
pub use responses::ResponseInFlight;
pub use serve::{ClientAddress, Shared, serve};
pub use waits::{Caller, Wait, Waits};
