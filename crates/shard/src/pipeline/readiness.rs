//! What the shards of this process have to offer to crawlers and index builders, so that a claim asks only those that
//! have something, and a claim that waits is woken.

use std::sync::atomic::{AtomicU64, Ordering};

use wayleave_core::ids::ShardId;
use wayleave_core::pipeline::state::Published;
use wayleave_core::time::Time;

use crate::shared::broadcast::Broadcast;

const NEVER: u64 = u64::MAX;

struct Offers {
    /// When a chunk that is offered again may be claimed.
    crawl_at: AtomicU64,
    /// How many chunks wait for an index builder.
    builds: AtomicU64,
}

/// The offers of all shards of this process.
pub(crate) struct ChunkReadiness {
    shards: Vec<Offers>,
    /// Notified when a shard has more to offer.
    pub news: Broadcast,
}

impl ChunkReadiness {
    pub fn new(shards: u16) -> Self {
        let nothing = || Offers { crawl_at: AtomicU64::new(NEVER), builds: AtomicU64::new(0) };
        Self { shards: (0..shards).map(|_| nothing()).collect(), news: Broadcast::default() }
    }

    /// A shard publishes what it offers. Whenever something became claimable, all who wait look again: the numbers alone
    /// do not tell, because something else may have been claimed in the same turn.
    pub fn tell(&self, shard: ShardId, published: &Published) {
        let Some(offers) = self.shards.get(usize::from(shard.0)) else { return };
        offers.crawl_at.store(published.crawl_at.map_or(NEVER, |at| at.0), Ordering::Release);
        offers.builds.store(published.builds, Ordering::Release);
        if published.more {
            self.news.notify();
        }
    }

    /// A shard is no longer here, or is being reloaded.
    pub fn forget(&self, shard: ShardId) {
        self.tell(shard, &Published { crawl_at: None, builds: 0, more: false });
    }

    /// The shards that may offer a chunk again now.
    pub fn offering(&self, now: Time) -> Vec<ShardId> {
        self.which(|offers| offers.crawl_at.load(Ordering::Acquire) <= now.0)
    }

    /// The shards that have chunks for index builders.
    pub fn crawled(&self) -> Vec<ShardId> {
        self.which(|offers| offers.builds.load(Ordering::Acquire) > 0)
    }

    fn which(&self, wanted: impl Fn(&Offers) -> bool) -> Vec<ShardId> {
        let shards = (0u16..).map(ShardId).zip(&self.shards);
        shards.filter(|(_, offers)| wanted(offers)).map(|(shard, _)| shard).collect()
    }
}
