//! The reference workers: a crawler, an index builder, an index server and a searcher, and their parts.
//!
//! **A page becomes a hit.** The crawler claims a chunk, fetches and reports its links, publishes a WARC file and completes
//! the chunk with its location. The builder claims the chunk, fetches and checks the file, publishes an index and completes.
//! In each row one index server finds the chunk among its placements, fetches and checks the index, and reports it ready.
//! The searcher reads the map and asks one server per chunk. Names of files carry a digest of the lease's token, so
//! attempts never share one.
//!
//! The parts are small and can be used alone. None of them knows the API of chunks, leases or placements: a page comes in
//! as a URL and leaves as a record of a WARC file, a WARC file as an index, an index as an answer to a query. The workers
//! ([`crawler`], [`builder`],
//! [`index_server`], [`search`]) use them between two calls to a server, like any other client. Everything that comes from the web or
//! from another worker is bounded ([`limits`]).

pub mod builder;
pub mod charset;
pub mod crawler;
pub mod demo_site;
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
pub mod store;
pub mod text;
pub mod warc;
