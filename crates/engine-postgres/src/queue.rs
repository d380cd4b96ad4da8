//! The commit queue. Batches that share a lane are committed in order of arrival.
//!
//! The queue also knows the epoch under which this process last took each shard. The database would refuse a batch with
//! an older fence. It is refused here instead, before reads could see it: an owner that took the shard again must never
//! read what its predecessor failed to write.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;
use wayleave_core::ids::ShardId;
use wayleave_core::limits::COMMITS_WAITING_BYTES_MAX;
use wayleave_engine::fences::FenceState;
use wayleave_engine::{Error, Fence};

use crate::overlay::Overlay;
use crate::pending_batch::{BatchKind, OrderKey, PendingBatch};
use crate::transaction_batch::Gathering;

/// Which batches a committer takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Serves {
    /// Those about nodes.
    Nodes,
    /// All others.
    Others,
}

impl Serves {
    fn takes(self, pending: &PendingBatch) -> bool {
        (self == Self::Nodes) == (pending.kind == BatchKind::Nodes)
    }
}

/// The commit queue.
#[derive(Default)]
pub(crate) struct Queue {
    state: Mutex<State>,
    /// One notification per kind of committer: a shared one could wake the wrong kind.
    for_nodes: Notify,
    for_others: Notify,
}

#[derive(Default)]
struct State {
    waiting: VecDeque<Arc<PendingBatch>>,
    /// Batches being committed, and their number per lane.
    running: Vec<Arc<PendingBatch>>,
    busy: HashMap<OrderKey, usize>,
    /// The shards that this process has taken: the latest epoch, and the last commit at that time.
    owned: HashMap<ShardId, FenceState>,
    number: u64,
    bytes: usize,
    closing: bool,
}

/// The next work of a committer.
enum Next {
    Batches(Vec<Arc<PendingBatch>>),
    Wait,
    End,
}

impl Queue {
    /// Enqueues a batch and makes it visible to reads. Fails with [`Error::Fenced`] if this process has taken one of
    /// its shards again since, [`Error::Unavailable`] if too much is queued.
    pub(crate) fn push(&self, mut pending: PendingBatch, overlay: &Overlay) -> Result<(), Error> {
        let mut state = self.lock();
        if let Some((shard, fence_state)) = pending.fences.iter().find_map(|fence| state.superseded(fence)) {
            return Err(Error::Fenced { shard: shard.0, epoch: fence_state.epoch.0, seq: fence_state.seq });
        }
        // Batches about nodes are small, and without them the node loses the shards for which the rest is queued.
        if state.bytes > COMMITS_WAITING_BYTES_MAX && !Serves::Nodes.takes(&pending) {
            return Err(Error::Unavailable(format!("{} MiB are queued for commit", state.bytes >> 20)));
        }
        state.number += 1;
        pending.number = state.number;
        // Under the lock: the order in the overlay is commit order.
        overlay.add(&pending);
        state.bytes += pending.bytes;
        let waiting = if Serves::Nodes.takes(&pending) { &self.for_nodes } else { &self.for_others };
        state.waiting.push_back(Arc::new(pending));
        drop(state);
        waiting.notify_one();
        Ok(())
    }

    /// The next batches to commit together, or `None` once the queue is closed and empty. Their lanes are busy until
    /// [`Queue::done`].
    pub(crate) async fn next(&self, serves: Serves) -> Option<Vec<Arc<PendingBatch>>> {
        let waiting = if serves == Serves::Nodes { &self.for_nodes } else { &self.for_others };
        loop {
            let notified = waiting.notified();
            match self.try_next(serves) {
                Next::Batches(batches) => return Some(batches),
                Next::End => return None,
                Next::Wait => notified.await,
            }
        }
    }

    fn try_next(&self, serves: Serves) -> Next {
        let mut state = self.lock();
        let batches = state.take(serves);
        let ended = state.closing && state.waiting.is_empty();
        if ended || (!batches.is_empty() && !state.waiting.is_empty()) {
            // The other committers must be woken too.
            self.ring();
        }
        match batches.is_empty() {
            false => Next::Batches(batches),
            true if ended => Next::End,
            true => Next::Wait,
        }
    }

