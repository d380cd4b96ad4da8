//! The index of a chunk: one Tantivy index with the fields url, title, body and crawl.
//!
//! [`Builder`] writes it to a folder as one segment. [`pack`] makes one file of it, [`unpack`] a folder again, and
//! [`OpenIndexes`] searches any number of them as if they were one: BM25 with the statistics of all, one ranking, snippets. An index that
//! cannot be opened or searched is a [`Fault`], and the others are searched without it.
//!
//! The same pages in the same order give the same packed file, byte for byte: Tantivy names a segment at random, and
//! packing replaces that name by a digest of the segment.

mod build;
mod fault;
mod pack;
mod search;
mod stored;

use tantivy::schema::{Field, STORED, STRING, Schema, TEXT};

pub use build::{Builder, Page};
pub use fault::{Fault, contained};
pub use pack::{BadArchive, pack, unpack};
pub use search::{Failed, Found, Hit, OpenIndex, OpenIndexes, Query, Refused, Snippet};

/// Tantivy cannot do what it was asked to.
pub use tantivy::TantivyError as Error;

/// The fields of every chunk's index.
#[derive(Debug, Clone, Copy)]
struct Fields {
    url: Field,
    title: Field,
    body: Field,
    crawl: Field,
}

fn schema() -> (Schema, Fields) {
    let mut schema = Schema::builder();
    let fields = Fields {
        url: schema.add_text_field("url", STRING | STORED),
        title: schema.add_text_field("title", TEXT | STORED),
        // Stored for the snippets.
        body: schema.add_text_field("body", TEXT | STORED),
        crawl: schema.add_text_field("crawl", STRING | STORED),
    };
    (schema.build(), fields)
}

#[cfg(test)]
mod tests;
