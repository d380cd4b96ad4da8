//! A chunk, in one of two kinds by whether it is in progress; and what the pipeline of a shard keeps besides.
//! Lifetime: from its first claim on. A chunk has one row: in progress (20) or at rest (21).
//! A built chunk is in progress until placement knows it.
//! Key: owning shard · 20 or 21 · the id's counter. Value: version, id, crawl, host, visit, state, attempts, times,
//! lease, artifacts, whether it is placed, last error, the calls that ended its last leases, number of its index,
//! lost indexes, number of its links, the links. In progress only the first links are here; see `chunk_links`.
//! The pipeline's row: owning shard · 22. Value: version, number of the next chunk.

use wayleave_core::codec::{Damaged, Reader, Writer};
use wayleave_core::ids::{ChunkId, HostId, ShardId};
use wayleave_core::names::HostName;
use wayleave_core::pipeline::row::{
    Artifact, ChunkChanges, ChunkLease, ChunkRow, ChunkState, Ended, LinkRow, PipelineRow, Write as CoreWrite,
};

use super::chunk_links::{self, SLICE_LINKS};
use super::field::{self, Field, fields, or_empty, variants, write_list};
use super::{Kind, key as keys};
use crate::{Key, Write};

const COUNTER_BYTES: usize = 6;

fields!(PipelineRow { next_chunk });
fields! {
    ChunkRow given links: Vec<LinkRow> => write, read {
        id, crawl, host as or_empty, visit, state, attempts, inputs_lost, created_at, since, lease, crawled,
        built, placed, last_error as or_empty, ended, index, indexes_lost,
    }
}
variants!(ChunkState, "a chunk is in an unknown state" {
    0 Crawling,
    1 Crawled,
    2 Building,
    3 Built,
    4 SetAside,
    5 Skipped,
});
fields!(Artifact { location, bytes, checksum, from });
fields!(ChunkLease { token, worker, granted_at, expires_at, request });
fields!(Ended { token, call });

/// The key of a chunk that this shard keeps.
#[must_use]
pub fn key(shard: ShardId, id: ChunkId, at_rest: bool) -> Key {
    let kind = if at_rest { Kind::RestingChunk } else { Kind::Chunk };
    keys::of(shard, kind, &[&keys::host(HostId(id.0))])
}

/// The counter of the first chunk of a kind whose key is not before this one, which may be a key that no row has.
#[must_use]
pub fn first_counter(shard: ShardId, key: &[u8], at_rest: bool) -> Option<u64> {
    let kind = if at_rest { Kind::RestingChunk } else { Kind::Chunk };
    let counter = key.strip_prefix(keys::of(shard, kind, &[]).as_slice())?;
    let number = |bytes: &[u8]| bytes.iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte));
    let (counter, rest) = counter.split_at_checked(COUNTER_BYTES).unwrap_or((counter, &[]));
    let padded = number(counter) << (8 * (COUNTER_BYTES - counter.len()));
    Some(padded + u64::from(!rest.is_empty()))
}

/// The key of a shard's pipeline.
#[must_use]
pub fn pipeline_key(shard: ShardId) -> Key {
    keys::of(shard, Kind::Pipeline, &[])
}

/// The writes of a decision of the pipeline. A chunk that comes to rest, or leaves it, changes the kind of its row.
#[must_use]
pub fn encode_write(shard: ShardId, write: &CoreWrite) -> Vec<Write> {
    match write {
        CoreWrite::Pipeline(row) => {
            vec![Write { key: pipeline_key(shard), value: Some(field::encode(row)) }]
        }
        CoreWrite::Chunk { row, moved, changes } => encode_chunk(shard, row, *moved, changes),
    }
}

fn encode_chunk(shard: ShardId, row: &ChunkRow, moved: bool, changes: &ChunkChanges) -> Vec<Write> {
    let rests = row.is_at_rest();
    let mut writes = Vec::new();
    if moved {
        writes.push(Write { key: key(shard, row.id, !rests), value: None });
    }
    let delete = |slices: std::ops::Range<usize>| {
        slices.map(|slice| Write { key: chunk_links::key(shard, row.id, slice as u16), value: None })
    };
    let stored = slices(changes.links_before);
    if rests {
        writes.push(Write { key: key(shard, row.id, true), value: Some(encode(row)) });
        if moved {
            writes.extend(delete(1..stored));
        }
        return writes;
    }
    let (links, had) = (row.links.len(), changes.links_before);
    let is_dirty = |slice: usize| {
        let (from, to) = (slice * SLICE_LINKS, (slice + 1) * SLICE_LINKS);
        let first = changes.links.get(changes.links.partition_point(|at| *at < from));
        let was_cut = links < had && (from..to).contains(&links);
        // One that was at rest had all its links in its row: every slice is new.
        moved || was_cut || first.is_some_and(|at| *at < to)
    };
    if moved || changes.head || is_dirty(0) || links != had {
        writes.push(Write { key: key(shard, row.id, false), value: Some(encode(row)) });
    }
    for (slice, links) in row.links.chunks(SLICE_LINKS).enumerate().skip(1).filter(|(slice, _)| is_dirty(*slice)) {
        let value = Some(chunk_links::encode(links));
        writes.push(Write { key: chunk_links::key(shard, row.id, slice as u16), value });
    }
    if !moved {
        writes.extend(delete(slices(links).max(1)..stored));
    }
    writes
}

