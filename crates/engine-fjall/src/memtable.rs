//! Rows in memory, in the order of their keys, until they go to the database's tables. A newer value takes the place of an
//! older one, and a removed row stays as a mark that hides what the tables say. It knows nothing of locks, files or shards.

use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::ops::Bound;

use wayleave_engine::{Key, Value};

/// So many words of a key lie in the tree itself: the shard, the kind, the host, the queue, and what follows far enough to
/// tell most rows of one queue apart. Where that is not enough the rest is looked at, which lies elsewhere and is cold.
const HEAD_WORDS: usize = 4;
const HEAD_BYTES: usize = 8 * HEAD_WORDS;

/// What a row costs beside its bytes outside the tree: its place in a tree that is three quarters full, and what the
/// allocator rounds up.
const ROW_COST: usize = 88;

/// Set in the length of a row's key if the row was removed.
const GONE: u32 = 1 << 31;

/// A row, or the mark of a removed one.
#[derive(Debug)]
struct Row {
    head: [u64; HEAD_WORDS],
    /// The length of the whole key, and [`GONE`].
    key_len: u32,
    /// What of the key is not in the head, then the value: one allocation for both.
    body: Box<[u8]>,
}

/// A row as it is read: its key and its value, none if it was removed.
pub(crate) type Found = (Key, Option<Value>);

impl Row {
    fn new(key: &[u8], value: Option<&[u8]>) -> Self {
        let (start, tail) = key.split_at(key.len().min(HEAD_BYTES));
        let mut head = [0; HEAD_WORDS];
        for (word, bytes) in head.iter_mut().zip(start.chunks(8)) {
            let mut padded = [0; 8];
            padded.iter_mut().zip(bytes).for_each(|(to, from)| *to = *from);
            *word = u64::from_be_bytes(padded);
        }
        let mark = if value.is_some() { 0 } else { GONE };
        let value = value.unwrap_or_default();
        let mut body = Vec::with_capacity(tail.len() + value.len());
        body.extend_from_slice(tail);
        body.extend_from_slice(value);
        Self { head, key_len: key.len() as u32 | mark, body: body.into() }
    }

    fn key_len(&self) -> usize {
        (self.key_len & !GONE) as usize
    }

    fn parts(&self) -> (&[u8], &[u8]) {
        self.body.split_at(self.key_len().saturating_sub(HEAD_BYTES).min(self.body.len()))
    }

    fn value(&self) -> Option<&[u8]> {
        (self.key_len & GONE == 0).then(|| self.parts().1)
    }

    fn write_key(&self, key: &mut Vec<u8>) {
        key.clear();
        self.head.iter().for_each(|word| key.extend_from_slice(&word.to_be_bytes()));
        key.truncate(self.key_len());
        key.extend_from_slice(self.parts().0);
    }

    fn read(&self) -> Found {
        let mut key = Vec::with_capacity(self.key_len().max(HEAD_BYTES));
        self.write_key(&mut key);
        (key, self.value().map(<[u8]>::to_vec))
    }

    fn cost(&self) -> usize {
        ROW_COST + self.body.len()
    }
}

impl Ord for Row {
    fn cmp(&self, other: &Self) -> Ordering {
        // The length last: it tells a short key from one that goes on with zeros.
        let by_head = self.head.cmp(&other.head);
        by_head.then_with(|| self.parts().0.cmp(other.parts().0)).then_with(|| self.key_len().cmp(&other.key_len()))
    }
}

impl PartialOrd for Row {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Row {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Row {}

/// Rows in order.
#[derive(Debug, Default)]
pub(crate) struct Memtable {
    rows: BTreeSet<Row>,
    bytes: usize,
}

impl Memtable {
    /// Sets a row, or marks it as removed.
    pub(crate) fn put(&mut self, key: &[u8], value: Option<&[u8]>) {
        let row = Row::new(key, value);
        self.bytes += row.cost();
        if let Some(before) = self.rows.replace(row) {
            self.bytes -= before.cost();
        }
    }

    /// What is known of a row: nothing, that it was removed, or its value.
    pub(crate) fn get(&self, key: &[u8]) -> Option<Option<&[u8]>> {
        self.rows.get(&Row::new(key, None)).map(Row::value)
    }

    /// The rows from one key on, up to another one.
    pub(crate) fn range(&self, from: &[u8], to: &[u8]) -> impl Iterator<Item = Found> {
        let (from, to) = (Row::new(from, None), Row::new(to, None));
        let empty = from >= to;
        let range = (!empty).then(|| self.rows.range((Bound::Included(&from), Bound::Excluded(&to))));
        range.into_iter().flatten().map(Row::read)
    }

    /// Gives every row to `take`, its value or none if it was removed.
    ///
    /// # Errors
    /// The first one of `take`.
    pub(crate) fn each<E>(&self, mut take: impl FnMut(&[u8], Option<&[u8]>) -> Result<(), E>) -> Result<(), E> {
        let mut key = Vec::new();
        for row in &self.rows {
            row.write_key(&mut key);
            take(&key, row.value())?;
        }
        Ok(())
    }

    /// About how much memory the rows take.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    proptest::proptest! {
        #[test]
        fn it_holds_what_a_plain_map_holds_in_the_same_order(
            writes in proptest::collection::vec((key(), proptest::option::of("[a-z]{0,5}")), 0..200),
            (from, to) in (key(), key()),
        ) {
            let (mut table, mut model) = (Memtable::default(), BTreeMap::new());
            for (key, value) in &writes {
                table.put(key, value.as_ref().map(|text| text.as_bytes()));
                model.insert(key.clone(), value.as_ref().map(|text| text.as_bytes().to_vec()));
            }
            let all: Vec<Found> = model.clone().into_iter().collect();
            let mut each = Vec::new();
            table.each(|key, value| { each.push((key.to_vec(), value.map(<[u8]>::to_vec))); Ok::<_, ()>(()) }).unwrap();
            proptest::prop_assert_eq!(each, all);
            let part: Vec<Found> = model.iter().filter(|(k, _)| **k >= from && **k < to).map(|(k, v)| (k.clone(), v.clone())).collect();
            proptest::prop_assert_eq!(table.range(&from, &to).collect::<Vec<_>>(), part);
            proptest::prop_assert_eq!(table.get(&from), model.get(&from).map(Option::as_deref));
        }
    }

    /// Short keys and keys around the length of a head, with zeros at the edges.
    fn key() -> impl proptest::strategy::Strategy<Value = Vec<u8>> {
        use proptest::strategy::Strategy;
        let zeros = proptest::sample::select(vec![0, HEAD_BYTES - 12]);
        let rest = proptest::collection::vec(proptest::sample::select(vec![0u8, 0, 0, 1, 255]), 0..20);
        (zeros, rest).prop_map(|(zeros, rest)| [vec![0; zeros], rest].concat())
    }

    #[test]
    fn a_newer_value_takes_the_memory_of_the_older_one() {
        let mut table = Memtable::default();
        table.put(b"key", Some(&[7; 1_000]));
        let full = table.bytes();
        table.put(b"key", Some(&[8; 1_000]));
        assert_eq!(table.bytes(), full);
        table.put(b"key", None);
        assert_eq!((table.bytes(), table.get(b"key")), (ROW_COST, Some(None)));
    }
}
