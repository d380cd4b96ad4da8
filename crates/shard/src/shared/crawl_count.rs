//! How many crawls the store has: those of this process's shards, and those that other nodes have told of. A crawl may be in
//! many shards and counts once. Kept as running totals of 64-bit hashes, so that asking costs nothing.

use std::collections::BTreeMap;
use std::sync::Mutex;

use hashbrown::{HashMap, HashSet};
use wayleave_core::ids::NodeId;
use wayleave_core::limits::STORE_CRAWLS_MAX;
use wayleave_core::names::CrawlName;

use crate::shared::changes::{Changes, News, Position};
use crate::shared::readiness::lock;

/// The crawls of the store, as far as this process knows.
#[derive(Default)]
pub(crate) struct CrawlCount(Mutex<Counted>);

#[derive(Default)]
struct Counted {
    /// In how many shards of this process each crawl is.
    shards: HashMap<u64, u32>,
    own: Changes<u64, ()>,
    told: BTreeMap<NodeId, HashSet<u64>>,
    /// By how many nodes each crawl is told of, this one included.
    nodes: HashMap<u64, u32>,
}

/// The same on all nodes.
fn hash(crawl: &CrawlName) -> u64 {
    use rapidhash::v3::{RapidSecrets, rapidhash_v3_seeded};
    const SECRETS: RapidSecrets = RapidSecrets::seed(0x77a1_1eaf_e000_0002);
    rapidhash_v3_seeded(crawl.as_bytes(), &SECRETS)
}

/// Counts one more, or one less, of a hash; returns whether it came or went.
fn count(of: &mut HashMap<u64, u32>, hash: u64, more: bool) -> bool {
    let n = of.entry(hash).or_default();
    *n = if more { *n + 1 } else { n.saturating_sub(1) };
    let left = *n;
    if left == 0 {
        of.remove(&hash);
    }
    left == u32::from(more)
}

impl CrawlCount {
    /// A shard of this process has a crawl, or has it no more. Returns whether other nodes should hear of that.
    pub fn note(&self, crawl: &CrawlName, is_here: bool) -> bool {
        let (mut counted, hash) = (lock(&self.0), hash(crawl));
        let changed = count(&mut counted.shards, hash, is_here);
        if changed {
            counted.own.set(&hash, is_here.then_some(()));
            count(&mut counted.nodes, hash, is_here);
        }
        changed
    }

    /// Another node tells of its crawls.
    pub fn hear(&self, node: NodeId, news: News<u64, ()>) {
        if news.begins {
            self.lost(node);
        }
        let counted = &mut *lock(&self.0);
        let told = counted.told.entry(node).or_default();
        for (hash, is_there) in news.changes {
            let changed = if is_there.is_some() { told.insert(hash) } else { told.remove(&hash) };
            if changed {
                count(&mut counted.nodes, hash, is_there.is_some());
            }
        }
    }

    /// Another node cannot be reached any more.
    pub fn lost(&self, node: NodeId) {
        let counted = &mut *lock(&self.0);
        for hash in counted.told.remove(&node).unwrap_or_default() {
            count(&mut counted.nodes, hash, false);
        }
    }

    /// What changed since a subscriber was told last.
    pub fn since(&self, seen: Option<Position>) -> (News<u64, ()>, Position) {
        lock(&self.0).own.since(seen, STORE_CRAWLS_MAX)
    }

    /// The number of crawls in the store, or in the shards of this process.
    pub fn len(&self, only_here: bool) -> u64 {
        let counted = lock(&self.0);
        (if only_here { &counted.shards } else { &counted.nodes }).len() as u64
    }

    /// Whether the store has as many crawls as it may have.
    pub fn is_full(&self) -> bool {
        lock(&self.0).nodes.len() >= STORE_CRAWLS_MAX
    }

    /// Why a crawl may not be created, because the store has as many as it may have. What other nodes have created within the
    /// last beat is not counted.
    pub fn full(&self, crawl: &CrawlName) -> Option<String> {
        let counted = lock(&self.0);
        let full = counted.nodes.len() >= STORE_CRAWLS_MAX && !counted.nodes.contains_key(&hash(crawl));
        full.then(|| {
            format!(
                "crawl '{crawl}' is new, and the store has {STORE_CRAWLS_MAX} crawls, which is the limit; delete crawls that are done with"
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_crawl_counts_once_wherever_it_is() {
        let (here, there) = (CrawlCount::default(), CrawlCount::default());
        let (a, b, node): (CrawlName, CrawlName, _) = ("a".into(), "b".into(), NodeId(2));
        assert!(here.note(&a, true) && !here.note(&a, true));
        there.note(&a, true);
        there.note(&b, true);
        let (news, seen) = there.since(None);
        here.hear(node, news.clone());
        here.hear(node, news);
        assert_eq!((here.len(false), here.len(true)), (2, 1), "a beat that is heard twice changes nothing");
        there.note(&b, false);
        let (news, _) = there.since(Some(seen));
        assert_eq!(news.changes.len(), 1);
        here.hear(node, news);
        assert_eq!(here.len(false), 1);
        assert!(!here.note(&a, false) && here.note(&a, false));
        assert_eq!((here.len(false), here.len(true)), (1, 0), "the other node has it");
        here.lost(node);
        assert_eq!(here.len(false), 0);
    }

    #[test]
    fn a_store_takes_no_more_crawls_than_it_may_and_refuses_none_that_it_has() {
        let count = CrawlCount::default();
        count.note(&"mine".into(), true);
        let changes = (1..STORE_CRAWLS_MAX as u64).map(|hash| (hash, Some(()))).collect();
        assert_eq!((count.is_full(), count.full(&"new".into())), (false, None));
        count.hear(NodeId(2), News { begins: true, ends: true, changes });
        assert!(count.is_full());
        let why = count.full(&"new".into()).unwrap();
        assert!(why.contains("'new'") && why.contains("1000000 crawls") && why.contains("delete crawls"), "{why}");
        assert_eq!(count.full(&"mine".into()), None);
        count.hear(NodeId(2), News { changes: vec![(7, None)], ..News::default() });
        assert_eq!(count.full(&"new".into()), None);
    }
}