/// The number of slices that this many links take.
const fn slices(links: usize) -> usize {
    links.div_ceil(SLICE_LINKS)
}

/// Decodes a pipeline's row.
pub fn decode_pipeline(bytes: &[u8]) -> Result<PipelineRow, Damaged> {
    field::decode(bytes)
}

/// Encodes a chunk.
#[must_use]
pub fn encode(row: &ChunkRow) -> Vec<u8> {
    field::encode_with(row, |row, out| {
        write(row, out);
        let here = if row.is_at_rest() { row.links.len() } else { row.links.len().min(SLICE_LINKS) };
        out.number(row.links.len() as u64);
        write_list(row.links.get(..here).unwrap_or_default(), out);
    })
}

/// A chunk as its row has it: some of its links may be in rows of their own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredChunk {
    row: ChunkRow,
    links: usize,
}

impl StoredChunk {
    /// Its id.
    #[must_use]
    pub const fn id(&self) -> ChunkId {
        self.row.id
    }

    /// The host of all its links, if it is of one.
    #[must_use]
    pub const fn host(&self) -> Option<&HostName> {
        self.row.host.as_ref()
    }

    /// The keys of the rows that have the rest of its links.
    #[must_use]
    pub fn link_keys(&self, shard: ShardId) -> Vec<Key> {
        if self.row.links.len() >= self.links {
            return Vec::new();
        }
        (1..slices(self.links)).map(|slice| chunk_links::key(shard, self.row.id, slice as u16)).collect()
    }

    /// The whole chunk, with these rows. Fails if one is missing or does not decode.
    pub fn with_links(mut self, rows: impl IntoIterator<Item = Option<Vec<u8>>>) -> Result<ChunkRow, Damaged> {
        for row in rows {
            self.row.links.extend(chunk_links::decode(&row.ok_or(Damaged("a row of links of a chunk is missing"))?)?);
        }
        if self.row.links.len() == self.links { Ok(self.row) } else { Err(Damaged("a chunk lacks links")) }
    }
}

