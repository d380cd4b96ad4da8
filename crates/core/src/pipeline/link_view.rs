//! The links of a chunk as callers see them, and one of them that failed.

use serde::{Deserialize, Serialize};

use super::row::{ChunkRow, LinkRow, LinkState};
use crate::frontier::row::{Details, End, UrlRow, UrlStatus};
use crate::frontier::view::UrlState;
use crate::limits::CHUNK_LINKS_SHOWN;
use crate::redact;
use crate::time::Time;

/// A link as callers see it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkView {
    /// Its URL. One over a kilobyte that was deleted is cut.
    pub url: Box<str>,
    /// What became of it in the chunk.
    pub outcome: LinkOutcome,
    /// The state of its URL by now; `None` if it was deleted, or its host lives in another shard.
    pub url_state: Option<UrlState>,
    /// The HTTP status of its last visit, if it was reported.
    pub status: Option<u16>,
    /// Attempts at its URL without a result.
    pub attempts: u32,
}

/// What became of a link in its chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum LinkOutcome {
    /// Not reported yet.
    Open,
    /// Fetched.
    Fetched,
    /// Gone, failed, or to be tried again later.
    Failed,
    /// The chunk ended before it was fetched.
    GivenUp,
    /// It left the chunk: it went back to its queue, or was deleted.
    Left,
}

impl ChunkRow {
    /// The positions of the links that a view lists: those that failed first, and how many more there are.
    #[must_use]
    pub fn shown_links(&self) -> (Vec<usize>, u64) {
        let failed = |at: &usize| self.links.get(*at).is_some_and(|link| matches!(link.state, LinkState::Error(_)));
        let (mut shown, rest): (Vec<usize>, Vec<usize>) = (0..self.links.len()).partition(failed);
        shown.extend(rest);
        shown.truncate(CHUNK_LINKS_SHOWN);
        let more = self.links.len() - shown.len();
        (shown, more as u64)
    }

    /// A link of it. `whole` is its URL if its key is cut, `row` is that of its URL, and `queued` are its details if it is
    /// queued. A row of a deleted queue, which is about to be removed, does not count, but still gives `whole`.
    #[must_use]
    pub fn view_link(
        &self,
        link: &LinkRow,
        whole: Option<&str>,
        row: Option<&UrlRow>,
        queued: Option<&Details>,
    ) -> LinkView {
        let details = row.and_then(|row| match &row.status {
            UrlStatus::Queued(_) => queued,
            UrlStatus::Held { details, .. } | UrlStatus::Reserved { details, .. } | UrlStatus::Done { details, .. } => {
                Some(details)
            }
        });
        let last = details.and_then(|details| details.last).and_then(|last| last.status);
        let (outcome, status) = match &link.state {
            LinkState::Crawling if self.state.has_ended() => (LinkOutcome::GivenUp, last),
            LinkState::Crawling => (LinkOutcome::Open, last),
            LinkState::Crawled(result) => (LinkOutcome::Fetched, result.status),
            LinkState::Error(_) => (LinkOutcome::Failed, last),
            LinkState::Left | LinkState::LeftFetched => (LinkOutcome::Left, last),
        };
        LinkView {
            url: link.url.1.url(&link.host, whole),
            outcome,
            url_state: row.map(|row| row.status.state()),
            status,
            attempts: details.map_or(0, |details| details.attempts),
        }
    }

    /// The link that failed last and its failure, as far as the rows of the URLs still show it. One that is queued
    /// again has none here. `rows` are by position.
    pub(super) fn last_failure(&self, rows: &[Option<UrlRow>]) -> Option<String> {
        let failed = self.links.iter().zip(rows).filter(|(link, _)| matches!(link.state, LinkState::Error(_)));
        let failures =
            failed.filter_map(|(link, row)| row.as_ref().and_then(|row| Some((ended_at(row), failure(link, row)?))));
        failures.max_by_key(|(at, _)| *at).map(|(_, failure)| failure)
    }
}

fn ended_at(row: &UrlRow) -> Option<Time> {
    match &row.status {
        UrlStatus::Done { details, .. } => details.last.map(|last| last.at),
        _ => None,
    }
}

fn failure(link: &LinkRow, row: &UrlRow) -> Option<String> {
    let what = match &row.status {
        UrlStatus::Done { end: end @ (End::Gone | End::Failed), details, .. } => {
            let end = if *end == End::Gone { "is gone" } else { "has failed" };
            let status = details.last.and_then(|last| last.status);
            let status = status.map_or_else(|| "no status".to_owned(), |status| format!("status {status}"));
            format!("{end} ({status})")
        }
        UrlStatus::Queued(_) => "is tried again later".to_owned(),
        // Another worker has it, or has fetched it since.
        _ => return None,
    };
    let url = redact::in_reason(&link.url.1.url(&link.host, row.whole.as_deref()));
    Some(format!("one of them, {url}, {what}"))
}
