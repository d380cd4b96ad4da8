//! A chunk, in one of two kinds by whether it is in progress; and what the pipeline of a shard keeps besides.
//! Lifetime: from its first claim on. A chunk has one row: in progress (20) or at rest (21).
//! A built chunk is in progress until placement knows it.
//! Key: owning shard · 20 or 21 · the id's counter. Value: version, id, crawl, host, visit, state, attempts, times,
//! lease, links, artifacts, whether it is placed, last error, the calls that ended its last leases, number of its index,
//! lost indexes.
//! The pipeline's row: owning shard · 22. Value: version, number of the next chunk.

use wayleave_core::codec::{Damaged, Reader, Writer};
use wayleave_core::frontier::request::{Outcome, RequestId, UrlResult};
use wayleave_core::frontier::url_key::UrlKey;
use wayleave_core::ids::{ChunkId, HostId, QueueId, ShardId, Token};
use wayleave_core::pipeline::row::{
    Artifact, ChunkLease, ChunkRow, ChunkState, Ended, LinkRow, LinkState, PipelineRow, Write as CoreWrite,
};
use wayleave_core::time::{Millis, Time};

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
        CoreWrite::Chunk { row, moved } => {
            let rests = row.is_at_rest();
            let mut writes = vec![Write { key: key(shard, row.id, rests), value: Some(encode(row)) }];
            writes.extend(moved.then(|| Write { key: key(shard, row.id, !rests), value: None }));
            writes
        }
    }
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
    out.number(row.links.len() as u64);
    row.links.iter().for_each(|link| write_link(&mut out, link));
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
    out.into()
}

/// Decodes a chunk.
///
/// # Errors
/// If the bytes do not decode.
pub fn decode(bytes: &[u8]) -> Result<ChunkRow, Damaged> {
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
    for _ in 0..input.number()? {
        row.links.push(read_link(&mut input)?);
    }
    row.crawled = read_artifact(&mut input)?;
    row.built = read_artifact(&mut input)?;
    row.placed = input.byte()? != 0;
    row.last_error = Some(input.text()?).filter(|error| !error.is_empty()).map(Into::into);
    for ended in &mut row.ended {
        let (token, call) = (read_token(&mut input)?, input.number()?);
        *ended = token.map(|token| Ended { token, call });
    }
    (row.index, row.indexes_lost) = (input.small()?, input.small()?);
    Ok(row)
}

fn write_token(out: &mut Writer, token: Option<Token>) {
    out.byte(token.is_some().into());
    if let Some(token) = token {
        out.raw(&token.0);
    }
}

fn read_token(input: &mut Reader<'_>) -> Result<Option<Token>, Damaged> {
    if input.byte()? == 0 {
        return Ok(None);
    }
    Ok(Some(Token(input.raw(16)?.try_into().map_err(|_| Damaged("a token is too short"))?)))
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
    }
}

pub(super) fn read_artifact(input: &mut Reader<'_>) -> Result<Option<Artifact>, Damaged> {
    if input.byte()? == 0 {
        return Ok(None);
    }
    let (location, bytes) = (input.text()?.into(), input.number()?);
    let checksum = input.raw(32)?.try_into().map_err(|_| Damaged("a checksum is too short"))?;
    Ok(Some(Artifact { location, bytes, checksum }))
}

fn write_link(out: &mut Writer, link: &LinkRow) {
    write_token(out, link.lease);
    out.text(&link.host);
    out.number(link.url.0.host.0);
    out.number(link.url.0.no.into());
    out.bytes(&link.url.1.0);
    out.maybe(link.replaced_by.map(u64::from));
    match &link.state {
        LinkState::Crawling => out.byte(0),
        LinkState::Error(digest) => {
            out.byte(1);
            out.number(*digest);
        }
        LinkState::Crawled(result) => {
            out.byte(2);
            write_result(out, result);
        }
        LinkState::Returned => out.byte(3),
        LinkState::Left => out.byte(4),
    }
}

fn read_link(input: &mut Reader<'_>) -> Result<LinkRow, Damaged> {
    let lease = read_token(input)?;
    let host = input.text()?.into();
    let queue = QueueId { host: HostId(input.number()?), no: input.small()? };
    let url = (queue, UrlKey(input.bytes()?.into()));
    let replaced_by = input.maybe()?.map(u32::try_from).transpose().map_err(|_| Damaged("a link is out of range"))?;
    let state = match input.byte()? {
        0 => LinkState::Crawling,
        1 => LinkState::Error(input.number()?),
        2 => LinkState::Crawled(Box::new(read_result(input)?)),
        3 => LinkState::Returned,
        4 => LinkState::Left,
        _ => return Err(Damaged("a link is in an unknown state")),
    };
    Ok(LinkRow { lease, host, url, state, replaced_by })
}

