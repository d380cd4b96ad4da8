//! The HTTP API: routes, extractors, problems, documentation, health.
//!
//! It must not know how requests arrive (the accept loop does) nor how the frontier carries them out.

mod accepts;
mod app;
mod bounds;
mod choices;
mod examples;
mod extract;
mod guard;
mod health;
mod held;
mod lines;
mod map_body;
mod named;
mod observe;
mod openapi;
mod pages;
mod refused;
mod routes;
mod v1;
mod waiting;

pub use app::App;
pub(crate) use held::{deadline, waits_since};
pub use openapi::served_document;
pub use routes::router;
pub(crate) use waiting::{QUIET, Waiting};
