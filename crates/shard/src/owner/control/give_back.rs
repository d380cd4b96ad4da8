//! Reports indexes that placement has given up to the owners of their chunks, which have them built anew.
//!
//! The same as `owner::pipeline::announce`, in the other direction: a task beside the owner of the control shard asks it what is given up,
//! tells the owners of the chunks, and has it noted. Each step is a call whose answer is durable, and each may be repeated:
//!
//! 1. The owner ends before the pipeline was told, or before that was noted: the row still says so, and the next owner
//!    tells it again. The number of the chunk's index has grown, so that nothing happens twice.
//! 2. One shard cannot be reached: the others get theirs, and it is tried again.
//! 3. The chunk is built anew and announced before it was noted: its greater number shows that the pipeline knows.
//! 4. An index is given up before its announcement was noted: the pipeline takes that too, and the note comes too late.

use std::collections::BTreeMap;
use std::sync::Arc;

use wayleave_core::ids::{ChunkId, ShardId};
use wayleave_core::placement::GivenUpIndex;

use crate::fleet::CONTROL_SHARD;
use crate::fleet::call::ControlCall;
use crate::pipeline::call::ChunkCall;
use crate::routing::router::{CallResult, Router};

/// Tells all that there is, in batches; whether there was any. What a shard cannot be told hides nothing behind it.
pub(super) async fn give_back(router: Arc<Router>) -> CallResult<bool> {
    let (mut after, mut trouble) = (None, None);
    loop {
        let returns: Vec<GivenUpIndex> = router.call(CONTROL_SHARD, ControlCall::Returns { after }).await?;
        let Some(last) = returns.last().map(|(id, ..)| *id) else { break };
        after = Some(last);
        if let Err(refusal) = give_back_batch(&router, returns).await {
            trouble = Some(refusal);
        }
    }
    trouble.map_or(Ok(after.is_some()), Err)
}

async fn give_back_batch(router: &Router, returns: Vec<GivenUpIndex>) -> CallResult<()> {
    let mut by_shard: BTreeMap<ShardId, Vec<GivenUpIndex>> = BTreeMap::new();
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
