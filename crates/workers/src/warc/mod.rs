//! WARC/1.1 files (ISO 28500): what a crawler fetched, one gzip member per record, one file per chunk.
//!
//! A file begins with a `warcinfo` record; each fetch adds a `response` and the `request` that led to it. Bodies are
//! recorded as received, with their content coding; only the chunking of HTTP/1.1 is gone. HTTP/2 is written as
//! HTTP/1.1, as other archives do, with `WARC-Protocol: h2`. Digests are SHA-256.
//!
//! Written here, not by a crate: `warc`, the one in use, reads a record of any announced size into memory, and brings
//! old versions of nom, uuid and chrono and a second implementation of deflate. What the workers need of the format
//! is small. A reader trusts nothing: sizes, numbers and digests are checked against [`crate::limits`].

mod read;
mod write;

pub use read::{Error, Kind, Reader, Record, Response};
pub use write::{Info, Writer, Written};

#[cfg(test)]
mod tests;
