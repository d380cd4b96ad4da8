//! The schedule: one entry per (group, crawl), either ready, in the order in which it became ready, or waiting for a
//! time. [`CrawlOrder`] decides which crawl is served next.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use hashbrown::HashMap;

use super::crawl_order::CrawlOrder;
use super::slab::{Ix, Slab};
use crate::ids::CrawlNo;
use crate::time::Time;

/// One crawl's entry at one group.
#[derive(Clone, Debug)]
pub(super) struct ScheduleEntry {
    pub group: Ix,
    pub crawl: CrawlNo,
    /// Virtual time of the crawl within its group: the lowest is served first.
    pub pass: u64,
    state: EntryState,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum EntryState {
    Parked,
    Waiting(Time),
    /// Ready since, and the bucket of its number of URLs on hold.
    Ready(Time, u8),
}

/// All entries of a shard.
#[derive(Default)]
pub(super) struct Schedule {
    pub entries: Slab<ScheduleEntry>,
    waiting: BTreeSet<(Time, Ix)>,
    /// By crawl and on-hold bucket, so that a caller who only takes queues with few URLs on hold skips the others in
    /// bulk.
    ready: BTreeMap<(CrawlNo, u8), BTreeSet<(Time, Ix)>>,
    /// Where calls that ran out of looks continue, by bucket: otherwise each would look at the same entries.
    resume: BTreeMap<(CrawlNo, u8), (Time, Ix)>,
    /// When the oldest ready entry of each open crawl became ready, and the crawls by it.
    front_of: HashMap<CrawlNo, Time>,
    fronts: BTreeSet<(Time, CrawlNo)>,
    /// Number of ready entries, excluding those of closed crawls.
    ready_len: usize,
    /// Which crawl is served next.
    pub crawl_order: CrawlOrder,
    /// How many entries became ready since the last call, by crawl; may contain duplicates.
    pub newly_ready: Vec<(CrawlNo, usize)>,
    /// Crawls whose readiness changed since the last call; may contain duplicates.
    pub touched: Vec<CrawlNo>,
}

/// How far one call looks for queues with few URLs on hold.
pub(super) struct Looks {
    /// How many more entries it may skip.
    pub left: usize,
    /// The last one skipped, by bucket.
    passed: BTreeMap<(CrawlNo, u8), (Time, Ix)>,
}

/// Above this length `touched` is no longer searched for duplicates, except for its last entry. Of `newly_ready` the last
/// ones are searched.
const TOUCHED_MAX: usize = 16;

/// The bucket of a number of URLs on hold: 0, 1, 2–3, 4–7 and so on.
pub(super) fn bucket(held: u32) -> u8 {
    (u32::BITS - held.leading_zeros()) as u8
}

/// Records a crawl, deduplicated while the list is short: changes usually repeat the same few crawls.
fn touch(touched: &mut Vec<CrawlNo>, crawl: CrawlNo) {
    if touched.last() != Some(&crawl) && (touched.len() >= TOUCHED_MAX || !touched.contains(&crawl)) {
        touched.push(crawl);
    }
}

/// Adds entries that became ready to those of their crawl.
fn count(newly_ready: &mut Vec<(CrawlNo, usize)>, crawl: CrawlNo, more: usize) {
    match newly_ready.iter_mut().rev().take(TOUCHED_MAX).find(|(known, _)| *known == crawl) {
        Some((_, count)) => *count += more,
        None => newly_ready.push((crawl, more)),
    }
}

impl Schedule {
    pub fn add(&mut self, group: Ix, crawl: CrawlNo, pass: u64) -> Ix {
        self.entries.insert(ScheduleEntry { group, crawl, pass, state: EntryState::Parked })
    }

    pub fn remove(&mut self, entry: Ix) {
        self.park(entry);
        self.entries.remove(entry);
    }

    /// Removes an entry from all orders: it is busy, paused or empty.
    pub fn park(&mut self, ix: Ix) {
        let entry = &mut self.entries[ix];
        match std::mem::replace(&mut entry.state, EntryState::Parked) {
            EntryState::Parked => {}
            EntryState::Waiting(at) => {
                self.waiting.remove(&(at, ix));
            }
            EntryState::Ready(since, bucket) => {
                let crawl = entry.crawl;
                touch(&mut self.touched, crawl);
                if let Some(set) = self.ready.get_mut(&(crawl, bucket)) {
                    set.remove(&(since, ix));
                    self.ready_len -= usize::from(!self.crawl_order.is_closed(crawl));
                    self.crawl_order.remove(crawl);
                    if set.is_empty() {
                        self.ready.remove(&(crawl, bucket));
                    }
                }
                if self.front_of.get(&crawl).is_some_and(|front| *front >= since) {
                    self.find_front(crawl);
                }
            }
        }
    }

