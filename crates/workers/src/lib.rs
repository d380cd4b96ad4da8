//! Parts of the reference workers: what a crawler, an index builder and an index server do between two calls to a server.
//!
//! Each module is small and can be used alone. None knows the API of chunks, leases or placements: a page comes in as a
//! URL and leaves as a record of a WARC file, a WARC file as an index, an index as an answer to a query. Everything that
//! comes from the web or from another worker is bounded ([`limits`]).

pub mod charset;
pub mod digest;
pub mod fetch;
mod html;
pub mod index;
pub mod limits;
pub mod links;
pub mod robots;
pub mod scope;
pub mod site;
pub mod store;
pub mod text;
pub mod warc;
