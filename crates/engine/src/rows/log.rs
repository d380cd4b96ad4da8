//! The hot rows of one commit in one log row, instead of one row for each host that a batch touched.
//! Lifetime: until a checkpoint has written its hot rows individually.
//! Key: owning shard · 10 · commit number. Value: version, then each row's key and its change: deleted, a whole value
//! or, for hosts, the changed part.
//!
//! The row of number 0, which no commit has, says from which commit on there may be rows: reading begins there, not at the
//! tombstones of those that are gone. Its value is the version, the key of that commit and a mark.

use wayleave_core::codec::{Damaged, Reader, Writer};
use wayleave_core::frontier::changes::ChangedHost;
use wayleave_core::frontier::row::{HostPart, HotRow};
use wayleave_core::ids::ShardId;

use super::{Kind, host, hot, key as keys};
use crate::{Key, Write, format};

const GONE: u8 = 0;
const WHOLE: u8 = 1;
const PART: u8 = 2;
/// Not a change: the log begins at this key.
const BEGIN: u8 = 3;

/// The key of a commit's log row.
#[must_use]
pub fn key(shard: ShardId, seq: u64) -> Key {
    keys::of(shard, Kind::Log, &[&seq.to_be_bytes()])
}

/// The commit number that a key names.
pub fn parse_key(key: &[u8]) -> Result<u64, Damaged> {
    keys::Parts::of(key)?.number::<8>()
}

/// The row that says from which commit on there may be log rows.
#[must_use]
pub fn begin(shard: ShardId, seq: u64) -> Write {
    let mut out = Writer::default();
    format::write(&mut out);
    out.bytes(&key(shard, seq));
    out.byte(BEGIN);
    Write { key: key(shard, 0), value: Some(out.into()) }
}

/// The commit that such a row names.
pub fn decode_begin(bytes: &[u8]) -> Result<u64, Damaged> {
    let mut input = Reader::new(bytes);
    format::read(&mut input)?;
    let seq = parse_key(input.bytes()?)?;
    if input.byte()? == BEGIN { Ok(seq) } else { Err(Damaged("the beginning of the log is unknown")) }
}

/// Encodes changes into a log row.
pub struct Pack {
    out: Writer,
    value: Writer,
}

impl Default for Pack {
    fn default() -> Self {
        let mut out = Writer::default();
        format::write(&mut out);
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

    /// Adds the changed part of a host.
    pub fn add_host(&mut self, shard: ShardId, host: ChangedHost<'_>) {
        self.value.clear();
        let (id, tag) = match host {
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
        self.out.byte(tag);
        self.out.bytes(self.value.as_bytes());
    }

    /// The encoded value of the log row.
    #[must_use]
    pub fn into_value(self) -> Vec<u8> {
        self.out.into()
    }
}

/// A change to hot rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// A row was added, deleted or replaced.
    Row(HotRow),
    /// Part of a host's row changed.
    Part(HostPart),
}

/// Decodes the changes of a log row. The row that says where the log begins has none.
pub fn decode(bytes: &[u8]) -> Result<Vec<Change>, Damaged> {
    let mut input = Reader::new(bytes);
    format::read(&mut input)?;
    let mut changes = Vec::new();
    while !input.is_empty() {
        let key = input.bytes()?;
        let change = match input.byte()? {
            GONE => Change::Row(hot::decode(key, None)?),
            WHOLE => Change::Row(hot::decode(key, Some(input.bytes()?))?),
            BEGIN => continue,
            PART => Change::Part(host::decode_part(hot::parse_host_key(key)?, &mut Reader::new(input.bytes()?))?),
            _ => return Err(Damaged("a log row contains an unknown change")),
        };
        changes.push(change);
    }
    Ok(changes)
}
