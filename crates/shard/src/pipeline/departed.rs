//! Links of a chunk whose hosts live in other shards now. Before the chunk is crawled again without them they are queued
//! again where they are, so that a crash in between leaves them queued, and the repeated call finds nothing more to do.
//!
//! A host may move between that and the decision: the owner refuses to decide about a departed link that was not queued,
//! and everything begins anew.

use wayleave_core::frontier::refusal::Refusal;
use wayleave_core::frontier::request::{Put, PutKind, PutOutcome};
use wayleave_core::frontier::view::UrlState;
use wayleave_core::ids::{ChunkId, Token};
use wayleave_core::pipeline::row::ChunkState;

use super::call::{ChunkCall, Departed};
use super::handle::Pipeline;
use crate::routing::router::CallResult;

impl Pipeline {
    /// Makes a call that sends a chunk back to the crawl stage, for the holder of this token or for an operator, after
    /// its departed links are queued.
    pub(super) async fn crawl_again(
        &self,
        chunk: ChunkId,
        token: Option<Token>,
        call: impl Fn(Vec<Box<str>>) -> ChunkCall,
    ) -> CallResult<ChunkState> {
        const TRIES: usize = 3;
        let mut answer = Err(Refusal::Moved);
        for _ in 0..TRIES {
            let queued = self.queue_departed(chunk, token).await?;
            let changed = !queued.is_empty();
            answer = self.of_chunk(chunk, call(queued)).await;
            if answer != Err(Refusal::Moved) {
                let part = "links that live in other shards now were queued again";
                return answer.map_err(|refusal| if changed { refusal.after_a_part(part) } else { refusal });
            }
        }
        answer
    }

    /// Queues the departed links of a chunk that is about to be crawled again. Returns them.
    async fn queue_departed(&self, chunk: ChunkId, token: Option<Token>) -> CallResult<Vec<Box<str>>> {
        let departed: Departed = self.of_chunk(chunk, ChunkCall::Departed { chunk, token }).await?;
        let Some((crawl, links)) = departed else { return Ok(Vec::new()) };
        let (mut puts, mut queued) = (Vec::new(), Vec::new());
        for (host, url) in links {
            queued.push(url.clone());
            // One that is unknown was deleted, and is not brought back. One that is queued or handed out is taken care of.
            let Some(known) = self.frontier.lookup(crawl.clone(), host.clone(), &url).await? else { continue };
            if !matches!(known.state, UrlState::Fetched | UrlState::Failed) {
                continue;
            }
            let (priority, depth, metadata) = (known.priority, known.depth, known.metadata);
            let kind = PutKind::Wanted { at: None, priority, explicit: false, depth, again: true };
            puts.push(Put { url, host, crawl: crawl.clone(), kind, metadata });
        }
        for outcome in self.frontier.put(puts).await {
            let why = match outcome {
                PutOutcome::Failed(why) => why.to_string(),
                PutOutcome::Moved => Refusal::Moved.to_string(),
                _ => continue,
            };
            let why = format!("a link that lives in another shard now could not be queued again ({why}); try again");
            return Err(Refusal::OutcomeUnknown(why));
        }
        Ok(queued)
    }
}
