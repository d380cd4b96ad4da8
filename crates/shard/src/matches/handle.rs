//! The handle: routes each call to the shard that its pool's name hashes to.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{SemaphorePermit, watch};
use tokio::time::{Instant, timeout, timeout_at};
use wayleave_core::frontier::refusal::Refusal;
use wayleave_core::ids::{ShardId, Token};
use wayleave_core::limits::{FORWARD_TIME, LISTING_LOOKS, PAGE_SLICES_MAX, REMOTE_MATCH_TURN, WAIT_MS_MAX};
use wayleave_core::matches::view::PoolSummary;
use wayleave_core::matches::{Asker, MatchStage, MatchView, PoolView, RemovedView, Settings, WorkerView};
use wayleave_core::names::{ClientName, PoolName};
use wayleave_core::time::{Millis, Time};

use super::call::{MatchCall, MatchPage, MatchResponse, PoolPage, QueuedBefore, RemoteMatchCall, Waited, WorkerReport};
use crate::handle::frontier::Frontier;
use crate::routing::links::{decode, encode};
use crate::routing::router::{CallResult, OwnerLocation, home};

/// How often a waiting call asks the next owner before it gives up.
const INTERRUPTIONS_MAX: usize = 3;

/// How long the next look for another server is waited for.
const LOOK_WAIT_MAX: Duration = Duration::from_secs(5);

/// Pools and matches as seen by one process. Cheap to clone, safe to share.
#[derive(Clone)]
pub struct Matches {
    pub(crate) frontier: Frontier,
    /// What is known of another server that has a copy of this store open.
    beside: Arc<watch::Sender<Option<String>>>,
}

impl Matches {
    /// The pools over the shards of a frontier.
    #[must_use]
    pub fn new(frontier: Frontier) -> Self {
        Self { frontier, beside: Arc::new(watch::Sender::new(None)) }
    }

    /// Notes what a look for another server that has a copy of this store open has found.
    pub fn note_beside(&self, found: Option<String>) {
        self.beside.send_replace(found);
    }

    /// Another server that has a copy of this store open: commands of pools would run in both. If there was one, waits for the next
    /// look, because it may have been stopped since.
    pub async fn beside(&self) -> Option<String> {
        let mut looks = self.beside.subscribe();
        looks.borrow_and_update().as_ref()?;
        _ = tokio::time::timeout(LOOK_WAIT_MAX, looks.changed()).await;
        looks.borrow().clone()
    }

    /// A client wants a worker. Idempotent per client. While it has none, waits for one up to `wait`. Returns its match;
    /// none if its request was cancelled while this call waited. Fails if there is no such pool, its queue is full, or
    /// the client belongs to another caller.
    pub async fn put(&self, pool: PoolName, asker: Asker, wait: Millis) -> CallResult<Option<MatchView>> {
        self.put_part(pool, asker, wait, QueuedBefore::No).await
    }

    /// Ends a put that was dropped while it waited. A failure that it was answered with and that was lost with it is answered
    /// again. Fails as [`Matches::put`] does.
    pub async fn end_put(&self, pool: PoolName, asker: Asker) -> CallResult<Option<MatchView>> {
        self.put_part(pool, asker, Millis(0), QueuedBefore::Perhaps).await
    }

    async fn put_part(
        &self,
        pool: PoolName,
        asker: Asker,
        wait: Millis,
        before: QueuedBefore,
    ) -> CallResult<Option<MatchView>> {
        let call = |wait, before| MatchCall::Put { pool: pool.clone(), asker: asker.clone(), wait, before };
        self.wait((&pool, &asker.client), wait, before, call).await
    }

    /// A client's match, which this confirms. While it waits for a worker, waits up to `wait`. None if the client has no
    /// request. Fails if there is no such pool, or the client belongs to another caller.
    pub async fn look(&self, pool: PoolName, asker: Asker, wait: Millis) -> CallResult<Option<MatchView>> {
        let call = |wait, _| MatchCall::Look { pool: pool.clone(), asker: asker.clone(), wait };
        self.wait((&pool, &asker.client), wait, QueuedBefore::No, call).await
    }

    /// Cancels a client's request, or gives its slot back; with a token, only that reservation. Returns whether there was
    /// one. Fails if there is no such pool, or the client belongs to another caller.
    pub async fn cancel(&self, pool: PoolName, asker: Asker, token: Option<Token>) -> CallResult<bool> {
        self.ask(&pool.clone(), MatchCall::Cancel { pool, asker, token }).await
    }

    /// A client's match as it is, with the reason, for operators: without its token, and nothing is confirmed. None if it
    /// has no request.
    pub async fn why(&self, pool: PoolName, client: ClientName) -> CallResult<Option<MatchView>> {
        let view: Option<Box<MatchView>> = self.ask(&pool.clone(), MatchCall::Why { pool, client }).await?;
        Ok(view.map(|view| *view))
    }

    /// A page of a pool's matches, by client, perhaps only those in a stage, and the client after which the next page
    /// starts. A page that has taken many slices is returned short. Fails if there is no such pool, or too many
    /// listings wait.
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

    /// Creates a pool, or changes its settings. Fails if the pool is being deleted, or there are too many.
    pub async fn set_pool(&self, pool: PoolName, settings: Settings) -> CallResult<PoolView> {
        self.set_pool_paused(pool, settings, None).await
    }

    /// The same, and pauses or resumes it; `None` leaves that as it is. Fails if the pool is being deleted, or there
    /// are too many.
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
    pub async fn pause_pool(&self, pool: PoolName, paused: bool) -> CallResult<PoolView> {
        self.ask(&pool.clone(), MatchCall::PausePool { pool, paused }).await.map(|view: Box<PoolView>| *view)
    }

