//! A built chunk in memory: a packed artifact, and an assignment per row.

use std::net::IpAddr;

use super::assignment::Assignment;
use crate::pipeline::row::Artifact;

/// A built chunk.
#[derive(Debug)]
pub(super) struct Chunk {
    pub bytes: u64,
    /// The location; where its description came from, in no, 4 or 16 bytes, and the number of those; the checksum.
    packed: Box<[u8]>,
    /// By row; a row without a copy has none.
    pub assignments: Vec<Assignment>,
}

impl Chunk {
    /// A chunk without copies.
    pub fn new(artifact: &Artifact, rows: usize) -> Self {
        let from = match artifact.from {
            None => Vec::new(),
            Some(IpAddr::V4(ip)) => ip.octets().to_vec(),
            Some(IpAddr::V6(ip)) => ip.octets().to_vec(),
        };
        let packed = [artifact.location.as_bytes(), &from, &[from.len() as u8], &artifact.checksum].concat().into();
        Self { bytes: artifact.bytes, packed, assignments: Vec::with_capacity(rows) }
    }

    pub fn artifact(&self) -> Artifact {
        let (rest, checksum) = self.packed.split_last_chunk().unwrap_or((&[], &[0; 32]));
        let (length, rest) = rest.split_last().unwrap_or((&0, &[]));
        let (location, from) =
            rest.split_at_checked(rest.len().saturating_sub(usize::from(*length))).unwrap_or_default();
        let v4 = <[u8; 4]>::try_from(from).map(IpAddr::from);
        let from = v4.or_else(|_| <[u8; 16]>::try_from(from).map(IpAddr::from)).ok();
        let location = String::from_utf8_lossy(location).into();
        Artifact { location, bytes: self.bytes, checksum: *checksum, from }
    }

    /// What it weighs in the balance; empty chunks are spread as well.
    pub fn weight(&self) -> u64 {
        self.bytes.max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_artifact_is_unpacked_as_it_was() {
        for from in [None, Some([10, 0, 0, 7].into()), Some(IpAddr::V6(std::net::Ipv6Addr::LOCALHOST))] {
            let artifact = Artifact { location: "http://a/ø".into(), bytes: 7, checksum: [9; 32], from };
            assert_eq!(Chunk::new(&artifact, 1).artifact(), artifact);
        }
    }
}
