//! What nodes publish of their shards: since when a group is ready there, of which crawls, what chunks they offer, which
//! version the map has, and what there is for Makers and for clients that wait for a match. So a node asks only those that
//! may have something for its caller, and wakes its waiters when another one has.
//!
//! A node tracks the crawls that callers name, its own and those of other nodes; see [`CrawlReadiness`]. Of these it
//! publishes which are ready, and how many groups of each became ready so far. Of a crawl that it has not mentioned it may
//! have anything: it is asked once, and tracks the crawl from then on.
//!
//! Each subscriber gets only what has changed: the crawls whose readiness has, the counts of limited crawls that have
//! ([`Totals`]) and the crawls that came and went ([`CrawlCount`]) since its last beat. Beats are not lost within a subscription,
//! and the first one of a subscription is complete, but for counts: there may be as many as crawls times shards, more than a message may
//! hold, so they are told in slices. A beat that was refused for its size would be sent again and again, and the node never heard.
//!
//! [`Totals`]: super::crawl_totals::Totals
//! [`CrawlCount`]: super::crawl_count::CrawlCount
//! [`CrawlReadiness`]: super::crawl_readiness::CrawlReadiness

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use serde::{Deserialize, Serialize};
use wayleave_core::names::CrawlName;
use wayleave_core::pipeline::request::Stage;
use wayleave_core::time::Time;

use crate::matches::news::MatchBeat;
use crate::matches::readiness::PoolBeat;
use crate::shared::changes::{News, Position};
use crate::shared::crawl_readiness::{Marked, Seen};
use crate::shared::crawl_totals::TotalsNews;
use crate::shared::readiness::{Readiness, VisitFilter};

/// Counts of limited crawls in one beat: a few megabytes, however long the names are.
const TOTALS_A_BEAT: usize = 10_000;

/// A node's readiness.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeReadiness {
    /// Since when its longest ready group is ready.
    pub(super) oldest_ready: Option<Time>,
    /// When its next group becomes ready.
    pub(super) next_due: Option<Time>,
    /// Total number of groups that have become ready.
    pub(super) woken: u64,
    /// Counts of its shards for crawls with a limit over all shards, as far as they changed.
    pub(super) totals: TotalsNews,
    /// Hashes of its crawls, as far as they changed.
    pub(super) crawl_count: News<u64, ()>,
    /// The tracked crawls that have changed.
    pub(super) crawls: Vec<(CrawlName, CrawlBeat)>,
    /// These are all tracked crawls.
    pub(super) is_complete: bool,
    pub(super) chunks: ChunkBeat,
    /// The version of the map, if it owns the control shard.
    pub(super) map: u64,
    pub(super) pools: PoolBeat,
    pub(super) matches: MatchBeat,
}

/// A node's readiness for one crawl.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct CrawlBeat {
    /// Since when its longest ready group is ready.
    pub since: Option<Time>,
    /// How many groups have become ready since the crawl is tracked.
    pub woken: u64,
}

/// What chunks a node offers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ChunkBeat {
    /// When a chunk that is offered again may be claimed.
    pub crawl_at: Option<Time>,
    /// Whether chunks wait for an index builder.
    pub builds: bool,
    /// Total number of chunks that became claimable by crawlers.
    pub offered: u64,
    /// Total number that became claimable by index builders.
    pub crawled: u64,
}

impl NodeReadiness {
    /// Encodes it.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        // Encoding cannot fail for these types; an empty message would be rejected by the reader.
        crate::routing::links::encode(self).unwrap_or_default()
    }

    /// Decodes it.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, String> {
        crate::routing::links::decode(bytes)
    }
}

/// Messages between nodes so far.
#[derive(Default)]
pub(crate) struct Messages {
    /// Calls of other nodes.
    pub calls: AtomicU64,
    /// Beats for other nodes.
    pub beats: AtomicU64,
}

/// The beats of a node for one subscriber.
pub struct Beats {
    readiness: Arc<Readiness>,
    /// The tracked crawls as published last, and which of their changes were looked at.
    sent: BTreeMap<CrawlName, CrawlBeat>,
    crawls_seen: Option<Seen>,
    /// The news of matches that were published.
    told: Option<u64>,
    /// Which changes of the counts, and of the crawls there are, were published.
    totals_sent: Option<Position>,
    count_sent: Option<Position>,
}