    /// Marks batches as answered.
    pub(crate) fn done(&self, batches: &[Arc<PendingBatch>]) {
        let mut state = self.lock();
        let answered: HashSet<u64> = batches.iter().map(|pending| pending.number).collect();
        state.running.retain(|running| !answered.contains(&running.number));
        for lane in batches.iter().flat_map(|pending| &pending.lanes) {
            if let Some(count) = state.busy.get_mut(lane) {
                *count -= 1;
                if *count == 0 {
                    state.busy.remove(lane);
                }
            }
        }
        drop(state);
        self.ring();
    }

    /// This process has taken a shard. From now on batches of earlier epochs are refused, and those in flight are
    /// hidden from reads: each of them is durable, and the database shows it, or will be refused.
    pub(crate) fn supersede(&self, shard: ShardId, fence_state: FenceState, overlay: &Overlay) {
        let mut state = self.lock();
        let owned = state.owned.entry(shard).or_default();
        if fence_state.epoch > owned.epoch {
            *owned = fence_state;
        }
        let state = &*state;
        let old = |pending: &&Arc<PendingBatch>| pending.fences.iter().any(|fence| state.superseded(fence).is_some());
        for pending in state.running.iter().chain(&state.waiting).filter(old) {
            overlay.remove(pending);
        }
    }

    /// The queue is still committed, then the committers end.
    pub(crate) fn close(&self) {
        self.lock().closing = true;
        self.ring();
    }

