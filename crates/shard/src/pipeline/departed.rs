//! Links of a chunk whose hosts live in other shards now. Before the chunk is crawled again without them, they are
//! queued again where they live, so that a crash in between leaves them queued, and the repeated call finds nothing more to do.
//!
//! The holder of a token has time for that: its lease lasts at least [`FOUND_STORE_TIME`] from then on.
//!
//! A host may move between that and the decision: the owner refuses to decide about a departed link that was not queued,
//! and everything begins anew.
//!
//! A retry that takes nothing is refused unless a departed link was found. What is found may be deleted before the decision,
//! or come here: then the chunk is skipped without a link, or refused although its link was queued. Neither loses a URL, and
//! the refusal says that its URLs may be queued.

use futures::{StreamExt, TryStreamExt};
use wayleave_core::frontier::refusal::Refusal;
use wayleave_core::frontier::request::{Put, PutKind, PutOutcome};
use wayleave_core::ids::{ChunkId, Token};
use wayleave_core::limits::FOUND_STORE_TIME;
use wayleave_core::names::CrawlName;
use wayleave_core::pipeline::departed::DepartedLink;

use super::call::{ChunkCall, ChunkResponse, DepartedLinks, DepartedLookup};
use super::handle::Pipeline;
use crate::routing::router::CallResult;

/// Links that are looked up at once.
const LOOKUPS_AT_ONCE: usize = 32;

impl Pipeline {
    /// Makes a call that sends a chunk back to the crawl stage, for the holder of this token or for an operator, after
    /// its departed links are queued.
    pub(super) async fn crawl_again<T: TryFrom<ChunkResponse, Error = Refusal>>(
        &self,
        chunk: ChunkId,
        token: Option<Token>,
        call: impl Fn(Vec<DepartedLookup>) -> ChunkCall,
    ) -> CallResult<T> {
        const TRIES: usize = 3;
        let (mut answer, mut changed) = (Err(Refusal::Moved), false);
        for _ in 0..TRIES {
            answer = match self.queue_departed(chunk, token).await {
                Ok((found, queued)) => {
                    changed |= queued;
                    self.of_chunk(chunk, call(found)).await
                }
                Err(refusal) => Err(refusal),
            };
            if !matches!(answer, Err(Refusal::Moved)) {
                break;
            }
        }
        let part = "links that live in other shards now were queued again";
        answer.map_err(|refusal| if changed { refusal.after_partial_change(part) } else { refusal })
    }

    /// Queues the departed links of a chunk that is about to be crawled again where they live, unless they are queued or handed
    /// out there already. Returns them, and whether one had to be queued.
    async fn queue_departed(&self, chunk: ChunkId, token: Option<Token>) -> CallResult<(Vec<DepartedLookup>, bool)> {
        let departed: DepartedLinks =
            self.of_chunk(chunk, ChunkCall::DepartedLinks { chunk, token, lease: FOUND_STORE_TIME }).await?;
        let Some((crawl, links)) = departed else { return Ok((Vec::new(), false)) };
        let lookups = futures::stream::iter(links).map(|link| self.departed_put(crawl.clone(), link));
        let found: Vec<(DepartedLookup, Option<Put>)> = lookups.buffered(LOOKUPS_AT_ONCE).try_collect().await?;
        let (found, puts): (Vec<DepartedLookup>, Vec<Option<Put>>) = found.into_iter().unzip();
        let puts: Vec<Put> = puts.into_iter().flatten().collect();
        let queues = !puts.is_empty();
        for outcome in self.frontier.put(puts).await {
            let why = match outcome {
                PutOutcome::Failed(why) => why.to_string(),
                PutOutcome::Moved => Refusal::Moved.to_string(),
                _ => continue,
            };
            let why = format!("a link that lives in another shard now could not be queued again ({why}); try again");
            return Err(Refusal::OutcomeUnknown(why));
        }
        Ok((found, queues))
    }

    /// A departed link where it lives now, and what queues it again; `None` if it must not be.
    async fn departed_put(&self, crawl: CrawlName, link: DepartedLink) -> CallResult<(DepartedLookup, Option<Put>)> {
        // One that is unknown was deleted, and is not brought back.
        let known = self.frontier.lookup(crawl.clone(), link.host.clone(), &link.url).await?;
        let found = DepartedLookup { url: link.url.clone(), known: known.is_some() };
        let ended = known.filter(|known| link.is_wanted(known));
        let DepartedLink { host, url, .. } = link;
        let put = ended.map(|known| {
            let (priority, depth, metadata) = (known.priority, known.depth, known.metadata);
            let kind = PutKind::Wanted { at: None, priority, explicit: false, depth, again: true };
            Put { url, host, crawl, kind, metadata }
        });
        Ok((found, put))
    }
}
