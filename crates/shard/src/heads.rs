//! Heads: the first rows of queues' lanes, kept in memory so that a visit seldom reads the store. A head is always
//! exactly the first rows of its lane; every change to a queued row passes by here. A lane that was empty and gets its
//! first row has a head from then on, others get one with their first scan. Rows lie as bytes, one after the other: there
//! are some for every queue.

use hashbrown::HashMap;
use wayleave_core::frontier::row::Write;
use wayleave_core::frontier::visit::{Found, LaneScan};
use wayleave_core::ids::QueueId;
use wayleave_engine::rows::due;
use wayleave_engine::{Row, Write as Encoded};

/// A head holds at most this many rows.
const ROWS_MAX: u32 = 64;
/// A head that grew by puts alone holds at least this many, if there are so many.
const ROWS_GROWN_MIN: u32 = 4;
/// And at most this many, where memory has room for them at every host: enough for a visit that takes ten.
const ROWS_GROWN_MAX: u32 = 12;
/// About what a row takes.
const ROW_BYTES: usize = 64;
/// A head holds at most this many bytes of rows.
const BYTES_MAX: usize = 8 * 1024;
/// What a head costs beside its rows.
const OVERHEAD: usize = 96;
/// The first row takes room in steps of so many bytes: most queues of a crawl of many hosts are short.
const FIRST_STEP: usize = 64;
/// Then heads grow in steps of so many bytes: enough for the rows of one that grew by puts.
const STEP: usize = 192;

/// The first rows of one lane: of each the lengths of its two parts, its key within the lane, its value.
#[derive(Default)]
struct Head {
    bytes: Vec<u8>,
    rows: u32,
    /// Where the last row begins.
    last: u32,
    /// Whether these are all the rows of the lane.
    whole: bool,
    /// Whether it was of use, or changed, since memory was last short.
    used: bool,
}

/// A row of a head and where it lies.
struct Kept<'a> {
    start: usize,
    end: usize,
    within: &'a [u8],
    value: &'a [u8],
}

/// The heads of a shard's lanes.
pub(crate) struct Heads {
    heads: HashMap<(QueueId, u8), Head>,
    bytes: usize,
    bytes_max: usize,
    rows_grown_max: u32,
    /// Changes whenever there was no room.
    thinned: u64,
}

impl Head {
    fn iter(&self) -> impl Iterator<Item = Kept<'_>> {
        self.iter_from(0)
    }

    fn iter_from(&self, mut start: usize) -> impl Iterator<Item = Kept<'_>> {
        std::iter::from_fn(move || {
            let (lengths, rest) = self.bytes.get(start..)?.split_first_chunk::<4>()?;
            let [a, b, c, d] = *lengths;
            let (key, value) = (usize::from(u16::from_le_bytes([a, b])), usize::from(u16::from_le_bytes([c, d])));
            let (within, rest) = rest.split_at_checked(key)?;
            let kept = Kept { start, end: start + 4 + key + value, within, value: rest.get(..value)? };
            start = kept.end;
            Some(kept)
        })
    }

    fn is_past_the_last(&self, within: &[u8]) -> bool {
        self.iter_from(self.last as usize).next().is_none_or(|last| within > last.within)
    }

    /// Puts a row where it belongs; if that is past the end of what is known of the lane, it stays in the store.
    fn put(&mut self, within: &[u8], value: &[u8], rows_max: u32) {
        let past = self.is_past_the_last(within);
        if past && !self.whole {
            return;
        }
        let at = if past { self.bytes.len() } else { self.open_at(within) };
        let size = 4 + within.len() + value.len();
        let lengths = u16::try_from(within.len()).ok().zip(u16::try_from(value.len()).ok());
        let Some((key, long)) = lengths.filter(|_| at + size <= BYTES_MAX && (!past || self.rows < rows_max)) else {
            // There is no room for it: the head ends before this row.
            return self.end_at(at);
        };
        if self.bytes.capacity() - self.bytes.len() < size {
            let step = if self.bytes.is_empty() { FIRST_STEP } else { STEP };
            self.bytes.reserve_exact(size.next_multiple_of(step));
        }
        if past {
            self.bytes.extend_from_slice(&key.to_le_bytes());
            self.bytes.extend_from_slice(&long.to_le_bytes());
            self.bytes.extend_from_slice(within);
            self.bytes.extend_from_slice(value);
            (self.rows, self.last) = (self.rows + 1, at as u32);
            return;
        }
        let lengths = [key.to_le_bytes(), long.to_le_bytes()];
        self.bytes.splice(at..at, lengths.iter().flatten().chain(within).chain(value).copied());
        self.recount();
        if self.rows > rows_max || self.bytes.len() > BYTES_MAX {
            self.end_at(self.last as usize);
        }
    }

    /// Where a row goes that is not past the last; one of the same key makes room.
    fn open_at(&mut self, within: &[u8]) -> usize {
        let next = self.iter().find(|kept| kept.within >= within).map(|k| (k.start, k.end, k.within == within));
        match next {
            None => self.bytes.len(),
            Some((start, end, same)) => {
                if same {
                    self.bytes.drain(start..end);
                }
                start
            }
        }
    }

    /// Ends the head before a place: what comes after it is the store's to tell.
    fn end_at(&mut self, at: usize) {
        self.bytes.truncate(at);
        self.whole = false;
        self.recount();
    }

    fn remove(&mut self, within: &[u8]) {
        let found = self.iter().find(|kept| kept.within >= within).filter(|kept| kept.within == within);
        if let Some((start, end)) = found.map(|kept| (kept.start, kept.end)) {
            self.bytes.drain(start..end);
            self.recount();
        }
    }

    fn recount(&mut self) {
        let (rows, last) = self.iter().fold((0, 0), |(rows, _), kept| (rows + 1, kept.start as u32));
        (self.rows, self.last) = (rows, last);
    }

    fn size(&self) -> usize {
        OVERHEAD + self.bytes.capacity()
    }
}

