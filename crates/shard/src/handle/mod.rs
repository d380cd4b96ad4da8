//! What callers hold: [`frontier::Frontier`] and its calls. Each call is routed to the owners of the shards it
//! concerns, or fanned out to all of them. No decisions are made here.

pub(crate) mod cursor;
pub(crate) mod finished;
pub(crate) mod frontier;
pub(crate) mod jobs;
pub(crate) mod listing_permits;
pub(crate) mod ownership;
pub(crate) mod settings;
pub(crate) mod views;
pub(crate) mod visits;
