//! The handle: routes each call to the shard that its pool's name hashes to.

use std::time::Duration;

use tokio::sync::SemaphorePermit;
use tokio::time::Instant;
use wayleave_core::frontier::refusal::Refusal;
use wayleave_core::ids::{ShardId, Token};
use wayleave_core::limits::{LISTING_LOOKS, MATCH_PARK_MAX, PAGE_SLICES_MAX, WAIT_MS_MAX};
use wayleave_core::matches::view::PoolSummary;
use wayleave_core::matches::{Asker, MatchStage, MatchView, PoolView, RemovedView, Settings, WorkerView};
use wayleave_core::names::{ClientName, PoolName};
use wayleave_core::time::{Millis, Time};

use super::call::{MatchCall, MatchPage, MatchResponse, PoolPage, RemoteMatchCall, Waited, WorkerReport};
use crate::handle::frontier::Frontier;
use crate::routing::links::{decode, encode};
use crate::routing::router::{CallResult, OwnerLocation, home};

/// How often a waiting call asks the next owner before it gives up.
const INTERRUPTIONS_MAX: usize = 3;

/// Pools and matches as seen by one process. Cheap to clone, safe to share.
#[derive(Clone)]
pub struct Matches {
    pub(crate) frontier: Frontier,
}

impl Matches {
    /// The pools over the shards of a frontier.
    #[must_use]
    pub const fn new(frontier: Frontier) -> Self {
        Self { frontier }
    }

    /// A client wants a worker. Idempotent per client. While it has none, waits for one up to `wait`. Returns its match;
    /// none if its request was cancelled while this call waited.
    ///
    /// # Errors
    /// If there is no such pool, its queue is full, or the client belongs to another caller.
    pub async fn put(&self, pool: PoolName, asker: Asker, wait: Millis) -> CallResult<Option<MatchView>> {
        let call = |wait, again| MatchCall::Put { pool: pool.clone(), asker: asker.clone(), wait, again };
        self.wait(&pool, wait, call).await
    }

    /// A client's match, which this confirms. While it waits for a worker, waits up to `wait`. None if the client has no
    /// request.
    ///
    /// # Errors
    /// If there is no such pool, or the client belongs to another caller.
    pub async fn look(&self, pool: PoolName, asker: Asker, wait: Millis) -> CallResult<Option<MatchView>> {
        let call = |wait, _| MatchCall::Look { pool: pool.clone(), asker: asker.clone(), wait };
        self.wait(&pool, wait, call).await
    }

    /// Cancels a client's request, or gives its slot back; with a token, only that reservation. Returns whether there was
    /// one.
    ///
    /// # Errors
    /// If there is no such pool, or the client belongs to another caller.
    pub async fn cancel(&self, pool: PoolName, asker: Asker, token: Option<Token>) -> CallResult<bool> {
        self.ask(&pool.clone(), MatchCall::Cancel { pool, asker, token }).await
    }

    /// A client's match as it is, with the reason, for operators: without its token, and nothing is confirmed. None if it
    /// has no request.
    ///
    /// # Errors
    /// If there is no such pool.
    pub async fn why(&self, pool: PoolName, client: ClientName) -> CallResult<Option<MatchView>> {
        let view: Option<Box<MatchView>> = self.ask(&pool.clone(), MatchCall::Why { pool, client }).await?;
        Ok(view.map(|view| *view))
    }

