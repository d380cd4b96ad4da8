//! Indexes that placement has given up are told to the owners of their chunks, which have them built anew.
//!
//! The same as `announce`, in the other direction: a task beside the owner of the control shard asks it what is given up,
//! tells the owners of the chunks, and has it noted. Each step is a call whose answer is durable, and each may be repeated:
//!
//! 1. The owner ends before the pipeline was told, or before that was noted: the row still says so, and the next owner
//!    tells it again. The number of the chunk's index has grown, so that nothing happens twice.
//! 2. One shard cannot be reached: the others are told, and it is tried again.
//! 3. The chunk is built anew and announced before it was noted: its greater number shows that the pipeline knows.
//! 4. An index is given up before its announcement was noted: the pipeline takes that too, and the note comes too late.

use std::collections::BTreeMap;
use std::sync::Weak;
use std::time::Duration;

use tokio::sync::mpsc;
use wayleave_core::ids::{ChunkId, ShardId};
use wayleave_core::limits::BUILT_AT_ONCE_MAX;
use wayleave_core::pipeline::claim::Writes;
use wayleave_core::placement::Returned;

use crate::fleet::CONTROL_SHARD;
use crate::fleet::call::ControlCall;
use crate::owner::chunks::Decided;
use crate::owner::owner_loop::Owner;
use crate::pipeline::call::ChunkCall;
use crate::routing::router::{CallResult, Router};

/// Retry interval.
const TELL_AGAIN_AFTER: Duration = Duration::from_secs(1);

/// Wakes the task that gives chunks back, which ends with it.
pub(crate) struct GiveBackTask(mpsc::Sender<()>);

impl Owner {
    /// Has pipelines told of indexes that are given up, if there are any.
    pub fn give_chunks_back(&mut self) {
        if !self.has_returns() {
            return;
        }
        let router = &self.router;
        let give_back_task = self.give_back_task.get_or_insert_with(|| {
            let (wake, wakes) = mpsc::channel(1);
            tokio::spawn(give_back(router.clone(), wakes));
            GiveBackTask(wake)
        });
        // Full: it will look again anyway.
        _ = give_back_task.0.try_send(());
    }

    /// Sends chunks back whose indexes are given up, or skips them; whether any of that is news.
    pub async fn note_index_lost(&mut self, chunks: &[Returned]) -> Decided<bool> {
        let (now, mut writes, mut news, mut unreadable) = (self.now(), Writes::default(), false, None);
        for (id, index, why) in chunks.iter().take(BUILT_AT_ONCE_MAX) {
            match self.chunk_row(*id).await? {
                Ok(Some(row)) => news |= self.pipeline.index_lost(&row, (*index, why), now, &mut writes.pipeline),
                Ok(None) => {}
                Err(refusal) => unreadable = Some(refusal),
            }
        }
        self.commit_chunks(writes);
        // A refusal has placement tell all of them again: the others notice that they know it already.
        Ok(unreadable.map_or(Ok(news), Err))
    }
}

/// Tells pipelines whenever it is woken, until the owner ends.
async fn give_back(router: Weak<Router>, mut wakes: mpsc::Receiver<()>) {
    while wakes.recv().await.is_some() {
        while !wakes.is_closed() {
            let Some(router) = router.upgrade() else { return };
            match give_back_once(&router).await {
                Ok(true) => {}
                Ok(false) => break,
                Err(refusal) => {
                    drop(router);
                    tracing::debug!(%refusal, "indexes that are given up cannot be told; retrying");
                    tokio::time::sleep(TELL_AGAIN_AFTER).await;
                }
            }
        }
    }
}

/// Tells all that there is, in batches; whether there was any. What a shard cannot be told hides nothing behind it.
async fn give_back_once(router: &Router) -> CallResult<bool> {
    let (mut after, mut trouble) = (None, None);
    loop {
        let returns: Vec<Returned> = router.call(CONTROL_SHARD, ControlCall::Returns { after }).await?;
        let Some(last) = returns.last().map(|(id, ..)| *id) else { break };
        after = Some(last);
        if let Err(refusal) = give_back_batch(router, returns).await {
            trouble = Some(refusal);
        }
    }
    trouble.map_or(Ok(after.is_some()), Err)
}

async fn give_back_batch(router: &Router, returns: Vec<Returned>) -> CallResult<()> {
    let mut by_shard: BTreeMap<ShardId, Vec<Returned>> = BTreeMap::new();
    for chunk in returns {
        by_shard.entry(chunk.0.home(router.shards())).or_default().push(chunk);
    }
    let mut trouble = None;
    for (shard, chunks) in by_shard {
        let ids: Vec<(ChunkId, u32)> = chunks.iter().map(|(id, index, _)| (*id, *index)).collect();
        match router.call::<_, bool>(shard, ChunkCall::IndexLost(chunks)).await {
            Ok(_) => router.call::<_, ()>(CONTROL_SHARD, ControlCall::Returned(ids)).await?,
            Err(refusal) => trouble = Some(refusal),
        }
    }
    trouble.map_or(Ok(()), Err)
}
