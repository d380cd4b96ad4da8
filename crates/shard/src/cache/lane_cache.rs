//! LaneCache: the first rows of queues' lanes, kept in memory so that a visit seldom reads the store. A head is always
//! exactly the first rows of its lane; every change to a queued row passes by here. A lane that was empty and gets its
//! first row has a head from then on, others get one with their first scan.

use hashbrown::HashMap;
use wayleave_core::frontier::row::Write;
use wayleave_core::frontier::visit::{Found, LaneScan};
use wayleave_core::ids::QueueId;
use wayleave_engine::rows::due;
use wayleave_engine::{Row, Write as Encoded};

use crate::cache::lane_rows::{BYTES_MAX, FIRST_STEP, Kept, LaneRows, OVERHEAD, Room};

/// A head holds at most this many rows.
const ROWS_MAX: u16 = 64;
/// A head that grew by puts alone holds at least this many, if there are so many.
const ROWS_GROWN_MIN: u16 = 4;
/// And at most this many: enough for a visit that takes ten.
const ROWS_GROWN_MAX: u16 = 12;
/// So many ages are told apart.
const AGES: usize = 64;
/// And so many of them pass while there are as many uses as lane_cache.
const AGES_OF_ALL: usize = 8;

/// The lane of a queue in little room: its host, its number within the host and the lane.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Lane {
    host: u64,
    no_and_lane: u64,
}

impl Lane {
    fn new(queue: QueueId, lane: u8) -> Self {
        Self { host: queue.host.0, no_and_lane: u64::from(queue.no) << 8 | u64::from(lane) }
    }
}

/// The lane_cache of a shard's lanes.
pub(crate) struct LaneCache {
    lane_cache: HashMap<Lane, LaneRows>,
    bytes: usize,
    bytes_max: usize,
    /// What the rows of a head that grew by puts may take, once it has a few of them.
    bytes_grown_max: usize,
    /// The time by which lane_cache are told apart that were not of use lately; it wraps.
    now: u16,
    /// Uses until that goes on.
    uses_left: usize,
    /// Changes whenever there was no room.
    thinned: u64,
}

impl LaneCache {
    /// LaneCache of so many bytes at most, for the queues of so many hosts.
    pub fn new(bytes_max: usize, hosts: usize) -> Self {
        let mut lane_cache = Self {
            lane_cache: HashMap::new(),
            bytes: 0,
            bytes_max,
            bytes_grown_max: 0,
            now: 0,
            uses_left: 0,
            thinned: 0,
        };
        lane_cache.set_room(bytes_max, hosts);
        lane_cache
    }

    /// How many bytes there may be from now on, and for how many hosts.
    pub fn set_room(&mut self, bytes_max: usize, hosts: usize) {
        self.bytes_max = bytes_max;
        self.bytes_grown_max = (bytes_max / hosts.max(1)).saturating_sub(OVERHEAD).min(BYTES_MAX);
    }

