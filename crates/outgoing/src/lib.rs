//! Outgoing connections: which addresses this process may call, and clients that connect only there.
//!
//! Pages, robots.txt, artifacts, index servers, probes, workers of pools and members of roles are called at addresses that others
//! name. A [`Policy`] makes a [`Rule`] for each kind of call; a [`Connector`] applies it to the address that it connects to, after
//! the name was resolved, so that no later answer of a name server matters, and a redirect is checked like any other call. This
//! crate must not know what is fetched, and follows no redirect itself.

mod connector;
mod network;
mod rule;
mod target;

pub use connector::{Connector, HttpClient, http_client, refused};
pub use network::Network;
pub use rule::{Kind, Policy, Refused, Rule};
pub use target::{Target, Unresolved, lookup};
