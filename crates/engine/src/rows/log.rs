//! The hot rows of one commit, packed: one row in the store instead of one for each host that a batch touched.
//! Lifetime: until the hot rows in it have been written out one by one.
//! Key: owning shard · 10 · commit number. Value: version, then the key of each row and what became of it: that it is gone,
//! its value, or, of a host since version 2, what changed of it since.

use wayleave_core::frontier::changes::ChangedHost;
use wayleave_core::frontier::row::{HostPart, HotRow};
use wayleave_core::ids::ShardId;
use wayleave_core::wire::{Damaged, Reader, Writer};

use super::{Kind, host, hot, key as keys};
use crate::{Key, Write};

/// 1 has whole rows only, and 2 parts of hosts as version 1 of their rows has them.
const VERSION: u8 = 3;

const GONE: u8 = 0;
const WHOLE: u8 = 1;
const PART: u8 = 2;

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
            None => self.out.byte(GONE),
            Some(value) => {
                self.out.byte(WHOLE);
                self.out.bytes(value);
            }
        }
    }

    /// Adds what changed of a host.
    pub fn add_host(&mut self, shard: ShardId, host: ChangedHost<'_>) {
        self.value.clear();
        let (id, said) = match host {
            ChangedHost::Whole(row) => {
                host::encode_into(&mut self.value, row);
                (row.id, WHOLE)
            }
            ChangedHost::Part(row) => {
                host::encode_part_into(&mut self.value, row);
                (row.id, PART)
            }
        };
        self.out.bytes(&hot::host_key(shard, id));
        self.out.byte(said);
        self.out.bytes(self.value.as_bytes());
    }

    /// The value of the log's row.
    #[must_use]
    pub fn into_value(self) -> Vec<u8> {
        self.out.into()
    }
}

/// A change to hot rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// A row is gone or new or as a whole different.
    Row(HotRow),
    /// Part of a host's row is different.
    Part(HostPart),
}

/// Unpacks changes.
///
/// # Errors
/// If the bytes are not those of such a row.
pub fn decode(bytes: &[u8]) -> Result<Vec<Change>, Damaged> {
    let mut input = Reader::new(bytes);
    if !(1..=VERSION).contains(&input.byte()?) {
        return Err(Damaged("a log row has a version that is not known"));
    }
    let mut changes = Vec::new();
    while !input.is_empty() {
        let key = input.bytes()?;
        let change = match input.byte()? {
            GONE => Change::Row(hot::decode(key, None)?),
            WHOLE => Change::Row(hot::decode(key, Some(input.bytes()?))?),
            PART => Change::Part(host::decode_part(hot::parse_host_key(key)?, &mut Reader::new(input.bytes()?))?),
            _ => return Err(Damaged("a log row speaks of a change that is not known")),
        };
        changes.push(change);
    }
    Ok(changes)
}
