//! Tombstones of recently deleted crawls: links found on a page of a deleted crawl must not recreate it.
//!
//! A release asks its page's shard which crawl the links inherit, and then stores them, in other shards. The crawl may
//! be deleted in between. Each of the shards may hear of the deletion before or after the links arrive, and a shard
//! that never had the crawl cannot distinguish a new crawl from a deleted one by its own rows. So the page's shard
//! returns, with the crawl, when it was last deleted as far as it knows, and a link is refused where a later deletion
//! is known:
//!
//! - the link's shard has heard of the deletion, the page's shard had not: refused;
//! - neither has: the link is stored, and removed with the rest when the deletion arrives;
//! - both have, and the crawl was recreated before the page was reserved: stored.
//!
//! Tombstones are kept in memory. A shard that was opened after the page's shard answered cannot know, so it fails the
//! link, and the whole release is retried. A deletion is sent to all shards twice: a shard that was reopened between
//! hearing of it and the answer of the page's shard hears of it again.
//!
//! A deletion is numbered like settings, and settings with a lower number must not recreate the crawl either: see
//! `owner::frontier::set_crawl`.

use std::collections::BTreeSet;

use hashbrown::HashMap;

use super::request::CrawlSince;
use crate::limits::DELETED_CRAWLS_KEPT;
use crate::names::CrawlName;
use crate::time::Time;

/// Tombstones.
#[derive(Default)]
pub(super) struct Deleted {
    at: HashMap<CrawlName, Time>,
    oldest: BTreeSet<(Time, CrawlName)>,
    /// Deletions up to this time may have been evicted.
    forgotten: Time,
    /// Deletions before this time are unknown.
    since: Time,
}

impl Deleted {
    pub fn begin(&mut self, now: Time) {
        self.since = now;
    }

    /// Records the deletion of a crawl by a call made at this time.
    pub fn note(&mut self, crawl: &CrawlName, at: Time) {
        let before = self.at.get(crawl).copied();
        if before.is_some_and(|before| before >= at) {
            return;
        }
        if let Some(before) = before {
            self.oldest.remove(&(before, crawl.clone()));
        }
        self.at.insert(crawl.clone(), at);
        self.oldest.insert((at, crawl.clone()));
        while self.oldest.len() > DELETED_CRAWLS_KEPT {
            let Some((at, crawl)) = self.oldest.pop_first() else { break };
            self.at.remove(&crawl);
            self.forgotten = self.forgotten.max(at);
        }
    }

    /// Whether this number is of a time before the crawl was deleted, as far as this shard knows.
    pub fn covers(&self, crawl: &CrawlName, version: u64) -> bool {
        self.at.get(crawl).is_some_and(|at| at.0 >= version)
    }

    /// No deletion of the crawl has a higher number than this.
    pub fn last(&self, crawl: &CrawlName) -> u64 {
        self.at.get(crawl).map_or(self.forgotten.max(self.since).0, |at| at.0)
    }

    /// What a page's shard returns about its crawl.
    pub fn crawl_since(&self, crawl: &CrawlName, now: Time) -> CrawlSince {
        // Deletions from before this shard was opened do not matter: the page belongs to the crawl that exists now.
        let earlier = self.forgotten.max(Time(self.since.0.saturating_sub(1)));
        CrawlSince { deleted_at: self.at.get(crawl).copied().unwrap_or(earlier), as_of: now }
    }

    /// Judges a link to a crawl, given what the page's shard returned.
    pub fn judge(&self, crawl: &CrawlName, reported: CrawlSince) -> Verdict {
        if self.at.get(crawl).is_some_and(|at| *at > reported.deleted_at) {
            return Verdict::Deleted;
        }
        if reported.as_of < self.since { Verdict::Unknown } else { Verdict::Lives }
    }
}

/// Whether a crawl is still the same one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Lives,
    Deleted,
    Unknown,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_crawl_that_was_forgotten_here_is_not_refused_there() {
        let (mut here, mut there) = (Deleted::default(), Deleted::default());
        let name = |n: usize| CrawlName::from(format!("c{n}"));
        for n in 0..DELETED_CRAWLS_KEPT + 10 {
            here.note(&name(n), Time(100 + n as u64));
        }
        assert_eq!((here.at.len(), here.oldest.len()), (DELETED_CRAWLS_KEPT, DELETED_CRAWLS_KEPT));
        there.note(&name(0), Time(100));
        assert_eq!(there.judge(&name(0), here.crawl_since(&name(0), Time(9_999))), Verdict::Lives);
        there.note(&name(0), Time(5_000));
        assert_eq!(there.judge(&name(0), here.crawl_since(&name(0), Time(9_999))), Verdict::Deleted);
        assert_eq!(there.judge(&name(1), here.crawl_since(&name(1), Time(9_999))), Verdict::Lives);
    }

    /// The crawl is deleted and recreated, and the page's shard is reopened: it has lost the tombstone, the other shard
    /// has not.
    #[test]
    fn a_page_of_a_recreated_crawl_keeps_its_links_after_a_reload() {
        let (mut here, mut there, crawl) = (Deleted::default(), Deleted::default(), CrawlName::from("news"));
        there.begin(Time(10));
        there.note(&crawl, Time(150));
        here.begin(Time(200));
        assert_eq!(there.judge(&crawl, here.crawl_since(&crawl, Time(300))), Verdict::Lives);
        there.note(&crawl, Time(200));
        assert_eq!(
            there.judge(&crawl, here.crawl_since(&crawl, Time(300))),
            Verdict::Deleted,
            "in the moment of the opening"
        );
        here.note(&crawl, Time(200));
        assert_eq!(
            there.judge(&crawl, here.crawl_since(&crawl, Time(300))),
            Verdict::Lives,
            "it has heard of that one"
        );
    }
}
