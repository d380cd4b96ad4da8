//! Links of a chunk whose hosts live in other shards now. Before the chunk is crawled again, or restored, without them they
//! are queued again where they are, so that a crash in between leaves them queued, and the repeated call finds nothing more to do.
//!
//! The holder of a token has time for that: its lease lasts at least [`FOUND_STORE_TIME`] from then on.
//!
//! A host may move between that and the decision: the owner refuses to decide about a departed link that was not queued,
//! and everything begins anew.

use std::collections::HashSet;

use futures::{StreamExt, TryStreamExt};
use wayleave_core::frontier::refusal::Refusal;
use wayleave_core::frontier::request::{Put, PutKind, PutOutcome};
use wayleave_core::frontier::view::UrlState;
use wayleave_core::ids::{ChunkId, Token};
use wayleave_core::limits::FOUND_STORE_TIME;
use wayleave_core::names::{CrawlName, HostName};
use wayleave_core::pipeline::carry::{CarriedChunk, CarriedLink, CarriedLinkState};
use wayleave_core::pipeline::departed::DepartedLink;

use super::call::{ChunkCall, ChunkResponse, Departed};
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
        call: impl Fn(Vec<Box<str>>) -> ChunkCall,
    ) -> CallResult<T> {
        const TRIES: usize = 3;
        let (mut answer, mut changed) = (Err(Refusal::Moved), false);
        for _ in 0..TRIES {
            answer = match self.queue_departed(chunk, token).await {
                Ok(queued) => {
                    changed |= !queued.is_empty();
                    self.of_chunk(chunk, call(queued)).await
                }
                Err(refusal) => Err(refusal),
            };
            if !matches!(answer, Err(Refusal::Moved)) {
                break;
            }
        }
        let part = "links that live in other shards now were queued again";
        answer.map_err(|refusal| if changed { refusal.after_a_part(part) } else { refusal })
    }

    /// Queues the departed links of a chunk that is about to be crawled again. Returns them.
    async fn queue_departed(&self, chunk: ChunkId, token: Option<Token>) -> CallResult<Vec<Box<str>>> {
        let departed: Departed =
            self.of_chunk(chunk, ChunkCall::Departed { chunk, token, lease: FOUND_STORE_TIME }).await?;
        let Some((crawl, links)) = departed else { return Ok(Vec::new()) };
        let queued = links.iter().map(|link| link.url.clone()).collect();
        self.queue_again(links.into_iter().map(|link| (crawl.clone(), link)).collect()).await?;
        Ok(queued)
    }

    /// Queues links where they live, unless they are queued or handed out there already.
    pub(super) async fn queue_again(&self, links: Vec<(CrawlName, DepartedLink)>) -> CallResult<()> {
        let lookups = futures::stream::iter(links).map(|(crawl, link)| self.departed_put(crawl, link));
        let puts: Vec<Option<Put>> = lookups.buffered(LOOKUPS_AT_ONCE).try_collect().await?;
        let puts = puts.into_iter().flatten().collect();
        for outcome in self.frontier.put(puts).await {
            let why = match outcome {
                PutOutcome::Failed(why) => why.to_string(),
                PutOutcome::Moved => Refusal::Moved.to_string(),
                _ => continue,
            };
            let why = format!("a link that lives in another shard now could not be queued again ({why}); try again");
            return Err(Refusal::OutcomeUnknown(why));
        }
        Ok(())
    }

    /// Leaves out of exported chunks the returned links that are finished by now, or were deleted.
    pub(super) async fn drop_finished(&self, chunks: &mut [CarriedChunk]) -> CallResult<()> {
        for chunk in chunks {
            let returned = |link: &&CarriedLink| link.state == CarriedLinkState::Returned;
            let links: Vec<CarriedLink> = chunk.links.iter().filter(returned).cloned().collect();
            let lookups = futures::stream::iter(links).map(|link| async {
                let known = self.frontier.lookup(chunk.crawl.clone(), link.host.clone(), &link.url).await?;
                let open = known.is_some_and(|known| matches!(known.state, UrlState::Queued | UrlState::Reserved));
                CallResult::Ok((!open).then_some(link))
            });
            let ended: Vec<Option<CarriedLink>> = lookups.buffered(LOOKUPS_AT_ONCE).try_collect().await?;
            let ended: HashSet<(HostName, Box<str>)> =
                ended.into_iter().flatten().map(|link| (link.host, link.url)).collect();
            chunk.links.retain(|link| {
                link.state != CarriedLinkState::Returned || !ended.contains(&(link.host.clone(), link.url.clone()))
            });
        }
        Ok(())
    }

    /// What queues a departed link again; `None` if it must not be.
    async fn departed_put(&self, crawl: CrawlName, link: DepartedLink) -> CallResult<Option<Put>> {
        // One that is unknown was deleted, and is not brought back.
        let known = self.frontier.lookup(crawl.clone(), link.host.clone(), &link.url).await?;
        let ended = known.filter(|known| link.is_wanted(known));
        let DepartedLink { host, url, .. } = link;
        Ok(ended.map(|known| {
            let (priority, depth, metadata) = (known.priority, known.depth, known.metadata);
            let kind = PutKind::Wanted { at: None, priority, explicit: false, depth, again: true };
            Put { url, host, crawl, kind, metadata }
        }))
    }
}
