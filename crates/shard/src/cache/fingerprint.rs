//! URL fingerprints: a keyed 64-bit hash of a queue and a URL, used by one owner's in-memory caches. The key is random,
//! so clients cannot craft collisions.

use rapidhash::v3::{RapidSecrets, rapidhash_v3_seeded};
use wayleave_core::frontier::url_key::UrlKey;
use wayleave_core::ids::QueueId;

/// Computes fingerprints under one key.
#[derive(Clone)]
pub(crate) struct Fingerprinter(RapidSecrets);

impl Fingerprinter {
    pub const fn new(seed: u64) -> Self {
        Self(RapidSecrets::seed(seed))
    }

    pub fn fingerprint(&self, queue: QueueId, key: &UrlKey) -> u64 {
        let place = queue.host.0.rotate_left(20) ^ u64::from(queue.no);
        self.of(&key.0).wrapping_add(place.wrapping_mul(0xa076_1d64_78bd_642f)).rotate_left(17) ^ place
    }

    /// Fingerprint of raw bytes.
    pub fn of(&self, bytes: &[u8]) -> u64 {
        rapidhash_v3_seeded(bytes, &self.0)
    }
}