impl Beats {
    pub(crate) const fn new(readiness: Arc<Readiness>) -> Self {
        Self { readiness, sent: BTreeMap::new(), crawls_seen: None, told: None, totals_sent: None, count_sent: None }
    }

    /// Whether the next beat has more to tell already.
    #[must_use]
    pub fn has_more(&self) -> bool {
        self.totals_sent.is_some_and(|sent| sent.has_more)
    }

    /// The next beat.
    #[must_use]
    pub fn next_beat(&mut self) -> NodeReadiness {
        self.readiness.messages.beats.fetch_add(1, Ordering::Relaxed);
        let mut beat = self.readiness.node_readiness();
        let (totals, totals_sent) = self.readiness.totals.since(self.totals_sent, TOTALS_A_BEAT);
        let (count, count_sent) = self.readiness.crawl_count.since(self.count_sent);
        (beat.totals, beat.crawl_count) = (totals, count);
        (self.totals_sent, self.count_sent) = (Some(totals_sent), Some(count_sent));
        beat.matches = self.readiness.matches.since(&mut self.told);
        let Marked { seen, is_complete, crawls } = self.readiness.marked_crawls(self.crawls_seen.take());
        (self.crawls_seen, beat.is_complete) = (Some(seen), is_complete);
        if is_complete {
            self.sent.clear();
        }
        let is_news = |(crawl, beat): &(CrawlName, CrawlBeat)| self.sent.insert(crawl.clone(), *beat) != Some(*beat);
        beat.crawls = crawls.into_iter().filter(is_news).collect();
        beat
    }
}

/// Another node, as it has published its readiness.
#[derive(Default)]
pub(crate) struct Peer {
    pub news: NodeReadiness,
    crawls: BTreeMap<CrawlName, CrawlBeat>,
}

/// What became ready at another node.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Heard {
    /// Groups of crawls that it tracks.
    pub crawls: Vec<(CrawlName, usize)>,
    /// Other groups.
    pub others: usize,
    /// Chunks for crawlers.
    pub offered: usize,
    /// Chunks for index builders.
    pub crawled: usize,
}

impl Peer {
    /// Takes note of a beat. Whatever was ready before the first one counts as one: one waiter looks, and wakes another if
    /// there is more.
    pub fn hear(&mut self, mut news: NodeReadiness, is_first: bool) -> Heard {
        let count = |before: u64, after: u64, is_some: bool| {
            let more = if is_first { u64::from(is_some) } else { after.saturating_sub(before) };
            usize::try_from(more).unwrap_or(usize::MAX)
        };
        let mut heard = Heard::default();
        let mut of_crawls = 0;
        let before = if news.is_complete { std::mem::take(&mut self.crawls) } else { BTreeMap::new() };
        for (crawl, beat) in std::mem::take(&mut news.crawls) {
            // Counted from the moment from which a crawl is tracked, of which a complete beat may be the first.
            let known = self.crawls.insert(crawl.clone(), beat);
            let counted = known.map_or(if is_first { beat.woken } else { 0 }, |known| known.woken);
            let fresh = usize::try_from(beat.woken.saturating_sub(counted)).unwrap_or(usize::MAX);
            of_crawls += fresh;
            // What became ready before that is not counted.
            let more = fresh.max(usize::from(known.is_none() && beat.since.is_some()));
            if more > 0 {
                heard.crawls.push((crawl, more));
            }
        }
        let some_ready = news.oldest_ready.is_some();
        let all = count(self.news.woken, news.woken, some_ready);
        // After a crawl is no longer tracked it may have anything again.
        let untracked = before.keys().any(|crawl| !self.crawls.contains_key(crawl));
        heard.others = all.saturating_sub(of_crawls).max(usize::from((untracked || is_first) && some_ready));
        heard.offered = count(self.news.chunks.offered, news.chunks.offered, news.chunks.crawl_at.is_some());
        heard.crawled = count(self.news.chunks.crawled, news.chunks.crawled, news.chunks.builds);
        self.news = news;
        heard
    }

