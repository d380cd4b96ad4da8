//! The wire types of the native API, their conversions to and from core types, and the public error codes.
//!
//! Server and client use the same types. Parsing checks every limit, and errors name the field. This crate must not
//! know sockets, handlers, shards or stores.

mod artifact;
pub mod bad_value;
mod bounded;
pub mod bounds;
mod chunk_list;
pub mod chunks;
mod continue_mode;
pub mod crawls;
pub mod fleet;
pub mod groups;
pub mod hosts;
pub mod jobs;
pub mod listing;
pub mod map;
pub mod matches;
pub mod metadata;
pub mod nearest;
pub mod node;
pub mod nodes;
pub mod object;
mod pace;
pub mod patch;
pub mod placements;
mod pool_workers;
pub mod pools;
pub mod problem;
mod release_role;
pub mod reservations;
mod revisit;
pub mod roles;
mod slots;
pub mod stats;
pub mod store;
pub mod time;
mod typed;
pub mod urlfrontier;
pub mod urls;
pub mod wording;
mod words;

pub use bad_value::BadValue;
pub use patch::Patch;
pub use problem::{Code, Problem};
pub use time::Timestamp;
pub use wayleave_core::{limits, redact};
