//! The Maker: carries out, at one site, the orders of the pools of all shards.
//!
//! A long poll per shard fetches orders. Each order runs in its own task, and outcomes are reported in batches. A Maker has no durable state: pools repeat what a crash loses, and
//! runtimes recognise a repeated order.
//!
//! Concurrent events, and why they do no harm:
//!
//! | interleaving | what keeps it right |
//! |---|---|
//! | a step is ordered again while it is being carried out | it is not started twice: the order is dropped |
//! | a worker's next step comes while its last one runs | runtime orders of a worker take turns |
//! | an order comes after one for a later step of its worker, because an answer was late, or its task is slow | the highest step is noted as it is accepted; lower ones are not carried out |
//! | a worker is to be removed while it is made, which may take as long as its image | the making is given up; runtimes start nothing for an order that was |
//! | a worker ends, or is to be removed, while it is awaited | the waiting ends; its answer would be stale |
//! | the same question is asked again, later | another time of sending makes it another question; the worker knows the token |
//! | a worker hangs | its calls end by their deadline, few of them are made at a time, and the others wait for it with no permit of its pool |
//! | two batches of news of a pool are sent at a time | those of one worker are in one lane, and arrive in order |
//! | a pool cannot be reached | its news wait, bounded, and are dropped at last; other pools do not notice |
//! | an exit is reported twice, or after a restart | its instance identifies the run |
//! | a list fails | nothing is reported: a list that lacks a worker would declare it dead |

mod carry_out;
mod outcomes;
mod permits;
mod shared;
mod steps;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use wayleave_core::ids::ShardId;
use wayleave_core::matches::{Effect, Input, RuntimeKind};
use wayleave_core::names::{PoolName, SiteName};
use wayleave_core::time::{Millis, Time};

use self::shared::Shared;
use crate::calls::Calls;
use crate::runtime::{Failure, Runtime};

/// How long a poll waits for an order.
const POLL_WAIT: Millis = Millis(5_000);
/// An answer that comes later than this after its poll began is not taken: what it outdates is remembered for longer.
const POLL_TIME: Duration = Duration::from_secs(15);
/// The first pause after a poll that failed; it doubles.
const PAUSE_MIN: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(5);
/// Polls that bring nothing are not repeated faster than this, whatever the other side does.
const POLL_MIN: Duration = Duration::from_millis(50);
/// How long a stop waits for what is being done.
const STOP_WAIT: Duration = Duration::from_secs(5);

/// The pools, as a Maker sees them.
#[async_trait]
pub trait Pools: Send + Sync + 'static {
    /// How many shards there are.
    fn shards(&self) -> u16;

    /// The store's time, in which orders have their deadlines.
    fn now(&self) -> Time;

    /// Says that a site is there, and returns what the pools of a shard have ordered of it, as soon as there is something;
    /// nothing if there is none within `wait`.
    async fn orders(
        &self,
        shard: ShardId,
        site: &SiteName,
        runtime: RuntimeKind,
        wait: Millis,
    ) -> Result<Vec<(PoolName, Effect)>, Failure>;

    /// Reports the outcomes of orders to a pool. News of a pool that does not exist are dropped, which is no error.
    /// Fails if the pool cannot be reached. The Maker tries again for a while.
    async fn report(&self, pool: &PoolName, news: Vec<Input>) -> Result<(), Failure>;
}

/// Where a Maker works.
#[derive(Clone)]
pub struct Site {
    /// The site's name.
    pub name: SiteName,
    /// What starts its workers.
    pub runtime: Arc<dyn Runtime>,
}

/// A Maker at work. Dropped, it stops at once; workers continue.
#[derive(Debug)]
pub struct Maker {
    stopping: CancellationToken,
    tasks: TaskTracker,
}

impl Drop for Maker {
    fn drop(&mut self) {
        self.stopping.cancel();
    }
}

impl Maker {
    /// Starts to work. Must be called within tokio.
    #[must_use]
    pub fn start(site: Site, pools: Arc<dyn Pools>, calls: Calls) -> Self {
        let (stopping, tasks) = (CancellationToken::new(), TaskTracker::new());
        let events = site.runtime.events();
        let shards = pools.shards();
        let shared = Shared::new(site, pools, calls, stopping.clone(), tasks.clone());
        for shard in 0..shards {
            tasks.spawn(poll(Arc::clone(&shared), ShardId(shard)));
        }
        tasks.spawn(shared::report_ends(shared, events));
        Self { stopping, tasks }
    }

    /// Fetches no more orders, and waits a moment for what is being done. Workers continue.
    pub async fn stop(self) {
        self.stopping.cancel();
        self.tasks.close();
        if timeout(STOP_WAIT, self.tasks.wait()).await.is_err() {
            tracing::info!("orders were under way when the Maker stopped; they will be repeated");
        }
    }
}

/// Fetches the orders of a shard until the Maker stops.
async fn poll(shared: Arc<Shared>, shard: ShardId) {
    let mut pause = PAUSE_MIN;
    loop {
        let begun = Instant::now();
        let orders = shared.pools.orders(shard, &shared.site.name, shared.site.runtime.kind(), POLL_WAIT);
        let answer = tokio::select! {
            () = shared.stopping.cancelled() => return,
            answer = timeout(POLL_TIME, orders) => answer.unwrap_or_else(|_| Err(Failure::new("no answer in time"))),
        };
        let rest = match answer {
            Ok(effects) => {
                pause = PAUSE_MIN;
                let rest = if effects.is_empty() { POLL_MIN.saturating_sub(begun.elapsed()) } else { Duration::ZERO };
                effects.into_iter().for_each(|(pool, effect)| shared.accept(pool, effect));
                rest
            }
            Err(why) => {
                let shard = shard.0;
                if shared.may_complain() {
                    tracing::warn!(shard, %why, "cannot fetch the orders of pools; trying again");
                }
                let rest = pause;
                pause = (pause * 2).min(PAUSE_MAX);
                rest
            }
        };
        if !rest.is_zero() {
            tokio::select! {
                () = shared.stopping.cancelled() => return,
                () = sleep(rest) => {}
            }
        }
    }
}
