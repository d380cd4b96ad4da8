//! URLs that are certainly in the store, as far as there is room: the marks of those that were added or found last. One
//! that comes again needs no look at the store to be called known.
//!
//! A new URL whose mark is here by chance would be taken for a known one: with every place full that is one in 10¹⁴.
//! Every row that is removed passes by, and what is here has been written, though it may not be durable yet: the answers
//! of a later turn wait for the turns before it.

use wayleave_core::frontier::row::Write;

use crate::mark::Marker;

/// Marks that lie together; the newest is the first, and what comes pushes the last one out.
const WAYS: usize = 8;

/// The marks of one shard.
pub(crate) struct Seen {
    /// 0 is an empty place.
    buckets: Vec<[u64; WAYS]>,
}

impl Seen {
    pub fn new(bytes_max: usize) -> Self {
        Self { buckets: vec![[0; WAYS]; bytes_max / size_of::<[u64; WAYS]>()] }
    }

    /// Whether a URL is certainly known.
    pub fn has(&self, mark: u64) -> bool {
        self.buckets.get(self.bucket(mark)).is_some_and(|bucket| bucket.contains(&filled(mark)))
    }

    pub fn add(&mut self, mark: u64) {
        let (at, mark) = (self.bucket(mark), filled(mark));
        let Some(bucket) = self.buckets.get_mut(at) else { return };
        if !bucket.contains(&mark) {
            bucket.rotate_right(1);
            bucket[0] = mark;
        }
    }

    /// Forgets URLs whose rows are removed.
    pub fn follow(&mut self, marker: &Marker, writes: &[Write]) {
        for write in writes {
            let Write::Url(queue, key, None) = write else { continue };
            let mark = marker.mark(*queue, key);
            let at = self.bucket(mark);
            if let Some(bucket) = self.buckets.get_mut(at) {
                bucket.iter_mut().filter(|place| **place == filled(mark)).for_each(|place| *place = 0);
            }
        }
    }

    fn bucket(&self, mark: u64) -> usize {
        ((u128::from(mark) * self.buckets.len() as u128) >> 64) as usize
    }
}

/// A mark that is not taken for an empty place.
const fn filled(mark: u64) -> u64 {
    if mark == 0 { 1 } else { mark }
}

#[cfg(test)]
mod tests {
    use wayleave_core::frontier::url_key::UrlKey;
    use wayleave_core::ids::{HostId, QueueId};

    use super::*;

    const QUEUE: QueueId = QueueId { host: HostId(7), no: 1 };

    fn key(n: u64) -> UrlKey {
        UrlKey(n.to_string().into_bytes().into())
    }

    #[test]
    fn what_was_added_last_is_here_and_nothing_else() {
        let marker = Marker::new(3);
        let mark = |n| marker.mark(QUEUE, &key(n));
        let mut seen = Seen::new(64 * 1024);
        (0..100_000).for_each(|n| seen.add(mark(n)));
        assert!(seen.has(mark(99_999)), "the newest is here");
        let here = (0..100_000).filter(|n| seen.has(mark(*n))).count();
        assert_eq!(here, 8 * 1024, "every place is taken, and no more");
        assert!(!(100_000..1_000_000).any(|n| seen.has(mark(n))), "no other is taken for one of them");
    }

    #[test]
    fn a_mark_that_comes_again_takes_no_second_place() {
        let mut seen = Seen::new(64);
        for mark in [5, 6, 5, 5, 5, 5, 5, 5, 5, 5, 0] {
            seen.add(mark);
        }
        assert!([5, 6, 0].iter().all(|mark| seen.has(*mark)));
    }

    #[test]
    fn a_row_that_is_removed_is_forgotten_and_its_neighbours_are_not() {
        let marker = Marker::new(3);
        let mut seen = Seen::new(4096);
        (0..20).for_each(|n| seen.add(marker.mark(QUEUE, &key(n))));
        seen.follow(&marker, &[Write::Url(QUEUE, key(7), None)]);
        let here: Vec<u64> = (0..20).filter(|n| seen.has(marker.mark(QUEUE, &key(*n)))).collect();
        assert_eq!(here, (0..20).filter(|n| *n != 7).collect::<Vec<_>>());
    }

    #[test]
    fn without_memory_it_knows_nothing() {
        let mut seen = Seen::new(0);
        seen.add(9);
        assert!(!seen.has(9));
    }
}