fn write_result(out: &mut Writer, result: &UrlResult) {
    out.maybe(result.status.map(u64::from));
    for span in [result.duration, result.crawl_delay, result.retry_after] {
        out.maybe(span.map(|span| span.0));
    }
    out.maybe(result.bytes);
    out.maybe(result.next_at.map(|at| at.0));
    out.byte(result.changed.map_or(0, |changed| 1 + u8::from(changed)));
    out.text(result.digest.as_deref().unwrap_or_default());
}

fn read_result(input: &mut Reader<'_>) -> Result<UrlResult, Damaged> {
    let status = input.maybe()?.map(u16::try_from).transpose().map_err(|_| Damaged("a status is out of range"))?;
    let mut spans = [None; 3];
    for span in &mut spans {
        *span = input.maybe()?.map(Millis);
    }
    let [duration, crawl_delay, retry_after] = spans;
    let bytes = input.maybe()?;
    let next_at = input.maybe()?.map(Time);
    let changed = match input.byte()? {
        0 => None,
        flag => Some(flag > 1),
    };
    let digest = Some(input.text()?).filter(|digest| !digest.is_empty()).map(Into::into);
    let fetched = UrlResult::new("", Outcome::Fetched);
    Ok(UrlResult { status, duration, bytes, crawl_delay, retry_after, next_at, changed, digest, ..fetched })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn token() -> impl Strategy<Value = Option<Token>> {
        prop::option::of(any::<[u8; 16]>().prop_map(Token))
    }

    fn time() -> impl Strategy<Value = Time> {
        (0..1u64 << 48).prop_map(Time)
    }

    fn result() -> impl Strategy<Value = UrlResult> {
        let numbers = (any::<Option<u16>>(), any::<Option<u32>>(), any::<Option<u32>>(), any::<Option<u32>>());
        (numbers, prop::option::of(time()), any::<Option<bool>>(), prop::option::of("[a-f]{1,9}")).prop_map(
            |((status, duration, bytes, retry), next_at, changed, digest)| UrlResult {
                status,
                duration: duration.map(|span| Millis(span.into())),
                bytes: bytes.map(Into::into),
                retry_after: retry.map(|span| Millis(span.into())),
                next_at,
                changed,
                digest: digest.map(Into::into),
                ..UrlResult::new("", Outcome::Fetched)
            },
        )
    }

    fn link() -> impl Strategy<Value = LinkRow> {
        let state = prop_oneof![
            Just(LinkState::Crawling),
            Just(LinkState::Returned),
            Just(LinkState::Left),
            any::<u64>().prop_map(LinkState::Error),
            result().prop_map(|result| LinkState::Crawled(Box::new(result))),
        ];
        (token(), any::<(u64, u32)>(), any::<Vec<u8>>(), state, any::<Option<u32>>()).prop_map(
            |(lease, (host, no), key, state, replaced_by)| {
                let url = (QueueId { host: HostId(host), no }, UrlKey(key.into()));
                LinkRow { lease, host: "h.example".into(), url, state, replaced_by }
            },
        )
    }

    fn artifact() -> impl Strategy<Value = Option<Artifact>> {
        let one = ("[a-z:/]{1,20}", any::<u64>(), any::<[u8; 32]>());
        prop::option::of(one.prop_map(|(location, bytes, checksum)| Artifact {
            location: location.into(),
            bytes,
            checksum,
        }))
    }

    proptest! {
        #[test]
        fn chunks_read_back_and_what_is_cut_off_is_refused(
            id: u64, state in 0..6u8, placed: bool, index in 0..100u32, attempts: u32, times in (time(), time(), time()), tokens in (token(), token(), token()),
            links in prop::collection::vec(link(), 0..5), artifacts in (artifact(), artifact()),
            error in prop::option::of("[a-z]{1,20}"), request in prop::option::of(("[a-z]{1,9}", any::<u64>())),
        ) {
            let request = request.map(|(id, asks)| Box::new(RequestId { id: id.into(), asks }));
            let (granted_at, expires_at) = (times.0, times.2);
            let lease = |token| ChunkLease { token, worker: "w".into(), granted_at, expires_at, request };
            let row = ChunkRow {
                id: ChunkId(id),
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
                ended: [tokens.2, tokens.1].map(|token| token.map(|token| Ended { token, call: id })),
            };
            let writes = encode_write(ShardId(0), &CoreWrite::Chunk { row: Box::new(row.clone()), moved: true });
            let rests = matches!(row.state, ChunkState::SetAside | ChunkState::Skipped)
                || (row.state == ChunkState::Built && placed);
            let keys: Vec<(&Key, bool)> = writes.iter().map(|write| (&write.key, write.value.is_some())).collect();
            let key = |rests| key(ShardId(0), row.id, rests);
            prop_assert_eq!(keys, [(&key(rests), true), (&key(!rests), false)]);
            let bytes = encode(&row);
            prop_assert_eq!(decode(&bytes), Ok(row.clone()));
            for cut in 0..bytes.len() {
                prop_assert!(decode(&bytes[..cut]).is_err(), "{} bytes", cut);
            }
        }
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
