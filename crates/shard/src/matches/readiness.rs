//! What Makers wait for: in which shards orders wait for which sites, and which sites have a Maker.
//!
//! A Maker asks a shard only if it has published an order for the Maker's site: shards of this process publish it here,
//! those of other nodes with their beats. Pools learn the other way round which sites are alive. So idle Makers and pools
//! exchange nothing but what is part of every beat. A Maker that is new here asks each shard once.
//!
//! What could leave an order behind, or ask in vain for ever:
//!
//! 1. (a Maker asks, and finds nothing) (an order is published) (the Maker waits): it subscribes before it looks.
//! 2. (a Maker takes all orders of another node) (the beat that says so is on its way): it asks in vain once, and then
//!    waits for the next beat.
//! 3. (orders are taken) (another one comes before the beat): the list is the same. Each beat wakes those who wait for
//!    the shards that it lists.
//! 4. A node cannot be reached: its list goes with it, and its first beat has all of it again.
//! 5. An owner ends: its list goes with it. The next owner orders what its rows say, and publishes that.
//! 6. The answer with the orders is lost: pools order again what they miss.
//! 7. A Maker is between two polls when a pool looks for sites: it looks again before it takes the site for silent.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::time::Instant;
use wayleave_core::ids::{NodeId, ShardId};
use wayleave_core::limits::{SITE_SILENT_AFTER, SITES_MAX};
use wayleave_core::matches::{Lack, RuntimeKind};
use wayleave_core::names::SiteName;

use crate::routing::router::digest;
use crate::shared::broadcast::{Broadcast, Subscriber};
use crate::shared::readiness::lock;

/// A site as its node announces it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LiveSite {
    pub site: SiteName,
    pub runtime: RuntimeKind,
    pub lack: Option<Lack>,
}

/// What a node publishes of sites and orders.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PoolBeat {
    /// Sites whose Makers are there.
    pub sites: Vec<LiveSite>,
    /// Orders that wait, by shard and digest of their site.
    pub orders: Vec<(ShardId, u64)>,
}

/// What is published here.
pub(crate) struct PoolReadiness {
    shards: Vec<Waiting>,
    /// Sites with Makers in this process.
    sites: Mutex<BTreeMap<SiteName, Present>>,
    /// What other nodes have published.
    others: Mutex<BTreeMap<NodeId, PoolBeat>>,
    /// Notified when there is something for the next beat.
    beat: Broadcast,
}

#[derive(Default)]
struct Waiting {
    /// Digests of the sites for which orders wait.
    sites: Mutex<Vec<u64>>,
    changed: Broadcast,
}

struct Present {
    live: LiveSite,
    /// Polls that wait.
    polls: usize,
    /// When there was a poll last.
    left_at: Instant,
    /// The shards that were asked.
    asked: BTreeSet<ShardId>,
}

/// A poll of a site's Maker.
pub(crate) struct Poll<'a> {
    all: &'a PoolReadiness,
    site: SiteName,
}

impl PoolReadiness {
    pub fn new(shards: u16, beat: Broadcast) -> Self {
        Self {
            shards: (0..shards).map(|_| Waiting::default()).collect(),
            sites: Mutex::default(),
            others: Mutex::default(),
            beat,
        }
    }

    /// A Maker polls. Its site is alive until the poll is dropped.
    pub fn poll(&self, live: LiveSite) -> Poll<'_> {
        let (site, now) = (live.site.clone(), Instant::now());
        let mut sites = lock(&self.sites);
        if sites.len() >= SITES_MAX {
            sites.retain(|_, known| known.polls > 0);
        }
        let new = || Present { live: live.clone(), polls: 0, left_at: now, asked: BTreeSet::new() };
        let known = sites.entry(site.clone()).or_insert_with(new);
        let was_lost = known.polls == 0 && now >= known.left_at + Duration::from_millis(SITE_SILENT_AFTER.0);
        if was_lost || known.live.runtime != live.runtime {
            known.asked.clear();
        }
        let is_news = known.asked.is_empty() || known.live != live;
        (known.live, known.polls) = (live, known.polls + 1);
        drop(sites);
        if is_news {
            self.beat.notify();
        }
        Poll { all: self, site }
    }

    /// The sites that have Makers, wherever they are.
    pub fn live_sites(&self) -> Vec<LiveSite> {
        let mut sites = self.sites_here();
        sites.extend(lock(&self.others).values().flat_map(|beat| beat.sites.iter().cloned()));
        sites
    }

    fn sites_here(&self) -> Vec<LiveSite> {
        lock(&self.sites).values().filter(|site| site.polls > 0).map(|site| site.live.clone()).collect()
    }

    /// What other nodes should know.
    pub fn beat(&self) -> PoolBeat {
        let shards = (0..).map(ShardId).zip(&self.shards);
        let orders =
            shards.flat_map(|(shard, waiting)| lock(&waiting.sites).clone().into_iter().map(move |site| (shard, site)));
        PoolBeat { sites: self.sites_here(), orders: orders.collect() }
    }

    /// A shard publishes for which sites orders wait.
    pub fn tell(&self, shard: ShardId, sites: Vec<u64>) {
        let Some(waiting) = self.shards.get(usize::from(shard.0)) else { return };
        let before = std::mem::replace(&mut *lock(&waiting.sites), sites.clone());
        if sites.is_empty() && before.is_empty() {
            return;
        }
        waiting.changed.notify();
        let here: Vec<u64> = lock(&self.sites).keys().map(|site| digest(site)).collect();
        if before.iter().chain(&sites).any(|site| !here.contains(site)) {
            self.beat.notify();
        }
    }

    /// Another node has published this; none if it can no longer be reached.
    pub fn hear(&self, node: NodeId, beat: Option<PoolBeat>) {
        let Some(beat) = beat else {
            lock(&self.others).remove(&node);
            return;
        };
        let shards: Vec<ShardId> = beat.orders.iter().map(|(shard, _)| *shard).collect();
        // Before those are woken that look into it.
        lock(&self.others).insert(node, beat);
        let waiting = shards.iter().filter_map(|shard| self.shards.get(usize::from(shard.0)));
        waiting.for_each(|waiting| waiting.changed.notify());
    }

    /// Whether a shard, wherever it is, has orders for a site.
    pub fn has_orders(&self, shard: ShardId, site: u64) -> bool {
        self.shards.get(usize::from(shard.0)).is_some_and(|waiting| lock(&waiting.sites).contains(&site))
            || lock(&self.others).values().any(|beat| beat.orders.contains(&(shard, site)))
    }

    /// Subscribes to what is published of a shard.
    pub fn changes(&self, shard: ShardId) -> Subscriber {
        self.shards
            .get(usize::from(shard.0))
            .map_or_else(|| Broadcast::default().subscribe(), |waiting| waiting.changed.subscribe())
    }
}

impl Poll<'_> {
    /// Whether the Maker has asked a shard since it is there.
    pub fn has_asked(&self, shard: ShardId) -> bool {
        lock(&self.all.sites).get(&self.site).is_some_and(|site| site.asked.contains(&shard))
    }

    /// The shard has answered.
    pub fn answered(&self, shard: ShardId) {
        if let Some(site) = lock(&self.all.sites).get_mut(&self.site) {
            site.asked.insert(shard);
        }
    }
}

impl Drop for Poll<'_> {
    fn drop(&mut self) {
        if let Some(site) = lock(&self.all.sites).get_mut(&self.site) {
            (site.polls, site.left_at) = (site.polls.saturating_sub(1), Instant::now());
        }
    }
}
