//! Where built chunks are: the chunk with its artifact, its copies, the index servers as placement last knew them, and
//! one ledger. All lie in shard 0.
//! Lifetime: a chunk from when it is built until it is gone; a copy until its server has deleted it; a server until it
//! has left the fleet and its copies are forgotten; the ledger for ever; a chunk that has left until an hour after its
//! pipeline knows.
//! Keys: shard 0 · 24 · chunk id; 25 · chunk id, server; 26 · server; 27; 28 · chunk id. Values: version, then the fields
//! in their order.

use wayleave_core::codec::{Damaged, Reader, Writer};
use wayleave_core::fleet::RowNo;
use wayleave_core::ids::{ChunkId, ShardId};
use wayleave_core::names::MachineId;
use wayleave_core::placement::{
    BuiltRow, CopyRole, GiveUpReason, LedgerRow, PlacementRow, PlacementState, ReturnRow, ServerRow, Write as CoreWrite,
};
use wayleave_core::time::Time;

use super::chunk::{read_artifact, write_artifact};
use super::machine::{DESIRED, JUDGED, name_key, number, one_of, read_name};
use super::{Kind, key as keys};
use crate::{Key, Write};

const VERSION: u8 = 1;
const STATES: [PlacementState; 4] =
    [PlacementState::Assigned, PlacementState::Fetching, PlacementState::Ready, PlacementState::Draining];
const PARTS: [CopyRole; 3] = [CopyRole::Chosen, CopyRole::Leaving, CopyRole::Lost];

/// The write of a decision about placements.
#[must_use]
pub fn encode_write(shard: ShardId, write: &CoreWrite) -> Write {
    match write {
        CoreWrite::Chunk(id, row) => {
            Write { key: chunk_key(shard, Kind::BuiltChunk, *id), value: row.as_ref().map(encode_chunk) }
        }
        CoreWrite::Return(id, row) => {
            Write { key: chunk_key(shard, Kind::ReturnedChunk, *id), value: row.as_ref().map(encode_return) }
        }
        CoreWrite::Placement(id, server, row) => {
            Write { key: copy_key(shard, *id, server), value: row.as_ref().map(encode_copy) }
        }
        CoreWrite::Server(id, row) => {
            Write { key: name_key(shard, Kind::IndexServer, id), value: row.as_ref().map(encode_server) }
        }
        CoreWrite::Ledger(row) => Write { key: ledger_key(shard), value: Some(encode_ledger(row)) },
    }
}

/// The key of the ledger.
#[must_use]
pub fn ledger_key(shard: ShardId) -> Key {
    keys::start(shard, Kind::MapLedger, 0)
}

fn chunk_key(shard: ShardId, kind: Kind, id: ChunkId) -> Key {
    let mut key = keys::start(shard, kind, 8);
    key.extend_from_slice(&id.0.to_be_bytes());
    key
}

fn copy_key(shard: ShardId, id: ChunkId, server: &MachineId) -> Key {
    let mut key = keys::start(shard, Kind::Copy, 8 + server.len());
    key.extend_from_slice(&id.0.to_be_bytes());
    key.extend_from_slice(server.as_bytes());
    key
}

fn encode_chunk(row: &BuiltRow) -> Vec<u8> {
    let mut out = Writer::with_capacity(64 + row.artifact.location.len());
    out.byte(VERSION);
    write_artifact(&mut out, Some(&row.artifact));
    out.number(row.index.into());
    out.number(row.unfetched.into());
    out.into()
}

fn encode_return(row: &ReturnRow) -> Vec<u8> {
    let (kind, why) = match &row.why {
        GiveUpReason::Lost(why) => (0, &**why),
        GiveUpReason::BuildAgain => (1, ""),
        GiveUpReason::Skip => (2, ""),
    };
    let mut out = Writer::with_capacity(32 + why.len());
    out.byte(VERSION);
    out.number(row.index.into());
    out.byte(kind);
    out.text(why);
    out.number(row.at.0);
    out.byte(row.taken.into());
    out.into()
}

/// Decodes a chunk that has left.
///
/// # Errors
/// If key or value do not decode.
pub fn decode_return(key: &[u8], value: &[u8]) -> Result<(ChunkId, ReturnRow), Damaged> {
    let mut parts = keys::Parts(key);
    parts.prefix()?;
    let id = ChunkId(parts.number::<8>()?);
    let mut input = versioned(value)?;
    let index = input.small()?;
    let (kind, text, at) = (input.byte()?, input.text()?, Time(input.number()?));
    let why = match kind {
        0 => GiveUpReason::Lost(text.into()),
        1 => GiveUpReason::BuildAgain,
        2 => GiveUpReason::Skip,
        _ => return Err(Damaged("an index was given up for an unknown reason")),
    };
    Ok((id, ReturnRow { index, why, at, taken: input.byte()? != 0 }))
}

