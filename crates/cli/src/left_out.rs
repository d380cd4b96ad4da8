//! What an export cannot contain, counted while it is written, so that the user knows what the file lacks.

use wayleave_api::carry::{ExportedChunk, ExportedLinkState};
use wayleave_api::chunks::ChunkState;
use wayleave_api::groups::Group;
use wayleave_api::roles::Role;
use wayleave_api::urls::{Url, UrlState};

/// Counts of what is left out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LeftOut {
    held: u64,
    outcomes: u64,
    results: u64,
    visited: u64,
    primaries: u64,
    standbys: u64,
    /// Chunks that someone works on.
    leases: u64,
    /// URLs that chunks hold, which they take along.
    linked: u64,
}

impl LeftOut {
    /// Counts a URL that is exported.
    pub fn url(&mut self, url: &Url) {
        self.held += u64::from(url.state == UrlState::Reserved);
        self.outcomes += u64::from(matches!(url.state, UrlState::Gone | UrlState::Failed));
        self.results += u64::from(url.attempts > 0 || url.last.is_some());
    }

    /// Counts a group, which may be a single host. A back-off or Crawl-delay is the result of a visit.
    pub fn group(&mut self, group: &Group) {
        self.visited += u64::from(group.last_visit_at.is_some());
    }

    /// Counts a role.
    pub fn role(&mut self, role: &Role) {
        self.primaries += u64::from(role.primary.is_some());
        self.standbys += role.standbys.len() as u64;
    }

    /// Counts a chunk that is exported.
    pub fn chunk(&mut self, chunk: &ExportedChunk) {
        self.leases += u64::from(chunk.worker.is_some());
        if chunk.state == ChunkState::Crawling {
            let held = chunk.links.iter().filter(|link| link.state != ExportedLinkState::Error);
            self.linked += held.count() as u64;
        }
    }

    /// Descriptions of what is left out; empty if nothing is.
    #[must_use]
    pub fn list(&self) -> Vec<String> {
        let Self { held, outcomes, results, visited, primaries, standbys, leases, linked } = *self;
        let held = held.saturating_sub(linked);
        let lines = [
            (held, format!("the reservations and holds of {held} URLs, which become queued")),
            (outcomes, format!("the outcome of {outcomes} URLs that are gone or failed, which count as fetched")),
            (results, format!("the attempts and last results of {results} URLs")),
            (visited, format!("the last visits, back-offs and robots.txt delays of {visited} groups")),
            (primaries, format!("the primaries of {primaries} roles")),
            (standbys, format!("{standbys} standbys of roles")),
            (leases, format!("the leases of {leases} chunks, which are offered again")),
        ];
        lines.into_iter().filter(|(count, _)| *count > 0).map(|(_, line)| line).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wayleave_api::Timestamp;
    use wayleave_core::time::Time;

    fn stored(state: UrlState, attempts: u32) -> Url {
        Url {
            url: "http://a/".into(),
            host: "a".into(),
            crawl: "c".into(),
            state,
            due_at: None,
            held_until: None,
            created_at: Timestamp(Time(1)),
            priority: 5,
            depth: 0,
            attempts,
            last: None,
            metadata: wayleave_api::metadata::Metadata::default(),
        }
    }

    #[test]
    fn each_kind_is_counted_and_named_and_urls_that_only_wait_are_whole() {
        let mut left_out = LeftOut::default();
        left_out.url(&stored(UrlState::Queued, 0));
        left_out.url(&stored(UrlState::Fetched, 0));
        assert!(left_out.list().is_empty());
        left_out.url(&stored(UrlState::Reserved, 0));
        left_out.url(&stored(UrlState::Gone, 2));
        left_out.url(&stored(UrlState::Queued, 1));
        let list = left_out.list();
        assert_eq!(list.len(), 3, "{list:?}");
        assert!(list[0].contains("holds of 1 URLs") && list[1].contains("of 1 URLs that are gone"), "{list:?}");
        assert!(list[2].contains("attempts and last results of 2 URLs"), "{list:?}");
    }
}
