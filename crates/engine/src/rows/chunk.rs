//! A chunk, in one of two kinds by whether it is in progress; and what the pipeline of a shard keeps besides.
//! Lifetime: from its first claim on. A chunk has one row: in progress (20) or at rest (21).
//! A built chunk is in progress until placement knows it.
//! Key: owning shard · 20 or 21 · the id's counter. Value: version, id, crawl, host, visit, state, attempts, times,
//! lease, artifacts, whether it is placed, last error, the calls that ended its last leases, number of its index,
//! lost indexes, number of its links, the links. In progress only the first links are here; see `chunk_links`.
//! The pipeline's row: owning shard · 22. Value: version, number of the next chunk.

use wayleave_core::codec::{Damaged, Reader, Writer};
use wayleave_core::frontier::request::RequestId;
use wayleave_core::ids::{ChunkId, HostId, ShardId};
use wayleave_core::pipeline::row::{
    Artifact, ChunkChanges, ChunkLease, ChunkRow, ChunkState, Ended, PipelineRow, Write as CoreWrite,
};
use wayleave_core::time::Time;

use super::chunk_links::{self, SLICE_LINKS, read_link, read_token, write_link, write_token};
use super::ip_address::{read_ip, write_ip};
use super::{Kind, key as keys};
use crate::{Key, Write};

const VERSION: u8 = 1;

/// The key of a chunk that this shard keeps.
#[must_use]
pub fn key(shard: ShardId, id: ChunkId, at_rest: bool) -> Key {
    let kind = if at_rest { Kind::RestingChunk } else { Kind::Chunk };
    let mut key = keys::start(shard, kind, 6);
    keys::push_host(&mut key, HostId(id.0));
    key
}

/// The key of a shard's pipeline.
#[must_use]
pub fn pipeline_key(shard: ShardId) -> Key {
    keys::start(shard, Kind::Pipeline, 0)
}