    /// Deletes a pool: its workers are drained first.
    pub async fn delete_pool(&self, pool: PoolName) -> CallResult<PoolView> {
        self.ask(&pool.clone(), MatchCall::DeletePool(pool)).await.map(|view: Box<PoolView>| *view)
    }

    /// A pool, with what it is doing and why.
    pub async fn pool(&self, pool: PoolName) -> CallResult<PoolView> {
        self.ask(&pool.clone(), MatchCall::Pool(pool)).await.map(|view: Box<PoolView>| *view)
    }

    /// A page of pools, by name, and the name after which the next page starts. All shards are asked at once. Fails if
    /// a shard cannot be asked, or too many listings wait.
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

    /// The first pools of the shards that answer: of those that do not, nothing is known.
    pub async fn pools_that_answer(&self, most: usize) -> Vec<PoolSummary> {
        let Ok(_permit) = self.frontier.listings.acquire().await else { return Vec::new() };
        let most = most.clamp(1, LISTING_LOOKS);
        let asks = self.frontier.all().into_iter().map(|shard| {
            let call = MatchCall::Pools { after: None, most };
            self.frontier.router.call::<_, PoolPage>(shard, call)
        });
        let slices = futures::future::join_all(asks).await.into_iter().flatten();
        let mut pools: Vec<PoolSummary> = slices.flat_map(|(pools, _)| pools).collect();
        pools.sort_by(|a, b| a.name.cmp(&b.name));
        pools.truncate(most);
        pools
    }

    /// The workers of a pool.
    pub async fn workers(&self, pool: PoolName) -> CallResult<Vec<WorkerView>> {
        self.ask(&pool.clone(), MatchCall::Workers(pool)).await
    }

    /// The last workers of a pool that were removed, the last one first.
    pub async fn removed(&self, pool: PoolName) -> CallResult<Vec<RemovedView>> {
        self.ask(&pool.clone(), MatchCall::Removed(pool)).await
    }

    /// A worker reports itself. Fails if there is no such pool or worker, the secret is not its own, or the address is
    /// not one.
    pub async fn report(&self, pool: PoolName, report: WorkerReport) -> CallResult<()> {
        self.ask(&pool.clone(), MatchCall::Report { pool, report }).await
    }

    /// The store's time, by which deadlines of orders are judged.
    #[must_use]
    pub fn now(&self) -> Time {
        self.frontier.now()
    }

    /// Makes a call that may wait. An owner here parks it. One on another node answers at once: the call waits here until
    /// its client has news, and asks again. If the owner ends, the next one is asked.
    async fn wait(
        &self,
        (pool, client): (&PoolName, &ClientName),
        wait: Millis,
        mut before: QueuedBefore,
        call: impl Fn(Millis, QueuedBefore) -> MatchCall,
    ) -> CallResult<Option<MatchView>> {
        let queues = matches!(call(Millis(0), before), MatchCall::Put { .. });
        let deadline = Instant::now() + Duration::from_millis(wait.0.min(WAIT_MS_MAX));
        let shard = self.shard_of(pool);
        // Before asking, so that no news meanwhile are missed.
        let news = (wait.0 > 0).then(|| self.frontier.readiness.matches.wait(shard, pool, client));
        let (mut begun, mut interruptions) = (before != QueuedBefore::No, 0);
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let answer = {
                let _turn = self.turn_to_ask(shard).await;
                self.ask(pool, call(Millis(left.as_micros().div_ceil(1_000) as u64), before)).await
            };
            match answer {
                Ok(Waited::Now(view)) => {
                    let waits = |view: &MatchView| matches!(view.stage, MatchStage::Queued | MatchStage::Making);
                    let is_over = Instant::now() >= deadline || !view.as_deref().is_some_and(waits);
                    match &news {
                        // An owner here that answers early has too many calls parked.
                        Some(news) if !is_over && !self.is_here(shard) => _ = timeout_at(deadline, news.news()).await,
                        _ => return Ok(view.map(|view| *view)),
                    }
                    (before, begun) = (QueuedBefore::Yes, true);
                }
                Ok(Waited::Interrupted(queued)) if interruptions < INTERRUPTIONS_MAX => {
                    interruptions += 1;
                    if before != QueuedBefore::Yes {
                        before = queued;
                    }
                    begun = true;
                }
                Ok(Waited::Interrupted(_)) => {
                    let why = "the owners of the pool's shard end again and again".to_owned();
                    return Err(Refusal::OutcomeUnknown(why));
                }
                Err(refusal) if queues && begun => {
                    return Err(refusal.after_partial_change("the request may be queued"));
                }
                Err(refusal) => return Err(refusal),
            }
        }
    }

    fn is_here(&self, shard: ShardId) -> bool {
        matches!(self.frontier.router.location(shard), OwnerLocation::Local(_))
    }

    /// Only so many calls of clients ask other nodes at a time: they must leave room for what other services ask.
    async fn turn_to_ask(&self, shard: ShardId) -> Option<SemaphorePermit<'_>> {
        if self.is_here(shard) {
            return None;
        }
        let turn = self.frontier.remote_match_calls.acquire();
        timeout(Duration::from_millis(REMOTE_MATCH_TURN.0), turn).await.ok()?.ok()
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
        let RemoteMatchCall { shard, mut call } = decode(call)?;
        if let Some(wait) = call.take_wait() {
            // Before the owner is asked, so that it publishes whatever it decides after that.
            self.readiness.matches.watch(shard, self.now().after(wait).after(FORWARD_TIME));
        }
        let answer: CallResult<MatchResponse> =
            self.router.call_here(shard, call).await.unwrap_or(Err(Refusal::Elsewhere));
        encode(&answer)
    }
}
