//! LRU cache of lane prefixes: the first due rows of each lane, so that a visit seldom reads the store.
//!
//! Invariant: a cached prefix always equals the first rows of its lane. Every write to a due row passes through
//! [`LaneCache::follow`]. A lane that was empty is cached from its first row on; any other lane is cached by its first
//! scan.
//!
//! Hand-written because there is an entry for every queue: its age takes two bytes, where the usual LRU list takes two
//! pointers, and the bound is on bytes, which change with every write to an entry.

use hashbrown::HashMap;
use wayleave_core::frontier::row::Write;
use wayleave_core::frontier::visit::{LaneScan, ScannedUrl};
use wayleave_core::ids::QueueId;
use wayleave_core::limits::PRIORITY_MAX;
use wayleave_engine::rows::due;
use wayleave_engine::{Row, Write as Encoded};

use crate::cache::lane_rows::{BYTES_MAX, FIRST_STEP, Kept, LaneRows, OVERHEAD, Room};

/// Maximum number of rows in a prefix.
const ROWS_MAX: u16 = 64;
/// A prefix that grew by puts alone may always hold this many rows,
const ROWS_GROWN_MIN: u16 = 4;
/// and never more than this many: enough for a visit that takes ten URLs.
const ROWS_GROWN_MAX: u16 = 12;
/// Number of distinct ages that eviction tells apart.
const AGES: usize = 64;
/// The age counter advances this many times while as many lookups happen as there are entries.
const AGES_OF_ALL: usize = 8;

/// Compact cache key: host, queue number within the host, and lane.
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

/// The cached lane prefixes of one shard.
pub(crate) struct LaneCache {
    lanes: HashMap<Lane, LaneRows>,
    bytes: usize,
    bytes_max: usize,
    /// Byte limit for a prefix that grew by puts, once it has [`ROWS_GROWN_MIN`] rows.
    bytes_grown_max: usize,
    /// Logical clock for the age of entries; it wraps around.
    now: u16,
    /// Lookups until the logical clock advances.
    uses_left: usize,
    /// Changes with every eviction, and seeds its arbitrary choices.
    evictions: u64,
}

impl LaneCache {
    /// A cache of at most `bytes_max` bytes for the queues of `hosts` hosts.
    pub fn new(bytes_max: usize, hosts: usize) -> Self {
        let mut cache =
            Self { lanes: HashMap::new(), bytes: 0, bytes_max, bytes_grown_max: 0, now: 0, uses_left: 0, evictions: 0 };
        cache.set_room(bytes_max, hosts);
        cache
    }

    /// Changes the memory limit and the number of hosts that share it.
    pub fn set_room(&mut self, bytes_max: usize, hosts: usize) {
        self.bytes_max = bytes_max;
        self.bytes_grown_max = (bytes_max / hosts.max(1)).saturating_sub(OVERHEAD).min(BYTES_MAX);
    }