/// Decodes the row of a chunk.
pub fn decode(bytes: &[u8]) -> Result<StoredChunk, Damaged> {
    let mut input = field::fields_of(bytes)?;
    let mut row = read(Vec::new(), &mut input)?;
    // The rest of a longer chunk has keys of 16 bits.
    let links = usize::from(input.small::<u16>()?);
    row.links = Field::read(&mut input)?;
    Ok(StoredChunk { row, links })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;
    use proptest::strategy::ValueTree;
    use wayleave_core::pipeline::row::LinkState;
    use wayleave_core::time::Time;

    use super::*;
    use crate::rows::sample::sampled;

    const SHARD: ShardId = ShardId(3);

    fn chunk() -> impl Strategy<Value = ChunkRow> {
        let links = prop::collection::vec(sampled(), 0..2 * SLICE_LINKS + 3);
        (sampled::<ChunkRow>(), links).prop_map(|(row, links)| ChunkRow { id: ChunkId::new(SHARD, 9), links, ..row })
    }

    /// A change of some links, or of none, as reports, replacements and claims make them.
    fn change() -> impl Strategy<Value = (Option<ChunkState>, Vec<(usize, LinkRow)>, Option<usize>)> {
        let links = prop::collection::vec((0..3 * SLICE_LINKS, sampled()), 0..4);
        (sampled(), links, prop::option::of(0..3 * SLICE_LINKS))
    }

    fn changed(
        row: &ChunkRow,
        (state, links, cut): (Option<ChunkState>, Vec<(usize, LinkRow)>, Option<usize>),
    ) -> ChunkRow {
        let mut row = row.clone();
        row.state = state.unwrap_or(row.state);
        for (at, link) in links {
            match row.links.get_mut(at) {
                Some(place) => *place = link,
                None => row.links.push(link),
            }
        }
        row.links.truncate(cut.unwrap_or(usize::MAX));
        row
    }

    type Rows = BTreeMap<Key, Vec<u8>>;

    fn store(rows: &mut Rows, before: Option<&ChunkRow>, row: &ChunkRow) -> usize {
        let moved = before.is_some_and(|before| before.is_at_rest() != row.is_at_rest());
        let changes = row.changes_since(before);
        let writes = encode_write(SHARD, &CoreWrite::Chunk { row: Box::new(row.clone()), moved, changes });
        let bytes = writes.iter().filter_map(|write| write.value.as_ref()).map(Vec::len).sum();
        for Write { key, value } in writes {
            match value {
                Some(value) => drop(rows.insert(key, value)),
                None => drop(rows.remove(&key)),
            }
        }
        bytes
    }

    fn read(rows: &Rows, row: &ChunkRow) -> Result<ChunkRow, Damaged> {
        let stored = decode(&rows[&key(SHARD, row.id, row.is_at_rest())])?;
        let links: Vec<_> = stored.link_keys(SHARD).iter().map(|key| rows.get(key).cloned()).collect();
        stored.with_links(links)
    }

    proptest! {
        #[test]
        fn chunks_read_back_whatever_changed_and_leave_no_rows(first in chunk(), changes in prop::collection::vec(change(), 0..6)) {
            let (mut rows, mut row) = (Rows::new(), first);
            store(&mut rows, None, &row);
            prop_assert_eq!(read(&rows, &row), Ok(row.clone()));
            for change in changes {
                let after = changed(&row, change);
                store(&mut rows, Some(&row), &after);
                prop_assert_eq!(read(&rows, &after), Ok(after.clone()));
                let mut fresh = Rows::new();
                store(&mut fresh, None, &after);
                prop_assert_eq!(&rows, &fresh, "as if it had been written once");
                row = after;
            }
        }

        #[test]
        fn what_is_cut_off_is_refused(mut row in chunk()) {
            row.links.truncate(3);
            let bytes = encode(&row);
            for cut in 0..bytes.len() {
                prop_assert!(decode(&bytes[..cut]).is_err(), "{} bytes", cut);
            }
            let slice = chunk_links::encode(&row.links);
            for cut in 0..slice.len() {
                prop_assert!(chunk_links::decode(&slice[..cut]).is_err(), "{} bytes", cut);
            }
        }

        #[test]
        fn a_row_of_links_that_is_missing_is_damage(row in chunk()) {
            let row = ChunkRow { state: ChunkState::Crawling, ..row };
            let mut rows = Rows::new();
            store(&mut rows, None, &row);
            if row.links.len() > SLICE_LINKS {
                rows.remove(&chunk_links::key(SHARD, row.id, 1));
                prop_assert!(read(&rows, &row).is_err());
            }
        }
    }

    #[test]
    fn a_renewal_writes_no_rows_of_links_and_a_report_those_of_its_link() {
        let mut runner = proptest::test_runner::TestRunner::deterministic();
        let link = sampled::<LinkRow>().new_tree(&mut runner).unwrap().current();
        let chunk = chunk().new_tree(&mut runner).unwrap().current();
        let links = vec![LinkRow { state: LinkState::Crawling, ..link }; 1_000];
        let row = ChunkRow { state: ChunkState::Crawling, links, ..chunk };
        let mut rows = Rows::new();
        let whole = store(&mut rows, None, &row);
        let renewed = ChunkRow { since: Time(row.since.0 + 1), ..row.clone() };
        let head = store(&mut rows, Some(&row), &renewed);
        let mut reported = renewed.clone();
        reported.links[500].state = LinkState::Error(1);
        let one = store(&mut rows, Some(&renewed), &reported);
        assert!(head < whole / 30 && one < whole / 50, "{whole} bytes, then {head} and {one}");
        assert_eq!(store(&mut rows, Some(&reported), &reported), 0, "nothing has changed");
    }

    #[test]
    fn a_chunk_has_one_row_wherever_it_is() {
        let id = |shard| ChunkId::new(ShardId(shard), 77);
        assert_ne!(key(ShardId(3), id(3), true), key(ShardId(3), id(3), false));
        let row = PipelineRow { next_chunk: 9 };
        let write = encode_write(ShardId(3), &CoreWrite::Pipeline(row)).remove(0);
        assert_eq!(decode_pipeline(&write.value.unwrap()), Ok(row));
    }
}
