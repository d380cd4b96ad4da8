//! Chunks that leave this store in an export, or come from that of another. Each restored chunk is a decision and a commit
//! of its own: the next one is decided on what the one before has left, because both may name the same URL.

use std::collections::HashSet;

use wayleave_core::frontier::link::LinkUrl;
use wayleave_core::frontier::refusal::Refusal;
use wayleave_core::frontier::requeue::Known;
use wayleave_core::frontier::row::{UrlRow, UrlStatus};
use wayleave_core::ids::ChunkId;
use wayleave_core::limits::RESTORE_CHUNKS_MAX;
use wayleave_core::names::CrawlName;
use wayleave_core::pipeline::carry::CarriedChunk;
use wayleave_core::pipeline::claim::Writes;
use wayleave_core::pipeline::restore::{RestoreFacts, Restored};
use wayleave_core::pipeline::row::ChunkRow;
use wayleave_engine::rows::due;
use wayleave_engine::{Error, Key};

use crate::message::ChunkReply;
use crate::owner::chunk_slices::CARRIED_LINKS;
use crate::owner::cycle::CommitMark;
use crate::owner::owner_loop::Owner;
use crate::owner::read_facts;
use crate::pipeline::call::{CarriedPage, ChunkCall, RestoreChecks};

impl Owner {
    pub async fn handle_carried(&mut self, call: ChunkCall, mark: CommitMark, reply: ChunkReply) -> Result<(), Error> {
        match call {
            ChunkCall::Carry { crawl, after } => {
                let page = self.carry_chunks(crawl.as_ref(), after).await;
                self.answer_chunk(mark, reply, page.map(Ok))
            }
            ChunkCall::NextNumber => self.answer_chunk(mark, reply, Ok(Ok(self.pipeline.next_number()))),
            ChunkCall::RaiseIds(least) => {
                let mut writes = Writes::default();
                self.pipeline.raise_ids(least, &mut writes.pipeline);
                self.commit_chunks(writes);
                self.answer_chunk(mark, reply, Ok(Ok(())))
            }
            ChunkCall::CheckRestore(chunks) => {
                let met = self.check_restore(&chunks).await;
                self.answer_chunk(mark, reply, met.map(Ok))
            }
            // A host has moved since the caller looked. Nothing is changed, and it looks again.
            ChunkCall::Restore { ref chunks, ref queued } if self.has_unqueued_links(chunks, queued) => {
                self.answer_chunk(mark, reply, Ok(Err::<Vec<Restored>, _>(Refusal::Moved)))
            }
            ChunkCall::Restore { chunks, .. } => {
                let (restored, trouble) = self.restore_chunks(&chunks).await;
                match trouble {
                    None => self.answer_chunk(mark, reply, Ok(Ok(restored))),
                    Some(error) if restored.is_empty() => {
                        self.answer_chunk(mark, reply, Err::<Result<Vec<Restored>, _>, _>(error))
                    }
                    // The caller repeats the call, and finds known what was restored before.
                    Some(error) => {
                        let why = format!("a part of the chunks was restored ({error}); send them again");
                        _ = reply.send(Err(Refusal::OutcomeUnknown(why)));
                        Err(error)
                    }
                }
            }
            _ => self.answer_chunk(mark, reply, Ok(Err::<(), _>(Refusal::Internal("no such call".to_owned())))),
        }
    }

    /// A slice of the chunks, as an export carries them: at least one, if there are any, and few links together.
    async fn carry_chunks(&mut self, crawl: Option<&CrawlName>, after: Option<ChunkId>) -> Result<CarriedPage, Error> {
        let (rows, known_to) = self.chunk_slice(after, CARRIED_LINKS).await?;
        let (mut carried, mut links) = (Vec::new(), 0);
        for row in &rows {
            if links >= CARRIED_LINKS {
                return Ok((carried, after_last(&rows, row.id)));
            }
            if crawl.is_some_and(|crawl| *crawl != row.crawl) {
                continue;
            }
            links += row.links.len().max(1);
            let urls = row.urls();
            let cut: Vec<usize> = row.read_links(&self.state);
            let wanted: Vec<LinkUrl> = cut.iter().filter_map(|at| urls.get(*at).cloned()).collect();
            let mut found = vec![None; urls.len()];
            for (at, url) in cut.into_iter().zip(self.readable_rows(&wanted).await?) {
                found.iter_mut().skip(at).take(1).for_each(|place| place.clone_from(&url));
            }
            carried.push(row.carry(&found, &self.state));
        }
        Ok((carried, known_to))
    }

