//! Links of a chunk whose hosts live in other shards now. Before the chunk is crawled again without them they are queued
//! again where they are, so that a crash in between leaves them queued, and the repeated call finds nothing more to do.

use wayleave_core::frontier::refusal::Refusal;
use wayleave_core::frontier::request::{Put, PutKind, PutOutcome};
use wayleave_core::frontier::view::UrlState;
use wayleave_core::ids::{ChunkId, Token};

use super::call::{ChunkCall, Departed};
use super::handle::Pipeline;
use crate::routing::router::CallResult;

impl Pipeline {
    /// Queues the departed links of a chunk that is about to be crawled again: for the holder of this token, or for an
    /// operator.
    pub(super) async fn queue_departed(&self, chunk: ChunkId, token: Option<Token>) -> CallResult<()> {
        let departed: Departed = self.of_chunk(chunk, ChunkCall::Departed { chunk, token }).await?;
        let Some((crawl, links)) = departed.filter(|(_, links)| !links.is_empty()) else { return Ok(()) };
        let mut puts = Vec::new();
        for (host, url) in links {
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
            if let PutOutcome::Failed(why) = outcome {
                let why =
                    format!("a link that lives in another shard now could not be queued again ({why}); try again");
                return Err(Refusal::Unavailable(why));
            }
        }
        Ok(())
    }
}
