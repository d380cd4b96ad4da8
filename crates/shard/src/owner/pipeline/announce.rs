//! Built chunks are announced to the owner of the control shard, which places them on index servers.
//!
//! A task beside the owner asks it for chunks that placement may not know, tells them to placement, and has the owner
//! note that. Each of the three steps is a call whose answer is durable, and each may be repeated. So every built chunk
//! is placed once, whatever ends in between:
//!
//! 1. The build is announced and its commit fails: the task is told of a chunk only when its build is durable.
//! 2. The owner ends before a chunk was announced, or before it was noted: its row still says so, and the next owner
//!    announces it. Placement knows it already, and changes nothing.
//! 3. The control shard changes hands, or cannot be reached: nothing is noted, and the task tries again.
//! 4. A chunk is built while the task finds that nothing is left: each turn of the owner that leaves chunks to announce
//!    wakes the task, and a wake that comes while it works is kept.
//! 5. The task of an earlier owner is late: its announcement is known, and its note changes nothing.
//! 6. An index is given up, and its chunk built anew, while a message about the old index is late: every message names the
//!    number of the index, and one about another number changes nothing.
//! 7. Placement refuses a chunk for good: it is set aside with the reason, so it does not keep others back. If there are
//!    too many chunks, they wait.

use std::sync::Arc;

use wayleave_core::frontier::refusal::Refusal;
use wayleave_core::ids::{ChunkId, ShardId};
use wayleave_core::limits::BUILT_AT_ONCE_MAX;
use wayleave_core::pipeline::claim::Writes;
use wayleave_core::placement::{self, GivenUpIndex};
use wayleave_engine::Error;

use crate::fleet::CONTROL_SHARD;
use crate::fleet::call::{ControlCall, Taken};
use crate::owner::pipeline::chunk_rows;
use crate::owner::pipeline::{Links, Pipeline};
use crate::owner::port::{Decided, Port};
use crate::pipeline::call::{BuiltIndexes, ChunkCall, NotedIndex};
use crate::routing::router::{CallResult, Router};

impl Pipeline {
    /// Has built chunks announced, if there are any.
    pub fn announce_chunks(&mut self, port: &Port) {
        if !self.state.has_unplaced() {
            return;
        }
        let shard = port.shard;
        self.announcer.wake(&port.router, "built chunks", move |router| announce(router, shard));
    }

    /// Built chunks that placement may not know yet.
    pub async fn unplaced_chunks(&mut self, with: &mut Links<'_>) -> Decided<BuiltIndexes> {
        let ids = self.state.unplaced(BUILT_AT_ONCE_MAX);
        let rows = with.placed_rows(&ids).await?;
        if rows.is_empty() && !ids.is_empty() {
            // An empty answer would be asked for again at once.
            return Ok(Err(Refusal::Corrupt("built chunks cannot be read, so they are not placed".to_owned())));
        }
        Ok(Ok(rows.into_iter().filter_map(|row| Some((row.id, row.built?, row.index))).collect()))
    }

    /// Notes what placement has answered. What it says of an index that was given up meanwhile is out of date.
    pub async fn note_placed(&mut self, chunks: &[NotedIndex], with: &mut Links<'_>) -> Result<(), Error> {
        let chunks = chunks.get(..BUILT_AT_ONCE_MAX).unwrap_or(chunks);
        let ids: Vec<ChunkId> = chunks.iter().map(|(id, ..)| *id).collect();
        let rows = with.placed_rows(&ids).await?;
        let (now, mut writes) = (with.now(), Writes::default());
        for row in rows {
            let noted = chunks.iter().find(|(id, index, _)| (*id, *index) == (row.id, row.index));
            if let Some((_, _, refused)) = noted {
                self.state.placed(&row, refused.as_deref(), now, &mut writes.pipeline);
            }
        }
        with.commit(writes);
        Ok(())
    }

    /// Sends chunks back whose indexes are given up, or skips them; whether any of that is news.
    pub async fn note_index_lost(&mut self, chunks: &[GivenUpIndex], with: &mut Links<'_>) -> Decided<bool> {
        let (now, mut writes, mut news, mut unreadable) = (with.now(), Writes::default(), false, None);
        for (id, index, why) in chunks.iter().take(BUILT_AT_ONCE_MAX) {
            match self.chunk_row(*id, with).await? {
                Ok(Some(row)) => news |= self.state.index_lost(&row, (*index, why), now, &mut writes.pipeline),
                Ok(None) => {}
                Err(refusal) => unreadable = Some(refusal),
            }
        }
        with.commit(writes);
        // A refusal has placement tell all of them again: the others notice that they know it already.
        Ok(unreadable.map_or(Ok(news), Err))
    }
}

impl Links<'_> {
    /// The rows of these chunks, which are in progress until they are placed.
    async fn placed_rows(&mut self, ids: &[ChunkId]) -> Result<Vec<wayleave_core::pipeline::row::ChunkRow>, Error> {
        let mut rows = Vec::with_capacity(ids.len());
        for row in chunk_rows::read_each(&*self.port.engine, self.port.shard, ids, false).await? {
            match row {
                Ok(row) => rows.extend(row),
                // It must not keep the others back; it is announced when it can be read.
                Err(refusal) => self.port.log_chunk(&refusal),
            }
        }
        Ok(rows)
    }
}

/// Announces a batch; whether there was one.
async fn announce(router: Arc<Router>, shard: ShardId) -> CallResult<bool> {
    let built: BuiltIndexes = router.call(shard, ChunkCall::Unplaced).await?;
    if built.is_empty() {
        return Ok(false);
    }
    let ids: Vec<(ChunkId, u32)> = built.iter().map(|(id, _, index)| (*id, *index)).collect();
    let taken: Taken = router.call(CONTROL_SHARD, ControlCall::Built(built)).await?;
    let mut full = None;
    let mut known = Vec::with_capacity(ids.len());
    for ((id, index), taken) in ids.into_iter().zip(taken) {
        match taken {
            Ok(()) => known.push((id, index, None)),
            Err(placement::Refusal::OverLimit(why)) => full = Some(why),
            Err(why) => known.push((id, index, Some(why.to_string().into()))),
        }
    }
    if known.is_empty() {
        return Err(Refusal::OverLimit(full.unwrap_or_default()));
    }
    router.call::<_, ()>(shard, ChunkCall::Placed(known)).await?;
    Ok(true)
}
