//! Chunks that leave in an export, and chunks that come from that of another store.
//!
//! A chunk that is restored is first entered in placement with its copies, then in the shard that keeps it: the other way
//! round it would be announced, and placed anew, before placement knows where its copies are. Before either, no shard may
//! ever use its number again: an import first raises the numbers of all shards above those of the original store, and each
//! call above those of its own chunks, for files that do not say. Interleavings:
//!
//! 1. The import ends anywhere in between, and is repeated: numbers are not raised twice, placement knows the chunk with
//!    this index and changes nothing, and a shard knows the chunk by its id and the time that it was made.
//! 2. It is not repeated: placement has a chunk that no shard knows. Readers find it where it is.
//! 3. A shard has made a chunk with this id before: it is found before anything is changed, and the line is refused. After
//!    that none can be made, because the numbers are raised first.
//! 4. Two imports at once: both find the chunk new, both enter the same copies, and the second finds it known.
//! 5. A host of its links moves out of the chunk's shard after the shard has said which links live elsewhere: the shard
//!    refuses to restore it without that link, and everything begins anew. It moves in: the chunk takes the link.
//! 6. Workers claim while the import goes on: their chunks have numbers above those of the file.

use std::collections::BTreeMap;

use wayleave_core::frontier::refusal::Refusal;
use wayleave_core::ids::{ChunkId, ShardId};
use wayleave_core::limits::{
    CHUNK_COUNTER_RESTORED_MAX, CHUNK_IDS_SKIPPED, CHUNK_NUMBERS_AHEAD_MAX, RESTORE_CHUNKS_MAX, SLICE_ROWS,
};
use wayleave_core::names::CrawlName;
use wayleave_core::pipeline::carry::CarriedChunk;
use wayleave_core::pipeline::restore::Restored;
use wayleave_core::placement::{self, CarriedCopies, CarriedCopy};

use super::call::{CarriedPage, ChunkCall, RestoreChecks};
use super::handle::Pipeline;
use crate::fleet::CONTROL_SHARD;
use crate::fleet::call::{ControlCall, Taken};
use crate::routing::router::CallResult;

impl Pipeline {
    /// Some chunks as an export carries them, with their copies, and the id after which the next ones start.
    ///
    /// # Errors
    /// If a shard cannot be asked.
    pub async fn carry(
        &self,
        crawl: Option<CrawlName>,
        after: Option<ChunkId>,
    ) -> CallResult<(Vec<CarriedChunk>, Option<ChunkId>)> {
        let (first, mut after) = (self.first_shard(after), after);
        let mut shards = self.frontier.all().into_iter().filter(|shard| *shard >= first).peekable();
        while let Some(shard) = shards.peek().copied() {
            let call = ChunkCall::Carry { crawl: crawl.clone(), after: after.take() };
            let (mut chunks, next): CarriedPage = self.ask(shard, call).await?;
            let last = chunks.last().map(|chunk| chunk.id);
            if next.is_none() {
                shards.next();
            }
            after = next;
            if let Some(last) = last {
                self.drop_finished(&mut chunks).await?;
                self.add_copies(&mut chunks).await?;
                // At the end of a shard the last chunk is where the next page starts: it finds nothing more there.
                let more = next.is_some() || shards.peek().is_some();
                return Ok((chunks, next.or(Some(last)).filter(|_| more)));
            }
        }
        Ok((Vec::new(), None))
    }

    async fn add_copies(&self, chunks: &mut [CarriedChunk]) -> CallResult<()> {
        for part in chunks.chunks_mut(RESTORE_CHUNKS_MAX) {
            let ids = part.iter().map(|chunk| chunk.id).collect();
            let copies: Vec<Vec<CarriedCopy>> =
                self.frontier.router.call(CONTROL_SHARD, ControlCall::CarryCopies(ids)).await?;
            for (chunk, copies) in part.iter_mut().zip(copies) {
                chunk.copies = copies;
            }
        }
        Ok(())
    }