    /// Answers a scan, if the cached prefix covers all of it.
    pub fn get(&mut self, scan: &LaneScan) -> Option<Vec<ScannedUrl>> {
        let now = self.tick();
        let prefix = self.lanes.get_mut(&Lane::new(scan.queue, scan.lane))?;
        prefix.used_at = now;
        if usize::from(prefix.rows()) < scan.limit && !prefix.whole {
            return None;
        }
        let (mut within, mut value) = (Vec::new(), Vec::new());
        let read = |kept: Kept<'_>| {
            kept.write(&mut within, &mut value);
            let (position, key) = due::parse_within_lane(scan.lane, &within).ok()?;
            Some(ScannedUrl { position, key, row: due::decode(&value).ok()? })
        };
        prefix.iter().take(scan.limit).map(read).collect()
    }

    /// Caches the store's answer to a scan for `limit` rows.
    pub fn fill(&mut self, scan: &LaneScan, rows: &[Row], limit: usize) {
        if rows.len() > usize::from(ROWS_MAX) {
            return;
        }
        let mut prefix = LaneRows::of_empty(self.tick());
        let room = Room { rows_min: ROWS_MAX, rows_max: ROWS_MAX, bytes: BYTES_MAX };
        for row in rows {
            prefix.put(due::within_lane(&row.key), &row.value, room);
        }
        prefix.whole &= rows.len() < limit;
        if prefix.rows() == 0 {
            return;
        }
        while self.bytes + prefix.size() > self.bytes_max && !self.lanes.is_empty() {
            self.evict();
        }
        self.bytes += prefix.size();
        if let Some(before) = self.lanes.insert(Lane::new(scan.queue, scan.lane), prefix) {
            self.bytes -= before.size();
        }
    }

    /// Advances the logical clock by one lookup; returns the current time.
    fn tick(&mut self) -> u16 {
        if self.uses_left == 0 {
            self.now = self.now.wrapping_add(1);
            self.uses_left = (self.lanes.len() / AGES_OF_ALL).max(1);
        }
        self.uses_left -= 1;
        self.now
    }

    /// Evicts the least recently used quarter of the memory. Within the oldest age that is only partly evicted the
    /// choice is arbitrary. An evicted prefix is cached again by the next visit to its queue.
    fn evict(&mut self) {
        let mut by_age = [0; AGES];
        let age = |prefix: &LaneRows, now: u16| usize::from(now.wrapping_sub(prefix.used_at)).min(AGES - 1);
        for prefix in self.lanes.values() {
            if let Some(bytes) = by_age.get_mut(age(prefix, self.now)) {
                *bytes += prefix.size();
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
        self.evictions = self.evictions.wrapping_add(0x1234_5678_9ABC_DEF1);
        let (round, now, mut left) = (self.evictions, self.now, 0);
        self.lanes.retain(|lane, prefix| {
            let name = lane.host ^ lane.no_and_lane.rotate_left(32);
            let lot = name.wrapping_add(round).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56;
            let age = age(prefix, now);
            let stays = age < oldest || (age == oldest && lot as usize > part);
            left += if stays { prefix.size() } else { 0 };
            stays
        });
        self.bytes = left;
    }

    /// Starts prefixes for lanes that were empty; their rows follow.
    pub fn begin(&mut self, lanes: &[(QueueId, u8)]) {
        for (queue, lane) in lanes {
            if self.bytes + OVERHEAD + FIRST_STEP > self.bytes_max {
                self.evict();
            }
            let now = self.tick();
            self.lanes.entry(Lane::new(*queue, *lane)).or_insert_with(|| {
                self.bytes += OVERHEAD;
                LaneRows::of_empty(now)
            });
        }
    }

    /// Applies writes to due rows, given both decoded and encoded.
    pub fn follow(&mut self, writes: &[Write], encoded: &[Encoded]) {
        for (write, encoded) in writes.iter().zip(encoded) {
            if let Write::Due(queue, position, ..) = write {
                self.change(Lane::new(*queue, position.lane), due::within_lane(&encoded.key), encoded.value.as_deref());
            }
        }
        while self.bytes > self.bytes_max && !self.lanes.is_empty() {
            self.evict();
        }
    }

    /// Drops the lanes of a queue that was deleted.
    pub fn forget(&mut self, queue: QueueId) {
        if self.lanes.is_empty() {
            return;
        }
        for lane in 0..=PRIORITY_MAX {
            if let Some(prefix) = self.lanes.remove(&Lane::new(queue, lane)) {
                self.bytes -= prefix.size();
            }
        }
    }

    /// Gives memory back if most entries are gone.
    pub fn shrink(&mut self) {
        if self.lanes.len() < self.lanes.capacity() / 4 {
            self.lanes.shrink_to_fit();
        }
    }

    fn change(&mut self, lane: Lane, within: &[u8], value: Option<&[u8]>) {
        let now = self.tick();
        let Some(prefix) = self.lanes.get_mut(&lane) else { return };
        let before = prefix.size();
        prefix.used_at = now;
        match value {
            Some(value) => {
                // A prefix that was read from the store keeps its size.
                let (rows_max, bytes) = (prefix.rows().max(ROWS_GROWN_MAX), prefix.len().max(self.bytes_grown_max));
                prefix.put(within, value, Room { rows_min: ROWS_GROWN_MIN, rows_max, bytes });
            }
            None => prefix.remove(within),
        }
        self.bytes = self.bytes + prefix.size() - before;
        if prefix.rows() == 0 {
            self.bytes -= prefix.size();
            self.lanes.remove(&lane);
        }
    }
}

#[cfg(test)]
#[path = "lane_cache_tests.rs"]
mod tests;
