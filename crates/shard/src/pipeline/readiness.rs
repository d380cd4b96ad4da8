//! What the shards of this process have to offer to crawlers and index builders, so that a claim asks only those that
//! have something, and a claim that waits is woken.

use std::sync::atomic::{AtomicU64, Ordering};

use wayleave_core::frontier::readiness::NewlyReady;
use wayleave_core::ids::ShardId;
use wayleave_core::names::CrawlName;
use wayleave_core::pipeline::request::Stage;
use wayleave_core::pipeline::state::{Claimable, Published};
use wayleave_core::time::Time;

use crate::shared::node_readiness::ChunkBeat;
use crate::shared::waiters::Waiters;

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
    /// Claims that wait in the crawl stage: for chunks that are offered again, and for groups that become ready.
    crawlers: Waiters,
    /// Claims that wait in the build stage.
    builders: Waiters,
    /// How often a claim has looked for chunks.
    looks: AtomicU64,
    /// Total numbers of chunks that became claimable: by crawlers, and by index builders.
    offered: AtomicU64,
    crawled: AtomicU64,
}

impl ChunkReadiness {
    pub fn new(shards: u16) -> Self {
        let nothing = || Offers { crawl_at: AtomicU64::new(NEVER), builds: AtomicU64::new(0) };
        Self {
            shards: (0..shards).map(|_| nothing()).collect(),
            crawlers: Waiters::default(),
            builders: Waiters::default(),
            looks: AtomicU64::new(0),
            offered: AtomicU64::new(0),
            crawled: AtomicU64::new(0),
        }
    }

    /// The claims that wait for a stage.
    pub const fn waiters(&self, stage: Stage) -> &Waiters {
        match stage {
            Stage::Crawl => &self.crawlers,
            Stage::Build => &self.builders,
        }
    }

    /// Wakes claims for groups of a crawl that became ready in a shard, of which each may become a link.
    pub fn wake_crawlers(&self, shard: ShardId, crawl: &CrawlName, ready: NewlyReady) {
        self.crawlers.wake(Some(crawl), ready.fresh);
        self.crawlers.wake_watchers(Some(crawl), shard, ready.all);
    }

    /// A claim looks for chunks.
    pub fn look(&self) {
        self.looks.fetch_add(1, Ordering::Relaxed);
    }

    /// How often claims have looked for chunks.
    pub fn looks(&self) -> u64 {
        self.looks.load(Ordering::Relaxed)
    }

    /// A shard publishes what it offers, and then wakes as many claims as chunks became claimable: one that is not counted
    /// as waiting yet looks after it was counted, and sees what is published. Returns whether other nodes should know.
    pub fn tell(&self, shard: ShardId, published: &Published) -> bool {
        let Some(offers) = self.shards.get(usize::from(shard.0)) else { return false };
        let crawl_at = published.crawl_at.map_or(NEVER, |at| at.0);
        let changed = offers.crawl_at.swap(crawl_at, Ordering::AcqRel) != crawl_at;
        let had = offers.builds.swap(published.builds, Ordering::AcqRel) > 0;
        let count = |total: &AtomicU64, chunks: &Claimable| {
            let more = chunks.values().sum::<usize>() as u64;
            more > 0 && total.fetch_add(more, Ordering::AcqRel) < u64::MAX
        };
        let (offered, crawled) = (count(&self.offered, &published.offered), count(&self.crawled, &published.crawled));
        wake(&self.crawlers, shard, &published.offered);
        wake(&self.builders, shard, &published.crawled);
        changed || had != (published.builds > 0) || offered || crawled
    }

    /// What the shards of this process offer, for other nodes.
    pub fn beat(&self) -> ChunkBeat {
        // The numbers first: what is counted by then has been published.
        let (offered, crawled) = (self.offered.load(Ordering::Acquire), self.crawled.load(Ordering::Acquire));
        let first = self.shards.iter().map(|offers| offers.crawl_at.load(Ordering::Acquire)).min();
        let crawl_at = first.filter(|at| *at != NEVER).map(Time);
        ChunkBeat { crawl_at, builds: !self.crawled().is_empty(), offered, crawled }
    }

    /// A shard is no longer here, or is being reloaded.
    pub fn forget(&self, shard: ShardId) {
        self.tell(shard, &Published::default());
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

/// Wakes claims for chunks that became claimable in a shard.
fn wake(waiters: &Waiters, shard: ShardId, claimable: &Claimable) {
    for (crawl, chunks) in claimable {
        waiters.wake(Some(crawl), *chunks);
        waiters.wake_watchers_for_chunks(Some(crawl), shard, *chunks);
    }
}
