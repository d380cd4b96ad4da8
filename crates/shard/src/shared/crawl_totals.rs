//! Counts for crawls with a limit over all shards, and their running sums over nodes.
//!
//! While a shard is handed over, two nodes may report it, or none. Each shard is counted once: as its local owner says,
//! else as the node that has it open says, else as its last owner said. A node that cannot be reached may still have its
//! shards, so what it said counts until another one has them open. A beat is never lost within a subscription, and one that
//! is heard twice changes nothing: it states counts, not differences. The first beats of a subscription tell all counts, in slices; what
//! the node has said before counts until it has told all.
//!
//! **Returned pages.** A shard that waits for pages of a crawl looks at the ledger again when another one may have returned some: its
//! pages are fewer, or are known where they were not. These interleavings matter; T waits, S holds 10 pages and uses 3:
//!
//! 1. (S gets a new owner, which does not know its pages) (T looks) (the owner reads that it has 10, and returns 7 in the same turn) (3 are
//!    published): had the owner published 0 at first, T would have looked in vain, and 3 would be more than 0.
//! 2. (A says 10) (the next owner B says 3, while A still says 10) (A is lost, or says that S is gone): only then they are fewer.
//! 3. (A setting of the crawl makes all shards forget their pages): nothing was returned yet.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;

use serde::{Deserialize, Serialize};
use wayleave_core::frontier::view::Counts;
use wayleave_core::ids::{NodeId, ShardId};
use wayleave_core::names::CrawlName;

use crate::shared::changes::{Changes, News, Position};
use crate::shared::readiness::lock;

/// Counts of a crawl with a limit over all shards.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct CrawlTotals {
    pub urls: Counts,
    pub hosts: u64,
    /// Pages of its limit that are granted there, where several nodes share the store. A new owner does not know at first.
    pub pages: Option<u64>,
    /// Shards that wait for pages which others may return.
    pub waits: u64,
}

/// The counts of one shard for a crawl.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ShardTotals {
    /// Whether the node that tells has the shard open; otherwise these are its last counts.
    pub open: bool,
    pub totals: CrawlTotals,
}

/// By crawl, the shards of this process that should look at its pages.
type Looking = Vec<(CrawlName, Vec<ShardId>)>;

/// A crawl in a shard.
pub(crate) type Place = (CrawlName, ShardId);

/// What nodes publish of their shards.
pub(crate) type TotalsNews = News<Place, ShardTotals>;

/// The counts of all shards.
#[derive(Default)]
pub(crate) struct Totals(Mutex<Inner>);

#[derive(Default)]
struct Inner {
    /// As this process publishes its shards.
    own: Changes<Place, ShardTotals>,
    crawls: BTreeMap<CrawlName, OfCrawl>,
    /// What nodes have told of that are not done with telling all.
    telling: BTreeMap<NodeId, BTreeSet<Place>>,
}

#[derive(Default)]
struct OfCrawl {
    sum: CrawlTotals,
    shards: BTreeMap<ShardId, Told>,
}

/// Who said what of a shard, this process as `None`, and what counts.
#[derive(Default)]
struct Told {
    by: Vec<(Option<NodeId>, ShardTotals)>,
    counts: CrawlTotals,
}

impl CrawlTotals {
    fn add(&mut self, other: &Self) {
        self.urls.add(&other.urls);
        self.hosts += other.hosts;
        self.pages = Some(self.pages.unwrap_or_default() + other.pages.unwrap_or_default());
        self.waits += other.waits;
    }

    fn subtract(&mut self, other: &Self) {
        self.urls.subtract(&other.urls);
        self.hosts = self.hosts.saturating_sub(other.hosts);
        self.pages = Some(self.pages.unwrap_or_default().saturating_sub(other.pages.unwrap_or_default()));
        self.waits = self.waits.saturating_sub(other.waits);
    }
}

