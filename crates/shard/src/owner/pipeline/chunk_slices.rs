//! Reads chunks by id, for listings. A chunk has from one to thousands of links, so a slice ends after so many
//! links as well as after so many rows, and is read in steps: each reads as many rows as should fit by what was read before.
//!
//! Chunks in progress and chunks at rest are two kinds of rows, each in the order of ids. A step reads both from the same id
//! on and keeps what lies before the end of the shorter one; the rest is read again, and counts as work of this slice.
//!
//! Chunks that cannot be read are left out, and named. Which ones they are is found out id by id, because damage may hide any number of
//! rows. In a store that was copied, restored or repaired ids jump by millions, and the damage may be of a block with chunks from
//! before and after a jump: of a gap that wide only both ends are looked at, and what is in memory between them. If that
//! finds no chunk, the first id between them is named for what may be there.

use std::ops::Range;

use wayleave_core::ids::ChunkId;
use wayleave_core::limits::SLICE_ROWS;
use wayleave_core::pipeline::row::ChunkRow;
use wayleave_core::pipeline::view::{ChunkFilter, ChunkView};
use wayleave_engine::rows::{Kind, chunk, key};
use wayleave_engine::{Error, Key, Row, Scan, Value};

use crate::owner::pipeline::chunk_rows;
use crate::owner::pipeline::{Links, Pipeline};
use crate::owner::read_facts;
use crate::pipeline::call::ChunkPage;

/// Rows of each kind that a slice reads at most.
const ROWS_MAX: usize = 256;
/// Links of a slice of a listing, about: they are only counted.
const LISTED_LINKS: usize = 4 * SLICE_ROWS;

/// The widest gap in which all ids are looked for.
const GAP_IDS_MAX: u64 = 4_096;
/// The ids that are looked for at each end of a wider one; together a slice.
const GAP_ENDS: u64 = ROWS_MAX as u64 / 2;

/// The chunks of a slice, by id.
#[derive(Default)]
struct Slice {
    rows: Vec<ChunkRow>,
    /// Those that cannot be read.
    damaged: Vec<ChunkId>,
    /// The id up to which none is missing; none at the end.
    known_to: Option<ChunkId>,
}

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

impl Pipeline {
    /// The chunks after this one, at least one if there is any.
    async fn chunk_slice(&mut self, after: Option<ChunkId>, with: &mut Links<'_>) -> Result<Slice, Error> {
        let (mut all, mut read) = (Slice { known_to: after, ..Slice::default() }, Read::default());
        while let Some(most) = read.next() {
            let mut step = self.scan_chunks(all.known_to, most, &mut read, with).await?;
            all.rows.append(&mut step.rows);
            all.damaged.append(&mut step.damaged);
            all.known_to = step.known_to;
            if all.known_to.is_none() {
                break;
            }
        }
        Ok(all)
    }

    /// One step: so many rows of each kind.
    async fn scan_chunks(
        &mut self,
        after: Option<ChunkId>,
        most: usize,
        read: &mut Read,
        with: &mut Links<'_>,
    ) -> Result<Slice, Error> {
        let shard = with.port.shard;
        let scan = |at_rest: bool| {
            let kind = if at_rest { Kind::RestingChunk } else { Kind::Chunk };
            let (first, to) = key::range(shard, kind, kind);
            let from = after.map_or(first, |id| [chunk::key(shard, id, at_rest).as_slice(), &[0]].concat());
            Scan { from, to, limit: most }
        };
        let found = read_facts::scan_each(&*with.port.engine, &[scan(false), scan(true)]).await?;
        let mut slice = Slice::default();
        for (found, at_rest) in found.into_iter().zip([false, true]) {
            // A kind that filled its step hides what comes next.
            let cut = found.next.and_then(|next| chunk::first_counter(shard, &next, at_rest));
            slice.cut(cut.map(|next| ChunkId::new(shard, next.saturating_sub(1))));
            let before = slice.rows.len();
            with.decode_chunks(found.rows, at_rest, &mut slice).await?;
            let rows = slice.rows.get(before..).unwrap_or_default();
            read.rows += rows.len();
            read.links += rows.iter().map(|row| row.links.len()).sum::<usize>();
            if let Some(gaps) = found.gaps {
                with.port.log_damage(&gaps.cause, "some chunks cannot be read");
                read.rows += self.look_into(&gaps.ranges, at_rest, &mut slice, with).await?;
            }
        }
        slice.tidy();
        Ok(slice)
    }

