//! Idempotent reservations and claims of chunks: a caller whose answer was lost repeats the request under the same id and gets the
//! reservations or chunks granted the first time, wherever they are.
//!
//! The grants are stored with the reservations and chunks themselves, durably, by the owners of their shards. Before a request
//! with an id is granted anything, every shard that may have a grant for it is asked. Local shards that certainly have
//! none are skipped by a digest of the id; another node is asked once for all its shards. Requests without an id skip
//! all of this.
//!
//! Only shards that answer promptly count: a node that is cut off must not keep the others from working. What it
//! granted expires at its deadline, as it would without an id.
//!
//! Within a process a repetition waits until the first call has been decided, even if its caller has disconnected. Two
//! nodes asked concurrently may both grant: clients must repeat a request only after the first attempt has ended.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use hashbrown::HashMap;
use tokio::sync::OwnedMutexGuard;
use tokio::time::Instant;
use wayleave_core::frontier::refusal::Refusal;
use wayleave_core::frontier::request::{RequestId, Reservation, Reserve};
use wayleave_core::frontier::requested::digest;
use wayleave_core::ids::{NodeId, ShardId};
use wayleave_core::limits::WAIT_MS_MAX;

use crate::ask::RowQuery;
use crate::handle::frontier::Frontier;
use crate::patience::{Patience, Woke, nap};
use crate::routing::links::NodeCall;
use crate::routing::router::{CallResult, OwnerLocation, worse};
use crate::shared::readiness::{Source, lock};

/// Time limit for asking other nodes what they have granted.
const ASK_OTHERS: Duration = Duration::from_millis(500);

type RequestMutex = Arc<tokio::sync::Mutex<()>>;

/// The process's index of requests with an id.
pub(crate) struct Requests {
    /// Number of reservations and chunks per request, by shard and digest.
    granted: Vec<Mutex<HashMap<u64, u32>>>,
    /// Requests being decided; one call each at a time.
    under_way: Mutex<HashMap<u64, RequestMutex>>,
}

/// Exclusive right to decide one request id; released when the last clone is dropped.
pub(crate) struct RequestLock {
    frontier: Frontier,
    digest: u64,
    guard: Option<OwnedMutexGuard<()>>,
}

impl Drop for RequestLock {
    fn drop(&mut self) {
        let mut locks = lock(&self.frontier.readiness.requests.under_way);
        drop(self.guard.take());
        // Every waiter holds a clone of the mutex, and clones are only made under this lock.
        if locks.get(&self.digest).is_some_and(|mutex| Arc::strong_count(mutex) == 1) {
            locks.remove(&self.digest);
        }
    }
}

impl Requests {
    pub fn new(shards: u16) -> Self {
        Self { granted: (0..shards).map(|_| Mutex::default()).collect(), under_way: Mutex::default() }
    }

    /// A shard is being reloaded: drop everything it has published.
    pub fn forget(&self, shard: ShardId) {
        if let Some(granted) = self.granted.get(usize::from(shard.0)) {
            lock(granted).clear();
        }
    }

    /// A shard publishes which requests gained or lost a reservation or a chunk.
    pub fn tell(&self, shard: ShardId, changes: Vec<(u64, bool)>) {
        let Some(granted) = self.granted.get(usize::from(shard.0)).filter(|_| !changes.is_empty()) else { return };
        let mut granted = lock(granted);
        for (digest, got) in changes {
            let count = granted.entry(digest).or_default();
            *count = if got { *count + 1 } else { count.saturating_sub(1) };
            if *count == 0 {
                granted.remove(&digest);
            }
        }
    }

    fn may_have(&self, shard: ShardId, digest: u64) -> bool {
        self.granted.get(usize::from(shard.0)).is_none_or(|granted| lock(granted).contains_key(&digest))
    }
}

/// The shards that may have granted something for a request.
#[derive(Default)]
pub(crate) struct MayHaveGranted {
    pub here: Vec<ShardId>,
    pub nodes: BTreeMap<NodeId, Vec<ShardId>>,
    pub unowned: Vec<ShardId>,
}

impl Frontier {
    /// Waits until no other call with the same request id is being decided in this process.
    pub(crate) async fn lock_request(&self, holder: &str, request: &RequestId) -> Arc<RequestLock> {
        let digest = digest(holder, &request.id);
        // First: a caller who leaves while it waits must not leave the entry behind.
        let mut request_lock = RequestLock { frontier: self.clone(), digest, guard: None };
        let mutex = lock(&self.readiness.requests.under_way).entry(digest).or_default().clone();
        request_lock.guard = Some(mutex.lock_owned().await);
        Arc::new(request_lock)
    }

    /// The same for a caller that may end the wait. It then hears that nothing is decided yet: an earlier call with this id
    /// may still be granted something.
    pub(crate) async fn lock_while(
        &self,
        holder: &str,
        request: &RequestId,
        patience: &mut dyn Patience,
    ) -> CallResult<Arc<RequestLock>> {
        let latest = Instant::now() + Duration::from_millis(WAIT_MS_MAX);
        match nap(patience, latest, self.lock_request(holder, request)).await? {
            Woke::With(request_lock) => Ok(request_lock),
            Woke::InTime | Woke::Hurried => Err(Refusal::Unavailable(
                "an earlier call with this request_id is still being decided; repeat it under the same id".to_owned(),
            )),
        }
    }

