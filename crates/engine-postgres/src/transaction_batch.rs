//! Merges batches into one transaction.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;

use crate::pending_batch::{BatchKind, Move, PendingBatch, last_of_each};

/// Above this many rows a larger transaction no longer pays.
pub(crate) const ROWS: usize = 1_000;
/// The same in bytes.
pub(crate) const BYTES: usize = 1 << 20;

/// Collects batches that can share a transaction.
#[derive(Default)]
pub(crate) struct Gathering {
    pub(crate) batches: Vec<Arc<PendingBatch>>,
    moves: BTreeMap<u16, Move>,
    expects: BTreeMap<Bytes, Option<Bytes>>,
    rows: usize,
    bytes: usize,
}

impl Gathering {
    /// Whether a batch is of the same kind as the collected ones.
    pub(crate) fn is_same_kind(&self, pending: &PendingBatch) -> bool {
        self.batches.first().is_none_or(|first| first.kind == pending.kind)
    }

    /// Whether a batch can join the collected ones.
    pub(crate) fn fits(&self, pending: &PendingBatch) -> bool {
        if self.batches.is_empty() {
            return true;
        }
        let room = self.rows + pending.writes.len() <= ROWS && self.bytes + pending.bytes <= BYTES;
        room && self.follows(pending) && self.agrees(pending)
    }

    /// Adds a batch that fits.
    pub(crate) fn take(&mut self, pending: Arc<PendingBatch>) {
        for step in pending.moves.iter().flatten() {
            self.moves.entry(step.shard).or_insert(*step).next = step.next;
        }
        self.expects.extend(pending.expects.iter().cloned());
        self.rows += pending.writes.len();
        self.bytes += pending.bytes;
        self.batches.push(pending);
    }

    /// Whether its fences continue the collected ones. Fences that can never hold must not fail a whole transaction.
    fn follows(&self, pending: &PendingBatch) -> bool {
        let alone = |other: &Arc<PendingBatch>| other.moves.is_none();
        let Some(moves) = &pending.moves else { return false };
        !self.batches.first().is_some_and(alone)
            && moves.iter().all(|step| {
                self.moves.get(&step.shard).is_none_or(|last| last.epoch == step.epoch && last.next == step.prev)
            })
    }

    /// Conditions are checked before anything is written, so they must not concern rows that an earlier batch of the
    /// same transaction writes.
    fn agrees(&self, pending: &PendingBatch) -> bool {
        pending
            .expects
            .iter()
            .all(|(key, value)| !self.writes(key) && self.expects.get(key).is_none_or(|before| before == value))
    }
}

impl Gathering {
    fn writes(&self, key: &Bytes) -> bool {
        self.batches.iter().any(|pending| pending.writes.binary_search_by(|(written, _)| written.cmp(key)).is_ok())
    }
}

/// One transaction.
#[derive(Clone, Default)]
pub(crate) struct TransactionBatch {
    /// By shard.
    pub(crate) moves: Vec<Move>,
    /// Rows that must exist with a value, by key.
    pub(crate) present: Vec<(Bytes, Bytes)>,
    /// Rows that must be absent, by key.
    pub(crate) absent: Vec<Bytes>,
    /// By key.
    pub(crate) puts: Vec<(Bytes, Bytes)>,
    /// Whether it concerns node leases and seats, which have connections of their own.
    pub(crate) about_nodes: bool,
    /// By key. Includes placeholders for absent rows that are not written.
    pub(crate) deletes: Vec<Bytes>,
}

impl TransactionBatch {
    /// One transaction of batches that fit together; `None` if their fences can never hold.
    pub(crate) fn merge(batches: &[Arc<PendingBatch>]) -> Option<Self> {
        let mut moves: BTreeMap<u16, Move> = BTreeMap::new();
        let mut expects = BTreeMap::new();
        for pending in batches {
            for step in pending.moves.as_ref()? {
                moves.entry(step.shard).or_insert(*step).next = step.next;
            }
            expects.extend(pending.expects.iter().cloned());
        }
        let writes = last_of_each(batches.iter().flat_map(|pending| pending.writes.iter().cloned()).collect());
        let mut group = Self::of_expects(expects);
        group.moves = moves.into_values().collect();
        group.about_nodes = batches.iter().any(|pending| pending.kind == BatchKind::Nodes);
        for (key, value) in writes {
            match value {
                Some(value) => group.puts.push((key, value)),
                None => group.deletes.push(key),
            }
        }
        group.give_places_back();
        Some(group)
    }

    /// A transaction that only checks conditions, in key order.
    pub(crate) fn of_expects(expects: impl IntoIterator<Item = (Bytes, Option<Bytes>)>) -> Self {
        let mut group = Self::default();
        for (key, value) in expects {
            match value {
                Some(value) => group.present.push((key, value)),
                None => group.absent.push(key),
            }
        }
        group.give_places_back();
        group
    }

