//! What callers hold: the [`frontier::Frontier`] and every call on it. Each call is routed to the owners of the shards that it
//! concerns, or spread over all of them. Nothing is decided here.

pub(crate) mod cursor;
pub(crate) mod finished;
pub(crate) mod frontier;
pub(crate) mod jobs;
pub(crate) mod listing_permits;
pub(crate) mod ownership;
pub(crate) mod settings;
pub(crate) mod views;
pub(crate) mod visits;
