//! The hot rows of one commit, packed: one row in the store instead of one for each host that a batch touched.
//! Lifetime: until the hot rows in it have been written out one by one.
//! Key: owning shard · 10 · commit number. Value: version, then key and value (or its absence) of each row.

use wayleave_core::frontier::row::HostRef;
use wayleave_core::ids::ShardId;
use wayleave_core::wire::{Damaged, Reader, Writer};

use super::{Kind, host, hot, key as keys};
use crate::{Key, Write};

const VERSION: u8 = 1;

/// The key of a commit's log row.
#[must_use]
pub fn key(shard: ShardId, seq: u64) -> Key {
    let mut key = keys::start(shard, Kind::Log, 8);
    key.extend_from_slice(&seq.to_be_bytes());
    key
}

/// The commit number that a key names.
///
/// # Errors
/// If it is not such a key.
pub fn parse_key(key: &[u8]) -> Result<u64, Damaged> {
    let mut parts = keys::Parts(key);
    parts.prefix()?;
    parts.number::<8>()
}

/// Packs changes.
pub struct Pack {
    out: Writer,
    value: Writer,
}

impl Default for Pack {
    fn default() -> Self {
        let mut out = Writer::default();
        out.byte(VERSION);
        Self { out, value: Writer::default() }
    }
}

impl Pack {
    /// Adds a change.
    pub fn add(&mut self, write: &Write) {
        self.out.bytes(&write.key);
        match &write.value {
            None => self.out.byte(0),
            Some(value) => {
                self.out.byte(1);
                self.out.bytes(value);
            }
        }
    }

    /// Adds a host's row.
    pub fn add_host(&mut self, shard: ShardId, row: HostRef<'_>) {
        self.value.clear();
        host::encode_into(&mut self.value, row);
        self.out.bytes(&hot::host_key(shard, row.id));
        self.out.byte(1);
        self.out.bytes(self.value.as_bytes());
    }

    /// The value of the log's row.
    #[must_use]
    pub fn into_value(self) -> Vec<u8> {
        self.out.into()
    }
}

/// A row's key, and its value or none if the row is gone.
pub type Change<'a> = (&'a [u8], Option<&'a [u8]>);

/// Unpacks changes.
///
/// # Errors
/// If the bytes are not those of such a row.
pub fn decode(bytes: &[u8]) -> Result<Vec<Change<'_>>, Damaged> {
    let mut input = Reader::new(bytes);
    if input.byte()? != VERSION {
        return Err(Damaged("a log row has a version that is not known"));
    }
    let mut changes = Vec::new();
    while !input.is_empty() {
        let key = input.bytes()?;
        let value = if input.byte()? == 0 { None } else { Some(input.bytes()?) };
        changes.push((key, value));
    }
    Ok(changes)
}
