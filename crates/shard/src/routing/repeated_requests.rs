//! Requests that may be repeated: a reservation whose answer was lost is asked for again under the same id, and the caller
//! gets the reservations that were granted the first time, wherever they are.
//!
//! What was granted is kept with the reservations themselves, durable, by the owners of their shards. Before a request with
//! an id is granted anything, every shard that may have something of it is asked. Shards of this process that surely have
//! nothing are passed over by a digest of the id; another node is asked once for all its shards. Requests without an id
//! come nowhere near this.
//!
//! Only what can be asked within a moment counts: a node that is cut off must not keep the others from working. What it has
//! granted ends by its deadline, as it would without an id.
//!
//! Within a process a repetition waits until the first call has been decided, also if its caller has gone. Two nodes that
//! are asked at the same time may both grant: a client repeats a request when the first try has ended.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use hashbrown::HashMap;
use tokio::sync::OwnedMutexGuard;
use wayleave_core::frontier::refusal::Refusal;
use wayleave_core::frontier::request::{RequestId, Reservation, Reserve};
use wayleave_core::frontier::requested::digest;
use wayleave_core::ids::{NodeId, ShardId};
use wayleave_engine::Error;

use crate::ask::Query;
use crate::handle::frontier::Frontier;
use crate::owner::owner_loop::Owner;
use crate::owner::read_facts;
use crate::routing::links::Call;
use crate::routing::router::{Answer, Place, worse};
use crate::shared::readiness::{Source, lock};

/// How long other nodes are asked what they have granted.
const ASK_OTHERS: Duration = Duration::from_millis(500);

type Waiters = Arc<tokio::sync::Mutex<()>>;

/// What this process knows of requests that may be repeated.
pub(crate) struct Requests {
    /// How many reservations each request has, by shard and digest.
    granted: Vec<Mutex<HashMap<u64, u32>>>,
    /// Those that are being decided; one call each at a time.
    under_way: Mutex<HashMap<u64, Waiters>>,
}

/// One call's turn to be decided. It ends when the last copy goes.
pub(crate) struct Turn {
    frontier: Frontier,
    digest: u64,
    guard: Option<OwnedMutexGuard<()>>,
}

impl Drop for Turn {
    fn drop(&mut self) {
        let mut lines = lock(&self.frontier.readiness.requests.under_way);
        drop(self.guard.take());
        // Whoever waits has a copy of the line, and gets it from here only under the lock.
        if lines.get(&self.digest).is_some_and(|line| Arc::strong_count(line) == 1) {
            lines.remove(&self.digest);
        }
    }
}

impl Requests {
    pub fn new(shards: u16) -> Self {
        Self { granted: (0..shards).map(|_| Mutex::default()).collect(), under_way: Mutex::default() }
    }

    /// A shard is read anew: what was said of it before is void.
    pub fn forget(&self, shard: ShardId) {
        if let Some(granted) = self.granted.get(usize::from(shard.0)) {
            lock(granted).clear();
        }
    }

    /// A shard says which requests have got a reservation or lost one.
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

impl Frontier {
    /// Waits until no other call of the same request is being decided in this process.
    pub(crate) async fn turn_of(&self, holder: &str, request: &RequestId) -> Arc<Turn> {
        let digest = digest(holder, &request.id);
        let line = lock(&self.readiness.requests.under_way).entry(digest).or_default().clone();
        let guard = line.lock_owned().await;
        Arc::new(Turn { frontier: self.clone(), digest, guard: Some(guard) })
    }

    /// Reserves groups of these sources for a request that may be repeated. It is carried through also if its caller goes
    /// away meanwhile, so that the repetition, which waits for `turn`, finds all that was granted.
    pub(crate) async fn reserve_through(
        &self,
        request: &Reserve,
        sources: Vec<Source>,
        turn: Arc<Turn>,
    ) -> Answer<Vec<Reservation>> {
        let (frontier, request) = (self.clone(), request.clone());
        let decided = tokio::spawn(async move {
            let granted = frontier.reserve_from(&request, &sources).await;
            drop(turn);
            granted
        });
        decided.await.unwrap_or_else(|_| Err(crate::routing::router::never_answered()))
    }

