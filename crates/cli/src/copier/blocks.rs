//! A store for tests, of which some blocks cannot be read.

use std::collections::BTreeMap;

use wayleave_engine::snapshot_file::SnapshotHeader;
use wayleave_engine::{Key, Row};

use super::source::{END, ReadError, Source, after};

/// A table whose blocks have a last key each; some cannot be read.
pub struct Blocks {
    pub rows: BTreeMap<Key, Vec<u8>>,
    /// First and last key.
    pub bad: Vec<(Key, Key)>,
    pub header: SnapshotHeader,
    /// How often it was read.
    pub reads: usize,
}

impl Source for Blocks {
    fn header(&self) -> &SnapshotHeader {
        &self.header
    }

    fn page(&mut self, from: &[u8], limit: usize) -> Result<Vec<Row>, ReadError> {
        self.reads += 1;
        let mut rows = Vec::new();
        for (key, value) in self.rows.range(from.to_vec()..) {
            if rows.len() == limit {
                break;
            }
            if self.bad.iter().any(|(first, last)| (first..=last).contains(&key)) {
                return Err(ReadError::Damaged("a checksum does not match".into()));
            }
            rows.push(Row { key: key.clone(), value: value.clone() });
        }
        Ok(rows)
    }

    fn past_damage(&mut self, from: &[u8], _limit: usize) -> anyhow::Result<(Key, Vec<Row>)> {
        let first = self.rows.range(from.to_vec()..).next().map(|(key, _)| key);
        let met = first.and_then(|first| self.bad.iter().find(|(from, to)| (from..=to).contains(&first)));
        Ok((met.map_or_else(|| END.into(), |(_, last)| after(last)), Vec::new()))
    }
}

impl Blocks {
    /// A store of two shards.
    pub fn new(rows: BTreeMap<Key, Vec<u8>>, bad: Vec<(Key, Key)>) -> Self {
        Self { rows, bad, header: SnapshotHeader { shards: 2, ..SnapshotHeader::default() }, reads: 0 }
    }
}
