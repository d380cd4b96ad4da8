//! The memtable: rows in key order, until a flush writes them to a table. A newer value replaces an older one, and a
//! tombstone hides a row in the tables. It knows nothing about locks, files or shards.
//!
//! The memtable is a trie of B-trees that compares keys in steps of [`STEP`] bytes. The first step covers the shard,
//! kind, host and queue, and enough of the rest to distinguish most rows of a queue. Only keys that share a step go to
//! a nested level, which compares the next one. So a search reads only steps, which are stored together; the rest of
//! the key and the value are in an arena that is freed as a whole.

use std::collections::BTreeMap;
use std::collections::btree_map::{Entry as Slot, Range};
use std::ops::Bound;

use wayleave_engine::{Key, Value};

use crate::arena::{Arena, Span};

const WORDS: usize = 4;
/// The number of key bytes that one level compares.
const STEP: usize = 8 * WORDS;

/// The memory of a row besides its bytes in the arena: its slot in a B-tree that is three quarters full.
const ROW_COST: usize = 90;
/// The memory of a level besides its rows: most have few, and the smallest B-tree node has room for eleven.
const LEVEL_COST: usize = 640;

/// A step of a key as integers, which compare faster than bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Step {
    words: [u64; WORDS],
    /// The number of key bytes left at this step; one more than a step holds if the key continues. Compared last: it
    /// distinguishes a key that ends from one that continues with zeros.
    left: u8,
}

/// A row or a tombstone.
#[derive(Clone, Copy, Debug)]
struct Row {
    /// The rest of the key, then the value.
    span: Span,
    /// The length of the rest of the key.
    tail: u32,
    gone: bool,
}

#[derive(Clone, Copy, Debug)]
enum Entry {
    Row(Row),
    /// The index of the level with the rows that share this step.
    Level(u32),
}

type Level = BTreeMap<Step, Entry>;

/// A row as it is read: its key and its value, or `None` for a tombstone.
pub(crate) type Found = (Key, Option<Value>);

impl Step {
    /// Splits a key into its first step and the rest.
    fn first(key: &[u8]) -> (Self, &[u8]) {
        let (start, tail) = key.split_at(key.len().min(STEP));
        let mut padded = [0; STEP];
        padded.iter_mut().zip(start).for_each(|(to, from)| *to = *from);
        let mut words = [0; WORDS];
        for (word, bytes) in words.iter_mut().zip(padded.as_chunks::<8>().0) {
            *word = u64::from_be_bytes(*bytes);
        }
        (Self { words, left: key.len().min(STEP + 1) as u8 }, tail)
    }

    fn write(&self, key: &mut Vec<u8>) {
        let end = key.len() + usize::from(self.left).min(STEP);
        self.words.iter().for_each(|word| key.extend_from_slice(&word.to_be_bytes()));
        key.truncate(end);
    }
}

impl Row {
    /// The same row one level down, with its step there.
    fn deeper(self, arena: &Arena) -> (Step, Self) {
        let (step, tail) = Step::first(arena.get(self.span.first(self.tail as usize)));
        let span = self.span.without_first(self.tail as usize - tail.len());
        (step, Self { span, tail: tail.len() as u32, ..self })
    }

    fn parts<'a>(&self, arena: &'a Arena) -> (&'a [u8], Option<&'a [u8]>) {
        let bytes = arena.get(self.span);
        let (tail, value) = bytes.split_at(bytes.len().min(self.tail as usize));
        (tail, (!self.gone).then_some(value))
    }
}

/// The memtable.
#[derive(Debug, Default)]
pub(crate) struct Memtable {
    /// The first is the root.
    levels: Vec<Level>,
    arena: Arena,
    bytes: usize,
}

impl Memtable {
    /// Puts a row, or a tombstone.
    pub(crate) fn put(&mut self, key: &[u8], value: Option<&[u8]>) {
        if self.levels.is_empty() {
            self.levels.push(Level::new());
        }
        let (mut level, mut rest) = (0, key);
        loop {
            let fresh = self.levels.len();
            let Some(rows) = self.levels.get_mut(level) else { return };
            let (step, tail) = Step::first(rest);
            let entry = match rows.entry(step) {
                Slot::Vacant(place) => {
                    let span = self.arena.add(tail, value.unwrap_or_default());
                    place.insert(Entry::Row(Row { span, tail: tail.len() as u32, gone: value.is_none() }));
                    self.bytes += ROW_COST + span.len();
                    return;
                }
                Slot::Occupied(place) => place.into_mut(),
            };
            rest = tail;
            level = match entry {
                Entry::Level(next) => *next as usize,
                Entry::Row(row) if row.parts(&self.arena).0 == tail => {
                    self.bytes += replace(&mut self.arena, row, tail, value);
                    return;
                }
                Entry::Row(row) => {
                    let (step, row) = row.deeper(&self.arena);
                    *entry = Entry::Level(fresh as u32);
                    self.levels.push(Level::from([(step, Entry::Row(row))]));
                    self.bytes += LEVEL_COST;
                    fresh
                }
            };
        }
    }

    /// Looks up a row: `None` if unknown, `Some(None)` for a tombstone.
    pub(crate) fn get(&self, key: &[u8]) -> Option<Option<&[u8]>> {
        let (mut rows, mut rest) = (self.levels.first()?, key);
        loop {
            let (step, tail) = Step::first(rest);
            match rows.get(&step)? {
                Entry::Row(row) => {
                    let (of_row, value) = row.parts(&self.arena);
                    return (of_row == tail).then_some(value);
                }
                Entry::Level(next) => (rows, rest) = (self.levels.get(*next as usize)?, tail),
            }
        }
    }