impl Told {
    fn set(&mut self, node: Option<NodeId>, part: Option<ShardTotals>) {
        let before = self.by.iter().position(|(by, _)| *by == node).map(|at| self.by.swap_remove(at).1);
        self.by.extend(part.map(|part| (node, part)));
        let owner_left_it = part.is_none() && before.is_some_and(|part| part.open);
        if owner_left_it || self.by.iter().any(|(_, part)| part.open) {
            // An owner knows better than what earlier owners have said last.
            self.by.retain(|(_, part)| part.open);
        }
        let rank = |(by, part): &&(Option<NodeId>, ShardTotals)| {
            (part.open && by.is_none(), part.open, part.totals.pages, part.totals.urls.total(), part.totals.hosts)
        };
        self.counts = self.by.iter().max_by_key(rank).map(|(_, part)| part.totals).unwrap_or_default();
    }
}

impl Inner {
    /// Takes note of what a node says of a shard. Returns the shards of this process that should look at the crawl's pages:
    /// when the first shard waits for some, those that may have some to return; when some were returned, those that wait.
    fn set(&mut self, (crawl, shard): &Place, node: Option<NodeId>, part: Option<ShardTotals>) -> Vec<ShardId> {
        if node.is_none() {
            self.own.set(&(crawl.clone(), *shard), part);
        }
        let of_crawl = match self.crawls.get_mut(crawl) {
            Some(of_crawl) => of_crawl,
            None if part.is_none() => return Vec::new(),
            None => self.crawls.entry(crawl.clone()).or_default(),
        };
        let waited = of_crawl.sum.waits;
        let told = of_crawl.shards.entry(*shard).or_default();
        let before = told.counts.pages;
        of_crawl.sum.subtract(&told.counts);
        told.set(node, part);
        of_crawl.sum.add(&told.counts);
        let now = told.counts.pages;
        if node.is_some() && !told.by.iter().any(|(by, _)| by.is_none()) {
            // What this process said last is outdated.
            self.own.set(&(crawl.clone(), *shard), None);
        }
        if told.by.is_empty() {
            of_crawl.shards.remove(shard);
        }
        let begun = waited == 0 && of_crawl.sum.waits > 0;
        let returned = now.is_some_and(|now| before.is_none_or(|before| now < before));
        let mut looking = Vec::new();
        if begun || returned {
            let own = |told: &Told| told.by.iter().find(|(by, part)| by.is_none() && part.open).map(|(_, part)| *part);
            let open = of_crawl.shards.iter().filter_map(|(shard, told)| Some((*shard, own(told)?)));
            let looks = |part: &ShardTotals| if part.totals.waits > 0 { returned } else { begun };
            looking.extend(open.filter(|(other, part)| other != shard && looks(part)).map(|(shard, _)| shard));
        }
        if of_crawl.shards.is_empty() {
            self.crawls.remove(crawl);
        }
        looking
    }

    /// Changes everything that a node has said; for its shard, if one is given. Returns as [`Inner::set`] does.
    fn revise(
        &mut self,
        node: Option<NodeId>,
        shard: Option<ShardId>,
        to: impl Fn(ShardTotals) -> Option<ShardTotals>,
    ) -> Looking {
        let mut said = Vec::new();
        for (crawl, of_crawl) in &self.crawls {
            let mut look = |of: ShardId, told: &Told| {
                let part = told.by.iter().find(|(by, _)| *by == node).map(|(_, part)| *part);
                said.extend(part.map(|part| ((crawl.clone(), of), part)));
            };
            match shard {
                Some(shard) => of_crawl.shards.get(&shard).into_iter().for_each(|told| look(shard, told)),
                None => of_crawl.shards.iter().for_each(|(shard, told)| look(*shard, told)),
            }
        }
        let mut looking = Looking::new();
        said.into_iter().for_each(|(place, part)| self.change(place, node, to(part), &mut looking));
        looking
    }

    /// The same as [`Inner::set`], for one of many places.
    fn change(&mut self, place: Place, node: Option<NodeId>, part: Option<ShardTotals>, looking: &mut Looking) {
        let shards = self.set(&place, node, part);
        looking.extend((!shards.is_empty()).then_some((place.0, shards)));
    }
}

/// The last counts of an owner that has gone; `None` if they count nothing.
fn closed(part: ShardTotals) -> Option<ShardTotals> {
    let totals = CrawlTotals { waits: 0, pages: part.totals.pages.filter(|pages| *pages > 0), ..part.totals };
    (totals != CrawlTotals::default()).then_some(ShardTotals { open: false, totals })
}