    /// Whether it publishes the readiness of a crawl.
    pub fn tracks(&self, crawl: &CrawlName) -> bool {
        self.crawls.contains_key(crawl)
    }

    /// Since when it may have something to visit.
    pub fn ready_since(&self, filter: VisitFilter<'_>) -> Option<Time> {
        let tracked = filter.crawl.and_then(|crawl| self.crawls.get(crawl));
        let since = tracked.map_or(self.news.oldest_ready, |beat| beat.since);
        since.or(self.news.next_due.filter(|due| *due <= filter.now))
    }

    /// Whether it may have something for a claim.
    pub fn may_offer(&self, stage: Stage, filter: VisitFilter<'_>) -> bool {
        match stage {
            Stage::Build => self.news.chunks.builds,
            Stage::Crawl => {
                self.ready_since(filter).is_some() || self.news.chunks.crawl_at.is_some_and(|at| at <= filter.now)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use wayleave_core::ids::{NodeId, ShardId};
    use wayleave_core::limits::NODE_MESSAGE_BYTES_MAX;

    use super::*;
    use crate::shared::crawl_totals::CrawlTotals;

    fn beat(woken: u64, crawls: &[(&str, Option<u64>, u64)]) -> NodeReadiness {
        let of = |(crawl, since, woken): &(&str, Option<u64>, u64)| {
            ((*crawl).into(), CrawlBeat { since: since.map(Time), woken: *woken })
        };
        NodeReadiness {
            oldest_ready: Some(Time(1)),
            woken,
            crawls: crawls.iter().map(of).collect(),
            ..NodeReadiness::default()
        }
    }

    fn filter<'a>(crawl: Option<&'a CrawlName>) -> VisitFilter<'a> {
        VisitFilter { crawl, paced: false, now: Time(10) }
    }

    /// More counts than a message holds.
    #[test]
    fn the_first_beats_of_a_subscription_tell_all_counts_in_messages_of_a_few_megabytes() {
        let (here, there) = (Arc::new(Readiness::new(8)), Readiness::new(8));
        let crawl = |n: usize| CrawlName::from(format!("{n:0>255}").as_str());
        for (crawl, shard) in (0..4_000).flat_map(|n| (0..8).map(move |shard| (crawl(n), ShardId(shard)))) {
            here.totals.set(&crawl, shard, Some(CrawlTotals { hosts: 1, ..CrawlTotals::default() }));
        }
        let mut beats = Beats::new(here);
        let mut count = 0;
        while count == 0 || beats.has_more() {
            let bytes = beats.next_beat().to_bytes();
            assert!(bytes.len() < NODE_MESSAGE_BYTES_MAX / 32, "{} bytes", bytes.len());
            there.hear(NodeId(2), Some(NodeReadiness::from_bytes(&bytes).unwrap()));
            count += 1;
        }
        assert_eq!(count, 4);
        let known = |n: usize| there.totals.others(&crawl(n), ShardId(8)).hosts;
        assert!((0..4_000).all(|n| known(n) == 8));
        assert_eq!(beats.next_beat().totals, News::default());
    }

    /// Callers have named a thousand crawls, and shards are at work for one. Their first turn tells what they have of all.
    #[test]
    fn a_beat_looks_only_at_the_tracked_crawls_that_changed() {
        const SHARDS: u16 = 16;
        let here = Arc::new(Readiness::new(SHARDS));
        let crawl = |n: usize| CrawlName::from(format!("c{n}").as_str());
        (0..1_000).for_each(|n| here.listen(&crawl(n)));
        let turn = |shard: u16, ready: Option<Time>| {
            let shard = ShardId(shard);
            let untold = here.crawls.untold(shard);
            let told = untold.len();
            untold.iter().for_each(|crawl| here.tell_crawl(crawl, shard, None));
            here.tell_crawl(&crawl(7), shard, ready);
            here.tell(usize::from(shard.0), (ready, None));
            told
        };
        let mut beats = Beats::new(here.clone());
        assert_eq!(beats.next_beat().crawls.len(), 1_000);
        let (mut looked, mut told, mut sent, mut seen) = (0, 0, 0, beats.crawls_seen);
        for round in 0..100 {
            told += turn(round % SHARDS, (round % 2 == 0).then_some(Time(u64::from(round))));
            let marked = here.marked_crawls(seen);
            looked += marked.crawls.len();
            seen = Some(marked.seen);
            sent += beats.next_beat().crawls.len();
        }
        assert_eq!(told, 1_000 * usize::from(SHARDS), "each crawl once, by each shard");
        assert!(looked <= told + 100, "{looked} crawls looked at");
        assert!(sent <= 100, "{sent} crawls in 100 beats");
        let since = |n| here.marked_crawls(None).crawls.into_iter().find(|(of, _)| *of == crawl(n)).unwrap().1.since;
        assert_eq!((since(7).is_some(), since(8)), (true, None));
    }

    /// A crawl is named while a shard takes a turn in which something of it becomes ready.
    #[test]
    fn a_crawl_that_is_named_between_two_steps_of_a_turn_is_ready_in_the_next_beat() {
        let here = Arc::new(Readiness::new(1));
        let mut beats = Beats::new(here.clone());
        let _ = beats.next_beat();
        assert!(here.crawls.untold(ShardId(0)).is_empty(), "the turn has told all");
        here.listen(&"a".into());
        assert_eq!(beats.next_beat().crawls, [("a".into(), CrawlBeat::default())]);
        here.tell(0, (Some(Time(5)), None));
        let beat = beats.next_beat();
        assert_eq!(beat.crawls, [("a".into(), CrawlBeat { since: Some(Time(5)), woken: 0 })]);
        assert_eq!(here.crawls.untold(ShardId(0)), ["a".into()]);
        here.tell_crawl(&"a".into(), ShardId(0), None);
        assert_eq!(beats.next_beat().crawls, [("a".into(), CrawlBeat::default())]);
    }

    #[test]
    fn a_waiter_is_woken_for_each_group_of_its_crawl_that_another_node_gets() {
        let mut peer = Peer::default();
        let whole = NodeReadiness { is_complete: true, ..beat(7, &[("a", Some(5), 3)]) };
        let one = Peer::default().hear(whole, true);
        assert_eq!((one.crawls, one.others), (vec![("a".into(), 1)], 1), "it may have others, too");
        let whole = NodeReadiness { is_complete: true, ..beat(7, &[("a", None, 3)]) };
        let first = peer.hear(whole.clone(), true);
        assert_eq!((first.crawls, first.others), (Vec::new(), 1), "what was ready before counts as one");
        let (a, b): (CrawlName, CrawlName) = ("a".into(), "b".into());
        assert_eq!(peer.ready_since(filter(Some(&a))), None, "it has other crawls only");
        assert_eq!(peer.ready_since(filter(Some(&b))), Some(Time(1)), "it has not said");
        let more = peer.hear(beat(12, &[("a", Some(5), 5)]), false);
        assert_eq!((more.crawls, more.others), (vec![(a.clone(), 2)], 3));
        assert_eq!(peer.ready_since(filter(Some(&a))), Some(Time(5)));
        // It has begun to track b, of which something was ready before.
        let more = peer.hear(beat(12, &[("b", Some(6), 0)]), false);
        assert_eq!((more.crawls, more.others), (vec![(b, 1)], 0));
        assert!(peer.tracks(&a));
        // It has begun to track d, and has a group of a crawl that it does not track.
        let more = peer.hear(beat(13, &[("d", Some(6), 0)]), false);
        assert_eq!((more.crawls, more.others), (vec![("d".into(), 1)], 1));
        // It tracks crawls anew, and has counted groups of one since then.
        let more = peer.hear(NodeReadiness { is_complete: true, ..beat(15, &[("a", Some(5), 2)]) }, false);
        assert_eq!((more.crawls, more.others), (vec![(a.clone(), 2)], 1));
        // It tracks nothing any more.
        let none = peer.hear(NodeReadiness { is_complete: true, ..beat(15, &[]) }, false);
        assert_eq!((none.crawls, none.others), (Vec::new(), 1));
        assert_eq!(peer.ready_since(filter(Some(&a))), Some(Time(1)), "it may have some");
    }
}