    /// Deletes the placeholders of absent rows that no batch writes.
    fn give_places_back(&mut self) {
        self.deletes.extend(self.absent.iter().cloned());
        self.deletes.sort_unstable();
        self.deletes.dedup();
        let puts = &self.puts;
        self.deletes.retain(|key| puts.binary_search_by(|(put, _)| put.cmp(key)).is_err());
    }

    /// Whether it has no statement.
    pub(crate) fn is_empty(&self) -> bool {
        self.moves.is_empty()
            && self.present.is_empty()
            && self.absent.is_empty()
            && self.puts.is_empty()
            && self.deletes.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::oneshot;
    use wayleave_core::ids::Epoch;
    use wayleave_engine::suite::harness::{batch, delete, fenced, key, put};
    use wayleave_engine::{Batch, Write};

    use super::*;

    fn pending(batch: Batch) -> Arc<PendingBatch> {
        Arc::new(PendingBatch::new(batch, oneshot::channel().0).unwrap())
    }

    fn expecting(name: &str, value: Option<&str>, writes: impl IntoIterator<Item = Write>) -> Arc<PendingBatch> {
        pending(Batch { expects: vec![(key(1, name), value.map(|value| value.as_bytes().to_vec()))], ..batch(writes) })
    }

    fn fit(first: &Arc<PendingBatch>, second: &Arc<PendingBatch>) -> bool {
        let mut gathering = Gathering::default();
        assert!(gathering.fits(first), "the first always fits");
        gathering.take(Arc::clone(first));
        gathering.fits(second)
    }

    #[test]
    fn fences_fit_if_they_follow_each_other() {
        let fence = |epoch, seq| pending(fenced([(1, Epoch(epoch), seq)], []));
        assert!(fit(&fence(1, 7), &fence(1, 8)));
        assert!(fit(&fence(1, 7), &pending(fenced([(2, Epoch(9), 3)], []))));
        assert!(!fit(&fence(1, 7), &fence(1, 9)));
        assert!(!fit(&fence(1, 7), &fence(2, 8)));
        // Fences that can never hold go alone: epoch 0, sequence number 0, a gap.
        for hopeless in [fence(0, 1), fence(1, 0), pending(fenced([(1, Epoch(1), 1), (1, Epoch(1), 3)], []))] {
            assert!(hopeless.moves.is_none());
            assert!(!fit(&fence(1, 7), &hopeless) && !fit(&hopeless, &pending(batch([]))));
        }
    }

    #[test]
    fn expectations_fit_unless_they_are_about_what_is_yet_to_be_written() {
        let write = pending(batch([put(1, "a", "1")]));
        assert!(!fit(&write, &expecting("a", Some("1"), [])));
        assert!(fit(&write, &expecting("b", None, [])));
        assert!(fit(&expecting("a", None, []), &write));
        assert!(fit(&expecting("a", None, []), &expecting("a", None, [])));
        assert!(!fit(&expecting("a", None, []), &expecting("a", Some("1"), [])));
    }

    #[test]
    fn a_group_has_an_end_but_takes_one_batch_of_any_size() {
        let rows = |count: usize| pending(batch((0..count).map(|row| put(1, &row.to_string(), "1"))));
        assert!(fit(&rows(ROWS - 1), &rows(1)));
        assert!(!fit(&rows(ROWS), &rows(1)));
        assert!(!fit(&rows(1), &pending(batch([put(1, "large", &"x".repeat(BYTES))]))));
    }

    #[test]
    fn the_place_of_an_absent_row_is_given_back_unless_it_is_written() {
        let absent = |name| expecting(name, None, [put(1, "w", "1"), delete(1, "d")]);
        let names = |keys: &[Bytes]| keys.iter().map(|key| key.slice(3..)).collect::<Vec<_>>();
        for (name, deleted) in [("a", vec!["a", "d"]), ("w", vec!["d"]), ("d", vec!["d"])] {
            let group = TransactionBatch::merge(&[absent(name)]).unwrap();
            assert_eq!(names(&group.deletes), deleted, "{name}");
            assert_eq!(names(&group.absent), [name]);
        }
    }

    #[test]
    fn the_last_write_of_a_key_counts_and_fences_move_to_the_last_number() {
        let first = pending(fenced([(1, Epoch(4), 7)], [put(1, "b", "1"), put(1, "a", "1")]));
        let second = pending(fenced([(1, Epoch(4), 8)], [delete(1, "a"), put(1, "b", "2")]));
        let group = TransactionBatch::merge(&[first, second]).unwrap();
        assert_eq!(group.moves, [Move { shard: 1, epoch: 4, prev: 6, next: 8 }]);
        assert_eq!((group.puts.len(), &group.puts[0].1[..], group.deletes.len()), (1, b"2".as_slice(), 1));
    }
}
