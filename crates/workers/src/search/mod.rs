//! Searches: reads the map, asks one server per chunk, and merges the answers.
//!
//! A server that does not answer is asked no more; its chunks, and those that a server could not search, are asked for in other rows.
//! Hits are merged by score.
//! Each server ranks by the statistics of its own chunks, so scores of different servers are comparable only as far as
//! their chunks are alike, which many chunks spread at random are.

mod ask;
mod plan;

use std::collections::{HashMap, HashSet};

use futures::StreamExt as _;
use wayleave_api::fleet::MachineType;
use wayleave_api::map::{GetMapQuery, Map};
use wayleave_client::Client;
use wayleave_outgoing::Policy;

use crate::fleet;
use crate::index::{Query, Refused};
pub use crate::index_server::wire::Hit;
use crate::index_server::wire::SearchResponse;
use crate::limits::{ASKED_AT_ONCE_MAX, HITS_MAX};
use ask::{Asker, Question};

/// Rounds of asking: the first, and others for chunks of servers that did not answer.
const ROUNDS_MAX: usize = 4;

/// What to search for.
#[derive(Debug, Clone)]
pub struct Search {
    /// The words.
    pub words: String,
    /// Only pages of this crawl.
    pub crawl: Option<String>,
    /// At most this many hits.
    pub limit: usize,
    /// Which of the rows that serve comes first.
    pub first_row: usize,
    /// Which addresses may be called.
    pub policy: Policy,
}

/// What was found.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct SearchResults {
    /// The best hits, best first, each URL once.
    pub hits: Vec<Hit>,
    /// Chunks that were searched.
    pub chunks: usize,
    /// Servers that answered.
    pub servers: usize,
    /// Chunks that no server could be asked for, or none answered.
    pub missing: usize,
    /// Servers that did not answer, and why.
    pub away: Vec<(String, String)>,
}

/// Why nothing was searched.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The words are none.
    #[error(transparent)]
    Query(#[from] Refused),
    /// The map cannot be read.
    #[error(transparent)]
    Server(#[from] wayleave_client::Error),
}

/// Searches all built chunks. Fails if the words are none or the map cannot be read. A server that does not answer is
/// no error.
pub async fn run(client: &Client, search: &Search) -> Result<SearchResults, Error> {
    // Refused here already, with a reason, and not by every server.
    search.words.parse::<Query>()?;
    let map = client.map(&GetMapQuery::default()).await?;
    let Some(map) = map else { return Ok(SearchResults::default()) };
    let asker = Asker::new(search.policy.clone(), fleet::reporting(client, MachineType::Server).await?);
    Ok(ask_all(&asker, &map, search).await)
}

async fn ask_all(asker: &Asker, map: &Map, search: &Search) -> SearchResults {
    let limit = search.limit.min(HITS_MAX);
    let question = Question { words: &search.words, crawl: search.crawl.as_deref(), limit };
    let mut found = SearchResults::default();
    let mut best: HashMap<String, Hit> = HashMap::new();
    let (mut without, mut servers) = (plan::Without::default(), HashSet::new());
    let mut wanted: Option<HashSet<String>> = None;
    for _ in 0..ROUNDS_MAX {
        let (plan, nowhere) = plan::plan(map, search.first_row, wanted.as_ref(), &without);
        found.missing += nowhere.len();
        let question = &question;
        let mut answers = futures::stream::iter(plan)
            .map(|(address, chunks)| async move {
                let answer = asker.ask(&address, question, &chunks).await;
                (address, chunks, answer)
            })
            .buffer_unordered(ASKED_AT_ONCE_MAX);
        let mut again = HashSet::new();
        while let Some((address, chunks, answer)) = answers.next().await {
            match answer {
                Ok(SearchResponse { hits, missing }) => {
                    found.chunks += chunks.len().saturating_sub(missing.len());
                    servers.insert(address.clone());
                    hits.into_iter().for_each(|hit| merge(&mut best, hit));
                    again.extend(missing.iter().cloned());
                    without.chunks.extend(missing.into_iter().map(|chunk| (address.clone(), chunk)));
                }
                Err(why) => {
                    without.servers.insert(address.clone());
                    found.away.push((address, why));
                    again.extend(chunks);
                }
            }
        }
        if again.is_empty() {
            wanted = None;
            break;
        }
        wanted = Some(again);
    }
    found.missing += wanted.map_or(0, |wanted| wanted.len());
    found.servers = servers.len();
    found.hits = best.into_values().collect();
    found.hits.sort_by(|a, b| b.score.total_cmp(&a.score).then_with(|| a.url.cmp(&b.url)));
    found.hits.truncate(limit);
    found
}

/// A URL that is in several chunks counts with its best score.
fn merge(best: &mut HashMap<String, Hit>, hit: Hit) {
    match best.get(&hit.url) {
        Some(known) if known.score >= hit.score => {}
        _ => _ = best.insert(hit.url.clone(), hit),
    }
}
