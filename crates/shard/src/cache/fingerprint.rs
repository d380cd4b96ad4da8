//! The fingerprint of a URL: 64 bits that stand for its queue and itself in the memory of one owner. They are keyed by chance,
//! so nobody outside can make two URLs that look the same.

use rapidhash::v3::{RapidSecrets, rapidhash_v3_seeded};
use wayleave_core::frontier::url_key::UrlKey;
use wayleave_core::ids::QueueId;

/// Makes fingerprints, all under one key.
pub(crate) struct Fingerprinter(RapidSecrets);

impl Fingerprinter {
    pub const fn new(seed: u64) -> Self {
        Self(RapidSecrets::seed(seed))
    }

    pub fn fingerprint(&self, queue: QueueId, key: &UrlKey) -> u64 {
        let place = queue.host.0.rotate_left(20) ^ u64::from(queue.no);
        self.of(&key.0).wrapping_add(place.wrapping_mul(0xa076_1d64_78bd_642f)).rotate_left(17) ^ place
    }

    /// The fingerprint of bytes alone.
    pub fn of(&self, bytes: &[u8]) -> u64 {
        rapidhash_v3_seeded(bytes, &self.0)
    }
}