    /// A page of a pool's matches, by client, perhaps only those in a stage, and the client after which the next page
    /// starts. A page that has taken many slices is returned short.
    ///
    /// # Errors
    /// If there is no such pool, or too many listings wait.
    pub async fn matches(
        &self,
        pool: &PoolName,
        stage: Option<MatchStage>,
        after: Option<ClientName>,
        most: usize,
    ) -> CallResult<MatchPage> {
        let _permit = self.frontier.listings.acquire().await?;
        let (mut page, mut after) = (Vec::new(), after);
        for _ in 0..PAGE_SLICES_MAX {
            // Without a filter every item looked at is part of the page.
            let room = if stage.is_none() { most - page.len() } else { LISTING_LOOKS };
            let call = MatchCall::Matches { pool: pool.clone(), stage, after: after.take(), most: room };
            let (slice, next): MatchPage = self.ask(pool, call).await?;
            page.extend(slice);
            after = next;
            if page.len() > most {
                page.truncate(most);
                after = page.last().map(|(client, _): &(ClientName, MatchView)| client.clone());
            }
            if after.is_none() || page.len() >= most.max(1) {
                break;
            }
        }
        Ok((page, after))
    }

    /// Creates a pool, or changes its settings.
    ///
    /// # Errors
    /// If the pool is being deleted, or there are too many.
    pub async fn set_pool(&self, pool: PoolName, settings: Settings) -> CallResult<PoolView> {
        self.set_pool_paused(pool, settings, None).await
    }

    /// The same, and pauses or resumes it; `None` leaves that as it is.
    ///
    /// # Errors
    /// If the pool is being deleted, or there are too many.
    pub async fn set_pool_paused(
        &self,
        pool: PoolName,
        settings: Settings,
        paused: Option<bool>,
    ) -> CallResult<PoolView> {
        let call = MatchCall::SetPool { pool: pool.clone(), settings: Box::new(settings), paused };
        self.ask(&pool, call).await.map(|view: Box<PoolView>| *view)
    }

    /// Pauses a pool, or resumes it. A paused pool starts nothing.
    ///
    /// # Errors
    /// If there is no such pool.
    pub async fn pause_pool(&self, pool: PoolName, paused: bool) -> CallResult<PoolView> {
        self.ask(&pool.clone(), MatchCall::PausePool { pool, paused }).await.map(|view: Box<PoolView>| *view)
    }

    /// Deletes a pool: its workers are drained first.
    ///
    /// # Errors
    /// If there is no such pool.
    pub async fn delete_pool(&self, pool: PoolName) -> CallResult<PoolView> {
        self.ask(&pool.clone(), MatchCall::DeletePool(pool)).await.map(|view: Box<PoolView>| *view)
    }

    /// A pool, with what it is doing and why.
    ///
    /// # Errors
    /// If there is no such pool.
    pub async fn pool(&self, pool: PoolName) -> CallResult<PoolView> {
        self.ask(&pool.clone(), MatchCall::Pool(pool)).await.map(|view: Box<PoolView>| *view)
    }

    /// A page of pools, by name, and the name after which the next page starts. All shards are asked at once.
    ///
    /// # Errors
    /// If a shard cannot be asked, or too many listings wait.
    pub async fn pools(&self, after: Option<PoolName>, most: usize) -> CallResult<PoolPage> {
        let _permit = self.frontier.listings.acquire().await?;
        let most = most.clamp(1, LISTING_LOOKS);
        let asks = self.frontier.all().into_iter().map(|shard| {
            let call = MatchCall::Pools { after: after.clone(), most };
            self.frontier.router.call(shard, call)
        });
        let slices: Vec<PoolPage> = futures::future::try_join_all(asks).await?;
        let mut more = slices.iter().any(|(_, next)| next.is_some());
        let mut pools: Vec<PoolSummary> = slices.into_iter().flat_map(|(pools, _)| pools).collect();
        pools.sort_by(|a, b| a.name.cmp(&b.name));
        more |= pools.len() > most;
        pools.truncate(most);
        let next = pools.last().map(|view| view.name.clone()).filter(|_| more);
        Ok((pools, next))
    }

    /// The workers of a pool.
    ///
    /// # Errors
    /// If there is no such pool.
    pub async fn workers(&self, pool: PoolName) -> CallResult<Vec<WorkerView>> {
        self.ask(&pool.clone(), MatchCall::Workers(pool)).await
    }