/// Decodes a built chunk.
///
/// # Errors
/// If key or value do not decode.
pub fn decode_chunk(key: &[u8], value: &[u8]) -> Result<(ChunkId, BuiltRow), Damaged> {
    let mut parts = keys::Parts(key);
    parts.prefix()?;
    let id = ChunkId(parts.number::<8>()?);
    let mut input = versioned(value)?;
    let artifact = read_artifact(&mut input)?.ok_or(Damaged("a built chunk has no artifact"))?;
    Ok((id, BuiltRow { artifact, index: input.small()?, unfetched: input.small()? }))
}

fn encode_copy(row: &PlacementRow) -> Vec<u8> {
    let mut out = Writer::with_capacity(12);
    out.raw(&[VERSION, row.row.0, number(&STATES, &row.state), number(&PARTS, &row.part)]);
    out.number(row.since.as_secs());
    out.into()
}

/// Decodes a copy of a chunk on a server.
///
/// # Errors
/// If key or value do not decode.
pub fn decode_copy(key: &[u8], value: &[u8]) -> Result<(ChunkId, MachineId, PlacementRow), Damaged> {
    let mut parts = keys::Parts(key);
    parts.prefix()?;
    let id = ChunkId(parts.number::<8>()?);
    let server = read_name(parts.rest())?;
    let mut input = versioned(value)?;
    let row = RowNo(input.byte()?);
    let (state, part) = (one_of(&STATES, input.byte()?)?, one_of(&PARTS, input.byte()?)?);
    let since = Time::from_secs(input.number()?);
    Ok((id, server, PlacementRow { row, state, part, since }))
}

fn encode_server(row: &ServerRow) -> Vec<u8> {
    let mut out = Writer::with_capacity(32 + row.address.len());
    out.byte(VERSION);
    out.byte(row.row.0);
    out.number(row.capacity.into());
    out.text(&row.address);
    out.byte(number(&JUDGED, &row.judged));
    out.number(row.since.0);
    out.byte(number(&DESIRED, &row.desired));
    out.byte(row.accepts.into());
    out.byte(row.removed.into());
    out.byte(row.unanswered.into());
    out.into()
}

/// Decodes an index server.
///
/// # Errors
/// If key or value do not decode.
pub fn decode_server(key: &[u8], value: &[u8]) -> Result<(MachineId, ServerRow), Damaged> {
    let mut parts = keys::Parts(key);
    parts.prefix()?;
    let id = read_name(parts.rest())?;
    let mut input = versioned(value)?;
    let row = ServerRow {
        row: RowNo(input.byte()?),
        capacity: input.small()?,
        address: input.text()?.into(),
        judged: one_of(&JUDGED, input.byte()?)?,
        since: Time(input.number()?),
        desired: one_of(&DESIRED, input.byte()?)?,
        accepts: input.byte()? != 0,
        removed: input.byte()? != 0,
        unanswered: input.byte()? != 0,
    };
    Ok((id, row))
}

fn encode_ledger(row: &LedgerRow) -> Vec<u8> {
    let mut out = Writer::with_capacity(32);
    out.byte(VERSION);
    out.number(row.version);
    out.byte(row.frozen.into());
    out.number(row.thawed_at.0);
    out.number(row.moves_from.0);
    out.number(row.moves.into());
    out.into()
}

/// Decodes the ledger.
///
/// # Errors
/// If the bytes do not decode.
pub fn decode_ledger(value: &[u8]) -> Result<LedgerRow, Damaged> {
    let mut input = versioned(value)?;
    Ok(LedgerRow {
        version: input.number()?,
        frozen: input.byte()? != 0,
        thawed_at: Time(input.number()?),
        moves_from: Time(input.number()?),
        moves: input.small()?,
    })
}

