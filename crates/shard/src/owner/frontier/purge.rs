//! Removes the rows of deleted queues in the background, in slices, so that other calls wait for one slice at most.
//!
//! Each slice continues after the last row that the slice before has removed. In an LSM store the rows removed so far
//! are tombstones, and a slice that began at the queue's prefix would read all of them again. The cursor is in memory
//! only: after a restart the first slice passes over the tombstones once.
//!
//! One shard of a process does this at a time: see [`SliceTurn`].
//!
//! No row can appear behind the cursor: a queue number is never reused, and nothing is written for a queue that its host
//! does not have.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::time::Instant;
use wayleave_core::frontier::row::Write;
use wayleave_core::ids::QueueId;
use wayleave_core::limits::SLICE_ROWS;
use wayleave_engine::rows::{deleted_queue, due, key, url};
use wayleave_engine::{Error, Key, Scan};

use crate::cache::filter::Filter;
use crate::owner::frontier::Frontier;
use crate::owner::frontier::slice_turn::SliceTurn;
use crate::owner::port::Port;
use crate::owner::read_facts::{self, Found};

/// Queues that one slice takes rows of; most are short.
const SLICE_QUEUES: usize = 32;

/// How long a slice should take at most: calls wait for it.
const SLICE_TIME: Duration = Duration::from_millis(4);
/// Rows of a slice at least, however long it takes.
const SLICE_ROWS_MIN: usize = 100;

/// Deleted queues whose rows remain to be removed.
pub(crate) struct Purge {
    queues: VecDeque<Deleted>,
    turn: SliceTurn,
    /// While calls keep the owner busy, the next slice waits until then: purging takes half of the time at most.
    rests_until: Option<Instant>,
    /// Rows of the next slice, if the last one took too long for a whole one.
    slice_rows: Option<usize>,
}

/// A deleted queue, and the ranges of URL and due rows that are left of it.
struct Deleted {
    queue: QueueId,
    left: Vec<(Key, Key)>,
    /// Why some of its rows cannot be read.
    damage: Option<String>,
}

impl Deleted {
    fn new(queue: QueueId) -> Self {
        let whole = |prefix: Key| (prefix.clone(), key::after_prefix(&prefix));
        Self { queue, left: vec![whole(url::prefix(queue)), whole(due::prefix(queue))], damage: None }
    }
}

impl Purge {
    pub fn new(queues: impl IntoIterator<Item = QueueId>, turns: Arc<Semaphore>) -> Self {
        let queues = queues.into_iter().map(Deleted::new).collect();
        Self { queues, turn: SliceTurn::new(turns), rests_until: None, slice_rows: None }
    }

    /// How long until the next slice; `None` if there are no rows to remove.
    pub fn idle_for(&self) -> Option<Duration> {
        (!self.queues.is_empty()).then(|| self.turn.idle_for())
    }

    /// Lets other shards go on.
    pub fn pause(&mut self) {
        self.turn.give_back();
    }

    fn rests(&self) -> bool {
        self.rests_until.is_some_and(|until| Instant::now() < until)
    }

    /// The queues and scans of the next slice.
    fn slice(&mut self) -> (Vec<Deleted>, Vec<Scan>) {
        let queues: Vec<Deleted> = self.queues.drain(..SLICE_QUEUES.min(self.queues.len())).collect();
        let ranges = queues.iter().flat_map(|deleted| &deleted.left);
        let limit = (self.slice_rows.unwrap_or(SLICE_ROWS) / ranges.clone().count().max(1)).max(1);
        let scans = ranges.map(|(from, to)| Scan { from: from.clone(), to: to.clone(), limit }).collect();
        (queues, scans)
    }
}

impl Frontier {
    /// Registers deletions that were just decided.
    pub fn follow_deletions(&mut self, writes: &[Write]) {
        self.purge.queues.extend(writes.iter().filter_map(|write| match write {
            Write::DeletedQueue(queue, true) => Some(Deleted::new(*queue)),
            _ => None,
        }));
    }

    /// Removes one slice of the rows of deleted queues; in a turn with calls only if it is its time.
    pub async fn remove_deleted_rows(&mut self, busy: bool, port: &mut Port) -> Result<(), Error> {
        if self.purge.queues.is_empty() || (busy && self.purge.rests()) || !self.purge.turn.take() {
            return Ok(());
        }
        let begun = Instant::now();
        let (queues, scans) = self.purge.slice();
        let mut found = read_facts::scan_each(&*port.engine, &scans).await?.into_iter().zip(&scans);
        let mut rows = Vec::with_capacity(SLICE_ROWS);
        for mut deleted in queues {
            let ranges = deleted.left.len();
            deleted.left.clear();
            for (Found { rows: removed, gaps, next }, scan) in found.by_ref().take(ranges) {
                deleted.damage = deleted.damage.or(gaps.map(|gaps| gaps.cause));
                deleted.left.extend(next.map(|next| (next, scan.to.clone())));
                rows.extend(removed.into_iter().map(|row| wayleave_engine::Write { key: row.key, value: None }));
            }
            if !deleted.left.is_empty() {
                self.purge.queues.push_front(deleted);
                continue;
            }
            self.caches.lanes.forget(deleted.queue);
            match deleted.damage {
                None => rows
                    .push(wayleave_engine::Write { key: deleted_queue::key(port.shard, deleted.queue), value: None }),
                // Its job stays: the next owner of the shard tries again.
                Some(cause) => {
                    port.log_damage(&cause, "some rows of a deleted queue cannot be read, and so not be removed")
                }
            }
        }
        if !rows.is_empty() {
            port.commit_rows(rows);
        }
        if self.purge.queues.is_empty() {
            self.purge.turn.give_back();
            self.give_memory_back(port);
        }
        let took = begun.elapsed();
        self.purge.slice_rows = next_rows(self.purge.slice_rows.unwrap_or(SLICE_ROWS), took);
        self.purge.rests_until = Some(Instant::now() + took);
        Ok(())
    }

    /// Shrinks what grew with the rows that were removed.
    fn give_memory_back(&mut self, port: &Port) {
        self.state.shrink();
        self.caches.lanes.shrink();
        // The filter cannot forget, and to build it anew would read over all the tombstones at once, while calls wait. Only an
        // empty one needs no reading.
        if self.state.stats().urls.total() == 0 {
            self.caches.filter = Filter::new(port.config.share(port.config.filter_bytes_max));
            self.caches.filter.finish_learning();
        }
    }
}

/// The size of the next slice, after one of this many rows took this long.
fn next_rows(rows: usize, took: Duration) -> Option<usize> {
    let fitting = rows as u128 * SLICE_TIME.as_micros() / took.as_micros().max(1);
    let fitting = usize::try_from(fitting).unwrap_or(SLICE_ROWS);
    Some(fitting.max(SLICE_ROWS_MIN)).filter(|rows| *rows < SLICE_ROWS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slice_is_as_long_as_calls_can_wait_for() {
        let next = |rows, ms| next_rows(rows, Duration::from_millis(ms));
        assert_eq!(next(1_000, 0), None);
        assert_eq!(next(1_000, 4), None);
        assert_eq!(next(1_000, 16), Some(250));
        assert_eq!(next(250, 4), Some(250));
        assert_eq!(next(250, 1), None, "the store is fast again");
        assert_eq!(next(250, 9_000), Some(100), "it goes on, whatever held it up");
    }
}
