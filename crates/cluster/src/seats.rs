//! The seats: reads which nodes are alive and who owns what, opens and closes shards accordingly, and does its part
//! of the plan. Everything it writes expects the rows that it has seen.
//!
//! **A locked row.** Free seats are taken in one write, all or none. Another session may hold the row of one seat, or of one dead node,
//! for as long as it likes. After a refusal each seat is therefore taken by itself, in a task beside the passes, so that one locked
//! row costs only the shards that need it. Seats of a dead node whose own row is locked wait for that lock: the taker
//! must be sure that the node does not come back at the same moment.
//!
//! **A shard that cannot be opened** here is listed in this node's row for a while, which the plan gives away: a
//! minute at first, then with back-off, so that a shard that no node can open moves less and less often. While the
//! store does not answer, failures are no evidence against this node and do not count.
//!
//! **The format of the store** is raised by whichever node sees first that it may be. These interleavings matter:
//!
//! 1. (A looks) (B looks) (A raises) (B raises): B's write expects the row of joins as it was and is a conflict.
//! 2. (A looks) (C of an older version joins) (A raises): as 1; A looks again and finds C.
//! 3. (C opens the store) (A raises) (C joins): `cluster_rows::join` reads the format in the look that its batch expects, and refuses C.
//! 4. (A raises, and dies before it knows): the write is there or it is not. If not, another node raises.
//! 5. (C is paused until its row is forgotten) (A raises) (C continues): its seats were taken before, so its commits are fenced. Its row is
//!    gone, so it must join, as 3, and ends. Until then it may write rows outside the shards, in the older layouts, which all nodes read.
//! 6. (A raises) (B does not know yet): B continues writing the older layouts and reads the newer ones.
//!
//! **A lapsed lease.** Owners of an earlier lease are closed before this node looks at anything else; see [`Lapses`](crate::lapses).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::StreamExt;
use futures::stream::FuturesUnordered;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use wayleave_core::cluster::{self, NodeRow, Step, View};
use wayleave_core::ids::{NodeId, ShardId};
use wayleave_core::time::Millis;
use wayleave_engine::rows::{Kind, key as keys};
use wayleave_engine::{Error, format};
use wayleave_registry::{Listener, News};
use wayleave_shard::{Frontier, NodeReadiness};

use crate::cluster_rows::{self, ClusterSnapshot, mine};
use crate::membership::{NodeState, NodeView, Shared};

/// Shards that are handed over at once: those that follow wait, but each waits shorter.
const GIVEN_AT_ONCE: usize = 16;
/// The row of a dead node is kept this long, for people to see.
const REMEMBERED: Millis = Millis(600_000);
/// Between two looks, however often they are asked for.
const SHORTEST: Duration = Duration::from_millis(10);
/// After a look that failed.
const AFTER_FAILURE: Duration = Duration::from_millis(200);
/// Between two looks at the owners of other shards while own ones are handed over.
const LOOK_WHILE_GIVING: Duration = Duration::from_millis(50);
/// How long a shard that this node could not open is not given to it again, at first and at most.
const DECLINED_FOR: [Duration; 2] = [Duration::from_secs(60), Duration::from_secs(1_800)];
/// Before a node is listened to again that could not be heard.
const LISTEN_AGAIN: Duration = Duration::from_millis(300);

pub(crate) struct Seats {
    shared: Arc<Shared>,
    /// One listener for each other node.
    listeners: BTreeMap<NodeId, JoinHandle<()>>,
    /// Seats that are being taken one by one.
    one_by_one: Arc<Mutex<BTreeSet<ShardId>>>,
    /// Until when this node declines shards that it could not open, and the length of that time.
    declined: BTreeMap<ShardId, (Instant, Duration)>,
    /// Hears of changes to rows of nodes and seats.
    ear: Listener,
}

/// The shards that this process owns.
pub(crate) fn owned(frontier: &Frontier) -> Vec<ShardId> {
    (0..frontier.shards()).map(ShardId).filter(|shard| frontier.owns(*shard)).collect()
}

impl Seats {
    pub fn new(shared: Arc<Shared>) -> Self {
        let ear = shared.registry.hints().listen_range(keys::range(keys::OUTSIDE, Kind::Node, Kind::Seat));
        Self { shared, listeners: BTreeMap::new(), one_by_one: Arc::default(), declined: BTreeMap::new(), ear }
    }

