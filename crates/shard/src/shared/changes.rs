//! A map that tells each reader what has changed since it looked last, so that beats carry only that. A reader that looks for the first
//! time is told everything, in slices if it is much: entries in the order of their last change, so that what changes meanwhile comes
//! later, or comes again.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Entries that are gone are remembered up to this number, and as many as there are others: whoever has not heard of one
/// then reads everything.
const GONE_MAX: usize = 1_024;

/// What a reader is told: all entries, or those that changed. `None` for entries that are gone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct News<K, V> {
    /// These are the first of all entries.
    pub begins: bool,
    /// With these, all entries were told: others that the reader knows are gone.
    pub ends: bool,
    pub changes: Vec<(K, Option<V>)>,
}

/// How far a reader has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Position {
    last: u64,
    /// It was told all entries once.
    is_whole: bool,
    /// There was more than it was told.
    pub has_more: bool,
}

/// The map.
pub(crate) struct Changes<K, V> {
    /// Each with the number of its last change.
    entries: BTreeMap<K, (u64, Option<V>)>,
    order: BTreeMap<u64, K>,
    last: u64,
    gone: usize,
    /// Up to this change, entries that are gone have been forgotten.
    forgotten: u64,
}

impl<K, V> Default for News<K, V> {
    fn default() -> Self {
        Self { begins: false, ends: false, changes: Vec::new() }
    }
}

impl<K, V> Default for Changes<K, V> {
    fn default() -> Self {
        Self { entries: BTreeMap::new(), order: BTreeMap::new(), last: 0, gone: 0, forgotten: 0 }
    }
}

impl<K: Clone + Ord> Changes<K, ()> {
    /// Counts an entry as changed.
    pub fn touch(&mut self, key: &K) {
        self.stamp(key, Some(()));
    }
}

impl<K: Clone + Ord, V: Copy + PartialEq> Changes<K, V> {
    pub fn get(&self, key: &K) -> Option<V> {
        self.entries.get(key).and_then(|(_, value)| *value)
    }

    /// Sets an entry, or removes it; returns whether that is a change.
    pub fn set(&mut self, key: &K, value: Option<V>) -> bool {
        if self.get(key) == value {
            return false;
        }
        let was_gone = self.stamp(key, value).is_some_and(|(_, before)| before.is_none());
        self.gone = self.gone + usize::from(value.is_none()) - usize::from(was_gone);
        if self.gone > GONE_MAX.max(self.entries.len() / 2) {
            self.entries.retain(|_, (_, value)| value.is_some());
            let entries = &self.entries;
            self.order.retain(|_, key| entries.contains_key(key));
            (self.gone, self.forgotten) = (0, self.last);
        }
        true
    }

    /// Stores an entry as the one that changed last; returns what it was.
    fn stamp(&mut self, key: &K, value: Option<V>) -> Option<(u64, Option<V>)> {
        self.last += 1;
        self.order.insert(self.last, key.clone());
        let before = self.entries.insert(key.clone(), (self.last, value));
        before.iter().for_each(|(number, _)| _ = self.order.remove(number));
        before
    }

    /// What changed since a reader looked last, and where it goes on; everything if it has not looked yet. Not more than `most`
    /// entries: it looks again for the rest.
    pub fn since(&self, seen: Option<Position>, most: usize) -> (News<K, V>, Position) {
        let seen = seen.filter(|seen| seen.last >= self.forgotten);
        let (after, was_whole) = seen.map_or((0, false), |seen| (seen.last, seen.is_whole));
        let mut changes = Vec::new();
        let mut position = Position { last: self.last, is_whole: true, has_more: false };
        let mut last = after;
        for (number, key) in self.order.range(after + 1..) {
            if changes.len() == most {
                position = Position { last, is_whole: was_whole, has_more: true };
                break;
            }
            last = *number;
            let value = self.get(key);
            if seen.is_some() || value.is_some() {
                changes.push((key.clone(), value));
            }
        }
        (News { begins: seen.is_none(), ends: position.is_whole && !was_whole, changes }, position)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A reader that hears now and then, and one that comes late, know what the map has.
    #[test]
    fn readers_know_what_the_map_has_whenever_they_look() {
        let mut map: Changes<usize, usize> = Changes::default();
        let (mut known, mut seen): (BTreeMap<usize, usize>, _) = (BTreeMap::new(), None);
        let mut told = 0;
        for n in 0..20_000usize {
            let key = n * 7 % 3_000;
            map.set(&key, (n % 5 < 2).then_some(n));
            if n % 97 == 0 || n == 19_999 {
                let (news, next) = map.since(seen, usize::MAX);
                told += news.changes.len();
                if news.begins {
                    known.clear();
                }
                for (key, value) in news.changes {
                    match value {
                        Some(value) => known.insert(key, value),
                        None => known.remove(&key),
                    };
                }
                seen = Some(next);
            }
        }
        let (all, _) = map.since(None, usize::MAX);
        let all: BTreeMap<usize, usize> =
            all.changes.into_iter().filter_map(|(key, value)| Some((key, value?))).collect();
        assert!(known == all && !all.is_empty());
        assert!(told < 60_000, "{told} entries were told");
        assert_eq!(map.since(seen, usize::MAX).0, News::default(), "nothing has changed");
        assert!(!map.set(&1, map.get(&1)), "nor by this");
    }

    /// Entries come, change and go between two slices. Some were told, and some were not.
    #[test]
    fn a_reader_that_is_told_in_slices_knows_what_the_map_has_at_the_end() {
        let mut map: Changes<usize, usize> = Changes::default();
        (0..1_000).for_each(|key| _ = map.set(&key, Some(key)));
        let (mut known, mut seen, mut slices) = (BTreeMap::new(), None, 0);
        loop {
            let (news, next) = map.since(seen, 100);
            assert!(news.changes.len() <= 100 && news.begins == (slices == 0) && news.ends != next.has_more);
            for (key, value) in news.changes {
                _ = if let Some(value) = value { known.insert(key, value) } else { known.remove(&key) };
            }
            (seen, slices) = (Some(next), slices + 1);
            if !next.has_more {
                break;
            }
            map.set(&(slices * 7), None);
            map.set(&(slices * 70), Some(1));
            map.set(&(2_000 + slices), Some(2));
        }
        let all = map.since(None, usize::MAX).0.changes.into_iter();
        assert_eq!(known, all.filter_map(|(key, value)| Some((key, value?))).collect::<BTreeMap<_, _>>());
        assert_eq!(slices, 11);
        map.set(&0, None);
        let (news, position) = map.since(seen, 1);
        assert_eq!((news.begins, news.ends, news.changes.len(), position.has_more), (false, false, 1, false));
    }
}
