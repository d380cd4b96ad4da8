//! What Makers call: they fetch the orders for their site, shard by shard, and tell what became of them.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::Instant;
use wayleave_core::ids::ShardId;
use wayleave_core::limits::MAKER_REPORTS_MAX;
use wayleave_core::matches::{Input, Lack, RuntimeKind};
use wayleave_core::names::{PoolName, SiteName};
use wayleave_core::time::Millis;

use super::call::{MatchCall, Orders};
use super::handle::Matches;
use super::readiness::LiveSite;
use crate::routing::router::{CallResult, digest};

impl Matches {
    /// The shards, each of which a Maker polls.
    #[must_use]
    pub fn shards(&self) -> Vec<ShardId> {
        self.frontier.all()
    }

    /// Long poll: what is to be done at a site for the pools of a shard. Waits up to `wait` until there is something, and
    /// asks the owner only then; while it waits, the site is alive to all pools. Everything in the answer follows from
    /// durable rows. Orders whose answer is lost are given again later. Fails if the owner cannot be asked, or the
    /// store refuses changes: try again.
    pub async fn orders(
        &self,
        shard: ShardId,
        site: SiteName,
        runtime: RuntimeKind,
        wait: Millis,
    ) -> CallResult<Orders> {
        self.orders_lacking(shard, site, (runtime, None), wait).await
    }

    /// The same of a node that should have another runtime, and cannot use it: pools that need it are told why. Fails
    /// as [`Self::orders`].
    pub async fn orders_lacking(
        &self,
        shard: ShardId,
        site: SiteName,
        (runtime, lack): (RuntimeKind, Option<Lack>),
        wait: Millis,
    ) -> CallResult<Orders> {
        let (deadline, readiness) = (Instant::now() + Duration::from_millis(wait.0), &self.frontier.readiness);
        let digest = digest(&site);
        let live = LiveSite { site, runtime, lack };
        let (poll, mut changes) = (readiness.pools.poll(live.clone()), readiness.pools.changes(shard));
        loop {
            // Before looking, so that no order meanwhile is missed.
            changes.mark_unchanged();
            if !poll.has_asked(shard) || readiness.pools.has_orders(shard, digest) {
                let orders: Orders = self.frontier.router.call(shard, MatchCall::Orders(live.clone())).await?;
                poll.answered(shard);
                if !orders.is_empty() {
                    return Ok(orders);
                }
            }
            if tokio::time::timeout_at(deadline, changes.changed()).await.is_err() {
                return Ok(Orders::new());
            }
        }
    }

    /// Tells outcomes of orders and news of a runtime, each to its pool; those of one shard travel together and in order.
    /// What is said of a pool that is gone, or of something that is over, changes nothing. Fails if an owner cannot be
    /// asked: some of it may have been taken in. All of it may be told again.
    pub async fn tell(&self, told: Vec<(PoolName, Input)>) -> CallResult<()> {
        let mut by_shard: BTreeMap<ShardId, Vec<(PoolName, Input)>> = BTreeMap::new();
        for (pool, input) in told {
            by_shard.entry(self.shard_of(&pool)).or_default().push((pool, input));
        }
        let tells = by_shard.into_iter().map(|(shard, told)| self.tell_shard(shard, told));
        futures::future::join_all(tells).await.into_iter().collect()
    }

    async fn tell_shard(&self, shard: ShardId, mut told: Vec<(PoolName, Input)>) -> CallResult<()> {
        while !told.is_empty() {
            let rest = told.split_off(told.len().min(MAKER_REPORTS_MAX));
            let part = std::mem::replace(&mut told, rest);
            self.frontier.router.call::<_, ()>(shard, MatchCall::Tell(part)).await?;
        }
        Ok(())
    }
}