    /// The reservations that were granted for a request before and are not over, the oldest first.
    pub(crate) async fn granted_before(&self, holder: &Arc<str>, id: &RequestId) -> Answer<Vec<Reservation>> {
        let digest = digest(holder, &id.id);
        let mut shards = Vec::new();
        let mut nodes: BTreeMap<NodeId, Vec<ShardId>> = BTreeMap::new();
        // An index that may be another owner's by now passes nothing over.
        let sure = !self.readiness.is_unsure();
        for shard in self.all() {
            match self.router.place(shard) {
                Place::Here(_)
                    if sure && self.readiness.is_open(shard) && !self.readiness.requests.may_have(shard, digest) => {}
                Place::There(node) => nodes.entry(node).or_default().push(shard),
                Place::Here(_) => shards.push(shard),
                // It changes hands; what it has granted is told by its next owner.
                Place::Nobody => {}
            }
        }
        let ask = || Query::Requested { holder: holder.clone(), request: id.clone() };
        let asked = nodes.into_iter().map(|(node, shards)| {
            let (holder, request) = (holder.clone(), id.clone());
            let (call, one) = (Call::Requested { holder, request, shards: shards.clone() }, ask());
            async move {
                let Some(links) = &self.router.links else { return Ok(Vec::new()) };
                match links.ask(node, &call, true).await {
                    Ok(told) => Vec::<Reservation>::try_from(told),
                    Err(refusal @ Refusal::RequestReused(_)) => Err(refusal),
                    // It has not all of them: their owners are looked for one by one.
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
        Ok(found)
    }

    async fn granted_in(&self, shards: &[ShardId], ask: Query) -> Answer<Vec<Reservation>> {
        let asked = shards.iter().map(|shard| self.router.ask::<Vec<Reservation>>(*shard, ask.clone()));
        let (mut found, mut trouble) = (Vec::new(), None);
        for answer in futures::future::join_all(asked).await {
            match answer {
                Ok(told) => found.extend(told),
                Err(refusal @ Refusal::RequestReused(_)) => return Err(refusal),
                Err(refusal) => trouble = Some(worse(trouble, refusal)),
            }
        }
        trouble.map_or(Ok(found), Err)
    }

    /// Answers another node that asks for these shards; they must all be here.
    pub(crate) async fn granted_here(
        &self,
        holder: Arc<str>,
        request: RequestId,
        shards: &[ShardId],
    ) -> Answer<Vec<Reservation>> {
        if shards.iter().any(|shard| !self.owns(*shard)) {
            return Err(Refusal::Elsewhere);
        }
        let (digest, sure) = (digest(&holder, &request.id), !self.readiness.is_unsure());
        let may_have = |shard: &ShardId| {
            !sure || !self.readiness.is_open(*shard) || self.readiness.requests.may_have(*shard, digest)
        };
        let shards: Vec<ShardId> = shards.iter().copied().filter(may_have).collect();
        self.granted_in(&shards, Query::Requested { holder, request }).await
    }
}

impl Owner {
    /// The reservations of this shard that were granted for a request and are not over.
    pub async fn requested(
        &mut self,
        holder: &Arc<str>,
        request: &RequestId,
    ) -> Result<Result<Vec<Reservation>, Refusal>, Error> {
        let now = self.now();
        let leases = match self.state.requested(holder, request, now) {
            Ok(leases) => leases,
            Err(refusal) => return Ok(Err(refusal)),
        };
        let mut found = Vec::with_capacity(leases.len());
        for (token, urls) in leases {
            let rows = read_facts::url_rows(&*self.engine, &urls).await?;
            found.extend(self.state.granted_again(token, rows));
        }
        Ok(Ok(found))
    }
}
