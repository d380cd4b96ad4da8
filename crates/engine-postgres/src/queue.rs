//! What waits to be committed. Batches that touch a common shard are committed in the order in which they came.

use std::collections::{HashSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;
use wayleave_core::ids::{Epoch, ShardId};
use wayleave_engine::{Error, Fence};

use crate::group::Gathering;
use crate::job::Job;
use crate::overlay::Overlay;

/// Past this much waiting the database is too slow for what it is asked, and callers are told so.
const WAITING_BYTES: usize = 256 << 20;

/// The line before the database.
#[derive(Default)]
pub(crate) struct Queue {
    state: Mutex<State>,
    changed: Notify,
}

#[derive(Default)]
struct State {
    waiting: VecDeque<Arc<Job>>,
    /// Batches that are being committed, and their shards.
    running: Vec<Arc<Job>>,
    busy: HashSet<u16>,
    number: u64,
    bytes: usize,
    closing: bool,
}

/// What a committer finds.
enum Next {
    Jobs(Vec<Arc<Job>>),
    Wait,
    End,
}

impl Queue {
    /// Lets a batch stand in line and shows it to reads.
    ///
    /// # Errors
    /// [`Error::Unavailable`] if too much is waiting.
    pub(crate) fn push(&self, mut job: Job, overlay: &Overlay) -> Result<(), Error> {
        let mut state = self.lock();
        if state.bytes > WAITING_BYTES {
            return Err(Error::Unavailable(format!("{} MiB wait to be committed", state.bytes >> 20)));
        }
        state.number += 1;
        job.number = state.number;
        // Inside the lock: the order in the overlay is the order of the commits.
        overlay.add(&job);
        state.bytes += job.bytes;
        state.waiting.push_back(Arc::new(job));
        drop(state);
        self.changed.notify_one();
        Ok(())
    }

    /// The next batches to commit together, or none once the queue is closed and empty. Their shards are busy until
    /// [`Queue::done`].
    pub(crate) async fn next(&self) -> Option<Vec<Arc<Job>>> {
        loop {
            let changed = self.changed.notified();
            match self.try_next() {
                Next::Jobs(jobs) => return Some(jobs),
                Next::End => return None,
                Next::Wait => changed.await,
            }
        }
    }

    fn try_next(&self) -> Next {
        let mut state = self.lock();
        let jobs = state.take();
        let ended = state.closing && state.waiting.is_empty();
        if ended || (!jobs.is_empty() && !state.waiting.is_empty()) {
            // The other committers must learn of it too.
            self.changed.notify_one();
        }
        match jobs.is_empty() {
            false => Next::Jobs(jobs),
            true if ended => Next::End,
            true => Next::Wait,
        }
    }

    /// These batches have been answered.
    pub(crate) fn done(&self, jobs: &[Arc<Job>]) {
        let mut state = self.lock();
        state.running.retain(|running| !jobs.iter().any(|job| job.number == running.number));
        for job in jobs {
            for shard in &job.shards {
                state.busy.remove(shard);
            }
        }
        drop(state);
        self.changed.notify_one();
    }

    /// Hides from reads what an earlier owner of a shard still has on its way. A new owner has the shard now, so each of
    /// those batches is durable already, and the database shows it, or will be refused. The new owner must not read it.
    pub(crate) fn supersede(&self, shard: ShardId, epoch: Epoch, overlay: &Overlay) {
        let state = self.lock();
        let old = |fence: &Fence| fence.shard == shard && fence.epoch < epoch;
        for job in state.running.iter().chain(&state.waiting).filter(|job| job.fences.iter().any(old)) {
            overlay.remove(job);
        }
    }

    /// What waits is still committed, and then the committers end.
    pub(crate) fn close(&self) {
        self.lock().closing = true;
        self.changed.notify_one();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn take(&mut self) -> Vec<Arc<Job>> {
        let mut gathering = Gathering::default();
        // Shards of batches that must wait: a later batch must not pass them.
        let mut barred = self.busy.clone();
        let mut rest = VecDeque::new();
        while let Some(job) = self.waiting.pop_front() {
            if job.shards.iter().any(|shard| barred.contains(shard)) || !gathering.is_kin(&job) {
                barred.extend(&job.shards);
                rest.push_back(job);
            } else if gathering.fits(&job) {
                gathering.take(job);
            } else {
                rest.push_back(job);
                break;
            }
        }
        rest.append(&mut self.waiting);
        self.waiting = rest;
        for job in &gathering.jobs {
            self.bytes -= job.bytes;
            self.busy.extend(&job.shards);
            self.running.push(Arc::clone(job));
        }
        gathering.jobs
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::oneshot;
    use wayleave_engine::Batch;
    use wayleave_engine::suite::harness::{batch, key, put};

    use super::*;

    /// A batch that writes one row, named by its place in line, in each of these shards.
    fn line(shards: &[&[u16]]) -> (Queue, Overlay) {
        let (queue, overlay) = (Queue::default(), Overlay::default());
        for touched in shards {
            let writes = touched.iter().map(|shard| put(*shard, "a", "1"));
            let job = Job::new(batch(writes), oneshot::channel().0).unwrap();
            queue.push(job, &overlay).unwrap();
        }
        (queue, overlay)
    }

    async fn next(queue: &Queue) -> Vec<Arc<Job>> {
        queue.next().await.unwrap()
    }

    fn numbers(jobs: &[Arc<Job>]) -> Vec<u64> {
        jobs.iter().map(|job| job.number).collect()
    }

    #[tokio::test]
    async fn nobody_passes_a_batch_of_a_common_shard() {
        let (queue, overlay) = line(&[&[1]]);
        let running = next(&queue).await;
        for touched in [&[2_u16][..], &[1, 3], &[3], &[2], &[1]] {
            let writes = touched.iter().map(|shard| put(*shard, "a", "1"));
            queue.push(Job::new(batch(writes), oneshot::channel().0).unwrap(), &overlay).unwrap();
        }
        // 3 waits for shard 1, 4 waits behind it for shard 3.
        let passed = next(&queue).await;
        assert_eq!(numbers(&passed), [2, 5]);
        queue.done(&running);
        assert_eq!(numbers(&next(&queue).await), [3, 4, 6]);
    }

    #[tokio::test]
    async fn guesses_go_by_themselves_and_still_in_order() {
        let (queue, overlay) = line(&[&[1], &[2]]);
        let guess = |shard| Batch { expects: vec![(key(shard, "b"), None)], ..batch([]) };
        for job in [guess(3), guess(2), batch([put(3, "a", "1")]), batch([put(4, "a", "1")])] {
            queue.push(Job::new(job, oneshot::channel().0).unwrap(), &overlay).unwrap();
        }
        let first = next(&queue).await;
        // 5 must not pass the guess about its shard.
        assert_eq!(numbers(&first), [1, 2, 6]);
        let second = next(&queue).await;
        assert_eq!(numbers(&second), [3], "the guess about shard 2 waits for what is being written there");
        queue.done(&first);
        assert_eq!(numbers(&next(&queue).await), [4]);
        queue.done(&second);
        assert_eq!(numbers(&next(&queue).await), [5]);
    }

    #[tokio::test]
    async fn what_waits_is_committed_before_the_end() {
        let (queue, _overlay) = line(&[&[1], &[2]]);
        queue.close();
        let jobs = next(&queue).await;
        assert_eq!(numbers(&jobs), [1, 2]);
        queue.done(&jobs);
        assert!(queue.next().await.is_none());
        assert!(queue.next().await.is_none(), "for every committer");
    }
}