impl Heads {
    /// Heads of so many bytes at most, for the queues of so many hosts.
    pub fn new(bytes_max: usize, hosts: usize) -> Self {
        let mut heads = Self { heads: HashMap::new(), bytes: 0, bytes_max, rows_grown_max: ROWS_GROWN_MIN, thinned: 0 };
        heads.set_room(bytes_max, hosts);
        heads
    }

    /// How many bytes there may be from now on, and for how many hosts.
    pub fn set_room(&mut self, bytes_max: usize, hosts: usize) {
        self.bytes_max = bytes_max;
        let rows = (bytes_max / hosts.max(1)).saturating_sub(OVERHEAD) / ROW_BYTES;
        self.rows_grown_max = u32::try_from(rows).unwrap_or(u32::MAX).clamp(ROWS_GROWN_MIN, ROWS_GROWN_MAX);
    }

    /// The rows of a scan, if they are all here.
    pub fn get(&mut self, scan: &LaneScan) -> Option<Vec<Found>> {
        let head = self.heads.get_mut(&(scan.queue, scan.lane))?;
        head.used = true;
        if (head.rows as usize) < scan.limit && !head.whole {
            return None;
        }
        let read = |kept: Kept<'_>| {
            let (turn, key) = due::parse_within_lane(scan.lane, kept.within).ok()?;
            Some(Found { turn, key, row: due::decode(kept.value).ok()? })
        };
        head.iter().take(scan.limit).map(read).collect()
    }

    /// Keeps what the store answered to a scan for `limit` rows.
    pub fn fill(&mut self, scan: &LaneScan, rows: &[Row], limit: usize) {
        if rows.len() > ROWS_MAX as usize {
            return;
        }
        let mut head = Head { whole: true, used: true, ..Head::default() };
        for row in rows {
            head.put(due::within_lane(&row.key), &row.value, ROWS_MAX);
        }
        head.whole &= rows.len() < limit;
        if head.rows == 0 {
            return;
        }
        while self.bytes + head.size() > self.bytes_max && !self.heads.is_empty() {
            self.thin();
        }
        self.bytes += head.size();
        if let Some(before) = self.heads.insert((scan.queue, scan.lane), head) {
            self.bytes -= before.size();
        }
    }

    /// Lets half of the heads go that were of no use since memory was last short; if all were, one in four. Which ones is a
    /// matter of chance; each comes back with the next visit to its queue.
    fn thin(&mut self) {
        let idle = self.heads.values().any(|head| !head.used);
        self.thinned = self.thinned.wrapping_add(0x1234_5678_9ABC_DEF1);
        let (round, mut bytes) = (self.thinned, 0);
        self.heads.retain(|(queue, lane), head| {
            let name = queue.host.counter() ^ u64::from(queue.no).rotate_left(40) ^ u64::from(*lane).rotate_left(32);
            let lot = name.wrapping_add(round).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 62;
            let used = std::mem::take(&mut head.used);
            let stays = if idle { used || lot > 1 } else { lot > 0 };
            bytes += if stays { head.size() } else { 0 };
            stays
        });
        self.bytes = bytes;
    }

    /// Begins the heads of lanes that were empty: their rows follow.
    pub fn begin(&mut self, lanes: &[(QueueId, u8)]) {
        for lane in lanes {
            if self.bytes + OVERHEAD + FIRST_STEP > self.bytes_max {
                self.thin();
            }
            self.heads.entry(*lane).or_insert_with(|| {
                self.bytes += OVERHEAD;
                Head { whole: true, used: true, ..Head::default() }
            });
        }
    }

    /// Follows changes to queued rows, which are given in both forms.
    pub fn follow(&mut self, writes: &[Write], encoded: &[Encoded]) {
        for (write, encoded) in writes.iter().zip(encoded) {
            if let Write::Due(queue, turn, ..) = write {
                self.change((*queue, turn.lane), due::within_lane(&encoded.key), encoded.value.as_deref());
            }
        }
        while self.bytes > self.bytes_max && !self.heads.is_empty() {
            self.thin();
        }
    }

    fn change(&mut self, lane: (QueueId, u8), within: &[u8], value: Option<&[u8]>) {
        let Some(head) = self.heads.get_mut(&lane) else { return };
        let before = head.size();
        head.used = true;
        match value {
            Some(value) => head.put(within, value, head.rows.max(self.rows_grown_max)),
            None => head.remove(within),
        }
        self.bytes = self.bytes + head.size() - before;
        if head.rows == 0 {
            self.bytes -= head.size();
            self.heads.remove(&lane);
        }
    }
}

#[cfg(test)]
#[path = "heads_tests.rs"]
mod tests;