    fn ring(&self) {
        self.for_nodes.notify_one();
        self.for_others.notify_one();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// The newer ownership that supersedes a fence, if there is one.
    fn superseded(&self, fence: &Fence) -> Option<(ShardId, FenceState)> {
        let fence_state = self.owned.get(&fence.shard).filter(|fence_state| fence.epoch < fence_state.epoch)?;
        Some((fence.shard, *fence_state))
    }

    fn take(&mut self, serves: Serves) -> Vec<Arc<PendingBatch>> {
        let mut gathering = Gathering::default();
        // Lanes of batches that must wait: a later batch must not overtake them.
        let mut barred: HashSet<OrderKey> = self.busy.keys().copied().collect();
        let mut rest = VecDeque::new();
        while let Some(pending) = self.waiting.pop_front() {
            let joins = serves.takes(&pending) && gathering.is_same_kind(&pending);
            if !joins || pending.lanes.iter().any(|lane| barred.contains(lane)) {
                barred.extend(&pending.lanes);
                rest.push_back(pending);
            } else if gathering.fits(&pending) {
                gathering.take(pending);
            } else {
                rest.push_back(pending);
                break;
            }
        }
        rest.append(&mut self.waiting);
        self.waiting = rest;
        for pending in &gathering.batches {
            self.bytes -= pending.bytes;
            for lane in &pending.lanes {
                *self.busy.entry(*lane).or_default() += 1;
            }
            self.running.push(Arc::clone(pending));
        }
        gathering.batches
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::oneshot;
    use wayleave_core::ids::Epoch;
    use wayleave_engine::Batch;
    use wayleave_engine::rows::{Kind, key as keys};
    use wayleave_engine::suite::harness::{batch, fenced, key, put};

    use super::*;

    /// A queue of batches that write one row in each of these shards, named by position.
    fn line(shards: &[&[u16]]) -> (Queue, Overlay) {
        let (queue, overlay) = (Queue::default(), Overlay::default());
        for touched in shards {
            let writes = touched.iter().map(|shard| put(*shard, "a", "1"));
            let pending = PendingBatch::new(batch(writes), oneshot::channel().0).unwrap();
            queue.push(pending, &overlay).unwrap();
        }
        (queue, overlay)
    }

    async fn next(queue: &Queue) -> Vec<Arc<PendingBatch>> {
        queue.next(Serves::Others).await.unwrap()
    }

    fn numbers(batches: &[Arc<PendingBatch>]) -> Vec<u64> {
        batches.iter().map(|pending| pending.number).collect()
    }

    #[tokio::test]
    async fn no_batch_overtakes_one_of_its_shard() {
        let (queue, overlay) = line(&[&[1]]);
        let running = next(&queue).await;
        for touched in [&[2_u16][..], &[1, 3], &[3], &[2], &[1]] {
            let writes = touched.iter().map(|shard| put(*shard, "a", "1"));
            queue.push(PendingBatch::new(batch(writes), oneshot::channel().0).unwrap(), &overlay).unwrap();
        }
        // 3 waits for shard 1, and 4 waits behind it for shard 3.
        let passed = next(&queue).await;
        assert_eq!(numbers(&passed), [2, 5]);
        queue.done(&running);
        assert_eq!(numbers(&next(&queue).await), [3, 4, 6]);
    }

    #[tokio::test]
    async fn compare_and_swaps_share_no_transaction_with_owners() {
        let (queue, overlay) = line(&[&[1], &[2]]);
        let swap = |shard| Batch { expects: vec![(key(shard, "b"), None)], ..batch([]) };
        for pending in [swap(3), swap(2), batch([put(3, "a", "1")]), batch([put(4, "a", "1")])] {
            queue.push(PendingBatch::new(pending, oneshot::channel().0).unwrap(), &overlay).unwrap();
        }
        let first = next(&queue).await;
        // 5 must not overtake the unfenced batch on its shard.
        assert_eq!(numbers(&first), [1, 2, 6]);
        let second = next(&queue).await;
        assert_eq!(numbers(&second), [3], "the swap in shard 2 waits for the write in flight there");
        queue.done(&first);
        assert_eq!(numbers(&next(&queue).await), [4]);
        queue.done(&second);
        assert_eq!(numbers(&next(&queue).await), [5]);
    }

    #[tokio::test]
    async fn what_waits_is_committed_before_the_end() {
        let (queue, _overlay) = line(&[&[1], &[2]]);
        queue.close();
        let batches = next(&queue).await;
        assert_eq!(numbers(&batches), [1, 2]);
        queue.done(&batches);
        assert!(queue.next(Serves::Others).await.is_none());
        assert!(queue.next(Serves::Others).await.is_none(), "for every committer");
    }

    /// A batch that swaps one row outside the shards.
    fn outside(kind: Kind, name: &str) -> PendingBatch {
        let key = keys::of(keys::OUTSIDE, kind, &[name.as_bytes()]);
        PendingBatch::new(Batch { expects: vec![(key, None)], ..batch([]) }, oneshot::channel().0).unwrap()
    }

    #[tokio::test]
    async fn rows_outside_the_shards_queue_per_row_and_nodes_have_a_committer() {
        let (queue, overlay) = (Queue::default(), Overlay::default());
        for (kind, name) in [(Kind::Role, "a"), (Kind::Node, "n"), (Kind::Role, "b"), (Kind::Role, "a")] {
            queue.push(outside(kind, name), &overlay).unwrap();
        }
        let first = next(&queue).await;
        assert_eq!(numbers(&first), [1, 3, 4], "one transaction, in order");
        for (kind, name) in [(Kind::Role, "a"), (Kind::Role, "c"), (Kind::Seat, "n")] {
            queue.push(outside(kind, name), &overlay).unwrap();
        }
        assert_eq!(numbers(&next(&queue).await), [6], "5 waits for role a");
        assert_eq!(numbers(&queue.next(Serves::Nodes).await.unwrap()), [2, 7]);
        // One of the two batches of role a is still in flight.
        queue.done(&first[..1]);
        queue.push(outside(Kind::Role, "d"), &overlay).unwrap();
        assert_eq!(numbers(&next(&queue).await), [8]);
        queue.done(&first[1..]);
        assert_eq!(numbers(&next(&queue).await), [5]);
    }

    #[tokio::test]
    async fn an_older_fence_is_refused_and_what_was_in_line_is_hidden() {
        let (queue, overlay) = (Queue::default(), Overlay::default());
        let push = |epoch, seq, name| {
            let pending =
                PendingBatch::new(fenced([(1, Epoch(epoch), seq)], [put(1, name, "1")]), oneshot::channel().0).unwrap();
            queue.push(pending, &overlay)
        };
        let own = |epoch, seq| queue.supersede(ShardId(1), FenceState { epoch: Epoch(epoch), seq }, &overlay);
        let shown = |name| overlay.get(&[key(1, name)]).0 != [None];
        push(4, 7, "before").unwrap();
        assert!(shown("before"));
        own(5, 6);
        assert!(!shown("before"));
        assert_eq!(push(4, 8, "late"), Err(Error::Fenced { shard: 1, epoch: 5, seq: 6 }));
        assert!(!shown("late"));
        push(5, 7, "mine").unwrap();
        // The late response of an earlier `own` must not restore its epoch.
        own(4, 0);
        assert!(shown("mine"));
        assert!(push(4, 1, "later").is_err());
    }
}
