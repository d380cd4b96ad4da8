//! When which group may be visited: one slot for each (group, crawl), ready in the order in which it became so, or
//! waiting for a time. Of which crawl the next one is, turns decide.

use std::collections::{BTreeMap, BTreeSet};

use super::slab::{Ix, Slab};
use super::turns::Turns;
use crate::ids::CrawlNo;
use crate::time::Time;

/// The turn of one crawl at one group.
#[derive(Clone, Debug)]
pub(super) struct Slot {
    pub group: Ix,
    pub crawl: CrawlNo,
    /// Virtual time of the crawl within its group: the lowest goes first.
    pub pass: u64,
    place: SlotPlace,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SlotPlace {
    Nowhere,
    Waiting(Time),
    /// Ready since, in the bucket of what its queue has on hold.
    Ready(Time, u8),
}

/// All slots of a shard.
#[derive(Default)]
pub(super) struct Schedule {
    pub slots: Slab<Slot>,
    waiting: BTreeSet<(Time, Ix)>,
    /// By crawl and by how much is on hold, so that a caller who takes only queues with less on hold passes over the
    /// others without looking at each.
    ready: BTreeMap<(CrawlNo, u8), BTreeSet<(Time, Ix)>>,
    /// Without those of crawls that a limit has closed.
    ready_len: usize,
    /// Of which crawl the next visit is.
    pub turns: Turns,
    /// Slots that became ready since somebody last asked.
    pub newly_ready: usize,
    /// Crawls of which slots became ready or ceased to be so since then; one may be there twice.
    pub touched: Vec<CrawlNo>,
}

/// So many touched crawls are looked through for one that is there already.
const TOUCHED_MAX: usize = 16;

/// The bucket of a number on hold: 0, 1, 2–3, 4–7 and so on.
pub(super) fn bucket(held: u32) -> u8 {
    (u32::BITS - held.leading_zeros()) as u8
}

/// Notes a crawl, where that is new: mostly a few follow each other.
fn touch(touched: &mut Vec<CrawlNo>, crawl: CrawlNo) {
    if touched.last() != Some(&crawl) && (touched.len() >= TOUCHED_MAX || !touched.contains(&crawl)) {
        touched.push(crawl);
    }
}

impl Schedule {
    pub fn add(&mut self, group: Ix, crawl: CrawlNo, pass: u64) -> Ix {
        self.slots.insert(Slot { group, crawl, pass, place: SlotPlace::Nowhere })
    }

    pub fn remove(&mut self, slot: Ix) {
        self.park(slot);
        self.slots.remove(slot);
    }

    /// Takes a slot out of every order: it is busy, paused or empty.
    pub fn park(&mut self, ix: Ix) {
        let slot = &mut self.slots[ix];
        match std::mem::replace(&mut slot.place, SlotPlace::Nowhere) {
            SlotPlace::Nowhere => {}
            SlotPlace::Waiting(at) => {
                self.waiting.remove(&(at, ix));
            }
            SlotPlace::Ready(since, bucket) => {
                let crawl = slot.crawl;
                touch(&mut self.touched, crawl);
                if let Some(set) = self.ready.get_mut(&(crawl, bucket)) {
                    set.remove(&(since, ix));
                    self.ready_len -= usize::from(!self.turns.is_closed(crawl));
                    self.turns.remove(crawl);
                    if set.is_empty() {
                        self.ready.remove(&(crawl, bucket));
                    }
                }
            }
        }
    }

    /// Puts a slot where it belongs: ready since `at` if that has come, else waiting for it.
    pub fn place(&mut self, ix: Ix, at: Time, held: u32, now: Time) {
        self.move_to(ix, at, bucket(held), now);
    }

    fn move_to(&mut self, ix: Ix, at: Time, bucket: u8, now: Time) {
        let ready = at <= now;
        let want = if ready { SlotPlace::Ready(at, bucket) } else { SlotPlace::Waiting(at) };
        let before = self.slots[ix].place;
        if before == want {
            return;
        }
        self.park(ix);
        let slot = &mut self.slots[ix];
        slot.place = want;
        if ready {
            touch(&mut self.touched, slot.crawl);
            self.ready.entry((slot.crawl, bucket)).or_default().insert((at, ix));
            self.turns.add(slot.crawl, at);
            if !self.turns.is_closed(slot.crawl) {
                self.ready_len += 1;
                self.newly_ready += usize::from(!matches!(before, SlotPlace::Ready(..)));
            }
        } else {
            self.waiting.insert((at, ix));
        }
    }

    /// Lets a slot that is ready or waits be so at `gate` at the earliest; false if that takes more to know.
    pub fn defer(&mut self, ix: Ix, gate: Time, now: Time) -> bool {
        match self.slots[ix].place {
            SlotPlace::Ready(since, bucket) => {
                self.move_to(ix, since.max(gate), bucket, now);
                true
            }
            SlotPlace::Waiting(at) if at.max(gate) > now => {
                self.move_to(ix, at.max(gate), 0, now);
                true
            }
            SlotPlace::Waiting(_) | SlotPlace::Nowhere => false,
        }
    }

    /// Since or until when a slot is ready or waits, and which; none if it is parked.
    pub fn place_of(&self, ix: Ix) -> Option<(Time, bool)> {
        match self.slots[ix].place {
            SlotPlace::Nowhere => None,
            SlotPlace::Waiting(at) => Some((at, false)),
            SlotPlace::Ready(since, _) => Some((since, true)),
        }
    }

