//! The overlay: writes of accepted batches that are not durable yet, by key.
//!
//! The database shows a batch only once it is committed, but the contract makes it visible to reads as soon as it was
//! accepted. So a read looks here first, asks the database second, and lets the overlay win. That order is correct:
//!
//! - A batch still in flight is found here; the database has an older value or none.
//! - A batch that commits in between was found here, and the database now says the same.
//! - A batch that left the overlay before the lookup was durable by then, so the database, asked later, has it. (In the
//!   reverse order, a batch could be missed in both places.)
//! - A batch that was accepted after the lookup might be seen in part: keys that an older batch in flight wrote come
//!   from here with their older values, the others from the database. So a read then checks whether such a batch has
//!   arrived (by shard, which is what callers read), and if so starts over.
//!
//! An entry is removed only by its own batch; of several for one key the last is the newest.

use std::collections::{BTreeMap, HashMap};
use std::ops::Bound;
use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use wayleave_engine::{Key, Scan};

use crate::pending_batch::{PendingBatch, shard_of};

/// A value in flight; `None` is a deletion.
pub(crate) type InFlight = Option<Bytes>;

/// The writes in flight.
#[derive(Default)]
pub(crate) struct Overlay(Mutex<State>);

#[derive(Default)]
struct State {
    rows: BTreeMap<Bytes, Vec<(u64, InFlight)>>,
    /// The number of batches that have arrived, per shard and in total.
    came: HashMap<u16, u64>,
    came_in_all: u64,
}

/// The number of batches that had arrived when a read began: if it is unchanged at the end, the read saw each batch
/// entirely or not at all.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Stamp(Vec<u64>);

impl Overlay {
    /// Makes a batch visible. Batches must be added in commit order.
    pub(crate) fn add(&self, pending: &PendingBatch) {
        let mut state = self.lock();
        for (key, value) in &pending.writes {
            state.rows.entry(key.clone()).or_default().push((pending.number, value.clone()));
        }
        state.came_in_all += 1;
        for shard in &pending.shards {
            *state.came.entry(*shard).or_default() += 1;
        }
    }

    /// Removes a batch that is durable or refused.
    pub(crate) fn remove(&self, pending: &PendingBatch) {
        let mut state = self.lock();
        for (key, _) in &pending.writes {
            if let Some(entries) = state.rows.get_mut(key) {
                entries.retain(|(number, _)| *number != pending.number);
                if entries.is_empty() {
                    state.rows.remove(key);
                }
            }
        }
    }

    /// The in-flight values of keys.
    pub(crate) fn get(&self, keys: &[Key]) -> (Vec<Option<InFlight>>, Stamp) {
        let state = self.lock();
        let found = keys.iter().map(|key| state.newest(state.rows.get(key.as_slice()))).collect();
        (found, state.stamp_of_keys(keys))
    }

    /// The in-flight rows in the range of each scan, in key order.
    pub(crate) fn scan(&self, scans: &[Scan]) -> (Vec<Vec<(Bytes, InFlight)>>, Stamp) {
        let state = self.lock();
        let found = scans.iter().map(|scan| state.range(scan)).collect();
        (found, state.stamp_of_scans(scans))
    }

    /// The current stamp for a read of keys.
    pub(crate) fn stamp_of_keys(&self, keys: &[Key]) -> Stamp {
        self.lock().stamp_of_keys(keys)
    }

    /// The current stamp for a read of ranges.
    pub(crate) fn stamp_of_scans(&self, scans: &[Scan]) -> Stamp {
        self.lock().stamp_of_scans(scans)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn newest(&self, entries: Option<&Vec<(u64, InFlight)>>) -> Option<InFlight> {
        entries.and_then(|entries| entries.last()).map(|(_, value)| value.clone())
    }

    fn range(&self, scan: &Scan) -> Vec<(Bytes, InFlight)> {
        if scan.from >= scan.to || self.rows.is_empty() {
            return Vec::new();
        }
        let range = self.rows.range::<[u8], _>((Bound::Included(&scan.from[..]), Bound::Excluded(&scan.to[..])));
        range.filter_map(|(key, entries)| Some((key.clone(), entries.last()?.1.clone()))).collect()
    }

    fn came(&self, shard: u16) -> u64 {
        self.came.get(&shard).copied().unwrap_or(0)
    }

    fn stamp_of_keys(&self, keys: &[Key]) -> Stamp {
        let mut last = None;
        let mut stamp = Vec::new();
        for shard in keys.iter().map(|key| shard_of(key)) {
            if last.replace(shard) != Some(shard) {
                stamp.push(self.came(shard));
            }
        }
        Stamp(stamp)
    }

    fn stamp_of_scans(&self, scans: &[Scan]) -> Stamp {
        let stamp = scans.iter().map(|scan| match (shard_of(&scan.from), shard_of(&scan.to)) {
            // A range within a shard ends at the start of the next shard at most.
            (from, to) if from == to || (from.checked_add(1) == Some(to) && scan.to.len() <= 2) => self.came(from),
            _ => self.came_in_all,
        });
        Stamp(stamp.collect())
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::oneshot;
    use wayleave_engine::suite::harness::{all, batch, delete, key, put};

    use super::*;

    fn pending(number: u64, writes: impl IntoIterator<Item = wayleave_engine::Write>) -> PendingBatch {
        let mut pending = PendingBatch::new(batch(writes), oneshot::channel().0).unwrap();
        pending.number = number;
        pending
    }

    #[test]
    fn the_newest_wins_whichever_leaves_first() {
        let (overlay, keys) = (Overlay::default(), [key(1, "a")]);
        let [first, second] = [pending(1, [put(1, "a", "1")]), pending(2, [delete(1, "a")])];
        overlay.add(&first);
        overlay.add(&second);
        assert_eq!(overlay.get(&keys).0, [Some(None)]);
        overlay.remove(&first);
        assert_eq!(overlay.get(&keys).0, [Some(None)]);
        overlay.add(&first);
        overlay.remove(&second);
        assert_eq!(overlay.get(&keys).0, [Some(Some(Bytes::from_static(b"1")))]);
        overlay.remove(&first);
        overlay.remove(&first);
        assert_eq!(overlay.get(&keys).0, [None]);
    }

    #[test]
    fn a_read_learns_that_a_batch_came_to_its_shard_and_not_to_another() {
        let overlay = Overlay::default();
        let (keys, scans) = ([key(1, "a"), key(1, "b")], [all(1)]);
        let whole = [Scan { from: vec![0], to: vec![9], limit: 1 }];
        let before = (overlay.get(&keys).1, overlay.scan(&scans).1, overlay.scan(&whole).1);
        overlay.add(&pending(1, [put(2, "a", "1")]));
        assert_eq!(overlay.stamp_of_keys(&keys), before.0);
        assert_eq!(overlay.stamp_of_scans(&scans), before.1);
        assert_ne!(overlay.stamp_of_scans(&whole), before.2);
        overlay.add(&pending(2, [put(1, "z", "1")]));
        assert_ne!(overlay.stamp_of_keys(&keys), before.0);
        assert_ne!(overlay.stamp_of_scans(&scans), before.1);
    }
}
