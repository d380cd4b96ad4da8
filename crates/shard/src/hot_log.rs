//! The hot log: hot rows go to the store packed, one row a commit, and are written out one by one when the log has
//! grown. Opening a shard reads the rows that were written out and then what the log says since.

use std::collections::BTreeMap;

use hashbrown::HashMap;
use wayleave_core::frontier::row::HotRow;
use wayleave_core::ids::ShardId;
use wayleave_core::limits::SLICE_ROWS;
use wayleave_engine::rows::{hot, log};
use wayleave_engine::{Key, Value, Write};

/// The log of one shard.
pub(crate) struct HotLog {
    shard: ShardId,
    bytes_max: usize,
    bytes: usize,
    /// The first and the last commit in the log that is not yet written out.
    span: Option<(u64, u64)>,
    /// The newest value of every row in it; sorted only when it is written out, once for many changes.
    rows: HashMap<Key, Option<Value>>,
    writing: Option<WritingOut>,
}

/// A writing out under way.
struct WritingOut {
    rows: std::vec::IntoIter<(Key, Option<Value>)>,
    next: u64,
    last: u64,
}

impl HotLog {
    /// The log as it was found at open: commits `span` lie in it, and `rows` is what they say.
    pub fn new(shard: ShardId, bytes_max: usize, span: Option<(u64, u64)>, rows: BTreeMap<Key, Option<Value>>) -> Self {
        Self { shard, bytes_max, bytes: 0, span, rows: rows.into_iter().collect(), writing: None }
    }

    /// The log row of a commit.
    pub fn add(&mut self, seq: u64, changes: &[HotRow]) -> Option<Write> {
        if changes.is_empty() {
            return None;
        }
        let writes: Vec<Write> = changes.iter().map(|row| hot::encode(self.shard, row)).collect();
        let value = log::encode(&writes);
        self.bytes += value.len();
        self.span = Some((self.span.map_or(seq, |(first, _)| first), seq));
        self.rows.extend(writes.into_iter().map(|write| (write.key, write.value)));
        Some(Write { key: log::key(self.shard, seq), value: Some(value) })
    }

    /// The next slice of writing out, if it is time: rows first, and only then the log rows that they stand for.
    pub fn next_slice(&mut self) -> Vec<Write> {
        if self.writing.is_none() && self.bytes >= self.bytes_max {
            self.begin();
        }
        let Some(writing) = &mut self.writing else { return Vec::new() };
        let rows = writing.rows.by_ref().take(SLICE_ROWS);
        let mut slice: Vec<Write> = rows.map(|(key, value)| Write { key, value }).collect();
        while slice.len() < SLICE_ROWS && writing.next <= writing.last {
            slice.push(Write { key: log::key(self.shard, writing.next), value: None });
            writing.next += 1;
        }
        if writing.next > writing.last {
            self.writing = None;
        }
        slice
    }

    /// Starts to write out all that is in the log now.
    pub fn begin(&mut self) {
        let Some((next, last)) = self.span.take() else { return };
        self.bytes = 0;
        let mut rows: Vec<_> = std::mem::take(&mut self.rows).into_iter().collect();
        rows.sort_unstable_by(|a, b| a.0.cmp(&b.0));
        self.writing = Some(WritingOut { rows: rows.into_iter(), next, last });
    }

    /// Whether a writing out is under way.
    pub fn is_writing(&self) -> bool {
        self.writing.is_some()
    }
}

#[cfg(test)]
mod tests {
    use wayleave_core::frontier::row::ShardRow;
    use wayleave_engine::rows::{Kind, key};

    use super::*;

    #[test]
    fn rows_are_written_before_their_log_is_cut() {
        let shard = ShardId(2);
        let mut log = HotLog::new(shard, 1, None, BTreeMap::new());
        for seq in 7..10 {
            let row = ShardRow { next_host: seq, ..ShardRow::default() };
            assert!(log.add(seq, &[HotRow::Shard(row)]).is_some());
        }
        let slice = log.next_slice();
        let kinds: Vec<(u8, bool)> = slice.iter().map(|w| (w.key[2], w.value.is_some())).collect();
        let (hot, cut) = ((Kind::Shard as u8, true), (Kind::Log as u8, false));
        assert_eq!(kinds, [hot, cut, cut, cut]);
        assert_eq!(slice[0].key, key::start(shard, Kind::Shard, 0));
        assert!(!log.is_writing() && log.next_slice().is_empty());
    }
}
