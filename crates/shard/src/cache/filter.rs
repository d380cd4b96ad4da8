//! A blocked Bloom filter over the shard's URLs. A negative answer saves the read that would check whether a URL is
//! known. It grows in layers up to a memory budget; beyond that it is dropped and every put reads the store.
//!
//! After a shard is opened the filter is rebuilt in the background, one slice of URL rows at a time. Until the rebuild
//! is complete it answers "maybe" to everything.
//!
//! Hand-written because it grows layer by layer within a budget, and takes fingerprints that are hashes already.

/// Bits per URL. With [`PROBES`] probes the false-positive rate is about 1 %.
const BITS_PER_URL: usize = 12;
const PROBES: u32 = 6;
/// Capacity of the first layer, in URLs; each further layer doubles it.
const FIRST_URLS: usize = 64 * 1024;

/// One Bloom filter of 64-byte blocks: a query touches a single cache line.
struct Layer {
    blocks: Vec<[u64; 8]>,
    room: usize,
}

impl Layer {
    fn new(urls: usize) -> Self {
        let blocks = (urls * BITS_PER_URL).div_ceil(512).max(1);
        Self { blocks: vec![[0; 8]; blocks], room: urls }
    }

    fn bits(fingerprint: u64) -> impl Iterator<Item = (usize, u64)> {
        let mut mix = fingerprint.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        (0..PROBES).map(move |_| {
            mix = mix.rotate_left(21).wrapping_mul(0xd6e8_feb8_6659_fd93);
            let bit = mix >> 55;
            ((bit >> 6) as usize, 1 << (bit & 63))
        })
    }

    fn block(&self, fingerprint: u64) -> usize {
        ((u128::from(fingerprint) * self.blocks.len() as u128) >> 64) as usize
    }

    fn add(&mut self, fingerprint: u64) {
        let at = self.block(fingerprint);
        if let Some(block) = self.blocks.get_mut(at) {
            for (word, bit) in Self::bits(fingerprint) {
                if let Some(word) = block.get_mut(word) {
                    *word |= bit;
                }
            }
        }
        self.room = self.room.saturating_sub(1);
    }

    fn has(&self, fingerprint: u64) -> bool {
        let Some(block) = self.blocks.get(self.block(fingerprint)) else { return true };
        Self::bits(fingerprint).all(|(word, bit)| block.get(word).is_some_and(|w| w & bit != 0))
    }
}

/// Life cycle of the filter.
#[derive(Clone, Copy, PartialEq, Eq)]
enum FilterStage {
    /// Being rebuilt from the existing rows.
    Learning,
    /// Complete: it contains every URL of the shard.
    Ready,
    /// Dropped, because it would exceed its budget, or because rows cannot be read.
    GivenUp,
}

/// The Bloom filter of one shard.
pub(crate) struct Filter {
    layers: Vec<Layer>,
    bytes_max: usize,
    stage: FilterStage,
    /// Resume key of the rebuild.
    pub learned: Option<Vec<u8>>,
}

impl Filter {
    pub fn new(bytes_max: usize) -> Self {
        Self { layers: Vec::new(), bytes_max, stage: FilterStage::Learning, learned: None }
    }

    /// False only if the URL is certainly new.
    pub fn may_have(&self, fingerprint: u64) -> bool {
        self.stage != FilterStage::Ready || self.layers.iter().any(|layer| layer.has(fingerprint))
    }

    pub fn add(&mut self, fingerprint: u64) {
        if self.stage == FilterStage::GivenUp {
            return;
        }
        if self.layers.last().is_none_or(|layer| layer.room == 0) {
            let held = self.bytes();
            // The last layer takes what is left.
            let left = self.bytes_max.saturating_sub(held) * 8 / BITS_PER_URL;
            let urls = (FIRST_URLS << self.layers.len().min(20)).min(left);
            if urls < FIRST_URLS {
                self.give_up();
                return;
            }
            self.layers.push(Layer::new(urls));
        }
        if let Some(layer) = self.layers.last_mut() {
            layer.add(fingerprint);
        }
    }

    /// Drops the filter: from now on every put reads the store.
    pub fn give_up(&mut self) {
        self.layers = Vec::new();
        self.learned = None;
        self.stage = FilterStage::GivenUp;
    }

    pub fn is_given_up(&self) -> bool {
        self.stage == FilterStage::GivenUp
    }

    /// The memory that it takes.
    pub fn bytes(&self) -> usize {
        self.layers.iter().map(|layer| layer.blocks.len() * 64).sum()
    }

    pub fn is_learning(&self) -> bool {
        self.stage == FilterStage::Learning
    }

    /// The rebuild has read all rows.
    pub fn finish_learning(&mut self) {
        if self.stage == FilterStage::Learning {
            self.stage = FilterStage::Ready;
        }
        self.learned = None;
    }
}

#[cfg(test)]
mod tests {
    use wayleave_core::frontier::url_key::UrlKey;
    use wayleave_core::ids::{HostId, QueueId};

    use crate::cache::fingerprint::Fingerprinter;

    use super::*;

    fn fingerprint(n: u64) -> u64 {
        let queue = QueueId { host: HostId(n % 97), no: 0 };
        Fingerprinter::new(0).fingerprint(queue, &UrlKey(n.to_string().into_bytes().into()))
    }

    #[test]
    fn a_known_url_is_never_called_new_and_few_new_ones_are_called_known() {
        let mut filter = Filter::new(8 << 20);
        (0..300_000).for_each(|n| filter.add(fingerprint(n)));
        assert!(filter.may_have(fingerprint(1_000_000)), "while it learns it knows nothing");
        filter.finish_learning();
        assert!((0..300_000).all(|n| filter.may_have(fingerprint(n))));
        let wrong = (1_000_000..1_100_000).filter(|n| filter.may_have(fingerprint(*n))).count();
        assert!(wrong < 4_000, "{wrong} of 100,000 new URLs are taken for known ones");
    }

    #[test]
    fn it_uses_its_whole_budget_before_it_is_given_up() {
        let mut filter = Filter::new(1 << 20);
        filter.finish_learning();
        (0..650_000).for_each(|n| filter.add(fingerprint(n)));
        assert!(!filter.is_given_up() && filter.bytes() <= 1 << 20, "{} bytes", filter.bytes());
        assert!((0..650_000).all(|n| filter.may_have(fingerprint(n))));
    }

    #[test]
    fn past_its_budget_it_is_given_up() {
        let mut filter = Filter::new(200_000);
        filter.finish_learning();
        (0..200_000).for_each(|n| filter.add(fingerprint(n)));
        assert!(filter.may_have(fingerprint(9_999_999)) && filter.layers.is_empty());
    }
}
