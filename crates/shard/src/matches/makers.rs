//! What Makers call: they fetch the orders for their site, shard by shard, and tell what became of them.

use std::collections::BTreeMap;

use wayleave_core::ids::ShardId;
use wayleave_core::limits::TELL_MAX;
use wayleave_core::matches::{Input, Lack, RuntimeKind};
use wayleave_core::names::{PoolName, SiteName};
use wayleave_core::time::Millis;

use super::call::{MatchCall, Orders};
use super::handle::Matches;
use crate::routing::router::CallResult;

impl Matches {
    /// The shards, each of which a Maker polls.
    #[must_use]
    pub fn shards(&self) -> Vec<ShardId> {
        self.frontier.all()
    }

    /// Long poll: what is to be done at a site for the pools of a shard. Tells them that the site is there. Waits up to
    /// `wait` (at most 5 s) until there is something. Everything in the answer follows from durable rows. Orders whose
    /// answer is lost are given again later.
    ///
    /// # Errors
    /// If the owner cannot be asked, or the store refuses changes: try again.
    pub async fn orders(
        &self,
        shard: ShardId,
        site: SiteName,
        runtime: RuntimeKind,
        wait: Millis,
    ) -> CallResult<Orders> {
        self.orders_lacking(shard, site, (runtime, None), wait).await
    }

    /// The same of a node that should have another runtime, and cannot use it: pools that need it are told why.
    ///
    /// # Errors
    /// As [`Self::orders`].
    pub async fn orders_lacking(
        &self,
        shard: ShardId,
        site: SiteName,
        (runtime, lack): (RuntimeKind, Option<Lack>),
        wait: Millis,
    ) -> CallResult<Orders> {
        self.frontier.router.call(shard, MatchCall::Orders { site, runtime, lack, wait }).await
    }

    /// Tells outcomes of orders and news of a runtime, each to its pool; those of one shard travel together and in order.
    /// What is said of a pool that is gone, or of something that is over, changes nothing.
    ///
    /// # Errors
    /// If an owner cannot be asked: some of it may have been taken in. All of it may be told again.
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
            let rest = told.split_off(told.len().min(TELL_MAX));
            let part = std::mem::replace(&mut told, rest);
            self.frontier.router.call::<_, ()>(shard, MatchCall::Tell(part)).await?;
        }
        Ok(())
    }
}