    /// Places an entry: ready since `at` if that has passed, otherwise waiting for it.
    pub fn place(&mut self, ix: Ix, at: Time, held: u32, now: Time) {
        self.move_to(ix, at, bucket(held), now);
    }

    fn move_to(&mut self, ix: Ix, at: Time, bucket: u8, now: Time) {
        let ready = at <= now;
        let want = if ready { EntryState::Ready(at, bucket) } else { EntryState::Waiting(at) };
        let before = self.entries[ix].state;
        if before == want {
            return;
        }
        self.park(ix);
        let entry = &mut self.entries[ix];
        entry.state = want;
        let crawl = entry.crawl;
        if ready {
            touch(&mut self.touched, entry.crawl);
            self.ready.entry((entry.crawl, bucket)).or_default().insert((at, ix));
            self.crawl_order.add(entry.crawl, at);
            if !self.crawl_order.is_closed(entry.crawl) {
                self.ready_len += 1;
                if !matches!(before, EntryState::Ready(..)) {
                    count(&mut self.newly_ready, entry.crawl, 1);
                }
            }
            if self.front_of.get(&crawl).is_none_or(|front| *front > at) {
                self.find_front(crawl);
            }
        } else {
            self.waiting.insert((at, ix));
        }
    }

    /// Moves a ready or waiting entry to `gate` at the earliest; false if that needs a full recalculation.
    pub fn defer(&mut self, ix: Ix, gate: Time, now: Time) -> bool {
        match self.entries[ix].state {
            EntryState::Ready(since, bucket) => {
                self.move_to(ix, since.max(gate), bucket, now);
                true
            }
            EntryState::Waiting(at) if at.max(gate) > now => {
                self.move_to(ix, at.max(gate), 0, now);
                true
            }
            EntryState::Waiting(_) | EntryState::Parked => false,
        }
    }

    /// The time of an entry and whether it is ready; `None` if it is parked.
    pub fn state_of(&self, ix: Ix) -> Option<(Time, bool)> {
        match self.entries[ix].state {
            EntryState::Parked => None,
            EntryState::Waiting(at) => Some((at, false)),
            EntryState::Ready(since, _) => Some((since, true)),
        }
    }

    /// Upper bound of the URLs on hold for a ready entry.
    pub fn held_most(&self, ix: Ix) -> u32 {
        match self.entries[ix].state {
            EntryState::Ready(_, bucket) => 1u32.checked_shl(bucket.into()).map_or(u32::MAX, |above| above - 1),
            EntryState::Parked | EntryState::Waiting(_) => u32::MAX,
        }
    }

    pub fn is_ready(&self, ix: Ix) -> bool {
        matches!(self.entries[ix].state, EntryState::Ready(..))
    }

    /// Entries whose wait is over.
    pub fn due(&self, now: Time, most: usize) -> Vec<Ix> {
        self.waiting.range(..=(now, Ix::MAX)).take(most).map(|(_, entry)| *entry).collect()
    }

    /// Whether an entry is still waiting for a time that has passed.
    pub fn is_due(&self, ix: Ix, now: Time) -> bool {
        matches!(self.entries[ix].state, EntryState::Waiting(at) if at <= now)
    }

    /// When the next wait ends.
    pub fn next_due(&self) -> Option<Time> {
        self.waiting.first().map(|(at, _)| *at)
    }

    /// When the longest ready entry became ready.
    pub fn oldest_ready(&self) -> Option<Time> {
        self.fronts.first().map(|(since, _)| *since)
    }

    /// Looks up when the oldest ready entry of a crawl became ready.
    fn find_front(&mut self, crawl: CrawlNo) {
        let front = self.oldest_ready_of(crawl);
        let before = match front {
            Some(front) => self.front_of.insert(crawl, front),
            None => self.front_of.remove(&crawl),
        };
        if before != front {
            before.map(|before| self.fronts.remove(&(before, crawl)));
            front.map(|front| self.fronts.insert((front, crawl)));
        }
    }

    /// Closes or reopens a crawl: its entries keep their positions and are skipped as a whole.
    pub fn set_closed(&mut self, crawl: CrawlNo, closed: bool) {
        let Some(ready) = self.crawl_order.set_closed(crawl, closed) else { return };
        touch(&mut self.touched, crawl);
        if closed {
            self.ready_len -= ready;
        } else {
            self.ready_len += ready;
            count(&mut self.newly_ready, crawl, ready);
        }
        self.find_front(crawl);
    }

    /// Charges a crawl for a planned visit.
    pub fn charge(&mut self, crawl: CrawlNo, stride: u64) {
        let since = self.oldest_ready_of(crawl).unwrap_or_default();
        self.crawl_order.charge(crawl, stride, since);
    }