    /// The rows of a key range, end exclusive.
    pub(crate) fn range(&self, from: &[u8], to: &[u8]) -> impl Iterator<Item = Found> {
        let mut cursor = Cursor::at(self, from);
        std::iter::from_fn(move || {
            loop {
                let (key, value) = cursor.next()?;
                if key >= to {
                    return None;
                }
                // The first row may share all its steps with `from` and yet precede it.
                if key >= from {
                    return Some((key.to_vec(), value.map(<[u8]>::to_vec)));
                }
            }
        })
    }

    /// Passes every row to `take`, with `None` as the value of a tombstone. Fails with the first error of `take`.
    pub(crate) fn each<E>(&self, mut take: impl FnMut(&[u8], Option<&[u8]>) -> Result<(), E>) -> Result<(), E> {
        let mut cursor = Cursor::at(self, &[]);
        while let Some((key, value)) = cursor.next() {
            take(key, value)?;
        }
        Ok(())
    }

    /// The approximate memory usage.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }
}

/// Replaces a row's value, in place if it fits; returns the number of bytes added.
fn replace(arena: &mut Arena, row: &mut Row, tail: &[u8], value: Option<&[u8]>) -> usize {
    row.gone = value.is_none();
    let Some(value) = value else { return 0 };
    let len = tail.len() + value.len();
    if len <= row.span.len() {
        row.span = row.span.first(len);
        arena.overwrite_end(row.span, value);
        return 0;
    }
    row.span = arena.add(tail, value);
    len
}

/// A cursor over the rows in order.
struct Cursor<'a> {
    table: &'a Memtable,
    /// The remaining entries of each level on the path.
    stack: Vec<Range<'a, Step, Entry>>,
    /// The key of the last row read; its first steps are those of the levels.
    key: Vec<u8>,
}

impl<'a> Cursor<'a> {
    /// A cursor at the first row that is not before a key, or the row before that one.
    fn at(table: &'a Memtable, key: &[u8]) -> Self {
        let mut cursor = Self { table, stack: Vec::new(), key: Vec::new() };
        let (mut level, mut rest) = (0, key);
        while let Some(rows) = table.levels.get(level) {
            let (step, tail) = Step::first(rest);
            let Some(Entry::Level(next)) = rows.get(&step) else {
                cursor.stack.push(rows.range(step..));
                break;
            };
            cursor.stack.push(rows.range((Bound::Excluded(step), Bound::Unbounded)));
            step.write(&mut cursor.key);
            (level, rest) = (*next as usize, tail);
        }
        cursor
    }

    fn next(&mut self) -> Option<(&[u8], Option<&'a [u8]>)> {
        loop {
            let rows = self.stack.last_mut()?;
            let Some((step, entry)) = rows.next() else {
                self.stack.pop();
                continue;
            };
            self.key.truncate((self.stack.len() - 1) * STEP);
            step.write(&mut self.key);
            match entry {
                Entry::Row(row) => {
                    let (tail, value) = row.parts(&self.table.arena);
                    self.key.extend_from_slice(tail);
                    return Some((&self.key, value));
                }
                Entry::Level(next) => self.stack.push(self.table.levels.get(*next as usize)?.range(..)),
            }
        }
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

    /// Short keys, and keys of about one or two steps, with zeros at the boundaries.
    fn key() -> impl proptest::strategy::Strategy<Value = Vec<u8>> {
        use proptest::strategy::Strategy;
        let zeros = proptest::sample::select(vec![0, STEP - 12, 2 * STEP - 12]);
        let rest = proptest::collection::vec(proptest::sample::select(vec![0u8, 0, 0, 1, 255]), 0..20);
        (zeros, rest).prop_map(|(zeros, rest)| [vec![0; zeros], rest].concat())
    }

    #[test]
    fn an_entry_takes_as_little_room_as_its_cost_says() {
        assert_eq!((size_of::<Step>(), size_of::<Entry>()), (40, 20));
    }

    #[test]
    fn rows_that_differ_only_at_the_end_of_long_keys_are_counted_apart() {
        let mut table = Memtable::default();
        let key = |end: u8| [vec![b'x'; 10 * STEP], vec![end]].concat();
        (0..100).rev().for_each(|end| table.put(&key(end), Some(&[end])));
        assert!((0..100).all(|end| table.get(&key(end)) == Some(Some(&[end]))));
        assert_eq!((table.get(&key(100)), table.get(&key(0)[..10 * STEP])), (None, None));
        let found: Vec<Found> = table.range(&key(98), &key(200)).collect();
        assert_eq!(found, [(key(98), Some(vec![98])), (key(99), Some(vec![99]))]);
        assert!(table.bytes() >= 100 * ROW_COST + 10 * LEVEL_COST);
    }

    #[test]
    fn a_newer_value_takes_the_memory_of_the_older_one() {
        let mut table = Memtable::default();
        table.put(b"key", Some(&[7; 1_000]));
        let full = table.bytes();
        table.put(b"key", Some(&[8; 1_000]));
        assert_eq!(table.bytes(), full);
        table.put(b"key", None);
        assert_eq!((table.bytes(), table.get(b"key")), (full, Some(None)));
    }
}