    /// Restores chunks that were exported, at most [`RESTORE_CHUNKS_MAX`]. Returns what became of each.
    ///
    /// # Errors
    /// If a shard cannot be asked; then some may have been restored, and the call may be repeated.
    pub async fn restore(&self, chunks: Vec<CarriedChunk>) -> CallResult<Vec<Restored>> {
        let mut told: Vec<Option<Restored>> = vec![None; chunks.len()];
        let mut rest: Vec<(usize, CarriedChunk)> = Vec::new();
        for (at, (chunk, told)) in chunks.into_iter().zip(&mut told).enumerate() {
            match chunk.contradiction() {
                Some(why) => *told = Some(Restored::Refused(why.into())),
                None => rest.push((at, chunk)),
            }
        }
        let next: Vec<u64> = self.ask_all(&ChunkCall::NextNumber).await?;
        let greatest = next.iter().copied().max().unwrap_or_default();
        rest.retain(|(at, chunk)| {
            let why = chunk.out_of_reach(greatest);
            if let Some(why) = &why {
                tell(&mut told, *at, Some(Restored::Refused(why.clone().into())));
            }
            why.is_none()
        });
        let Some(last) = rest.iter().map(|(_, chunk)| chunk.id.counter()).max() else { return Ok(settled(told)) };
        let least = last + 1 + CHUNK_IDS_SKIPPED;
        if next.iter().any(|next| *next < least) {
            let _: Vec<()> = self.ask_all(&ChunkCall::RaiseIds(least)).await?;
        }
        let part = |refusal: Refusal| refusal.after_a_part("a part of the chunks may be restored; send them again");
        for (shard, slice) in self.slices(rest) {
            self.restore_slice(shard, slice, &mut told).await.map_err(part)?;
        }
        Ok(settled(told))
    }

    /// The number below which all chunks of this store are.
    ///
    /// # Errors
    /// If a shard cannot be asked.
    pub async fn next_number(&self) -> CallResult<u64> {
        let next: Vec<u64> = self.ask_all(&ChunkCall::NextNumber).await?;
        Ok(next.into_iter().max().unwrap_or_default())
    }

    /// Lets no shard make a chunk with a number below this one. Returns the number below which all chunks are then.
    ///
    /// # Errors
    /// If the number is far above all that any store makes; then nothing was changed. If a shard cannot be asked; some
    /// shards may have raised theirs, and the call may be repeated.
    pub async fn raise_numbers(&self, least: u64) -> CallResult<u64> {
        let (next, ahead) = (self.next_number().await?, CHUNK_NUMBERS_AHEAD_MAX);
        let far = least >= next.saturating_add(ahead) || least > CHUNK_COUNTER_RESTORED_MAX;
        if least > next && far {
            return Err(Refusal::OverLimit(format!(
                "numbers of chunks cannot be raised to {least}: that is {ahead} or more above the next one of this store, {next}, \
                 and numbers once skipped are lost; take the line of chunk numbers as `wayleave export` wrote it"
            )));
        }
        let _: Vec<()> = self.ask_all(&ChunkCall::RaiseIds(least)).await?;
        self.next_number().await
    }

    /// Restores chunks of one shard, and begins anew if a host moves meanwhile.
    async fn restore_slice(
        &self,
        shard: ShardId,
        slice: Vec<(usize, CarriedChunk)>,
        told: &mut [Option<Restored>],
    ) -> CallResult<()> {
        const TRIES: usize = 3;
        let mut answer = Err(Refusal::Moved);
        for _ in 0..TRIES {
            answer = self.try_restore(shard, slice.clone(), told).await;
            if answer != Err(Refusal::Moved) {
                break;
            }
        }
        answer
    }