/// The writes of a decision of the pipeline. A chunk that comes to rest, or leaves it, changes the kind of its row.
#[must_use]
pub fn encode_write(shard: ShardId, write: &CoreWrite) -> Vec<Write> {
    match write {
        CoreWrite::Pipeline(row) => {
            let mut out = Writer::default();
            out.byte(VERSION);
            out.number(row.next_chunk);
            vec![Write { key: pipeline_key(shard), value: Some(out.into()) }]
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

/// The number of slices that so many links take.
const fn slices(links: usize) -> usize {
    links.div_ceil(SLICE_LINKS)
}

/// Decodes a pipeline's row.
///
/// # Errors
/// If the bytes do not decode.
pub fn decode_pipeline(bytes: &[u8]) -> Result<PipelineRow, Damaged> {
    let mut input = Reader::new(bytes);
    if input.byte()? != VERSION {
        return Err(Damaged("a pipeline row has an unknown version"));
    }
    Ok(PipelineRow { next_chunk: input.number()? })
}

const fn state_number(state: ChunkState) -> u8 {
    match state {
        ChunkState::Crawling => 0,
        ChunkState::Crawled => 1,
        ChunkState::Building => 2,
        ChunkState::Built => 3,
        ChunkState::SetAside => 4,
        ChunkState::Skipped => 5,
    }
}

fn read_state(number: u8) -> Result<ChunkState, Damaged> {
    Ok(match number {
        0 => ChunkState::Crawling,
        1 => ChunkState::Crawled,
        2 => ChunkState::Building,
        3 => ChunkState::Built,
        4 => ChunkState::SetAside,
        5 => ChunkState::Skipped,
        _ => return Err(Damaged("a chunk is in an unknown state")),
    })
}

/// Encodes a chunk.
#[must_use]
pub fn encode(row: &ChunkRow) -> Vec<u8> {
    let mut out = Writer::with_capacity(256);
    out.byte(VERSION);
    out.number(row.id.0);
    out.text(&row.crawl);
    out.text(row.host.as_deref().unwrap_or_default());
    write_token(&mut out, row.visit);
    out.byte(state_number(row.state));
    out.number(row.attempts.into());
    out.number(row.inputs_lost.into());
    out.number(row.created_at.0);
    out.number(row.since.0);
    write_lease(&mut out, row.lease.as_ref());
    write_artifact(&mut out, row.crawled.as_ref());
    write_artifact(&mut out, row.built.as_ref());
    out.byte(row.placed.into());
    out.text(row.last_error.as_deref().unwrap_or_default());
    for ended in row.ended {
        write_token(&mut out, ended.map(|ended| ended.token));
        out.number(ended.map_or(0, |ended| ended.call));
    }
    out.number(row.index.into());
    out.number(row.indexes_lost.into());
    let here = if row.is_at_rest() { row.links.len() } else { row.links.len().min(SLICE_LINKS) };
    out.number(row.links.len() as u64);
    out.number(here as u64);
    row.links.iter().take(here).for_each(|link| write_link(&mut out, link));
    out.into()
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

    /// The keys of the rows that have the rest of its links.
    #[must_use]
    pub fn link_keys(&self, shard: ShardId) -> Vec<Key> {
        if self.row.links.len() >= self.links {
            return Vec::new();
        }
        (1..slices(self.links)).map(|slice| chunk_links::key(shard, self.row.id, slice as u16)).collect()
    }

    /// The whole chunk, with these rows.
    ///
    /// # Errors
    /// If one is missing or does not decode.
    pub fn with_links(mut self, rows: impl IntoIterator<Item = Option<Vec<u8>>>) -> Result<ChunkRow, Damaged> {
        for row in rows {
            self.row.links.extend(chunk_links::decode(&row.ok_or(Damaged("a row of links of a chunk is missing"))?)?);
        }
        if self.row.links.len() == self.links { Ok(self.row) } else { Err(Damaged("a chunk lacks links")) }
    }
}

/// Decodes the row of a chunk.
///
/// # Errors
/// If the bytes do not decode.
pub fn decode(bytes: &[u8]) -> Result<StoredChunk, Damaged> {
    let mut input = Reader::new(bytes);
    if input.byte()? != VERSION {
        return Err(Damaged("a chunk row has an unknown version"));
    }
    let mut row = ChunkRow {
        id: ChunkId(input.number()?),
        crawl: input.text()?.into(),
        host: Some(input.text()?).filter(|host| !host.is_empty()).map(Into::into),
        visit: read_token(&mut input)?,
        state: read_state(input.byte()?)?,
        attempts: input.small()?,
        inputs_lost: input.small()?,
        created_at: Time(input.number()?),
        since: Time(input.number()?),
        lease: read_lease(&mut input)?,
        links: Vec::new(),
        crawled: None,
        built: None,
        placed: false,
        index: 0,
        indexes_lost: 0,
        last_error: None,
        ended: [None; 2],
    };
    row.crawled = read_artifact(&mut input)?;
    row.built = read_artifact(&mut input)?;
    row.placed = input.byte()? != 0;
    row.last_error = Some(input.text()?).filter(|error| !error.is_empty()).map(Into::into);
    for ended in &mut row.ended {
        let (token, call) = (read_token(&mut input)?, input.number()?);
        *ended = token.map(|token| Ended { token, call });
    }
    (row.index, row.indexes_lost) = (input.small()?, input.small()?);
    // The rest of a longer chunk has keys of 16 bits.
    let links = usize::from(input.small::<u16>()?);
    for _ in 0..input.number()? {
        row.links.push(read_link(&mut input)?);
    }
    Ok(StoredChunk { row, links })
}

fn write_lease(out: &mut Writer, lease: Option<&ChunkLease>) {
    write_token(out, lease.map(|lease| lease.token));
    let Some(lease) = lease else { return };
    out.text(&lease.worker);
    out.number(lease.granted_at.0);
    out.number(lease.expires_at.0);
    out.text(lease.request.as_ref().map_or("", |request| &request.id));
    out.number(lease.request.as_ref().map_or(0, |request| request.asks));
}

fn read_lease(input: &mut Reader<'_>) -> Result<Option<ChunkLease>, Damaged> {
    let Some(token) = read_token(input)? else { return Ok(None) };
    let worker = input.text()?.into();
    let (granted_at, expires_at) = (Time(input.number()?), Time(input.number()?));
    let (id, asks) = (input.text()?, input.number()?);
    let request = (!id.is_empty()).then(|| Box::new(RequestId { id: id.into(), asks }));
    Ok(Some(ChunkLease { token, worker, granted_at, expires_at, request }))
}

pub(super) fn write_artifact(out: &mut Writer, artifact: Option<&Artifact>) {
    out.byte(artifact.is_some().into());
    if let Some(artifact) = artifact {
        out.text(&artifact.location);
        out.number(artifact.bytes);
        out.raw(&artifact.checksum);
        write_ip(out, artifact.from);
    }
}

pub(super) fn read_artifact(input: &mut Reader<'_>) -> Result<Option<Artifact>, Damaged> {
    if input.byte()? == 0 {
        return Ok(None);
    }
    let (location, bytes) = (input.text()?.into(), input.number()?);
    let checksum = input.raw(32)?.try_into().map_err(|_| Damaged("a checksum is too short"))?;
    let from = read_ip(input.bytes()?)?;
    Ok(Some(Artifact { location, bytes, checksum, from }))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;
    use proptest::strategy::ValueTree;
    use wayleave_core::pipeline::row::{LinkRow, LinkState};

    use super::chunk_links::testing::{link, time, token};
    use super::*;

    const SHARD: ShardId = ShardId(3);

    fn artifact() -> impl Strategy<Value = Option<Artifact>> {
        let from = prop::option::of(any::<std::net::IpAddr>());
        let one = ("[a-z:/]{1,20}", any::<u64>(), any::<[u8; 32]>(), from);
        prop::option::of(one.prop_map(|(location, bytes, checksum, from)| Artifact {
            location: location.into(),
            bytes,
            checksum,
            from,
        }))
    }

    fn chunk() -> impl Strategy<Value = ChunkRow> {
        let numbers = (0..6u8, any::<bool>(), 0..100u32, any::<u32>());
        let request = prop::option::of(("[a-z]{1,9}", any::<u64>()));
        let links = prop::collection::vec(link(), 0..2 * SLICE_LINKS + 3);
        let rest = ((artifact(), artifact()), prop::option::of("[a-z]{1,20}"), request);
        (numbers, (time(), time(), time()), (token(), token(), token()), links, rest).prop_map(
            |((state, placed, index, attempts), times, tokens, links, (artifacts, error, request))| {
                let request = request.map(|(id, asks)| Box::new(RequestId { id: id.into(), asks }));
                let (granted_at, expires_at) = (times.0, times.2);
                let lease = |token| ChunkLease { token, worker: "w".into(), granted_at, expires_at, request };
                ChunkRow {
                    id: ChunkId::new(SHARD, 9),
                    crawl: "c".into(),
                    host: tokens.1.map(|_| "h.example".into()),
                    visit: tokens.1,
                    state: read_state(state).unwrap(),
                    lease: tokens.0.map(lease),
                    attempts,
                    inputs_lost: attempts / 2,
                    created_at: times.0,
                    since: times.1,
                    links,
                    crawled: artifacts.0,
                    built: artifacts.1,
                    placed,
                    index,
                    indexes_lost: index / 2,
                    last_error: error.map(Into::into),
                    ended: [tokens.2, tokens.1].map(|token| token.map(|token| Ended { token, call: index.into() })),
                }
            },
        )
    }

    /// A change of some links, or of none, as reports, replacements and claims make them.
    fn change() -> impl Strategy<Value = (Option<u8>, Vec<(usize, LinkRow)>, Option<usize>)> {
        let links = prop::collection::vec((0..3 * SLICE_LINKS, link()), 0..4);
        (prop::option::of(0..6u8), links, prop::option::of(0..3 * SLICE_LINKS))
    }

    fn changed(row: &ChunkRow, (state, links, cut): (Option<u8>, Vec<(usize, LinkRow)>, Option<usize>)) -> ChunkRow {
        let mut row = row.clone();
        row.state = state.map_or(row.state, |state| read_state(state).unwrap());
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
        let link = link().new_tree(&mut runner).unwrap().current();
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