    /// Reserves groups from these sources for a request with an id. Runs to completion even if its caller disconnects,
    /// so that a repetition, which waits for `request_lock`, finds everything that was granted.
    pub(crate) async fn reserve_through(
        &self,
        request: &Reserve,
        sources: Vec<Source>,
        request_lock: Arc<RequestLock>,
    ) -> CallResult<Vec<Reservation>> {
        let (frontier, request) = (self.clone(), request.clone());
        let decided = tokio::spawn(async move {
            let granted = frontier.reserve_from(&request, &sources).await;
            drop(request_lock);
            granted
        });
        decided.await.unwrap_or_else(|_| Err(crate::routing::router::never_answered()))
    }

    /// Which of these shards may have granted something for a request.
    pub(crate) fn may_have_granted(&self, shards: &[ShardId], holder: &str, id: &RequestId) -> MayHaveGranted {
        let (digest, readiness) = (digest(holder, &id.id), &self.readiness);
        // After this node may have lost a shard its index is not trusted, and no shard is skipped.
        let sure = !readiness.is_unsure();
        let mut found = MayHaveGranted::default();
        for &shard in shards {
            match self.router.location(shard) {
                OwnerLocation::Local(_)
                    if sure && readiness.is_open(shard) && !readiness.requests.may_have(shard, digest) => {}
                OwnerLocation::Local(_) => found.here.push(shard),
                OwnerLocation::Remote(node) => found.nodes.entry(node).or_default().push(shard),
                OwnerLocation::Unowned => found.unowned.push(shard),
            }
        }
        found
    }

    /// The live reservations already granted for a request, oldest first.
    pub(crate) async fn granted_before(&self, holder: &Arc<str>, id: &RequestId) -> CallResult<Vec<Reservation>> {
        // A shard that is being handed over is not asked; its next owner will report what it has granted.
        let MayHaveGranted { here: shards, nodes, .. } = self.may_have_granted(&self.all(), holder, id);
        let ask = || RowQuery::Requested { holder: holder.clone(), request: id.clone() };
        let asked = nodes.into_iter().map(|(node, shards)| {
            let (holder, request) = (holder.clone(), id.clone());
            let (call, one) = (NodeCall::Requested { holder, request, shards: shards.clone() }, ask());
            async move {
                let Some(links) = &self.router.links else { return Ok(Vec::new()) };
                match links.ask(node, &call, true).await {
                    Ok(told) => Vec::<Reservation>::try_from(told),
                    Err(refusal @ Refusal::RequestReused(_)) => Err(refusal),
                    // The node does not own all of them: ask their owners one by one.
                    Err(Refusal::Elsewhere) => self.granted_in(&shards, one).await,
                    Err(_) => Ok(Vec::new()),
                }
            }
        });
        let asked = asked.map(|asked| tokio::time::timeout(ASK_OTHERS, asked));
        let mut found = Vec::new();
        for answer in futures::future::join_all(asked).await {
            match answer {
                Ok(Err(refusal @ Refusal::RequestReused(_))) => return Err(refusal),
                Ok(Ok(told)) => found.extend(told),
                Ok(Err(_)) | Err(_) => {}
            }
        }
        found.extend(self.granted_in(&shards, ask()).await?);
        found.sort_by_key(|reservation| (reservation.granted_at, reservation.token));
        // One that moves from a shard that was asked to one that is asked later is found in both.
        found.dedup_by_key(|reservation| reservation.token);
        Ok(found)
    }

    async fn granted_in(&self, shards: &[ShardId], ask: RowQuery) -> CallResult<Vec<Reservation>> {
        let asked = shards.iter().map(|shard| self.router.ask::<Vec<Reservation>>(*shard, ask.clone()));
        let (mut found, mut trouble) = (Vec::new(), None);
        for (shard, answer) in shards.iter().zip(futures::future::join_all(asked).await) {
            match answer {
                Ok(told) => found.extend(told),
                Err(refusal @ Refusal::RequestReused(_)) => return Err(refusal),
                // It is closed, perhaps for good: what it granted ends at its deadline.
                Err(_) if self.readiness.troubles.is_damaged(*shard) => {}
                Err(refusal) => trouble = Some(worse(trouble, refusal)),
            }
        }
        trouble.map_or(Ok(found), Err)
    }

    /// Serves another node that asks about these shards; all of them must be here.
    pub(crate) async fn granted_here(
        &self,
        holder: Arc<str>,
        request: RequestId,
        shards: &[ShardId],
    ) -> CallResult<Vec<Reservation>> {
        if shards.iter().any(|shard| !self.owns(*shard)) {
            return Err(Refusal::Elsewhere);
        }
        let shards = self.may_have_granted(shards, &holder, &request).here;
        self.granted_in(&shards, RowQuery::Requested { holder, request }).await
    }
}

#[cfg(test)]
mod tests {
    use wayleave_core::time::Time;
    use wayleave_engine::clock::ManualClock;
    use wayleave_engine::memory::Memory;

    use super::*;
    use crate::config::Config;

    #[tokio::test]
    async fn a_caller_who_leaves_while_it_waits_leaves_nothing_behind() {
        let engine = Memory::new(ManualClock::new(Time(1_000_000)));
        let frontier =
            Frontier::open(Arc::new(engine), Config::new(1), &tokio::runtime::Handle::current()).await.unwrap();
        let request = RequestId { id: "r".into(), asks: 1 };
        let first = frontier.lock_request("h", &request).await;
        let mut waits = Box::pin(frontier.lock_request("h", &request));
        assert!(futures::poll!(&mut waits).is_pending());
        drop(first);
        drop(waits);
        assert!(lock(&frontier.readiness.requests.under_way).is_empty());
    }
}