impl Totals {
    /// Sets the counts of a local shard; `None` if the crawl has no limit there any more. Returns whether they changed, and
    /// which other shards should look at the crawl's pages.
    pub fn set(&self, crawl: &CrawlName, shard: ShardId, totals: Option<CrawlTotals>) -> (bool, Vec<ShardId>) {
        let (mut inner, place) = (lock(&self.0), (crawl.clone(), shard));
        let part = totals.map(|totals| ShardTotals { open: true, totals });
        if inner.own.get(&place) == part {
            return (false, Vec::new());
        }
        (true, inner.set(&place, None, part))
    }

    /// A local shard was opened with these counts: what was published of it before is void. Returns which other shards should
    /// look at the pages of which crawls.
    pub fn open(&self, shard: ShardId, parts: &[(CrawlName, CrawlTotals)]) -> Looking {
        let mut inner = lock(&self.0);
        // Under one lock: no reader may find the shard without its counts.
        let mut looking = inner.revise(None, Some(shard), |_| None);
        for (crawl, totals) in parts {
            let part = ShardTotals { open: true, totals: *totals };
            inner.change((crawl.clone(), shard), None, Some(part), &mut looking);
        }
        looking
    }

    /// A shard has no local owner any more. Its counts hold until another node has it open.
    pub fn close(&self, shard: ShardId) {
        // No shard is told: what the last owner granted is still granted, and nobody waits here.
        drop(lock(&self.0).revise(None, Some(shard), closed));
    }

    /// What changed since a subscriber was told last.
    pub fn since(&self, seen: Option<Position>, most: usize) -> (TotalsNews, Position) {
        lock(&self.0).own.since(seen, most)
    }

    /// Another node publishes its shards. Returns the local shards that should look at the pages of these crawls.
    pub fn hear(&self, node: NodeId, news: TotalsNews) -> Looking {
        let (inner, mut looking) = (&mut *lock(&self.0), Looking::new());
        if news.begins {
            inner.telling.insert(node, BTreeSet::new());
        }
        if let Some(told) = inner.telling.get_mut(&node) {
            told.extend(news.changes.iter().map(|(place, _)| place.clone()));
        }
        for (place, part) in news.changes {
            inner.change(place, Some(node), part, &mut looking);
        }
        if news.ends
            && let Some(told) = inner.telling.remove(&node)
        {
            let mut gone = Vec::new();
            for (crawl, of_crawl) in &inner.crawls {
                let said = of_crawl.shards.iter().filter(|(_, told)| told.by.iter().any(|(by, _)| *by == Some(node)));
                gone.extend(said.map(|(shard, _)| (crawl.clone(), *shard)).filter(|place| !told.contains(place)));
            }
            gone.into_iter().for_each(|place| inner.change(place, Some(node), None, &mut looking));
        }
        looking
    }

    /// Another node cannot be reached any more. Returns as [`Totals::hear`] does.
    pub fn lost(&self, node: NodeId) -> Looking {
        let mut inner = lock(&self.0);
        inner.telling.remove(&node);
        inner.revise(Some(node), None, closed)
    }