    async fn try_restore(
        &self,
        shard: ShardId,
        slice: Vec<(usize, CarriedChunk)>,
        told: &mut [Option<Restored>],
    ) -> CallResult<()> {
        let chunks: Vec<CarriedChunk> = slice.iter().map(|(_, chunk)| chunk.clone()).collect();
        let met: RestoreChecks = self.ask(shard, ChunkCall::CheckRestore(chunks)).await?;
        let (mut fresh, mut away) = (Vec::new(), Vec::new());
        for ((at, chunk), met) in slice.into_iter().zip(met) {
            match met {
                Ok(links) => {
                    away.push(links);
                    fresh.push((at, chunk));
                }
                Err(met) => tell(told, at, Some(met)),
            }
        }
        let refused = self.restore_copies(&fresh).await?;
        let (mut places, mut chunks) = (Vec::with_capacity(fresh.len()), Vec::with_capacity(fresh.len()));
        // Only those of chunks that are restored: a chunk that is refused changes nothing.
        let mut departed = Vec::new();
        for (((at, chunk), links), refused) in fresh.into_iter().zip(away).zip(refused) {
            match refused {
                Some(why) => tell(told, at, Some(Restored::Refused(why.to_string().into()))),
                None => {
                    departed.extend(links.into_iter().map(|link| (chunk.crawl.clone(), link)));
                    places.push(at);
                    chunks.push(chunk);
                }
            }
        }
        if chunks.is_empty() {
            return Ok(());
        }
        let queued = departed.iter().map(|(_, link)| link.url.clone()).collect();
        self.queue_again(departed).await?;
        let restored: Vec<Restored> = self.ask(shard, ChunkCall::Restore { chunks, queued }).await?;
        for (at, restored) in places.into_iter().zip(restored) {
            tell(told, at, Some(restored));
        }
        Ok(())
    }

    /// The chunks of each shard, in slices of few links.
    fn slices(&self, chunks: Vec<(usize, CarriedChunk)>) -> Vec<(ShardId, Vec<(usize, CarriedChunk)>)> {
        let mut by_shard: BTreeMap<ShardId, Vec<(usize, CarriedChunk)>> = BTreeMap::new();
        for (at, chunk) in chunks {
            by_shard.entry(chunk.id.home(self.frontier.shards())).or_default().push((at, chunk));
        }
        let mut slices = Vec::new();
        for (shard, chunks) in by_shard {
            let (mut slice, mut links) = (Vec::new(), 0);
            for (at, chunk) in chunks {
                links += chunk.links.len();
                if !slice.is_empty() && (links > SLICE_ROWS || slice.len() >= RESTORE_CHUNKS_MAX) {
                    links = chunk.links.len();
                    slices.push((shard, std::mem::take(&mut slice)));
                }
                slice.push((at, chunk));
            }
            slices.push((shard, slice));
        }
        slices
    }

    /// Enters chunks in placement, with their copies. Returns why, for each that is refused.
    async fn restore_copies(&self, chunks: &[(usize, CarriedChunk)]) -> CallResult<Vec<Option<placement::Refusal>>> {
        let carried: Vec<CarriedCopies> = chunks
            .iter()
            .map(|(_, chunk)| CarriedCopies {
                chunk: chunk.id,
                built: chunk.built.clone().map(|artifact| (artifact, chunk.index)),
                copies: chunk.copies.clone(),
            })
            .collect();
        if carried.iter().all(|chunk| chunk.built.is_none() && chunk.copies.is_empty()) {
            return Ok(vec![None; chunks.len()]);
        }
        let taken: Taken = self.frontier.router.call(CONTROL_SHARD, ControlCall::RestoreCopies(carried)).await?;
        Ok(taken.into_iter().map(Result::err).collect())
    }
}

fn tell(told: &mut [Option<Restored>], at: usize, what: Option<Restored>) {
    told.iter_mut().skip(at).take(1).for_each(|place| place.clone_from(&what));
}

fn settled(told: Vec<Option<Restored>>) -> Vec<Restored> {
    // A shorter answer than the call would be a bug of a node.
    let lost = || Restored::Refused("it was not answered; send it again".into());
    told.into_iter().map(|told| told.unwrap_or_else(lost)).collect()
}
