//! What callers see of chunks: their state, the reason for it, and when that will change.

use serde::{Deserialize, Serialize};

use super::link_view::LinkView;
use super::row::{Artifact, ChunkRow, ChunkState, LinkState};
use crate::frontier::State as Frontier;
use crate::ids::ChunkId;
use crate::limits;
use crate::names::{CrawlName, HostName};
use crate::placement::PlacementView;
use crate::time::Time;

/// A chunk as callers see it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChunkView {
    /// Its id.
    pub id: ChunkId,
    /// Its crawl.
    pub crawl: CrawlName,
    /// Its host, if all its links are of one.
    pub host: Option<HostName>,
    /// Where it is.
    pub state: ChunkState,
    /// Why it is there, and what happens next.
    pub reason: String,
    /// When that changes at the latest by itself, if it does.
    pub until: Option<Time>,
    /// Who works on it.
    pub worker: Option<String>,
    /// Attempts at the present stage without a result.
    pub attempts: u32,
    /// When it was made.
    pub created_at: Time,
    /// Since when it has been in its state.
    pub since: Time,
    /// Links not reported yet.
    pub crawling: u64,
    /// Links fetched.
    pub crawled: u64,
    /// Links that failed.
    pub error: u64,
    /// Its links, as many as are shown; none where chunks are listed.
    pub link_list: Option<Vec<LinkView>>,
    /// How many links are not in that list.
    pub links_more: u64,
    /// What its crawl stage left behind.
    pub crawl_artifact: Option<Artifact>,
    /// What its build stage left behind.
    pub build_artifact: Option<Artifact>,
    /// Why the last attempt ended without a result.
    pub last_error: Option<String>,
    /// Its copies on index servers; none where chunks are listed. A chunk that is not built, or is about to be placed,
    /// has an empty list.
    pub placements: Option<Vec<PlacementView>>,
}

/// Which chunks to list.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChunkFilter {
    /// Only in this state.
    pub state: Option<ChunkState>,
    /// Only of this stage.
    pub stage: Option<super::request::Stage>,
    /// Only of this crawl.
    pub crawl: Option<CrawlName>,
}

impl ChunkFilter {
    /// Whether a chunk is listed. One that was set aside or skipped belongs to the stage that it did not complete.
    #[must_use]
    pub fn takes(&self, chunk: &ChunkRow) -> bool {
        let stage = match chunk.state {
            ChunkState::Crawling => super::request::Stage::Crawl,
            ChunkState::Crawled | ChunkState::Building | ChunkState::Built => super::request::Stage::Build,
            ChunkState::SetAside | ChunkState::Skipped if chunk.crawled.is_none() => super::request::Stage::Crawl,
            ChunkState::SetAside | ChunkState::Skipped => super::request::Stage::Build,
        };
        self.state.is_none_or(|state| state == chunk.state)
            && self.stage.is_none_or(|wanted| wanted == stage)
            && self.crawl.as_ref().is_none_or(|crawl| *crawl == chunk.crawl)
    }
}

impl ChunkRow {
    /// The chunk as callers see it.
    #[must_use]
    pub fn view(&self, frontier: &Frontier, now: Time) -> ChunkView {
        let count = |wanted: fn(&LinkState) -> bool| {
            let of = self.links.iter().filter(|link| wanted(&link.state));
            of.count() as u64
        };
        let (reason, until) = self.reason(frontier, now);
        ChunkView {
            id: self.id,
            crawl: self.crawl.clone(),
            host: self.host.clone(),
            state: self.state,
            reason,
            until,
            worker: self.lease.as_ref().map(|lease| lease.worker.to_string()),
            attempts: self.attempts,
            created_at: self.created_at,
            since: self.since,
            crawling: if self.state.has_ended() { 0 } else { count(|state| *state == LinkState::Crawling) },
            crawled: count(|state| matches!(state, LinkState::Crawled(_))),
            error: count(|state| matches!(state, LinkState::Error(_))),
            link_list: None,
            links_more: 0,
            crawl_artifact: self.crawled.clone(),
            build_artifact: self.built.clone(),
            last_error: self.last_error.as_deref().map(str::to_owned),
            placements: None,
        }
    }

    fn reason(&self, frontier: &Frontier, now: Time) -> (String, Option<Time>) {
        let error = self.last_error.as_deref().unwrap_or("no reason was given");
        let again = || match self.attempts {
            0 => String::new(),
            n => format!("; attempt {} of {}, the last one failed: {error}", n + 1, limits::CHUNK_ATTEMPTS_MAX),
        };
        match (self.state, &self.lease) {
            (ChunkState::Crawling, Some(lease)) => {
                (format!("'{}' is fetching its links{}", lease.worker, again()), Some(lease.expires_at))
            }
            (ChunkState::Crawling, None) => {
                let ready = self.ready_at(frontier);
                let mut links = self.leases().filter(|token| frontier.link_urls(*token).is_some());
                let hindered = links.find_map(|token| frontier.link_hindrance(token));
                let (waits, until) = match (ready, hindered) {
                    (Some(at), _) if at <= now => ("a crawler is awaited".to_owned(), Some(now)),
                    (Some(at), None) => ("it is offered again when its groups may be visited".to_owned(), Some(at)),
                    (Some(at), Some((why, _))) => {
                        (format!("it is offered again when its groups may be visited: {why}"), Some(at))
                    }
                    (None, Some((why, until))) => (format!("a group of its links is not free: {why}"), until),
                    (None, None) => ("a group of its links is busy or paused".to_owned(), None),
                };
                (format!("{waits}{}", again()), until)
            }
            (ChunkState::Crawled, _) | (ChunkState::Building, None) => {
                (format!("its links are fetched; an index builder is awaited{}", again()), None)
            }
            (ChunkState::Building, Some(lease)) => {
                (format!("'{}' is building its index{}", lease.worker, again()), Some(lease.expires_at))
            }
            (ChunkState::Built, _) if !self.placed => {
                ("its index is built, and is about to be placed on index servers".to_owned(), None)
            }
            (ChunkState::Built, _) => ("its index is built".to_owned(), None),
            (ChunkState::SetAside, _) => {
                let most = limits::CHUNK_ATTEMPTS_MAX;
                (format!("set aside after {most} attempts, the last one failed: {error}; retry or skip it"), None)
            }
            (ChunkState::Skipped, _) => (format!("it ended without a result: {error}"), None),
        }
    }
}