    /// The sum over the other shards, including what other nodes report.
    pub fn others(&self, crawl: &CrawlName, shard: ShardId) -> CrawlTotals {
        let inner = lock(&self.0);
        let Some(of_crawl) = inner.crawls.get(crawl) else { return CrawlTotals::default() };
        let mut sum = of_crawl.sum;
        of_crawl.shards.get(&shard).into_iter().for_each(|told| sum.subtract(&told.counts));
        sum
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: Option<u64> = Some(1);
    const B: Option<u64> = Some(2);

    fn pages(pages: u64) -> CrawlTotals {
        CrawlTotals { pages: Some(pages), ..CrawlTotals::default() }
    }

    fn crawl() -> CrawlName {
        "c".into()
    }

    fn told(shard: u16, open: bool, n: u64) -> (Place, Option<ShardTotals>) {
        ((crawl(), ShardId(shard)), Some(ShardTotals { open, totals: pages(n) }))
    }

    struct World(Totals);

    impl World {
        fn hear(&self, node: Option<u64>, is_complete: bool, changes: Vec<(Place, Option<ShardTotals>)>) {
            self.0.hear(NodeId(node.unwrap()), News { begins: is_complete, ends: is_complete, changes });
        }

        fn set(&self, shard: u16, n: u64) {
            self.0.set(&crawl(), ShardId(shard), Some(pages(n)));
        }

        /// The sum of all shards.
        fn sum(&self) -> u64 {
            self.0.others(&crawl(), ShardId(u16::MAX)).pages.unwrap_or_default()
        }
    }

    /// Shard 1 moves from node A to this one, and on to node B.
    #[test]
    fn a_shard_that_changes_nodes_counts_once_at_every_step() {
        let world = World(Totals::default());
        world.set(0, 10);
        world.hear(A, true, vec![told(1, true, 5), told(2, true, 1)]);
        assert_eq!(world.sum(), 16);
        world.hear(A, false, vec![told(1, false, 5)]);
        assert_eq!(world.sum(), 16, "it has left, and nobody has it yet");
        world.set(1, 5);
        assert_eq!(world.sum(), 16);
        world.hear(A, false, vec![told(1, true, 5)]);
        assert_eq!(world.sum(), 16, "it is here, and the other has not said that it left");
        world.set(1, 7);
        world.hear(A, false, vec![told(1, false, 5)]);
        assert_eq!(world.sum(), 18);
        world.0.close(ShardId(1));
        assert_eq!(world.sum(), 18, "it has left here");
        world.hear(B, true, vec![told(1, true, 6)]);
        assert_eq!(world.sum(), 17, "whoever has it knows best");
        assert_eq!(world.0.others(&crawl(), ShardId(0)).pages, Some(7));
    }

    /// Beats that come twice, not at all, or after a new subscription.
    #[test]
    fn a_beat_states_counts_and_a_lost_node_keeps_its_own() {
        let world = World(Totals::default());
        world.set(0, 10);
        for _ in 0..3 {
            world.hear(A, false, vec![told(1, true, 5)]);
            assert_eq!(world.sum(), 15, "a beat that is heard again");
        }
        world.0.lost(NodeId(1));
        assert_eq!(world.sum(), 15, "its shards may still be served there");
        world.hear(A, true, vec![told(2, true, 3)]);
        assert_eq!(world.sum(), 13, "all that it says now");
        world.hear(B, true, vec![told(2, true, 2)]);
        assert_eq!(world.sum(), 13, "both have it open: the higher counts");
        world.0.lost(NodeId(1));
        assert_eq!(world.sum(), 12);
        world.hear(B, false, vec![((crawl(), ShardId(2)), None)]);
        assert_eq!(world.sum(), 10, "the crawl was deleted there, which the lost node had not heard");
        world.0.set(&crawl(), ShardId(0), None);
        assert_eq!(lock(&world.0.0).crawls.len(), 0, "nothing is kept");
    }

    /// A shard is reloaded after a failed commit, and publishes what the store has.
    #[test]
    fn a_shard_that_is_opened_again_counts_what_it_says_then() {
        let world = World(Totals::default());
        world.set(0, 10);
        world.set(1, 4);
        world.0.set(&"gone".into(), ShardId(1), Some(pages(1)));
        world.0.open(ShardId(1), &[(crawl(), pages(3))]);
        assert_eq!(world.sum(), 13);
        assert_eq!(world.0.others(&"gone".into(), ShardId(0)), CrawlTotals::default());
        let (news, _) = world.0.since(None, usize::MAX);
        assert_eq!(news.changes.len(), 2, "the crawl that lost its limit is not published");
    }

    /// Whether shard 0, which waits for pages, is named.
    fn names_0(looking: Looking) -> bool {
        looking.iter().any(|(of, shards)| *of == crawl() && shards.contains(&ShardId(0)))
    }

    fn waits(totals: &Totals) {
        totals.set(&crawl(), ShardId(0), Some(CrawlTotals { waits: 1, ..pages(0) }));
    }

    /// The node that has the shard is lost, or the owner is here and reloads; the next one is here.
    #[test]
    fn pages_that_a_new_owner_returns_are_told_once_it_knows_them() {
        for is_here in [false, true] {
            let world = World(Totals::default());
            waits(&world.0);
            if is_here {
                world.set(1, 10);
            } else {
                world.hear(A, true, vec![told(1, true, 10)]);
                assert!(!names_0(world.0.lost(NodeId(1))), "they are still granted");
            }
            let unknown = CrawlTotals::default();
            assert!(!names_0(world.0.open(ShardId(1), &[(crawl(), unknown)])), "nothing was returned yet");
            assert_eq!(world.0.set(&crawl(), ShardId(1), Some(pages(3))).1, [ShardId(0)]);
            assert!(world.0.set(&crawl(), ShardId(1), Some(pages(4))).1.is_empty(), "it has drawn one");
            assert!(world.0.set(&crawl(), ShardId(1), Some(unknown)).1.is_empty(), "the crawl was set");
        }
    }

    /// The next owner is heard while the last one still counts.
    #[test]
    fn pages_that_were_returned_are_told_when_the_last_owner_is_lost_or_says_that_the_shard_is_gone() {
        for is_lost in [false, true] {
            let world = World(Totals::default());
            waits(&world.0);
            world.hear(A, true, vec![told(1, true, 10)]);
            world.hear(B, true, vec![told(1, true, 3)]);
            let gone = News { begins: true, ends: true, changes: Vec::new() };
            assert!(names_0(if is_lost { world.0.lost(NodeId(1)) } else { world.0.hear(NodeId(1), gone) }));
        }
    }

    /// Random steps give what adding everything up anew gives.
    #[test]
    fn running_sums_are_what_adding_up_gives() {
        let world = World(Totals::default());
        let mut seed = 7u64;
        let mut next = |most: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (seed >> 33) % most
        };
        for step in 0..20_000 {
            let (shard, n) = (next(8) as u16, next(50));
            let node = if next(2) == 0 { A } else { B };
            match next(9) {
                0..3 => world.set(shard, n),
                3 => _ = world.0.set(&crawl(), ShardId(shard), None),
                4 => world.0.close(ShardId(shard)),
                5 => drop(world.0.open(ShardId(shard), &[(crawl(), pages(n))])),
                6 => drop(world.0.lost(NodeId(node.unwrap()))),
                7 => world.hear(node, true, vec![told(shard, true, n)]),
                _ => world.hear(node, false, vec![told(shard, next(2) == 0, n)]),
            }
            let inner = lock(&world.0.0);
            let pages = |told: &Told| told.counts.pages.unwrap_or_default();
            let anew = inner.crawls.get(&crawl()).map_or(0, |of| of.shards.values().map(pages).sum());
            drop(inner);
            assert_eq!(world.sum(), anew, "step {step}");
        }
    }