    /// How many entries of a crawl may be visited; none while it is closed.
    pub fn open_entries(&self, crawl: CrawlNo) -> usize {
        self.crawl_order.open_entries(crawl)
    }

    /// Forgets a crawl that has no entries left.
    pub fn forget(&mut self, crawl: CrawlNo) {
        self.resume.retain(|(of, _), _| *of != crawl);
        self.crawl_order.forget(crawl);
    }

    /// When the longest ready entry of a crawl became ready.
    pub fn oldest_ready_of(&self, crawl: CrawlNo) -> Option<Time> {
        if self.crawl_order.is_closed(crawl) {
            return None;
        }
        let sets = self.ready.range((crawl, 0)..=(crawl, u8::MAX));
        sets.filter_map(|(_, set)| set.first()).map(|(since, _)| *since).min()
    }

    /// Some entry of a crawl that is ready or soon will be, if one is found without a scan.
    pub fn some_of(&self, crawl: CrawlNo) -> Option<Ix> {
        const GLANCE: usize = 64;
        let mut ready = self.ready.range((crawl, 0)..=(crawl, u8::MAX));
        let ready = ready.find_map(|(_, set)| set.first()).map(|(_, entry)| *entry);
        let soon = || {
            self.waiting.iter().take(GLANCE).map(|(_, entry)| *entry).find(|entry| self.entries[*entry].crawl == crawl)
        };
        ready.or_else(soon)
    }

    /// The looks of a call that may skip this many: from where the last one stopped, or from the beginning.
    pub fn looks(&self, left: usize, goes_on: bool) -> Looks {
        Looks { left, passed: if goes_on { self.resume.clone() } else { Default::default() } }
    }

    /// A call for one crawl, or any, has ended. If it ran out of looks, the next one continues behind what it skipped.
    pub fn looked(&mut self, looks: Looks, of: Option<CrawlNo>) {
        if looks.left == 0 {
            self.resume.extend(looks.passed);
        } else {
            self.resume.retain(|(crawl, _), _| of.is_some_and(|of| of != *crawl));
        }
    }

    /// The entry to visit next: the longest ready one of the given crawl, or of the crawl to be served next, with a
    /// bucket of at most `bucket_max`, for which `skip` is false. `looks` bounds the number skipped, and knows where to begin. `bare` schedules
    /// hosts that are queued without URLs as if they were a crawl.
    pub fn first(
        &self,
        (crawl, bare): (Option<CrawlNo>, bool),
        bucket_max: u8,
        looks: &mut Looks,
        mut skip: impl FnMut(Ix) -> bool,
    ) -> Option<Ix> {
        if let Some(crawl) = crawl {
            return self.first_of(crawl, bucket_max, looks, &mut skip);
        }
        let mut crawls = self.crawl_order.in_order().filter(|crawl| bare || *crawl != CrawlNo::NONE);
        crawls.find_map(|crawl| self.first_of(crawl, bucket_max, looks, &mut skip))
    }

    /// How many entries are ready for a crawl, or for the crawl that is next.
    pub fn ready_groups(&self, crawl: Option<CrawlNo>) -> usize {
        let next = || self.crawl_order.in_order().find(|crawl| *crawl != CrawlNo::NONE);
        let Some(crawl) = crawl.or_else(next).filter(|crawl| !self.crawl_order.is_closed(*crawl)) else { return 0 };
        self.ready.range((crawl, 0)..=(crawl, u8::MAX)).map(|(_, set)| set.len()).sum()
    }

    fn first_of(
        &self,
        crawl: CrawlNo,
        bucket_max: u8,
        looks: &mut Looks,
        skip: &mut impl FnMut(Ix) -> bool,
    ) -> Option<Ix> {
        if self.crawl_order.is_closed(crawl) {
            return None;
        }
        let mut best: Option<(Time, Ix)> = None;
        for (key, set) in self.ready.range((crawl, 0)..=(crawl, bucket_max)) {
            let from = looks.passed.get(key).map_or(Bound::Unbounded, |passed| Bound::Excluded(*passed));
            for &(since, entry) in set.range((from, Bound::Unbounded)) {
                if best.is_some_and(|b| b <= (since, entry)) || looks.left == 0 {
                    break;
                }
                if skip(entry) {
                    looks.left -= 1;
                    looks.passed.insert(*key, (since, entry));
                } else {
                    best = Some((since, entry));
                    break;
                }
            }
        }
        best.map(|(_, entry)| entry)
    }

    pub fn ready_len(&self) -> usize {
        self.ready_len
    }

    pub fn waiting_len(&self) -> usize {
        self.waiting.len()
    }
}
