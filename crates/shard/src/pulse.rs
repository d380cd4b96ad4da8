//! The pulse of the shards: who has been ready longest, who wakes next, and who waits for that. Kept outside the owners
//! so that a router asks the right one first and a long poll waits in one place.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use hashbrown::HashMap;
use tokio::sync::oneshot;
use wayleave_core::frontier::view::Counts;
use wayleave_core::names::CrawlName;
use wayleave_core::time::Time;

/// What each shard says of itself.
#[derive(Default)]
pub(crate) struct Beat {
    oldest_ready: AtomicU64,
    next_due: AtomicU64,
    pub open: AtomicBool,
}

/// What all shards say.
pub(crate) struct Pulse {
    pub beats: Vec<Beat>,
    waiters: Mutex<VecDeque<oneshot::Sender<()>>>,
    /// Those who wait for one crawl only: they are told of every group, for it may not be theirs.
    picky: Mutex<Vec<oneshot::Sender<()>>>,
    /// Counts of crawls that are bounded as a whole, by shard.
    totals: Mutex<HashMap<CrawlName, Vec<Counts>>>,
    pub bounded: AtomicBool,
    /// Why the frontier is not ready, if a shard cannot be opened.
    pub trouble: Mutex<Option<String>>,
}

const NEVER: u64 = u64::MAX;

impl Pulse {
    pub fn new(shards: u16) -> Self {
        let beats: Vec<Beat> = (0..shards).map(|_| Beat::default()).collect();
        for beat in &beats {
            beat.oldest_ready.store(NEVER, Ordering::Relaxed);
            beat.next_due.store(NEVER, Ordering::Relaxed);
        }
        Self {
            beats,
            waiters: Mutex::default(),
            picky: Mutex::default(),
            totals: Mutex::default(),
            bounded: AtomicBool::new(false),
            trouble: Mutex::default(),
        }
    }

    /// A shard says since when a group of it is ready and when the next one becomes so.
    pub fn tell(&self, shard: usize, (ready, due): (Option<Time>, Option<Time>)) {
        if let Some(beat) = self.beats.get(shard) {
            beat.oldest_ready.store(ready.map_or(NEVER, |t| t.0), Ordering::Release);
            beat.next_due.store(due.map_or(NEVER, |t| t.0), Ordering::Release);
        }
    }

    /// The shards that have something to visit at `now`, longest ready first.
    pub fn ready(&self, now: Time) -> Vec<usize> {
        let mut ready: Vec<(u64, usize)> = self
            .beats
            .iter()
            .enumerate()
            .filter_map(|(shard, beat)| {
                let (ready, due) = (beat.oldest_ready.load(Ordering::Acquire), beat.next_due.load(Ordering::Acquire));
                let first = ready.min(due);
                (ready != NEVER || due <= now.0).then_some((first, shard))
            })
            .collect();
        ready.sort_unstable();
        ready.into_iter().map(|(_, shard)| shard).collect()
    }

    /// Waits in line for a group to become ready; `picky` if not every group will do.
    pub fn wait(&self, picky: bool) -> oneshot::Receiver<()> {
        let (tell, told) = oneshot::channel();
        if picky {
            let mut waiters = lock(&self.picky);
            waiters.retain(|waiter| !waiter.is_closed());
            waiters.push(tell);
            return told;
        }
        let mut waiters = lock(&self.waiters);
        waiters.retain(|waiter| !waiter.is_closed());
        waiters.push_back(tell);
        told
    }

    /// Wakes as many waiters as groups became ready, first come, first served.
    pub fn wake(&self, ready: usize) {
        if ready == 0 {
            return;
        }
        for waiter in lock(&self.picky).drain(..) {
            _ = waiter.send(());
        }
        let mut waiters = lock(&self.waiters);
        let mut left = ready;
        while left > 0 {
            let Some(waiter) = waiters.pop_front() else { break };
            left -= usize::from(waiter.send(()).is_ok());
        }
    }

    /// A shard says what it counts for a bounded crawl and learns what the others count.
    pub fn share(&self, crawl: &CrawlName, shard: usize, counts: Counts) -> Counts {
        let mut totals = lock(&self.totals);
        let all = totals.entry(crawl.clone()).or_insert_with(|| vec![Counts::default(); self.beats.len()]);
        if let Some(mine) = all.get_mut(shard) {
            *mine = counts;
        }
        let mut others = Counts::default();
        all.iter().enumerate().filter(|(i, _)| *i != shard).for_each(|(_, c)| others.add(c));
        others
    }
}

/// A panic while one of these locks is held leaves nothing half done.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}
