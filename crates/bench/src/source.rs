//! An endless sequence of URLs, determined by a seed, some of them repeated.

use std::io::Write;

use bytes::{Bytes, BytesMut};

use crate::wire;

/// How URLs are distributed over hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spread {
    /// Uniformly at random.
    Random(u64),
    /// In sequence: each URL of a run is on a host of its own, as far as the hosts last.
    Sequential(u64),
}

/// The prefix of IDs that carry a timing slot.
pub const TIMED: u8 = b'~';
/// The allocation unit for messages.
const BLOCK_BYTES: usize = 64 * 1024;

/// URLs of one stream.
pub struct Source {
    seed: u64,
    spread: Spread,
    crawl: Vec<u8>,
    base: u64,
    sent: u64,
    known: u64,
    random: u64,
    url: Vec<u8>,
    info: Vec<u8>,
    message: Vec<u8>,
    block: BytesMut,
}

/// A well mixed number (splitmix64).
const fn mix(number: u64) -> u64 {
    let mut z = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

impl Source {
    /// URLs of `stream`, `known` percent of them repeated.
    pub fn new(seed: u64, crawl: &str, spread: Spread, stream: u64, known: u8) -> Self {
        Self {
            seed,
            spread,
            crawl: crawl.as_bytes().to_vec(),
            base: stream << 40,
            sent: 0,
            known: u64::from(known),
            random: mix(seed ^ mix(stream)),
            url: Vec::new(),
            info: Vec::new(),
            message: Vec::new(),
            block: BytesMut::new(),
        }
    }

    /// Writes the next URL to `self.url` and returns the range of its host.
    fn next_url(&mut self) -> std::ops::Range<usize> {
        self.random = mix(self.random);
        let number = if self.sent > 0 && self.random % 100 < self.known {
            self.base + mix(self.random) % self.sent
        } else {
            self.sent += 1;
            self.base + self.sent - 1
        };
        let host = match self.spread {
            // Mixed, or similar seeds would use the same hosts.
            Spread::Random(hosts) => mix(number ^ mix(self.seed)) % hosts,
            // Streams start far from each other.
            Spread::Sequential(hosts) => (number + mix(self.base) % hosts) % hosts,
        };
        self.url.clear();
        let start = "https://".len();
        // Writing to memory cannot fail.
        let _ = write!(self.url, "https://h{host}.example");
        let end = self.url.len();
        let _ = write!(self.url, "/{:x}/{number:x}/page.html", self.seed);
        start..end
    }

    fn next_info(&mut self) {
        let host = self.next_url();
        self.info.clear();
        let key = self.url.get(host).unwrap_or_default();
        wire::info(&mut self.info, &self.url, key, &self.crawl);
    }

    /// The next URL, as text.
    pub fn next_text(&mut self) -> &str {
        self.next_url();
        std::str::from_utf8(&self.url).unwrap_or_default()
    }

    /// An item with the next URL; its ID is the URL, or the prefix and `timed`.
    pub fn item(&mut self, timed: Option<usize>) -> Bytes {
        self.next_info();
        self.message.clear();
        match timed {
            Some(no) => wire::discovered(&mut self.message, &self.info, timed_id(no).as_bytes()),
            None => wire::discovered(&mut self.message, &self.info, &self.url),
        }
        self.take_message()
    }

    /// A batch with the next URLs.
    pub fn batch(&mut self, urls: usize, timed: usize) -> Bytes {
        self.message.clear();
        let mut message = std::mem::take(&mut self.message);
        wire::batch_id(&mut message, timed_id(timed).as_bytes());
        for _ in 0..urls {
            self.next_info();
            wire::batch_item(&mut message, &self.info);
        }
        self.message = message;
        self.take_message()
    }

    fn take_message(&mut self) -> Bytes {
        if self.block.capacity() < self.message.len() {
            self.block = BytesMut::with_capacity(BLOCK_BYTES.max(self.message.len()));
        }
        self.block.extend_from_slice(&self.message);
        self.block.split().freeze()
    }
}

fn timed_id(no: usize) -> String {
    format!("{}{no}", char::from(TIMED))
}

/// The timing slot of an ID.
pub fn timed(id: &[u8]) -> Option<usize> {
    let digits = id.strip_prefix(&[TIMED])?;
    std::str::from_utf8(digits).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    fn texts(source: &mut Source, count: usize) -> Vec<String> {
        (0..count).map(|_| source.next_text().to_owned()).collect()
    }

    #[test]
    fn the_same_seed_gives_the_same_urls() {
        let make = |seed| texts(&mut Source::new(seed, "c", Spread::Random(100), 1, 23), 1_000);
        assert_eq!(make(7), make(7));
        assert_ne!(make(7), make(8));
    }

    #[test]
    fn as_many_were_sent_before_as_asked_for() {
        for known in [0u8, 23, 45] {
            let made = texts(&mut Source::new(7, "c", Spread::Random(100), 1, known), 20_000);
            let fresh: HashSet<&String> = made.iter().collect();
            let percent = 100 - fresh.len() * 100 / made.len();
            assert!(percent.abs_diff(usize::from(known)) <= 1, "{percent} of {known}");
        }
    }

    #[test]
    fn hosts_are_used_evenly_or_once_each() {
        let hosts = |spread| {
            let made = texts(&mut Source::new(7, "c", spread, 1, 0), 1_000);
            made.iter().map(|url| url.split('/').nth(2).unwrap().to_owned()).collect::<HashSet<_>>().len()
        };
        assert_eq!(hosts(Spread::Sequential(5_000)), 1_000);
        assert_eq!(hosts(Spread::Random(10)), 10);
    }

    #[test]
    fn each_seed_spreads_over_hosts_in_its_own_way() {
        let hosts = |seed| {
            let made = texts(&mut Source::new(seed, "c", Spread::Random(1_000), 0, 0), 1_000);
            made.iter().map(|url| url.split('/').nth(2).unwrap().to_owned()).collect::<HashSet<_>>()
        };
        let both = hosts(1).union(&hosts(2)).count();
        assert!((800..930).contains(&both), "of 1000 hosts, 2000 URLs at random should be on about 865: {both}");
    }

    #[test]
    fn timed_ids_read_back() {
        assert_eq!(timed(timed_id(42).as_bytes()), Some(42));
        assert_eq!(timed(b"https://x"), None);
    }
}
