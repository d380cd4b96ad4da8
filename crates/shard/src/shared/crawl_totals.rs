//! Counts for crawls with a limit over all shards, and their sum over nodes.
//!
//! While a shard is handed over, two nodes may report it, or none. Each shard is counted once: as its local owner says,
//! else as the node that has it open says, else as its last owner said.

use std::sync::Mutex;

use hashbrown::HashMap;
use serde::{Deserialize, Serialize};
use wayleave_core::frontier::view::Counts;
use wayleave_core::ids::ShardId;
use wayleave_core::names::CrawlName;

use crate::shared::readiness::lock;

/// Counts of a crawl with a limit over all shards.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct CrawlTotals {
    pub urls: Counts,
    pub hosts: u64,
    /// Pages of its limit that are granted there, where several nodes share the store.
    pub pages: u64,
}

/// A node's counts for a crawl in one of its shards.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ShardTotals {
    pub shard: ShardId,
    /// Whether the node has the shard open; otherwise these are its last counts.
    pub open: bool,
    pub totals: CrawlTotals,
}

/// The counts of this process's shards.
pub(crate) struct Totals {
    shards: usize,
    crawls: Mutex<HashMap<CrawlName, Vec<Option<ShardTotals>>>>,
}

impl CrawlTotals {
    fn add(&mut self, other: &Self) {
        self.urls.add(&other.urls);
        self.hosts += other.hosts;
        self.pages += other.pages;
    }
}

impl Totals {
    pub fn new(shards: u16) -> Self {
        Self { shards: shards.into(), crawls: Mutex::default() }
    }

    /// Sets the counts of a local shard; returns whether they changed.
    pub fn set(&self, crawl: &CrawlName, shard: ShardId, totals: CrawlTotals) -> bool {
        let mut crawls = lock(&self.crawls);
        let parts = match crawls.get_mut(crawl) {
            Some(parts) => parts,
            None => crawls.entry(crawl.clone()).or_insert_with(|| vec![None; self.shards]),
        };
        let Some(part) = parts.get_mut(usize::from(shard.0)) else { return false };
        let told = Some(ShardTotals { shard, open: true, totals });
        std::mem::replace(part, told) != told
    }

    /// A shard has no local owner any more. Its counts hold until another node reports newer ones.
    pub fn close(&self, shard: ShardId) {
        for parts in lock(&self.crawls).values_mut() {
            if let Some(Some(part)) = parts.get_mut(usize::from(shard.0)) {
                part.open = false;
            }
        }
    }

    /// What this process publishes to other nodes.
    pub fn all(&self) -> Vec<(CrawlName, Vec<ShardTotals>)> {
        let crawls = lock(&self.crawls);
        crawls.iter().map(|(crawl, parts)| (crawl.clone(), parts.iter().flatten().copied().collect())).collect()
    }

    /// The sum over the other shards, including what other nodes report.
    pub fn others<'a>(
        &self,
        crawl: &CrawlName,
        counts: impl Fn(ShardId) -> bool,
        told: impl Iterator<Item = &'a ShardTotals>,
    ) -> CrawlTotals {
        let mut best = lock(&self.crawls).get(crawl).cloned().unwrap_or_default();
        best.resize(self.shards, None);
        let own: Vec<bool> = best.iter().map(|part| part.is_some_and(|part| part.open)).collect();
        for part in told {
            let at = usize::from(part.shard.0);
            let (Some(place), false) = (best.get_mut(at), own.get(at).copied().unwrap_or(true)) else { continue };
            let rank = |part: &ShardTotals| (part.open, part.totals.pages, part.totals.urls.total());
            if place.as_ref().is_none_or(|known| rank(known) < rank(part)) {
                *place = Some(*part);
            }
        }
        let mut sum = CrawlTotals::default();
        best.iter().flatten().filter(|part| counts(part.shard)).for_each(|part| sum.add(&part.totals));
        sum
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pages(pages: u64) -> CrawlTotals {
        CrawlTotals { pages, ..CrawlTotals::default() }
    }

    fn told(shard: u16, open: bool, n: u64) -> ShardTotals {
        ShardTotals { shard: ShardId(shard), open, totals: pages(n) }
    }

    /// Shard 1 moves from another node to this one, and on to a third.
    #[test]
    fn a_shard_that_changes_nodes_counts_once_at_every_step() {
        let (totals, crawl) = (Totals::new(3), &"c".into());
        let sum = |told: &[ShardTotals]| totals.others(crawl, |_| true, told.iter()).pages;
        totals.set(crawl, ShardId(0), pages(10));
        assert_eq!(sum(&[told(1, true, 5), told(2, true, 1)]), 16);
        assert_eq!(sum(&[told(1, false, 5), told(2, true, 1)]), 16, "it has left, and nobody has it yet");
        totals.set(crawl, ShardId(1), pages(5));
        assert_eq!(
            sum(&[told(1, true, 5), told(2, true, 1)]),
            16,
            "it is here, and the other has not said that it left"
        );
        totals.set(crawl, ShardId(1), pages(7));
        assert_eq!(sum(&[told(1, false, 5), told(2, true, 1)]), 18);
        totals.close(ShardId(1));
        assert_eq!(sum(&[told(2, true, 1)]), 18, "it has left here");
        assert_eq!(sum(&[told(2, true, 1), told(1, true, 6)]), 17, "whoever has it knows best");
        assert_eq!(totals.others(crawl, |shard| shard.0 != 0, [].iter()).pages, 7);
    }
}
