//! Reads chunks from their rows. The links of a long one in progress lie in rows of their own, which are read in a second step: only
//! the owner changes them, and it does nothing else meanwhile.

use wayleave_core::frontier::refusal::Refusal;
use wayleave_core::ids::{ChunkId, ShardId};
use wayleave_core::pipeline::row::ChunkRow;
use wayleave_engine::rows::chunk::{self, StoredChunk};
use wayleave_engine::{Engine, Error, Key, Value};

use crate::owner::open::damaged;
use crate::owner::read_facts;

/// Rows of links that are read at once, about.
const LINK_ROWS: usize = 1_000;

/// A chunk, if there is one, or the refusal that names it.
pub(super) type Found = Result<Option<ChunkRow>, Refusal>;

/// The chunks that these rows are of, in their order.
pub(crate) async fn read(engine: &dyn Engine, shard: ShardId, rows: &[Value]) -> Result<Vec<ChunkRow>, Error> {
    let (mut whole, mut open, mut keys) = (Vec::new(), Vec::new(), Vec::new());
    for row in rows {
        let stored = chunk::decode(row).map_err(damaged)?;
        let of = stored.link_keys(shard);
        open.push((stored, of.len()));
        keys.extend(of);
        if keys.len() >= LINK_ROWS {
            complete(engine, (&mut open, &mut keys), &mut whole).await?;
        }
    }
    complete(engine, (&mut open, &mut keys), &mut whole).await?;
    Ok(whole)
}

/// The chunks with these ids, in their order, that are in progress or at rest.
pub(super) async fn read_each(
    engine: &dyn Engine,
    shard: ShardId,
    ids: &[ChunkId],
    at_rest: bool,
) -> Result<Vec<Found>, Error> {
    let keys: Vec<Key> = ids.iter().map(|id| chunk::key(shard, *id, at_rest)).collect();
    let mut found = Vec::with_capacity(ids.len());
    for (value, id) in read_facts::get_each(engine, &keys).await?.into_iter().zip(ids) {
        found.push(match value {
            Ok(None) => Ok(None),
            Ok(Some(row)) => read_one(engine, shard, *id, row).await?.map(Some),
            Err(cause) => Err(Refusal::DamagedChunk { chunk: *id, host: None, cause }),
        });
    }
    Ok(found)
}

/// The chunk that a row is of.
pub(super) async fn read_one(
    engine: &dyn Engine,
    shard: ShardId,
    chunk: ChunkId,
    row: Value,
) -> Result<Result<ChunkRow, Refusal>, Error> {
    let host = || Some(chunk::decode(&row).ok()?.host()?.to_string());
    match read(engine, shard, std::slice::from_ref(&row)).await {
        Ok(mut rows) => rows.pop().map(Ok).ok_or_else(|| Error::Corrupt("a row without a chunk".to_owned())),
        Err(Error::Corrupt(cause)) => Ok(Err(Refusal::DamagedChunk { chunk, host: host(), cause })),
        Err(error) => Err(error),
    }
}

async fn complete(
    engine: &dyn Engine,
    (open, keys): (&mut Vec<(StoredChunk, usize)>, &mut Vec<Key>),
    whole: &mut Vec<ChunkRow>,
) -> Result<(), Error> {
    let keys = std::mem::take(keys);
    let mut rows = if keys.is_empty() { Vec::new() } else { engine.get_many(&keys).await? }.into_iter();
    for (stored, count) in open.drain(..) {
        whole.push(stored.with_links(rows.by_ref().take(count)).map_err(damaged)?);
    }
    Ok(())
}
