//! Reads chunks by id, for listings. A chunk has from one to thousands of links, so a slice ends after so many
//! links as well as after so many rows, and is read in steps: each reads as many rows as should fit by what was read before.
//!
//! Chunks in progress and chunks at rest are two kinds of rows, each in the order of ids. A step reads both from the same id
//! on and keeps what lies before the end of the shorter one; the rest is read again, and counts as work of this slice.

use wayleave_core::ids::ChunkId;
use wayleave_core::limits::SLICE_ROWS;
use wayleave_core::pipeline::row::ChunkRow;
use wayleave_core::pipeline::view::{ChunkFilter, ChunkView};
use wayleave_engine::rows::{Kind, chunk, key};
use wayleave_engine::{Error, Scan};

use crate::owner::chunk_rows;
use crate::owner::owner_loop::Owner;
use crate::pipeline::call::ChunkPage;

/// Rows of each kind that a slice reads at most.
const ROWS_MAX: usize = 256;
/// Links of a slice of a listing, about: they are only counted.
const LISTED_LINKS: usize = 4 * SLICE_ROWS;

/// The chunks of a slice by id, and the id up to which none is missing; none at the end.
pub(super) type Slice = (Vec<ChunkRow>, Option<ChunkId>);

/// What the steps of a slice have read, with what is read again.
#[derive(Clone, Copy, Debug, Default)]
struct Read {
    rows: usize,
    links: usize,
}

impl Read {
    /// How many rows of each kind to read next; none if the slice is full.
    fn next(self) -> Option<usize> {
        // Chunks may be of any length: the first step must not be too long if they are long.
        const LONG: usize = 500;
        if self.rows == 0 {
            return Some((LISTED_LINKS / LONG).max(1));
        }
        if self.rows >= ROWS_MAX || self.links >= LISTED_LINKS {
            return None;
        }
        let each = self.links.div_ceil(self.rows).max(1);
        Some(((LISTED_LINKS - self.links) / each).clamp(1, ROWS_MAX - self.rows))
    }
}

impl Owner {
    /// The chunks after this one, at least one if there is any.
    pub(super) async fn chunk_slice(&mut self, after: Option<ChunkId>) -> Result<Slice, Error> {
        let (mut all, mut known_to, mut read) = (Vec::new(), after, Read::default());
        while let Some(most) = read.next() {
            let (rows, next) = self.scan_chunks(known_to, most, &mut read).await?;
            all.extend(rows);
            known_to = next;
            if next.is_none() {
                break;
            }
        }
        Ok((all, known_to))
    }

    /// One step: so many rows of each kind.
    async fn scan_chunks(&mut self, after: Option<ChunkId>, most: usize, read: &mut Read) -> Result<Slice, Error> {
        let shard = self.shard;
        let range = |kind: Kind, rests: bool| {
            let (first, to) = key::range(shard, kind, kind);
            let from = after.map_or(first, |id| [chunk::key(shard, id, rests).as_slice(), &[0]].concat());
            Scan { from, to, limit: most }
        };
        let scans = [range(Kind::Chunk, false), range(Kind::RestingChunk, true)];
        let found = self.engine.scan_many(&scans).await?;
        let mut rows: Vec<ChunkRow> = Vec::new();
        // A kind that filled its step hides what comes after its last row.
        let mut known_to = None::<ChunkId>;
        for rows_of_kind in found {
            let full = rows_of_kind.len() >= most;
            let values = rows_of_kind.into_iter().map(|row| row.value).collect();
            let decoded = chunk_rows::read(&*self.engine, shard, values).await?;
            if let Some(last) = decoded.last().filter(|_| full) {
                known_to = Some(known_to.map_or(last.id, |known| known.min(last.id)));
            }
            read.rows += decoded.len();
            read.links += decoded.iter().map(|row| row.links.len()).sum::<usize>();
            rows.extend(decoded);
        }
        rows.retain(|row| known_to.is_none_or(|last| row.id <= last));
        rows.sort_unstable_by_key(|row| row.id);
        Ok((rows, known_to))
    }

    pub(super) async fn list_chunks(
        &mut self,
        filter: &ChunkFilter,
        after: Option<ChunkId>,
        most: usize,
    ) -> Result<ChunkPage, Error> {
        let (rows, known_to) = self.chunk_slice(after).await?;
        let now = self.engine.now();
        let wanted = rows.iter().filter(|row| filter.takes(row));
        let views: Vec<ChunkView> = wanted.take(most).map(|row| row.view(&self.state, now)).collect();
        let last = views.last().map(|view| view.id).filter(|_| views.len() == most);
        let next = last.or(known_to).filter(|last| known_to.is_some() || rows.iter().any(|row| row.id > *last));
        Ok((views, next))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads chunks of so many links each, as many as a slice takes. Returns rows and steps.
    fn slice(each: usize) -> (usize, usize) {
        let (mut read, mut steps) = (Read::default(), 0);
        while let Some(most) = read.next() {
            read = Read { rows: read.rows + most, links: read.links + most * each };
            steps += 1;
        }
        (read.rows, steps)
    }

    #[test]
    fn a_slice_has_few_rows_of_long_chunks_and_few_steps_of_short_ones() {
        assert_eq!([1, 5, 100, 1_000, 4_000].map(slice), [(256, 2), (256, 2), (40, 2), (8, 1), (8, 1)]);
    }

    #[test]
    fn chunks_without_links_end_a_slice_by_their_number() {
        assert_eq!(slice(0), (256, 2));
    }
}
