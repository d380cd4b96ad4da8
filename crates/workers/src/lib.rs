//! The reference workers: a crawler, an index builder, an index server and a searcher, and their parts.
//!
//! The parts are small and can be used alone. None of them knows the API of chunks, leases or placements: a page comes in
//! as a URL and leaves as a record of a WARC file, a WARC file as an index, an index as an answer to a query. The workers
//! ([`crawler`], [`builder`],
//! [`index_server`], [`search`]) use them between two calls to a server, like any other client. Everything that comes from the web or
//! from another worker is bounded ([`limits`]).

pub mod builder;
pub mod charset;
pub mod crawler;
pub mod digest;
pub mod fetch;
pub mod fleet;
pub mod folder_lock;
mod html;
pub mod index;
pub mod index_server;
pub mod lease;
pub mod limits;
pub mod links;
pub mod pause;
pub mod robots;
pub mod scope;
pub mod search;
pub mod serving;
pub mod site;
pub mod store;
pub mod text;
pub mod warc;