    /// The last workers of a pool that were removed, the last one first.
    ///
    /// # Errors
    /// If there is no such pool.
    pub async fn removed(&self, pool: PoolName) -> CallResult<Vec<RemovedView>> {
        self.ask(&pool.clone(), MatchCall::Removed(pool)).await
    }

    /// A worker reports itself.
    ///
    /// # Errors
    /// If there is no such pool or worker, the secret is not its own, or the address is not one.
    pub async fn report(&self, pool: PoolName, report: WorkerReport) -> CallResult<()> {
        self.ask(&pool.clone(), MatchCall::Report { pool, report }).await
    }

    /// The store's time, by which deadlines of orders are judged.
    #[must_use]
    pub fn now(&self) -> Time {
        self.frontier.now()
    }

    /// Makes a call that may wait, in parts: an owner on another node is given only so long to answer. If the owner ends,
    /// the next one is asked.
    async fn wait(
        &self,
        pool: &PoolName,
        wait: Millis,
        call: impl Fn(Millis, bool) -> MatchCall,
    ) -> CallResult<Option<MatchView>> {
        let queues = matches!(call(Millis(0), false), MatchCall::Put { .. });
        let deadline = Instant::now() + Duration::from_millis(wait.0.min(WAIT_MS_MAX));
        let (mut again, mut begun, mut interruptions) = (false, false, 0);
        loop {
            let asked = Instant::now();
            let left = deadline.saturating_duration_since(asked);
            let (part, _place) = self.part(pool, left);
            match self.ask(pool, call(Millis(part.as_millis() as u64), again)).await {
                Ok(Waited::Now(view)) => {
                    let waits = |view: &MatchView| matches!(view.stage, MatchStage::Queued | MatchStage::Making);
                    // An owner that has too many calls parked answers at once: so does this call.
                    let early = asked.elapsed() < part / 2;
                    if early || Instant::now() >= deadline || !view.as_deref().is_some_and(waits) {
                        return Ok(view.map(|view| *view));
                    }
                    (again, begun) = (true, true);
                }
                Ok(Waited::Interrupted) if interruptions < INTERRUPTIONS_MAX => {
                    interruptions += 1;
                    // Perhaps the store has nothing of it.
                    (again, begun) = (false, true);
                }
                Ok(Waited::Interrupted) => {
                    let why = "the owners of the pool's shard end again and again".to_owned();
                    return Err(Refusal::OutcomeUnknown(why));
                }
                Err(refusal) if queues && begun => return Err(refusal.after_a_part("the request may be queued")),
                Err(refusal) => return Err(refusal),
            }
        }
    }

    /// How long the next part of a call waits. An owner here is asked once. Calls to other nodes wait in short parts, and
    /// only so many at a time: they must leave room for what other services ask those nodes.
    fn part(&self, pool: &PoolName, left: Duration) -> (Duration, Option<SemaphorePermit<'_>>) {
        let router = &self.frontier.router;
        if matches!(router.location(self.shard_of(pool)), OwnerLocation::Local(_)) {
            return (left, None);
        }
        match self.frontier.remote_waits.try_acquire() {
            Ok(place) => (left.min(Duration::from_millis(MATCH_PARK_MAX.0)), Some(place)),
            Err(_) => (Duration::ZERO, None),
        }
    }

    pub(super) fn shard_of(&self, pool: &PoolName) -> ShardId {
        home(pool, self.frontier.shards())
    }

    async fn ask<T: TryFrom<MatchResponse, Error = Refusal>>(&self, pool: &PoolName, call: MatchCall) -> CallResult<T> {
        self.frontier.router.call(self.shard_of(pool), call).await
    }
}

impl Frontier {
    /// Serves another node's call about pools, with this node's own shards only.
    pub(crate) async fn answer_matches(&self, call: &[u8]) -> Result<Vec<u8>, String> {
        let RemoteMatchCall { shard, call } = decode(call)?;
        let answer: CallResult<MatchResponse> =
            self.router.call_here(shard, call).await.unwrap_or(Err(Refusal::Elsewhere));
        encode(&answer)
    }
}
