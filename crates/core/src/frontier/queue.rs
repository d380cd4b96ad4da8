//! A queue's lanes: scan cursors, next due times and counts. No row is read here.

use super::row::{Lane, QueuePosition, QueueRow};
use super::view::{Counts, UrlState};
use crate::ids::CrawlNo;
use crate::time::Time;

/// Every tenth visit serves the most overdue URL of the lower priorities.
const LOWER_EVERY: u8 = 10;

impl Lane {
    fn new(lane: u8) -> Self {
        Self { lane, count: 0, head: Time::NEVER, from: (Time::ZERO, [].into()) }
    }

    /// Records that rows up to `taken` were taken and that `next` is the first one left.
    fn advance(&mut self, taken: Option<(Time, &[u8])>, next: Option<(Time, &[u8])>) {
        match (next, taken) {
            (Some((due, key)), taken) => {
                self.head = due;
                // Only rows of the same due time can be in between, so the key is kept only then.
                let same_due = taken.is_none_or(|(last, _)| last == due);
                self.from = (due, if same_due { key.into() } else { [].into() });
            }
            (None, Some((due, _))) => {
                self.head = Time::NEVER;
                self.from = (Time(due.0 + 1), [].into());
            }
            (None, None) => self.head = Time::NEVER,
        }
    }
}

impl QueueRow {
    /// An empty queue.
    pub(super) fn new(no: u32, crawl: CrawlNo) -> Self {
        let (reserved, fetched, gone, failed) = (0, 0, 0, 0);
        Self { no, crawl, lanes: Vec::new(), reserved, fetched, gone, failed, limit: None, visits_mod_ten: 0, pages: 0 }
    }

    /// Number of queued URLs.
    #[must_use]
    pub fn queued(&self) -> u64 {
        self.lanes.iter().map(|lane| u64::from(lane.count)).sum()
    }

    /// Pages that count against a limit: completed ones, and those handed out, which may become so.
    pub(super) fn used(&self) -> u64 {
        u64::from(self.pages) + u64::from(self.reserved)
    }

    /// URLs by state.
    #[must_use]
    pub fn counts(&self) -> Counts {
        Counts {
            queued: self.queued(),
            reserved: self.reserved.into(),
            fetched: self.fetched.into(),
            gone: self.gone.into(),
            failed: self.failed.into(),
        }
    }

    /// Lower bound of the next due time; [`Time::NEVER`] if nothing is queued.
    #[must_use]
    pub fn head(&self) -> Time {
        self.lanes.iter().map(|lane| lane.head).min().unwrap_or(Time::NEVER)
    }

    /// Records an inserted row; returns whether its lane was empty.
    pub(super) fn enqueue(&mut self, position: QueuePosition, key: &[u8]) -> bool {
        let lane = self.lane_mut(position.lane);
        lane.count += 1;
        lane.head = lane.head.min(position.due);
        if (position.due, key) < (lane.from.0, &*lane.from.1) {
            lane.from = (position.due, key.into());
        }
        lane.count == 1
    }

    /// Records a row removed from the middle of the queue. `head` stays a lower bound.
    pub(super) fn dequeue(&mut self, position: QueuePosition) {
        let lane = self.lane_mut(position.lane);
        lane.count = lane.count.saturating_sub(1);
        if lane.count == 0 {
            lane.head = Time::NEVER;
        }
    }

    /// Records the result of a scan of a lane: `taken` rows were removed, `next` is the first one left.
    pub(super) fn take_front(
        &mut self,
        lane: u8,
        taken: usize,
        last: Option<(Time, &[u8])>,
        next: Option<(Time, &[u8])>,
    ) {
        let lane = self.lane_mut(lane);
        lane.count = lane.count.saturating_sub(taken as u32);
        lane.advance(last, next);
    }

    /// Rows of a lane cannot be read: its scans start there again, when their time has come. Returns whether there are any.
    pub(super) fn keep_gap(&mut self, lane: u8, from: &(Time, Box<[u8]>), retry: Time) -> bool {
        let lane = self.lane_mut(lane);
        if lane.count == 0 {
            return false;
        }
        lane.from.clone_from(from);
        lane.head = lane.head.min(retry);
        true
    }

    /// The lanes with due URLs, in the order in which this visit serves them.
    pub(super) fn lanes_in_order(&self, now: Time) -> Vec<u8> {
        let due = |lane: &&Lane| lane.head <= now;
        let mut order: Vec<(u8, Time)> = self.lanes.iter().filter(due).map(|l| (l.lane, l.head)).collect();
        order.sort_unstable();
        if order.len() > 1 && self.visits_mod_ten % LOWER_EVERY == LOWER_EVERY - 1 {
            let lower = order.iter().enumerate().skip(1).min_by_key(|(_, (_, head))| *head).map(|(i, _)| i);
            if let Some(i) = lower {
                let favoured = order.remove(i);
                order.insert(0, favoured);
            }
        }
        order.into_iter().map(|(lane, _)| lane).collect()
    }

    /// Where a scan of a lane starts.
    pub(super) fn scan_from(&self, lane: u8) -> (Time, Box<[u8]>) {
        let found = self.lanes.iter().find(|l| l.lane == lane);
        found.map_or((Time::ZERO, [].into()), |l| l.from.clone())
    }

    /// The counter of a state that is not counted per lane.
    pub(super) fn counter(&mut self, state: UrlState) -> Option<&mut u32> {
        match state {
            UrlState::Queued => None,
            UrlState::Reserved => Some(&mut self.reserved),
            UrlState::Fetched => Some(&mut self.fetched),
            UrlState::Gone => Some(&mut self.gone),
            UrlState::Failed => Some(&mut self.failed),
        }
    }

    fn lane_mut(&mut self, lane: u8) -> &mut Lane {
        let at = match self.lanes.iter().position(|l| l.lane == lane) {
            Some(at) => at,
            None => {
                self.lanes.reserve_exact(1);
                self.lanes.push(Lane::new(lane));
                self.lanes.len() - 1
            }
        };
        #[expect(clippy::indexing_slicing, reason = "the position was found or made in the line above")]
        &mut self.lanes[at]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn position(lane: u8, due: u64) -> QueuePosition {
        QueuePosition { lane, due: Time(due) }
    }

    #[test]
    fn an_earlier_row_lowers_where_the_scan_starts() {
        let mut queue = QueueRow::new(0, CrawlNo(1));
        queue.enqueue(position(4, 10), b"a");
        queue.take_front(4, 1, Some((Time(10), b"a")), None);
        assert_eq!((queue.head(), queue.scan_from(4)), (Time::NEVER, (Time(11), [].into())));
        queue.enqueue(position(4, 5), b"b");
        assert_eq!((queue.head(), queue.scan_from(4)), (Time(5), (Time(5), (*b"b").into())));
    }

    #[test]
    fn every_tenth_turn_goes_to_the_most_overdue_of_the_lower_lanes() {
        let mut queue = QueueRow::new(0, CrawlNo(1));
        for (lane, due) in [(0, 9), (3, 7), (5, 4), (6, 99)] {
            queue.enqueue(position(lane, due), b"x");
        }
        assert_eq!(queue.lanes_in_order(Time(10)), [0, 3, 5]);
        queue.visits_mod_ten = 9;
        assert_eq!(queue.lanes_in_order(Time(10)), [5, 0, 3]);
    }
}