    /// Finds out which chunks are in gaps, one by one, because there are no others between two ids. Returns how many were
    /// looked for.
    async fn look_into(
        &mut self,
        gaps: &[(Key, Key)],
        at_rest: bool,
        slice: &mut Slice,
        with: &mut Links<'_>,
    ) -> Result<usize, Error> {
        let shard = with.port.shard;
        let end = self.state.peek_id().counter();
        let counter = |key: &Key| chunk::first_counter(shard, key, at_rest).unwrap_or(end).min(end);
        let gaps: Vec<_> = gaps.iter().map(|(from, to)| ends(counter(from)..counter(to))).collect();
        let ids = gaps.iter().flat_map(|(first, last)| first.clone().chain(last.clone()));
        let mut ids = ids.map(|no| ChunkId::new(shard, no));
        let looked_at: Vec<ChunkId> = ids.by_ref().take(ROWS_MAX).collect();
        if ids.next().is_some() {
            slice.cut(looked_at.last().copied());
        }
        for (id, found) in
            looked_at.iter().zip(chunk_rows::read_each(&*with.port.engine, shard, &looked_at, at_rest).await?)
        {
            match (found, self.state.active(*id)) {
                (_, Some(active)) => slice.rows.push(active.clone()),
                (Ok(row), None) => slice.rows.extend(row),
                (Err(_), None) => slice.damaged.push(*id),
            }
        }
        for (first, last) in gaps.iter().filter(|(first, last)| first.end < last.start) {
            let within = |id: ChunkId, ids: Range<u64>| ids.contains(&id.counter());
            slice.rows.extend(self.state.all_active().filter(|row| within(row.id, first.end..last.start)).cloned());
            if !slice.damaged.iter().any(|id| within(*id, first.start..last.end)) {
                slice.damaged.push(ChunkId::new(shard, first.end));
            }
        }
        Ok(looked_at.len())
    }

    pub(super) async fn list_chunks(
        &mut self,
        filter: &ChunkFilter,
        after: Option<ChunkId>,
        most: usize,
        with: &mut Links<'_>,
    ) -> Result<ChunkPage, Error> {
        let Slice { rows, mut damaged, known_to } = self.chunk_slice(after, with).await?;
        let now = with.port.engine.now();
        let wanted = rows.iter().filter(|row| filter.takes(row));
        let views: Vec<ChunkView> = wanted.take(most).map(|row| row.view(&with.frontier.state, now)).collect();
        let last = views.last().map(|view| view.id).filter(|_| views.len() == most);
        let is_more =
            |last: &ChunkId| rows.iter().map(|row| row.id).chain(damaged.iter().copied()).any(|id| id > *last);
        let next = last.or(known_to).filter(|last| known_to.is_some() || is_more(last));
        damaged.retain(|id| next.is_none_or(|next| *id <= next));
        Ok((views, next, damaged))
    }
}

impl Links<'_> {
    /// The chunks of these rows.
    async fn decode_chunks(&mut self, rows: Vec<Row>, at_rest: bool, slice: &mut Slice) -> Result<(), Error> {
        let (keys, values): (Vec<Key>, Vec<Value>) = rows.into_iter().map(|row| (row.key, row.value)).unzip();
        match chunk_rows::read(&*self.port.engine, self.port.shard, &values).await {
            Ok(rows) => {
                slice.rows.extend(rows);
                return Ok(());
            }
            Err(Error::Corrupt(_)) => {}
            Err(error) => return Err(error),
        }
        for (key, value) in keys.into_iter().zip(values) {
            let Some(no) = chunk::first_counter(self.port.shard, &key, at_rest) else { continue };
            let id = ChunkId::new(self.port.shard, no);
            match chunk_rows::read_one(&*self.port.engine, self.port.shard, id, value).await? {
                Ok(row) => slice.rows.push(row),
                Err(refusal) => {
                    self.port.log_chunk(&refusal);
                    slice.damaged.push(id);
                }
            }
        }
        Ok(())
    }
}

/// The ids of a gap that are looked for, at both ends.
const fn ends(gap: Range<u64>) -> (Range<u64>, Range<u64>) {
    if gap.end.saturating_sub(gap.start) <= GAP_IDS_MAX {
        return (gap.start..gap.end, gap.end..gap.end);
    }
    (gap.start..gap.start + GAP_ENDS, gap.end - GAP_ENDS..gap.end)
}

impl Slice {
    /// What comes after this chunk is not known yet.
    fn cut(&mut self, last: Option<ChunkId>) {
        self.known_to = self.known_to.into_iter().chain(last).min();
    }

    /// Leaves each chunk that is known once, in the order of ids.
    fn tidy(&mut self) {
        let is_known = |id: ChunkId| self.known_to.is_none_or(|last| id <= last);
        self.rows.retain(|row| is_known(row.id));
        self.rows.sort_unstable_by_key(|row| row.id);
        self.rows.dedup_by_key(|row| row.id);
        let is_read = |id: &ChunkId| self.rows.binary_search_by_key(id, |row| row.id).is_ok();
        self.damaged.retain(|id| is_known(*id) && !is_read(id));
        self.damaged.sort_unstable();
        self.damaged.dedup();
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
