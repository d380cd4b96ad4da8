//! Builds an index.

use std::path::Path;

use tantivy::indexer::NoMergePolicy;
use tantivy::{Index, IndexWriter, TantivyDocument};

use super::{Error, Fields, schema};
use crate::limits::INDEX_MEMORY;

/// A page to index.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page<'a> {
    /// Its URL.
    pub url: &'a str,
    /// Its title.
    pub title: &'a str,
    /// Its text.
    pub body: &'a str,
    /// The crawl that it belongs to.
    pub crawl: &'a str,
}

/// Writes an index to a folder.
pub struct Builder {
    index: Index,
    writer: IndexWriter,
    fields: Fields,
}

impl std::fmt::Debug for Builder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Builder").field("index", &self.index).finish_non_exhaustive()
    }
}

impl Builder {
    /// Begins an index in an empty folder. Fails if there is an index already, or the folder cannot be written.
    pub fn create(folder: &Path) -> Result<Self, Error> {
        let (schema, fields) = schema();
        let index = Index::create_in_dir(folder, schema)?;
        // One thread keeps the order of the pages; merging in the background would not.
        let writer: IndexWriter = index.writer_with_num_threads(1, INDEX_MEMORY)?;
        writer.set_merge_policy(Box::new(NoMergePolicy));
        Ok(Self { index, writer, fields })
    }

    /// Adds a page.
    pub fn add(&mut self, page: &Page<'_>) -> Result<(), Error> {
        let mut document = TantivyDocument::default();
        document.add_text(self.fields.url, page.url);
        document.add_text(self.fields.title, page.title);
        document.add_text(self.fields.body, page.body);
        document.add_text(self.fields.crawl, page.crawl);
        self.writer.add_document(document)?;
        Ok(())
    }

    /// Makes the index durable, as one segment, and returns the number of its pages.
    pub fn finish(mut self) -> Result<u64, Error> {
        self.writer.commit()?;
        let segments = self.index.searchable_segment_ids()?;
        if segments.len() > 1 {
            self.writer.merge(&segments).wait()?;
            self.writer.garbage_collect_files().wait()?;
        }
        self.writer.wait_merging_threads()?;
        let metas = self.index.searchable_segment_metas()?;
        Ok(metas.iter().map(|segment| u64::from(segment.num_docs())).sum())
    }
}