    pub async fn run(mut self) {
        let mut alive = self.shared.alive.subscribe();
        loop {
            let lapse = self.shared.lapses.pending();
            if let Some(lapse) = lapse {
                self.give_up().await;
                self.shared.lapses.on_closed(lapse, &self.shared.frontier);
            }
            let nap = if *alive.borrow_and_update() {
                match self.pass().await {
                    Ok(nap) => nap,
                    Err(Error::Conflict) => SHORTEST,
                    Err(error) => {
                        tracing::warn!(%error, "cannot look at nodes and shards");
                        self.shared.frontier.forgive_openings();
                        AFTER_FAILURE
                    }
                }
            } else {
                Duration::from_secs(3_600)
            };
            self.shared.passes.send_modify(|passes| *passes += 1);
            tokio::time::sleep(SHORTEST).await;
            tokio::select! {
                biased;
                () = tokio::time::sleep(nap) => {}
                () = self.ear.heard() => {}
                () = self.shared.frontier.owner_missed() => {}
                _ = alive.changed() => {}
            }
        }
    }

    /// This node has lost its lease: others may own its shards by now.
    async fn give_up(&self) {
        self.shared.frontier.stop().await;
        for shard in (0..self.shared.frontier.shards()).map(ShardId) {
            self.shared.frontier.set_owner(shard, None);
        }
    }

    /// Looks, and does what follows from it. Returns when to look again.
    async fn pass(&mut self) -> Result<Duration, Error> {
        let snapshot = self.look().await?;
        let me = self.shared.options.id;
        self.meet(&snapshot).await;
        self.decline();
        self.settle(&snapshot).await;
        let interval = self.shared.options.interval();
        let (now, ttl) = (snapshot.now, self.shared.options.ttl);
        let view = snapshot.view(me, ttl);
        self.raise(&snapshot, &view).await;
        let steps = cluster::plan(&view);
        let waiting = lock(&self.one_by_one).clone();
        let may_take = |shard: &ShardId| !waiting.contains(shard) && snapshot.is_free(*shard, ttl);
        let takes: Vec<ShardId> = steps.iter().filter_map(take).filter(may_take).collect();
        let gives: Vec<(ShardId, Option<NodeId>)> = steps.iter().filter_map(give).collect();
        if !takes.is_empty() {
            match self.take(&snapshot, &takes).await {
                Err(Error::Unavailable(why)) => {
                    tracing::warn!(
                        why,
                        shards = takes.len(),
                        "shards cannot be taken over at once; taking them one by one"
                    );
                    self.take_one_by_one(&snapshot, &takes);
                }
                taken => taken?,
            }
        }
        for some in gives.chunks(GIVEN_AT_ONCE) {
            self.give(some).await?;
        }
        self.forget(&snapshot).await?;
        // The deadlines of others are looked at when they come: a dead node is replaced on time.
        let deadlines = snapshot.nodes.iter().filter(|node| node.id != me).map(|node| node.expires_at);
        let deadlines = deadlines.chain([snapshot.unsure_until(ttl)]).filter(|at| *at > now);
        let next = deadlines.map(|at| at.since(now).0 + 1).min();
        Ok(next.map_or(interval, |ms| interval.min(Duration::from_millis(ms))))
    }

    async fn look(&self) -> Result<ClusterSnapshot, Error> {
        let shards = self.shared.frontier.shards();
        ClusterSnapshot::read(self.shared.registry.look(&ClusterSnapshot::scans(shards)).await?, shards)
    }

    /// Raises the format of the store once all nodes know the next one.
    async fn raise(&self, snapshot: &ClusterSnapshot, view: &View<'_>) {
        self.shared.format.store(snapshot.format, Ordering::Relaxed);
        format::raise(snapshot.format);
        let Some(to) = cluster::raise(view) else { return };
        let from = snapshot.format;
        match self.shared.registry.write(snapshot.raise(to), News::NOBODY).await {
            Ok(()) => tracing::info!(from, to, "all nodes know a newer format of the store, which has it from now on"),
            // Another node was faster, an older one has joined, or the row is locked: the next pass looks again.
            Err(error) => tracing::debug!(%error, "the format of the store is not raised"),
        }
    }

    /// Lists the shards that cannot be opened here.
    fn decline(&mut self) {
        let (now, [first, most]) = (Instant::now(), DECLINED_FOR);
        let frontier = &self.shared.frontier;
        let unopened = frontier.unopened();
        // It was opened after all, as no other node could, or a good while has passed.
        let opened = |shard: &ShardId| frontier.is_open(*shard) && !unopened.contains(shard);
        self.declined.retain(|shard, (until, span)| !opened(shard) && *until + *span > now);
        for shard in unopened {
            let span = match self.declined.get(&shard) {
                Some((until, _)) if *until > now => continue,
                Some((_, span)) => most.min(2 * *span),
                None => first,
            };
            tracing::error!(
                shard = shard.0,
                declined.s = span.as_secs(),
                "this node cannot open a shard; it goes to another node that may"
            );
            self.declined.insert(shard, (now + span, span));
        }
        let failing = self.declined.iter().filter(|(_, (until, _))| *until > now).map(|(shard, _)| *shard).collect();
        *lock(&self.shared.failing) = failing;
    }

