//! Links of hosts that have moved to another shard since. A chunk whose content is lost crawls its links again, but only
//! its own shard's; the others are queued again where they live now, before the chunk changes.
//!
//! A queue that is not here was deleted, unless its host lives elsewhere: a link of it is not looked for, because a new crawl
//! of the same name may have fetched the same URL.
//!
//! What a chunk has fetched it may take back however its URL ended. What it had not fetched was marked as failed when it
//! came to rest; an operator may have queued the URL again since, and another chunk may have fetched it. So such a URL is
//! taken back only if it ended by this chunk ([`OwnEnd`]).

use serde::{Deserialize, Serialize};

use super::row::{ChunkRow, ChunkState, LinkRow, LinkState};
use crate::frontier::State as Frontier;
use crate::frontier::row::{UrlRow, UrlStatus};
use crate::frontier::view::{LastVisit, UrlState, UrlView};
use crate::ids::Token;
use crate::limits;
use crate::names::HostName;
use crate::time::Time;

/// A link that lives in another shard.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DepartedLink {
    /// Its host.
    pub host: HostName,
    /// Its URL.
    pub url: Box<str>,
    /// How its URL must have ended to be queued again; `None` if it does not matter.
    pub ended: Option<OwnEnd>,
}

impl DepartedLink {
    /// Whether it is queued again. One that is queued or handed out is taken care of, and one that is gone stays so.
    #[must_use]
    pub fn is_wanted(&self, known: &UrlView) -> bool {
        let ended = matches!(known.state, UrlState::Fetched | UrlState::Failed);
        ended && self.ended.is_none_or(|own| own.covers(known.state, known.last.as_ref()))
    }
}

/// By what a URL that a chunk has marked as failed is recognised.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OwnEnd {
    /// When it came to rest.
    rests_since: Time,
}

impl OwnEnd {
    /// What a client says to be fetched has no last result.
    fn covers(self, state: UrlState, last: Option<&LastVisit>) -> bool {
        last.is_some_and(|last| state == UrlState::Failed && last.at <= self.rests_since)
    }
}

impl LinkRow {
    /// Whether its host lives in another shard.
    pub(super) fn is_elsewhere(&self, frontier: &Frontier) -> bool {
        !frontier.has_host(&self.host)
    }
}

impl ChunkRow {
    /// The links that a chunk that is about to be crawled again would do without: those whose hosts live in other shards.
    /// With a token: if its holder reports the content as lost; without: if an operator asks for it again. A URL over
    /// a kilobyte is not named, because its key holds only the start of it.
    #[must_use]
    pub fn departed(&self, token: Option<Token>, frontier: &Frontier, now: Time) -> Vec<DepartedLink> {
        let again = match (token, self.state) {
            (Some(token), ChunkState::Building) => {
                let held = self.lease.as_ref().is_some_and(|l| l.token == token && l.expires_at > now);
                held && self.inputs_lost.saturating_add(1) < limits::CHUNK_ATTEMPTS_MAX
            }
            (None, ChunkState::SetAside | ChunkState::Skipped) => self.crawled.is_none(),
            _ => false,
        };
        let links = self.links.iter().filter(|link| again && !link.has_left());
        let away = links.filter(|link| !link.url.1.is_cut() && link.is_elsewhere(frontier));
        let departed =
            |link: &LinkRow| DepartedLink { host: link.host.clone(), url: link.text(), ended: self.own_end(link) };
        away.map(departed).collect()
    }

    /// How the URL of a link must have ended if the chunk takes it back.
    fn own_end(&self, link: &LinkRow) -> Option<OwnEnd> {
        let fetched = matches!(link.state, LinkState::Crawled(_));
        (!fetched).then_some(OwnEnd { rests_since: self.since })
    }

    /// Whether the chunk may take a link back whose URL has this row.
    pub(super) fn may_take(&self, link: &LinkRow, row: &UrlRow) -> bool {
        let UrlStatus::Done { end, details, .. } = &row.status else { return false };
        self.own_end(link).is_none_or(|own| own.covers(end.state(), details.last.as_ref()))
    }
}
