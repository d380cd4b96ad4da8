//! Where built chunks are: the chunk with its artifact, its copies, the index servers as placement last knew them, and
//! one ledger. All are in shard 0. Lifetime: a chunk from when it is built until it is gone; a copy until its server
//! has deleted it; a server until it has left the fleet and its copies are forgotten; the ledger always; a chunk that
//! has left until an hour after its pipeline knows. Keys: shard 0 · 24 · chunk id; 25 · chunk id, server; 26 ·
//! server; 27; 28 · chunk id. Values: version, then the fields in their order.

use wayleave_core::codec::{Damaged, Reader, Writer};
use wayleave_core::ids::{ChunkId, ShardId};
use wayleave_core::names::MachineId;
use wayleave_core::placement::{
    BuiltRow, CopyRole, GiveUpReason, LedgerRow, PlacementRow, PlacementState, ReturnRow, ServerRow, Write as CoreWrite,
};

use super::field::{Field, decode, encode, fields, numbered, variants};
use super::machine::{name_key, read_name};
use super::{Kind, key as keys};
use crate::{Key, Write};

numbered! {
    PlacementState: Assigned, Fetching, Ready, Draining;
    CopyRole: Chosen, Leaving, Lost;
}
fields!(BuiltRow { artifact, index, unfetched });
variants!(GiveUpReason, "an index was given up for an unknown reason" {
    0 Lost(why),
    1 BuildAgain,
    2 Skip,
});
fields!(ReturnRow { index, why, at, taken });
fields!(PlacementRow { row, state, role, since as seconds });
fields!(ServerRow { row, capacity, address, judged, since, desired, accepts, removed, unanswered });
fields!(LedgerRow { version, frozen, thawed_at, moves_from, moves });

/// The write of a decision about placements.
#[must_use]
pub fn encode_write(shard: ShardId, write: &CoreWrite) -> Write {
    match write {
        CoreWrite::Chunk(id, row) => {
            Write { key: chunk_key(shard, Kind::BuiltChunk, *id), value: row.as_ref().map(encode) }
        }
        CoreWrite::Return(id, row) => {
            Write { key: chunk_key(shard, Kind::ReturnedChunk, *id), value: row.as_ref().map(encode) }
        }
        CoreWrite::Placement(id, server, row) => {
            Write { key: copy_key(shard, *id, server), value: row.as_ref().map(encode) }
        }
        CoreWrite::Server(id, row) => {
            Write { key: name_key(shard, Kind::IndexServer, id), value: row.as_ref().map(encode) }
        }
        CoreWrite::Ledger(row) => Write { key: ledger_key(shard), value: Some(encode(row)) },
    }
}

/// The key of the ledger.
#[must_use]
pub fn ledger_key(shard: ShardId) -> Key {
    keys::of(shard, Kind::MapLedger, &[])
}

fn chunk_key(shard: ShardId, kind: Kind, id: ChunkId) -> Key {
    keys::of(shard, kind, &[&id.0.to_be_bytes()])
}

fn copy_key(shard: ShardId, id: ChunkId, server: &MachineId) -> Key {
    keys::of(shard, Kind::Copy, &[&id.0.to_be_bytes(), server.as_bytes()])
}

/// Decodes a built chunk.
pub fn decode_chunk(key: &[u8], value: &[u8]) -> Result<(ChunkId, BuiltRow), Damaged> {
    Ok((chunk_of(key)?.0, decode(value)?))
}

/// Decodes a chunk that has left.
pub fn decode_return(key: &[u8], value: &[u8]) -> Result<(ChunkId, ReturnRow), Damaged> {
    Ok((chunk_of(key)?.0, decode(value)?))
}

/// Decodes a copy of a chunk on a server.
pub fn decode_copy(key: &[u8], value: &[u8]) -> Result<(ChunkId, MachineId, PlacementRow), Damaged> {
    let (id, server) = chunk_of(key)?;
    Ok((id, read_name(server)?, decode(value)?))
}

/// Decodes an index server.
pub fn decode_server(key: &[u8], value: &[u8]) -> Result<(MachineId, ServerRow), Damaged> {
    Ok((read_name(keys::Parts::of(key)?)?, decode(value)?))
}

/// Decodes the ledger.
pub fn decode_ledger(value: &[u8]) -> Result<LedgerRow, Damaged> {
    decode(value)
}

/// The chunk that a key names, and the rest of the key.
fn chunk_of(key: &[u8]) -> Result<(ChunkId, keys::Parts<'_>), Damaged> {
    let mut parts = keys::Parts::of(key)?;
    Ok((ChunkId(parts.number::<8>()?), parts))
}

/// A time in whole seconds.
mod seconds {
    use wayleave_core::time::Time;

    use super::{Damaged, Reader, Writer};

    pub fn write(at: &Time, out: &mut Writer) {
        out.number(at.as_secs());
    }

    pub fn read(input: &mut Reader<'_>) -> Result<Time, Damaged> {
        input.number().map(Time::from_secs)
    }
}