    /// The most that the queues of a ready slot have on hold.
    pub fn held_most(&self, ix: Ix) -> u32 {
        match self.slots[ix].place {
            SlotPlace::Ready(_, bucket) => 1u32.checked_shl(bucket.into()).map_or(u32::MAX, |above| above - 1),
            SlotPlace::Nowhere | SlotPlace::Waiting(_) => u32::MAX,
        }
    }

    pub fn is_ready(&self, ix: Ix) -> bool {
        matches!(self.slots[ix].place, SlotPlace::Ready(..))
    }

    /// Slots whose waiting is over.
    pub fn due(&self, now: Time, most: usize) -> Vec<Ix> {
        self.waiting.range(..=(now, Ix::MAX)).take(most).map(|(_, slot)| *slot).collect()
    }

    /// Whether a slot still waits, and for a time that has come.
    pub fn is_due(&self, ix: Ix, now: Time) -> bool {
        matches!(self.slots[ix].place, SlotPlace::Waiting(at) if at <= now)
    }

    /// When the next waiting is over.
    pub fn next_due(&self) -> Option<Time> {
        self.waiting.first().map(|(at, _)| *at)
    }

    /// When the slot that has been ready longest became so.
    pub fn oldest_ready(&self) -> Option<Time> {
        let open = self.ready.iter().filter(|((crawl, _), _)| !self.turns.is_closed(*crawl));
        open.filter_map(|(_, set)| set.first()).map(|(since, _)| *since).min()
    }

    /// Closes a crawl, or opens it again: its slots keep their places and are passed over as one.
    pub fn set_closed(&mut self, crawl: CrawlNo, closed: bool) {
        let Some(ready) = self.turns.set_closed(crawl, closed) else { return };
        touch(&mut self.touched, crawl);
        if closed {
            self.ready_len -= ready;
        } else {
            self.ready_len += ready;
            self.newly_ready += ready;
        }
    }

    /// A visit of a crawl was planned.
    pub fn charge(&mut self, crawl: CrawlNo, stride: u64) {
        let since = self.oldest_ready_of(crawl).unwrap_or_default();
        self.turns.charge(crawl, stride, since);
    }

    /// Whether a slot of a crawl is ready, be the crawl closed or not.
    pub fn has_ready(&self, crawl: CrawlNo) -> bool {
        self.turns.has_ready(crawl)
    }

    /// Forgets a crawl that has no slots any more.
    pub fn forget(&mut self, crawl: CrawlNo) {
        self.turns.forget(crawl);
    }

    /// When the slot of a crawl that has been ready longest became so.
    pub fn oldest_ready_of(&self, crawl: CrawlNo) -> Option<Time> {
        if self.turns.is_closed(crawl) {
            return None;
        }
        let sets = self.ready.range((crawl, 0)..=(crawl, u8::MAX));
        sets.filter_map(|(_, set)| set.first()).map(|(since, _)| *since).min()
    }

    /// A slot of a crawl that is ready or soon will be, if one is found at a glance.
    pub fn some_of(&self, crawl: CrawlNo) -> Option<Ix> {
        const GLANCE: usize = 64;
        let mut ready = self.ready.range((crawl, 0)..=(crawl, u8::MAX));
        let ready = ready.find_map(|(_, set)| set.first()).map(|(_, slot)| *slot);
        let soon =
            || self.waiting.iter().take(GLANCE).map(|(_, slot)| *slot).find(|slot| self.slots[*slot].crawl == crawl);
        ready.or_else(soon)
    }

    /// The slot to visit next: of one crawl, or of the crawl whose turn it is, the one that has been ready longest, with at
    /// most `bucket_max` as its bucket, that is not passed over by `skip`. `looks` bounds how many are passed over. `bare` lets
    /// hosts that are queued by time alone have turns like a crawl.
    pub fn first(
        &self,
        (crawl, bare): (Option<CrawlNo>, bool),
        bucket_max: u8,
        looks: &mut usize,
        mut skip: impl FnMut(Ix) -> bool,
    ) -> Option<Ix> {
        if let Some(crawl) = crawl {
            return self.first_of(crawl, bucket_max, looks, &mut skip);
        }
        let mut crawls = self.turns.in_order().filter(|crawl| bare || *crawl != CrawlNo::NONE);
        crawls.find_map(|crawl| self.first_of(crawl, bucket_max, looks, &mut skip))
    }

    fn first_of(
        &self,
        crawl: CrawlNo,
        bucket_max: u8,
        looks: &mut usize,
        skip: &mut impl FnMut(Ix) -> bool,
    ) -> Option<Ix> {
        if self.turns.is_closed(crawl) {
            return None;
        }
        let mut best: Option<(Time, Ix)> = None;
        for (_, set) in self.ready.range((crawl, 0)..=(crawl, bucket_max)) {
            for &(since, slot) in set {
                if best.is_some_and(|b| b <= (since, slot)) || *looks == 0 {
                    break;
                }
                if skip(slot) {
                    *looks -= 1;
                } else {
                    best = Some((since, slot));
                    break;
                }
            }
        }
        best.map(|(_, slot)| slot)
    }

    pub fn ready_len(&self) -> usize {
        self.ready_len
    }

    pub fn waiting_len(&self) -> usize {
        self.waiting.len()
    }
}