    /// Learns where the others are, and listens to those that live. Of one that is dead nothing is heard afterwards:
    ///
    /// 1. (B's row has expired, as it cannot reach the store) (a beat of B comes, and its listener reads it).
    /// 2. (The listener is aborted, which does not end what it is doing) (B is forgotten) (the listener publishes
    ///    what it has read): B's shards would count without end, because B is forgotten only once.
    ///
    /// So the listener's end comes first.
    async fn meet(&mut self, snapshot: &ClusterSnapshot) {
        let me = self.shared.options.id;
        let others: Vec<&NodeRow> =
            snapshot.nodes.iter().filter(|node| node.id != me && node.is_alive(snapshot.now)).collect();
        let places: Vec<(NodeId, Box<str>)> = others.iter().map(|node| (node.id, node.address.clone())).collect();
        self.shared.network.meet(&places);
        let lives = |id: &NodeId| others.iter().any(|node| node.id == *id);
        let dead: Vec<NodeId> = self.listeners.keys().copied().filter(|id| !lives(id)).collect();
        for id in dead {
            if let Some(listener) = self.listeners.remove(&id) {
                end(listener).await;
            }
            self.shared.frontier.hear(id, None);
        }
        for node in others {
            let shared = &self.shared;
            self.listeners.entry(node.id).or_insert_with(|| tokio::spawn(listen(shared.clone(), node.id)));
        }
        let now = tokio::time::Instant::now();
        *self.shared.nodes.lock().unwrap_or_else(PoisonError::into_inner) = (views(snapshot, me), Some(now));
    }

    /// Opens what belongs to this node, closes what does not, and learns where the rest is.
    async fn settle(&self, snapshot: &ClusterSnapshot) {
        let frontier = &self.shared.frontier;
        let me = self.shared.options.id;
        for (shard, seat) in (0u16..).map(ShardId).zip(&snapshot.seats) {
            if !snapshot.belongs_to(shard, me) {
                frontier.close_shard(shard).await;
                frontier.set_owner(shard, seat.filter(|node| snapshot.lives(*node)));
            } else if !frontier.owns(shard) {
                frontier.open_shard(shard, vec![mine(shard, me)]);
            }
        }
    }

    /// Makes free shards this node's own, all or none.
    async fn take(&self, snapshot: &ClusterSnapshot, shards: &[ShardId]) -> Result<(), Error> {
        let me = self.shared.options.id;
        self.shared.registry.write(snapshot.take(shards, me), News::OTHERS).await?;
        tracing::info!(shards = shards.len(), "this node takes shards over");
        for shard in shards {
            self.shared.frontier.open_shard(*shard, vec![mine(*shard, me)]);
        }
        Ok(())
    }

    /// Makes free shards this node's own, each by itself. The next pass opens what it finds to be this node's.
    fn take_one_by_one(&self, snapshot: &ClusterSnapshot, shards: &[ShardId]) {
        let me = self.shared.options.id;
        lock(&self.one_by_one).extend(shards);
        let mut takes: FuturesUnordered<_> = shards
            .iter()
            .map(|shard| {
                let (shard, registry, batch) = (*shard, self.shared.registry.clone(), snapshot.take(&[*shard], me));
                async move { (shard, registry.write(batch, News::EVERYWHERE).await) }
            })
            .collect();
        let one_by_one = self.one_by_one.clone();
        tokio::spawn(async move {
            while let Some((shard, taken)) = takes.next().await {
                lock(&one_by_one).remove(&shard);
                // Another node was faster, or the next pass tries again.
                if let Err(error) = taken {
                    tracing::debug!(shard = shard.0, %error, "a shard could not be taken over");
                }
            }
        });
    }

    /// Stops owning shards and lets them belong to others. Each goes as soon as it can: the owner of one may be waiting for
    /// another one of them to take a host in, wherever that is by then.
    async fn give(&self, shards: &[(ShardId, Option<NodeId>)]) -> Result<(), Error> {
        let mut giving = futures::future::join_all(shards.iter().map(|(shard, to)| self.give_one(*shard, *to)));
        tracing::info!(shards = shards.len(), "this node hands shards over");
        loop {
            tokio::select! {
                biased;
                given = &mut giving => return given.into_iter().collect(),
                () = tokio::time::sleep(LOOK_WHILE_GIVING) => self.learn_owners().await,
            }
        }
    }