    /// Only what changed is told, and whoever subscribes anew is told everything.
    #[test]
    fn a_thousand_limited_crawls_cost_a_beat_nothing_that_did_not_change() {
        let totals = Totals::default();
        for n in 0..1_000 {
            totals.set(&format!("c{n}").as_str().into(), ShardId(n % 7), Some(pages(1)));
        }
        let (all, seen) = totals.since(None, usize::MAX);
        assert_eq!((all.begins, all.ends, all.changes.len()), (true, true, 1_000));
        totals.set(&"c3".into(), ShardId(3), Some(pages(2)));
        totals.set(&"c3".into(), ShardId(3), Some(pages(3)));
        let (news, seen) = totals.since(Some(seen), usize::MAX);
        assert_eq!((news.begins, news.ends, news.changes.len()), (false, false, 1));
        assert_eq!(totals.since(Some(seen), usize::MAX).0, News::default());
    }

    /// A node subscribes again after it has lost its connection, and hears in slices.
    #[test]
    fn what_a_node_said_before_counts_until_it_has_told_all() {
        let world = World(Totals::default());
        world.hear(A, true, (1..=4).map(|shard| told(shard, true, 5)).collect());
        let hear = |begins, ends, shard, n| {
            world.0.hear(NodeId(1), News { begins, ends, changes: vec![told(shard, true, n)] });
            world.sum()
        };
        assert_eq!(hear(true, false, 1, 6), 21);
        assert_eq!(hear(false, false, 2, 6), 22);
        assert_eq!(hear(false, true, 3, 6), 18, "it has the fourth no more");
        assert_eq!(hear(false, false, 4, 1), 19);
        assert_eq!(hear(true, false, 1, 7), 20);
        assert_eq!(hear(true, true, 1, 7), 7, "once more, before it had told all");
    }
}
