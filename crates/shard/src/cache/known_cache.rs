//! Set-associative cache of fingerprints of URLs that are certainly in the store, i.e. those added or found most
//! recently. A hit answers "known" without a read.
//!
//! A new URL whose fingerprint collides would be misjudged as known; with a full cache the chance is about 1 in 10¹⁴.
//! Every removal of a row passes through [`KnownCache::follow`]. An entry's row has been handed to the engine but may
//! not be durable yet. That is safe: answers of a later turn wait for the commits of all earlier turns.
//!
//! Hand-written because an entry is its fingerprint of eight bytes and nothing else: no list, no pointer, no value.

use wayleave_core::frontier::row::Write;

use crate::cache::fingerprint::Fingerprinter;

/// Entries per bucket, newest first; an insertion into a full bucket evicts the oldest.
const WAYS: usize = 8;

/// The fingerprints of one shard.
pub(crate) struct KnownCache {
    /// 0 marks an empty entry.
    buckets: Vec<[u64; WAYS]>,
}

impl KnownCache {
    pub fn new(bytes_max: usize) -> Self {
        Self { buckets: vec![[0; WAYS]; bytes_max / size_of::<[u64; WAYS]>()] }
    }

    /// Whether the URL is certainly known.
    pub fn has(&self, fingerprint: u64) -> bool {
        self.buckets.get(self.bucket(fingerprint)).is_some_and(|bucket| bucket.contains(&filled(fingerprint)))
    }

    pub fn add(&mut self, fingerprint: u64) {
        let (at, fingerprint) = (self.bucket(fingerprint), filled(fingerprint));
        let Some(bucket) = self.buckets.get_mut(at) else { return };
        if !bucket.contains(&fingerprint) {
            bucket.rotate_right(1);
            bucket[0] = fingerprint;
        }
    }

    /// Removes the URLs whose rows are deleted.
    pub fn follow(&mut self, fingerprinter: &Fingerprinter, writes: &[Write]) {
        for write in writes {
            let Write::Url(queue, key, None) = write else { continue };
            let fingerprint = fingerprinter.fingerprint(*queue, key);
            let at = self.bucket(fingerprint);
            if let Some(bucket) = self.buckets.get_mut(at) {
                bucket.iter_mut().filter(|place| **place == filled(fingerprint)).for_each(|place| *place = 0);
            }
        }
    }

    fn bucket(&self, fingerprint: u64) -> usize {
        ((u128::from(fingerprint) * self.buckets.len() as u128) >> 64) as usize
    }
}

/// Maps a fingerprint of 0 to another value, because 0 marks an empty entry.
const fn filled(fingerprint: u64) -> u64 {
    if fingerprint == 0 { 1 } else { fingerprint }
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
        let fingerprinter = Fingerprinter::new(3);
        let fingerprint = |n| fingerprinter.fingerprint(QUEUE, &key(n));
        let mut seen = KnownCache::new(64 * 1024);
        (0..100_000).for_each(|n| seen.add(fingerprint(n)));
        assert!(seen.has(fingerprint(99_999)), "the newest is here");
        let here = (0..100_000).filter(|n| seen.has(fingerprint(*n))).count();
        assert_eq!(here, 8 * 1024, "every place is taken, and no more");
        assert!(!(100_000..1_000_000).any(|n| seen.has(fingerprint(n))), "no other is taken for one of them");
    }

    #[test]
    fn a_mark_that_comes_again_takes_no_second_place() {
        let mut seen = KnownCache::new(64);
        for fingerprint in [5, 6, 5, 5, 5, 5, 5, 5, 5, 5, 0] {
            seen.add(fingerprint);
        }
        assert!([5, 6, 0].iter().all(|fingerprint| seen.has(*fingerprint)));
    }

    #[test]
    fn a_row_that_is_removed_is_forgotten_and_its_neighbours_are_not() {
        let fingerprinter = Fingerprinter::new(3);
        let mut seen = KnownCache::new(4096);
        (0..20).for_each(|n| seen.add(fingerprinter.fingerprint(QUEUE, &key(n))));
        seen.follow(&fingerprinter, &[Write::Url(QUEUE, key(7), None)]);
        let here: Vec<u64> = (0..20).filter(|n| seen.has(fingerprinter.fingerprint(QUEUE, &key(*n)))).collect();
        assert_eq!(here, (0..20).filter(|n| *n != 7).collect::<Vec<_>>());
    }

    #[test]
    fn without_memory_it_knows_nothing() {
        let mut seen = KnownCache::new(0);
        seen.add(9);
        assert!(!seen.has(9));
    }
}