    /// Learns where the shards of others are. An owner that is to stop may have to reach one that moves at the same time.
    async fn learn_owners(&self) {
        // Where the store does not answer, the next pass looks again.
        let Ok(snapshot) = self.look().await else { return };
        let (frontier, me) = (&self.shared.frontier, self.shared.options.id);
        for (shard, seat) in (0u16..).map(ShardId).zip(&snapshot.seats) {
            if let Some(node) = seat.filter(|node| *node != me && snapshot.lives(*node))
                && !frontier.owns(shard)
            {
                frontier.set_owner(shard, Some(node));
            }
        }
    }

    async fn give_one(&self, shard: ShardId, to: Option<NodeId>) -> Result<(), Error> {
        self.shared.frontier.close_shard(shard).await;
        self.shared.registry.write(cluster_rows::give(shard, self.shared.options.id, to), News::OTHERS).await?;
        self.shared.frontier.set_owner(shard, to);
        Ok(())
    }

    /// Removes the rows of nodes that have long been dead and own nothing.
    async fn forget(&self, snapshot: &ClusterSnapshot) -> Result<(), Error> {
        let gone = |node: &&NodeRow| {
            node.expires_at.after(REMEMBERED) <= snapshot.now && !snapshot.seats.contains(&Some(node.id))
        };
        let gone: Vec<NodeId> = snapshot.nodes.iter().filter(gone).map(|node| node.id).collect();
        if gone.is_empty() {
            return Ok(());
        }
        self.shared.registry.write(snapshot.forget(&gone), News::NOBODY).await
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Drop for Seats {
    fn drop(&mut self) {
        self.listeners.values().for_each(JoinHandle::abort);
    }
}

const fn take(step: &Step) -> Option<ShardId> {
    match step {
        Step::Take(shard) => Some(*shard),
        Step::Give(..) => None,
    }
}

const fn give(step: &Step) -> Option<(ShardId, Option<NodeId>)> {
    match step {
        Step::Take(_) => None,
        Step::Give(shard, to) => Some((*shard, *to)),
    }
}

fn views(snapshot: &ClusterSnapshot, me: NodeId) -> Vec<NodeView> {
    let holding_back = cluster::holding_back(&snapshot.nodes);
    let view = |row: &NodeRow| NodeView {
        state: match (row.is_alive(snapshot.now), row.leaving) {
            (false, _) => NodeState::Lost,
            (true, true) => NodeState::Leaving,
            (true, false) => NodeState::Alive,
        },
        shards: snapshot.seats.iter().filter(|seat| **seat == Some(row.id)).count(),
        here: row.id == me,
        holds_back: holding_back.contains(&row.id),
        row: row.clone(),
    };
    snapshot.nodes.iter().map(view).collect()
}

/// Ends a task: nothing of it runs afterwards.
async fn end(task: JoinHandle<()>) {
    task.abort();
    _ = task.await;
}

/// Listens to another node for as long as it lives.
async fn listen(shared: Arc<Shared>, node: NodeId) {
    loop {
        let mut beats = shared.network.listen(node);
        while let Some(bytes) = beats.next().await {
            match NodeReadiness::from_bytes(&bytes) {
                Ok(beat) => shared.frontier.hear(node, Some(beat)),
                Err(error) => tracing::debug!(%error, node = %node, "a beat cannot be read"),
            }
        }
        shared.frontier.hear(node, None);
        tokio::time::sleep(LISTEN_AGAIN).await;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;
    use std::sync::mpsc;

    use super::*;

    /// A listener is at work, not waiting, when its node is found dead.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_listener_that_has_ended_says_nothing_more() {
        let ((begun, begins), (go_on, goes_on)) = (mpsc::channel(), mpsc::channel::<()>());
        let finished = Arc::new(AtomicBool::new(false));
        let finishes = finished.clone();
        let listener = tokio::spawn(async move {
            begun.send(()).unwrap();
            goes_on.recv().unwrap();
            finishes.store(true, Ordering::SeqCst);
        });
        begins.recv().unwrap();
        let releases = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(200));
            go_on.send(()).unwrap();
        });
        end(listener).await;
        assert!(finished.load(Ordering::SeqCst), "it was ended in the middle of its work");
        releases.join().unwrap();
    }
}
