//! Reads chunks from their rows. The links of a long one in progress lie in rows of their own, which are read in a second step: only
//! the owner changes them, and it does nothing else meanwhile.

use wayleave_core::ids::ShardId;
use wayleave_core::pipeline::row::ChunkRow;
use wayleave_engine::rows::chunk::{self, StoredChunk};
use wayleave_engine::{Engine, Error, Key};

use crate::owner::open::damaged;
use crate::owner::read_facts::{self, Fact};

/// Rows of links that are read at once, about.
const LINK_ROWS: usize = 1_000;

/// The chunks that these rows are of, in their order.
pub(super) async fn read(engine: &dyn Engine, shard: ShardId, rows: Vec<Vec<u8>>) -> Result<Vec<ChunkRow>, Error> {
    let (mut whole, mut open, mut keys) = (Vec::new(), Vec::new(), Vec::new());
    for row in rows {
        let stored = chunk::decode(&row).map_err(damaged)?;
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

/// The chunks with these keys, in their order, each with the reason if it cannot be read.
pub(super) async fn read_each(engine: &dyn Engine, shard: ShardId, keys: &[Key]) -> Result<Vec<Fact<ChunkRow>>, Error> {
    let mut found = Vec::with_capacity(keys.len());
    for value in read_facts::get_each(engine, keys).await? {
        found.push(match value {
            Ok(None) => Ok(None),
            Ok(Some(row)) => match read(engine, shard, vec![row]).await {
                Ok(mut rows) => Ok(rows.pop()),
                Err(Error::Corrupt(cause)) => Err(cause),
                Err(error) => return Err(error),
            },
            Err(cause) => Err(cause),
        });
    }
    Ok(found)
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
