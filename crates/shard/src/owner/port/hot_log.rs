//! The hot log: a write-ahead log of hot rows. All hot rows that a commit changes are packed into one log row; when the
//! log has grown, the rows are checkpointed one by one and the log is truncated. Opening a shard reads the checkpointed
//! rows, then replays the log.

use std::collections::BTreeMap;

use wayleave_core::frontier::row::{HostPart, HostRow, HotRow};
use wayleave_core::frontier::{Changes, State};
use wayleave_core::ids::{HostId, ShardId};
use wayleave_core::limits::{DELETED_LOGGED_MAX, SLICE_ROWS};
use wayleave_core::time::Time;
use wayleave_engine::rows::{hot, log};
use wayleave_engine::{Key, Value, Write};

/// The hot log of one shard.
pub(crate) struct HotLog {
    shard: ShardId,
    bytes_max: usize,
    bytes: usize,
    /// The first and last commit in the log that are not checkpointed yet.
    span: Option<(u64, u64)>,
    /// The hosts in the log, once per commit that changed them. A checkpoint writes their current state, not the logged
    /// one: any later commit in the log says the same or more.
    hosts: Vec<HostId>,
    /// The newest value of every other row in the log.
    others: BTreeMap<Key, Option<Value>>,
    /// Whether rows in the log are gone, which are still in the store.
    has_gone: bool,
    /// When they must be gone from the store as well.
    cut_at: Option<Time>,
    writing: Option<WritingOut>,
}

/// A checkpoint in progress.
struct WritingOut {
    hosts: std::vec::IntoIter<HostId>,
    others: std::collections::btree_map::IntoIter<Key, Option<Value>>,
    next: u64,
    last: u64,
}

impl HotLog {
    /// An empty log.
    pub fn new(shard: ShardId, bytes_max: usize) -> Self {
        Self {
            shard,
            bytes_max,
            bytes: 0,
            span: None,
            hosts: Vec::new(),
            others: BTreeMap::new(),
            has_gone: false,
            cut_at: None,
            writing: None,
        }
    }

    /// Registers a log row found at open. Its size counts towards the next checkpoint: otherwise the log of a process
    /// that restarts often would grow without bound.
    pub fn found(&mut self, seq: u64, bytes: usize) {
        self.bytes += bytes;
        self.reach(seq);
    }

    /// Extends the log to this commit.
    fn reach(&mut self, seq: u64) {
        self.span = Some((self.span.map_or(seq, |(first, _)| first), seq));
    }

    /// Registers one change of a log row found at open.
    pub fn found_change(&mut self, change: &log::Change) {
        match change {
            log::Change::Part(HostPart { id, .. }) | log::Change::Row(HotRow::Host(HostRow { id, .. })) => {
                self.hosts.push(*id);
            }
            log::Change::Row(row) => self.note(hot::encode(self.shard, row)),
        }
    }

    fn note(&mut self, write: Write) {
        self.has_gone |= write.value.is_none();
        self.others.insert(write.key, write.value);
    }

    /// Builds the log row of a commit.
    pub fn add(&mut self, seq: u64, changes: &Changes, state: &State) -> Option<Write> {
        if changes.is_empty() {
            return None;
        }
        let mut pack = log::Pack::default();
        for row in &changes.rows {
            let write = hot::encode(self.shard, row);
            pack.add(&write);
            self.note(write);
        }
        for host in state.changed_hosts(changes) {
            pack.add_host(self.shard, host);
            self.hosts.push(host.id());
        }
        let value = pack.into_value();
        self.bytes += value.len();
        self.reach(seq);
        Some(Write { key: log::key(self.shard, seq), value: Some(value) })
    }