    /// The rows of a scan, if they are all here.
    pub fn get(&mut self, scan: &LaneScan) -> Option<Vec<Found>> {
        let now = self.tick();
        let head = self.lane_cache.get_mut(&Lane::new(scan.queue, scan.lane))?;
        head.used_at = now;
        if usize::from(head.rows()) < scan.limit && !head.whole {
            return None;
        }
        let (mut within, mut value) = (Vec::new(), Vec::new());
        let read = |kept: Kept<'_>| {
            kept.write(&mut within, &mut value);
            let (turn, key) = due::parse_within_lane(scan.lane, &within).ok()?;
            Some(Found { turn, key, row: due::decode(&value).ok()? })
        };
        head.iter().take(scan.limit).map(read).collect()
    }

    /// Keeps what the store answered to a scan for `limit` rows.
    pub fn fill(&mut self, scan: &LaneScan, rows: &[Row], limit: usize) {
        if rows.len() > usize::from(ROWS_MAX) {
            return;
        }
        let mut head = LaneRows::of_empty(self.tick());
        let room = Room { rows_min: ROWS_MAX, rows_max: ROWS_MAX, bytes: BYTES_MAX };
        for row in rows {
            head.put(due::within_lane(&row.key), &row.value, room);
        }
        head.whole &= rows.len() < limit;
        if head.rows() == 0 {
            return;
        }
        while self.bytes + head.size() > self.bytes_max && !self.lane_cache.is_empty() {
            self.thin();
        }
        self.bytes += head.size();
        if let Some(before) = self.lane_cache.insert(Lane::new(scan.queue, scan.lane), head) {
            self.bytes -= before.size();
        }
    }

    /// Counts a use of a head; says the time of it.
    fn tick(&mut self) -> u16 {
        if self.uses_left == 0 {
            self.now = self.now.wrapping_add(1);
            self.uses_left = (self.lane_cache.len() / AGES_OF_ALL).max(1);
        }
        self.uses_left -= 1;
        self.now
    }

    /// Lets a quarter of the memory go: the lane_cache that were not of use for longest. Among those that are as old as the
    /// youngest of them it is a matter of chance; each comes back with the next visit to its queue.
    fn thin(&mut self) {
        let mut by_age = [0; AGES];
        let age = |head: &LaneRows, now: u16| usize::from(now.wrapping_sub(head.used_at)).min(AGES - 1);
        for head in self.lane_cache.values() {
            if let Some(bytes) = by_age.get_mut(age(head, self.now)) {
                *bytes += head.size();
            }
        }
        let (mut wanted, mut oldest, mut part) = (self.bytes / 4, 0, usize::MAX);
        for (age, bytes) in by_age.iter().enumerate().rev() {
            if *bytes >= wanted {
                (oldest, part) = (age, wanted.saturating_mul(256) / (*bytes).max(1));
                break;
            }
            wanted -= bytes;
        }
        self.thinned = self.thinned.wrapping_add(0x1234_5678_9ABC_DEF1);
        let (round, now, mut left) = (self.thinned, self.now, 0);
        self.lane_cache.retain(|lane, head| {
            let name = lane.host ^ lane.no_and_lane.rotate_left(32);
            let lot = name.wrapping_add(round).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56;
            let age = age(head, now);
            let stays = age < oldest || (age == oldest && lot as usize > part);
            left += if stays { head.size() } else { 0 };
            stays
        });
        self.bytes = left;
    }

    /// Begins the lane_cache of lanes that were empty: their rows follow.
    pub fn begin(&mut self, lanes: &[(QueueId, u8)]) {
        for (queue, lane) in lanes {
            if self.bytes + OVERHEAD + FIRST_STEP > self.bytes_max {
                self.thin();
            }
            let now = self.tick();
            self.lane_cache.entry(Lane::new(*queue, *lane)).or_insert_with(|| {
                self.bytes += OVERHEAD;
                LaneRows::of_empty(now)
            });
        }
    }

    /// Follows changes to queued rows, which are given in both forms.
    pub fn follow(&mut self, writes: &[Write], encoded: &[Encoded]) {
        for (write, encoded) in writes.iter().zip(encoded) {
            if let Write::Due(queue, turn, ..) = write {
                self.change(Lane::new(*queue, turn.lane), due::within_lane(&encoded.key), encoded.value.as_deref());
            }
        }
        while self.bytes > self.bytes_max && !self.lane_cache.is_empty() {
            self.thin();
        }
    }

    fn change(&mut self, lane: Lane, within: &[u8], value: Option<&[u8]>) {
        let now = self.tick();
        let Some(head) = self.lane_cache.get_mut(&lane) else { return };
        let before = head.size();
        head.used_at = now;
        match value {
            Some(value) => {
                // One that was read from the store keeps what it has.
                let (rows_max, bytes) = (head.rows().max(ROWS_GROWN_MAX), head.len().max(self.bytes_grown_max));
                head.put(within, value, Room { rows_min: ROWS_GROWN_MIN, rows_max, bytes });
            }
            None => head.remove(within),
        }
        self.bytes = self.bytes + head.size() - before;
        if head.rows() == 0 {
            self.bytes -= head.size();
            self.lane_cache.remove(&lane);
        }
    }
}

#[cfg(test)]
#[path = "lane_cache_tests.rs"]
mod tests;
