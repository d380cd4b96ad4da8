//! Heads: the first rows of queues' lanes, kept in memory so that a visit seldom reads the store. A head is always
//! exactly the first rows of its lane; every change to a queued row passes by here.

use hashbrown::HashMap;
use wayleave_core::frontier::row::{DueRow, Turn, Write};
use wayleave_core::frontier::url_key::UrlKey;
use wayleave_core::frontier::visit::{Found, LaneScan};
use wayleave_core::ids::QueueId;

/// A head holds at most this many rows.
const HEAD_ROWS_MAX: usize = 64;

/// The first rows of one lane.
#[derive(Default)]
struct Head {
    rows: Vec<Found>,
    /// Whether these are all the rows of the lane.
    whole: bool,
}

/// The heads of a shard's lanes.
pub(crate) struct Heads {
    heads: HashMap<(QueueId, u8), Head>,
    rows: usize,
    rows_max: usize,
}

impl Heads {
    pub fn new(rows_max: usize) -> Self {
        Self { heads: HashMap::new(), rows: 0, rows_max }
    }

    /// The rows of a scan, if they are all here.
    pub fn get(&self, scan: &LaneScan) -> Option<Vec<Found>> {
        let head = self.heads.get(&(scan.queue, scan.lane))?;
        if head.rows.len() < scan.limit && !head.whole {
            return None;
        }
        Some(head.rows.iter().take(scan.limit).cloned().collect())
    }

    /// Keeps what the store answered to a scan for `limit` rows.
    pub fn fill(&mut self, scan: &LaneScan, rows: &[Found], limit: usize) {
        if rows.len() > HEAD_ROWS_MAX {
            return;
        }
        if self.rows + rows.len() > self.rows_max {
            // Whole and seldom: heads come back with the next visit to each queue.
            self.heads.clear();
            self.rows = 0;
        }
        let head = Head { rows: rows.to_vec(), whole: rows.len() < limit };
        self.rows += head.rows.len();
        if let Some(before) = self.heads.insert((scan.queue, scan.lane), head) {
            self.rows -= before.rows.len();
        }
    }

    /// Follows changes to queued rows.
    pub fn follow(&mut self, writes: &[Write]) {
        for write in writes {
            if let Write::Due(queue, turn, key, row) = write {
                match row {
                    Some(row) => self.put(*queue, *turn, key, row),
                    None => self.remove(*queue, *turn, key),
                }
            }
        }
    }

    fn put(&mut self, queue: QueueId, turn: Turn, key: &UrlKey, row: &DueRow) {
        let Some(head) = self.heads.get_mut(&(queue, turn.lane)) else { return };
        let at = head.rows.partition_point(|found| (found.turn, &found.key) < (turn, key));
        if at == head.rows.len() && !head.whole {
            return;
        }
        head.rows.insert(at, Found { turn, key: key.clone(), row: row.clone() });
        self.rows += 1;
        if head.rows.len() > HEAD_ROWS_MAX {
            head.rows.pop();
            head.whole = false;
            self.rows -= 1;
        }
    }

    fn remove(&mut self, queue: QueueId, turn: Turn, key: &UrlKey) {
        let Some(head) = self.heads.get_mut(&(queue, turn.lane)) else { return };
        if let Ok(at) = head.rows.binary_search_by(|found| (found.turn, &found.key).cmp(&(turn, key))) {
            head.rows.remove(at);
            self.rows -= 1;
        }
        if head.rows.is_empty() {
            self.heads.remove(&(queue, turn.lane));
        }
    }
}

#[cfg(test)]
mod tests {
    use wayleave_core::frontier::row::Details;
    use wayleave_core::ids::HostId;
    use wayleave_core::time::Time;

    use super::*;

    const QUEUE: QueueId = QueueId { host: HostId(1), no: 0 };

    fn found(due: u64) -> Found {
        let turn = Turn { lane: 4, due: Time(due) };
        let row = DueRow { created: Time(1), whole: None, details: Details::default() };
        Found { turn, key: UrlKey((*b"k").into()), row }
    }

    fn scan(limit: usize) -> LaneScan {
        LaneScan { queue: QUEUE, lane: 4, from: (Time(0), [].into()), limit }
    }

    fn put(due: u64) -> Write {
        let Found { turn, key, row } = found(due);
        Write::Due(QUEUE, turn, key, Some(row))
    }

    fn remove(due: u64) -> Write {
        let Found { turn, key, .. } = found(due);
        Write::Due(QUEUE, turn, key, None)
    }

    fn dues(heads: &Heads, limit: usize) -> Option<Vec<u64>> {
        heads.get(&scan(limit)).map(|rows| rows.iter().map(|f| f.turn.due.0).collect())
    }

    #[test]
    fn a_head_stays_the_first_rows_of_its_lane() {
        let mut heads = Heads::new(100);
        heads.fill(&scan(3), &[found(10), found(20), found(30)], 3);
        assert_eq!(dues(&heads, 4), None, "there may be more in the store");
        heads.follow(&[put(15), put(40), remove(10)]);
        assert_eq!(dues(&heads, 3), Some(vec![15, 20, 30]), "a row past the head stays in the store");
        heads.follow(&[remove(15), remove(20), remove(30)]);
        assert_eq!(dues(&heads, 1), None);
    }

    #[test]
    fn a_whole_lane_answers_every_scan() {
        let mut heads = Heads::new(100);
        heads.fill(&scan(9), &[found(10)], 9);
        heads.follow(&[put(50)]);
        assert_eq!(dues(&heads, 9), Some(vec![10, 50]));
    }
}