    async fn check_restore(&mut self, chunks: &[CarriedChunk]) -> Result<RestoreChecks, Error> {
        let mut met = Vec::with_capacity(chunks.len());
        for chunk in chunks.iter().take(RESTORE_CHUNKS_MAX) {
            let row = self.chunk_row(chunk.id).await?.map_err(|refusal| Error::Corrupt(refusal.to_string()))?;
            met.push(chunk.met(row.as_ref()).map_or_else(|| Ok(chunk.departed(&self.state)), Err));
        }
        Ok(met)
    }

    /// Whether a link to be crawled lives elsewhere and was not queued there.
    fn has_unqueued_links(&self, chunks: &[CarriedChunk], queued: &[Box<str>]) -> bool {
        let queued: HashSet<&str> = queued.iter().map(|url| &**url).collect();
        chunks.iter().flat_map(|chunk| chunk.departed(&self.state)).any(|link| !queued.contains(&*link.url))
    }

    /// Restores chunks one after the other. What was restored before a read failed is returned with the error.
    async fn restore_chunks(&mut self, chunks: &[CarriedChunk]) -> (Vec<Restored>, Option<Error>) {
        let mut all = Vec::with_capacity(chunks.len());
        for chunk in chunks.iter().take(RESTORE_CHUNKS_MAX) {
            match self.restore_chunk(chunk).await {
                Ok(restored) => all.push(restored),
                Err(error) => return (all, Some(error)),
            }
        }
        (all, None)
    }

    async fn restore_chunk(&mut self, chunk: &CarriedChunk) -> Result<Restored, Error> {
        let known = self.chunk_row(chunk.id).await?.map_err(|refusal| Error::Corrupt(refusal.to_string()))?;
        let urls = self.known_urls(&chunk.urls(&self.state)).await?;
        let (mut writes, entropy) = (Writes::default(), self.config.entropy.clone());
        let facts = RestoreFacts { urls, now: self.now(), entropy: &*entropy };
        let restored = self.pipeline.restore(chunk, known.as_ref(), facts, &mut self.state, &mut writes);
        self.commit_chunks(writes);
        Ok(restored)
    }

    /// The URLs that are known, each with its details, which lie in its due row while it is queued.
    async fn known_urls(&mut self, urls: &[LinkUrl]) -> Result<Vec<Option<Known>>, Error> {
        let rows = self.readable_rows(urls).await?;
        let due_key = |((queue, key), row): (&LinkUrl, &Option<UrlRow>)| match &row.as_ref()?.status {
            UrlStatus::Queued(position) => Some(due::key(*queue, *position, &key.0)),
            _ => None,
        };
        let due_keys: Vec<Option<Key>> = urls.iter().zip(&rows).map(due_key).collect();
        let keys: Vec<Key> = due_keys.iter().flatten().cloned().collect();
        let mut waiting = read_facts::due_rows(&*self.engine, &keys).await?.into_iter();
        let mut known = Vec::with_capacity(urls.len());
        for (((_, key), row), due_key) in urls.iter().zip(rows).zip(due_keys) {
            let waiting = due_key.and_then(|_| waiting.next().and_then(Result::ok).flatten()).map(|row| row.details);
            known.push(row.map(|row| Known { key: key.clone(), row, waiting }));
        }
        Ok(known)
    }
}

/// The id before this one in a slice: the next slice starts after it.
fn after_last(rows: &[ChunkRow], next: ChunkId) -> Option<ChunkId> {
    rows.iter().map(|row| row.id).take_while(|id| *id < next).last()
}
