//! A built chunk in memory: a packed artifact, and an assignment per row.

use super::assignment::Assignment;
use crate::pipeline::row::Artifact;

/// A built chunk.
#[derive(Debug)]
pub(super) struct Chunk {
    pub bytes: u64,
    /// The location, and after it the checksum.
    packed: Box<[u8]>,
    /// By row; a row without a copy has none.
    pub assignments: Vec<Assignment>,
}

impl Chunk {
    /// A chunk without copies.
    pub fn new(artifact: &Artifact, rows: usize) -> Self {
        let packed = [artifact.location.as_bytes(), &artifact.checksum].concat().into();
        Self { bytes: artifact.bytes, packed, assignments: Vec::with_capacity(rows) }
    }

    pub fn artifact(&self) -> Artifact {
        let (location, checksum) = self.packed.split_last_chunk().unwrap_or((&[], &[0; 32]));
        Artifact { location: String::from_utf8_lossy(location).into(), bytes: self.bytes, checksum: *checksum }
    }

    /// What it weighs in the balance; empty chunks are spread as well.
    pub fn weight(&self) -> u64 {
        self.bytes.max(1)
    }
}