    /// The next slice of a checkpoint, if one is due: rows first, then the deletion of the log rows that they replace. What was
    /// deleted does not wait until the log has grown: it must not stay in the store.
    pub fn next_slice(&mut self, state: &State, now: Time) -> Vec<Write> {
        if self.has_gone && self.cut_at.is_none() {
            self.cut_at = Some(now.after(DELETED_LOGGED_MAX));
        }
        if self.writing.is_none() && (self.bytes >= self.bytes_max || self.cut_at.is_some_and(|at| at <= now)) {
            self.begin();
        }
        let Some(writing) = &mut self.writing else { return Vec::new() };
        let others = writing.others.by_ref().take(SLICE_ROWS).map(|(key, value)| Write { key, value });
        let mut slice: Vec<Write> = others.collect();
        // A host that no longer exists is removed by a later commit.
        let hosts = writing.hosts.by_ref().take(SLICE_ROWS - slice.len());
        slice.extend(hosts.filter_map(|id| state.host_by_id(id)).map(|host| hot::encode_host(self.shard, host)));
        let cut = writing.next;
        while slice.len() < SLICE_ROWS && writing.hosts.len() == 0 && writing.next <= writing.last {
            slice.push(Write { key: log::key(self.shard, writing.next), value: None });
            writing.next += 1;
        }
        if writing.next > cut {
            slice.push(log::begin(self.shard, writing.next));
        }
        if writing.next > writing.last {
            self.writing = None;
        }
        slice
    }

    /// Starts a checkpoint of everything in the log.
    pub fn begin(&mut self) {
        let Some((next, last)) = self.span.take() else { return };
        (self.bytes, self.has_gone, self.cut_at) = (0, false, None);
        let mut hosts = std::mem::take(&mut self.hosts);
        hosts.sort_unstable();
        hosts.dedup();
        let others = std::mem::take(&mut self.others).into_iter();
        self.writing = Some(WritingOut { hosts: hosts.into_iter(), others, next, last });
    }

    /// When a checkpoint is due even if the log does not grow.
    pub fn due(&self) -> Option<Time> {
        self.cut_at
    }

    /// Whether a checkpoint is in progress.
    pub fn is_writing(&self) -> bool {
        self.writing.is_some()
    }
}

#[cfg(test)]
mod tests {
    use wayleave_core::time::Millis;
    use wayleave_engine::rows::Kind;

    use super::*;

    /// Changes for a commit: a new host, and the shard's own row.
    fn change(state: &mut State, host: &str) -> Changes {
        state.set_default_delay(Some(Millis(7)), Time(1));
        state.set_host(&host.into(), &Default::default(), false, Some(Time(5)), Time(1)).unwrap();
        state.take_changes()
    }

    #[test]
    fn rows_are_written_before_their_log_is_cut() {
        let shard = ShardId(2);
        let mut state = State::new(shard);
        let mut log = HotLog::new(shard, 1);
        for (seq, host) in [(7, "a"), (8, "b"), (9, "b")] {
            let changes = change(&mut state, host);
            assert!(log.add(seq, &changes, &state).is_some());
        }
        let slice = log.next_slice(&state, Time(1));
        let kinds: Vec<(u8, bool)> = slice.iter().map(|w| (w.key[2], w.value.is_some())).collect();
        let (shard_row, host) = ((Kind::Shard as u8, true), (Kind::Host as u8, true));
        let cut = (Kind::Log as u8, false);
        assert_eq!(kinds, [shard_row, host, host, cut, cut, cut, (Kind::Log as u8, true)]);
        assert_eq!(log::decode_begin(slice[6].value.as_ref().unwrap()), Ok(10), "reading begins behind them");
        assert!(!log.is_writing() && log.next_slice(&state, Time(1)).is_empty());
    }

    #[test]
    fn what_is_found_at_open_counts_towards_the_limit() {
        let (shard, mut state) = (ShardId(2), State::new(ShardId(2)));
        let mut log = HotLog::new(shard, 1_000);
        log.found(7, 600);
        log.found(8, 300);
        assert!(log.next_slice(&state, Time(1)).is_empty(), "900 bytes are not enough");
        let changes = change(&mut state, "a");
        assert!(log.add(9, &changes, &state).is_some());
        log.found(10, 100);
        let slice = log.next_slice(&state, Time(1));
        let cut = slice.iter().filter(|write| write.key[2] == Kind::Log as u8 && write.value.is_none()).count();
        assert_eq!(cut, 4, "the log is written out and cut from its first row on");
    }
}