fn versioned(value: &[u8]) -> Result<Reader<'_>, Damaged> {
    let mut input = Reader::new(value);
    if input.byte()? == VERSION { Ok(input) } else { Err(Damaged("a row of placement has an unknown version")) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use proptest::sample::select;
    use wayleave_core::pipeline::row::Artifact;

    use super::*;

    const SHARD: ShardId = ShardId(0);

    /// Checks that no prefix of a value decodes.
    fn cut<T: std::fmt::Debug>(write: &Write, read: impl Fn(&[u8], &[u8]) -> Result<T, Damaged>) {
        let value = write.value.as_deref().unwrap();
        for cut in 0..value.len() {
            assert!(read(&write.key, &value[..cut]).is_err(), "{cut} bytes");
        }
        let other = [&[VERSION + 1], &value[1..]].concat();
        assert!(read(&write.key, &other).is_err(), "an unknown version");
        assert!(read(&[0, 0], value).is_err() || write.key.len() == 3, "a key that is cut off");
    }

    proptest! {
        #[test]
        fn placements_read_back_and_what_is_cut_off_is_refused(
            id: u64, from: Option<std::net::IpAddr>, server in "[a-zø:.]{1,20}", location in "[a-z:/]{1,20}", bytes: u64, checksum: [u8; 32], no: u8,
            state in select(&STATES[..]), part in select(&PARTS[..]), capacity: u32, times: [u32; 3],
            judged in select(&JUDGED[..]), desired in select(&DESIRED[..]), flags: [bool; 4], version: u64, moves: u32,
        ) {
            let (id, server, row) = (ChunkId(id), MachineId::from(server), RowNo(no));
            let [since, thawed_at, moves_from] = times.map(|at| Time(at.into()));
            let [accepts, removed, unanswered, frozen] = flags;
            let artifact = Artifact { location: location.into(), bytes, checksum, from };
            let built = BuiltRow { artifact, index: moves % 100, unfetched: capacity % 100 };
            let write = encode_write(SHARD, &CoreWrite::Chunk(id, Some(built.clone())));
            prop_assert_eq!(decode_chunk(&write.key, write.value.as_deref().unwrap()), Ok((id, built)));
            cut(&write, decode_chunk);
            for why in [GiveUpReason::Lost("why".into()), GiveUpReason::BuildAgain, GiveUpReason::Skip] {
                let left = ReturnRow { index: moves, why, at: since, taken: flags[0] };
                let write = encode_write(SHARD, &CoreWrite::Return(id, Some(left.clone())));
                prop_assert_eq!(decode_return(&write.key, write.value.as_deref().unwrap()), Ok((id, left)));
                cut(&write, decode_return);
            }
            let copy = PlacementRow { row, state, part, since: Time::from_secs(since.0) };
            let write = encode_write(SHARD, &CoreWrite::Placement(id, server.clone(), Some(copy)));
            prop_assert_eq!(decode_copy(&write.key, write.value.as_deref().unwrap()), Ok((id, server.clone(), copy)));
            cut(&write, decode_copy);
            let address = "10.0.0.1:80".into();
            let facts = ServerRow { row, capacity, address, judged, since, desired, accepts, removed, unanswered };
            let write = encode_write(SHARD, &CoreWrite::Server(server.clone(), Some(facts.clone())));
            prop_assert_eq!(decode_server(&write.key, write.value.as_deref().unwrap()), Ok((server, facts)));
            cut(&write, decode_server);
            let ledger = LedgerRow { version, frozen, thawed_at, moves_from, moves };
            let write = encode_write(SHARD, &CoreWrite::Ledger(ledger));
            prop_assert_eq!(decode_ledger(write.value.as_deref().unwrap()), Ok(ledger));
            cut(&write, |_, value| decode_ledger(value));
        }

        #[test]
        fn damaged_placements_are_refused_or_read_but_never_panic(key: Vec<u8>, value: Vec<u8>) {
            let value = [&[VERSION], value.as_slice()].concat();
            _ = (decode_chunk(&key, &value), decode_copy(&key, &value));
            _ = (decode_server(&key, &value), decode_ledger(&value), decode_return(&key, &value));
        }
    }

    #[test]
    fn what_is_gone_has_no_row_and_copies_lie_by_chunk() {
        for gone in [
            CoreWrite::Chunk(ChunkId(1), None),
            CoreWrite::Return(ChunkId(1), None),
            CoreWrite::Placement(ChunkId(1), "s".into(), None),
            CoreWrite::Server("s".into(), None),
        ] {
            assert_eq!(encode_write(SHARD, &gone).value, None);
        }
        let key = |chunk: u64, server: &str| copy_key(SHARD, ChunkId(chunk), &server.into());
        assert!(key(1, "b") < key(2, "a") && key(1, "a") < key(1, "b") && key(255, "z") < key(256, "a"));
        let nameless = chunk_key(SHARD, Kind::BuiltChunk, ChunkId(1));
        assert!(decode_copy(&nameless, &[VERSION, 0, 0, 0]).is_err(), "a copy on no server");
    }
}
