//! Cursors of listings, opaque to callers. A cursor names a shard and, unless that shard is to be listed from its
//! start, the key after which the listing resumes there.

use std::fmt::Write as _;

use wayleave_core::frontier::listing::{GroupCursor, LeaseCursor};
use wayleave_core::frontier::refusal::Refusal;
use wayleave_core::ids::{HostId, QueueId, ShardId};
use wayleave_core::time::Time;

use crate::ask::UrlCursor;

/// A resume key as text, without the dash that separates it from the shard.
pub(crate) trait CursorKey: Sized {
    fn to_text(&self) -> String;
    fn from_text(text: &str) -> Option<Self>;
}

/// Encodes a position in a listing over shards.
pub(crate) fn write<P: CursorKey>(shard: ShardId, key: Option<&P>) -> String {
    match key {
        Some(key) => format!("{:x}-{}", shard.0, key.to_text()),
        None => format!("{:x}", shard.0),
    }
}

/// Decodes what [`write`] encoded. Without a cursor a listing starts at the beginning.
pub(crate) fn read<P: CursorKey>(cursor: Option<&str>) -> Result<(ShardId, Option<P>), Refusal> {
    let Some(cursor) = cursor else { return Ok((ShardId(0), None)) };
    let (shard, key) = cursor.split_once('-').map_or((cursor, None), |(shard, key)| (shard, Some(key)));
    let shard = u16::from_str_radix(shard, 16).map_err(|_| Refusal::BadCursor)?;
    let key = key.map(|key| P::from_text(key).ok_or(Refusal::BadCursor)).transpose()?;
    Ok((ShardId(shard), key))
}

impl CursorKey for HostId {
    fn to_text(&self) -> String {
        format!("{:x}", self.0)
    }

    fn from_text(text: &str) -> Option<Self> {
        u64::from_str_radix(text, 16).ok().map(Self)
    }
}

impl CursorKey for GroupCursor {
    fn to_text(&self) -> String {
        match self {
            Self::Alias(alias) => format!("a{}", hex(alias.as_bytes())),
            Self::Host(host) => format!("h{}", host.to_text()),
        }
    }

    fn from_text(text: &str) -> Option<Self> {
        if let Some(host) = text.strip_prefix('h') {
            return HostId::from_text(host).map(Self::Host);
        }
        let alias = String::from_utf8(unhex(text.strip_prefix('a')?)?).ok()?;
        Some(Self::Alias(alias.as_str().into()))
    }
}

impl CursorKey for LeaseCursor {
    fn to_text(&self) -> String {
        format!("{:x}-{:x}", self.0.0, self.1)
    }

    fn from_text(text: &str) -> Option<Self> {
        let (time, hash) = text.split_once('-')?;
        Some(Self(Time(u64::from_str_radix(time, 16).ok()?), u32::from_str_radix(hash, 16).ok()?))
    }
}

impl CursorKey for UrlCursor {
    fn to_text(&self) -> String {
        format!("{:x}-{:x}-{}", self.queue.host.0, self.queue.no, hex(&self.key))
    }

    fn from_text(text: &str) -> Option<Self> {
        let mut parts = text.split('-');
        let host = HostId::from_text(parts.next()?)?;
        let no = u32::from_str_radix(parts.next()?, 16).ok()?;
        let key = unhex(parts.next()?)?;
        parts.next().is_none().then_some(Self { queue: QueueId { host, no }, key })
    }
}

fn hex(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len() * 2);
    bytes.iter().for_each(|byte| _ = write!(text, "{byte:02x}"));
    text
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    let digits = text.as_bytes().chunks(2).map(|pair| std::str::from_utf8(pair).ok());
    digits.map(|pair| u8::from_str_radix(pair?, 16).ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reads_back<P: CursorKey + PartialEq + std::fmt::Debug>(key: P) {
        let text = write(ShardId(0x2a), Some(&key));
        assert_eq!(read(Some(&text)), Ok((ShardId(0x2a), Some(key))), "{text}");
    }

    #[test]
    fn cursors_read_back_and_nonsense_is_refused() {
        reads_back(HostId(u64::MAX));
        reads_back(GroupCursor::Alias("some-village".into()));
        reads_back(GroupCursor::Host(HostId(7)));
        reads_back(LeaseCursor(Time(1_700_000_000_000), u32::MAX));
        reads_back(UrlCursor { queue: QueueId { host: HostId(77), no: 3 }, key: vec![0, 255, 16] });
        reads_back(UrlCursor { queue: QueueId { host: HostId(77), no: 3 }, key: Vec::new() });
        assert_eq!(read::<HostId>(Some("2")), Ok((ShardId(2), None)));
        for bad in ["", "x", "1-", "1-2-3", "1-2-3-0g", "zz-1", "1-2-3-\u{e9}", "1-2-3-00-4", "1-a0g", "1-hx"] {
            assert!(read::<UrlCursor>(Some(bad)).is_err(), "{bad}");
            assert!(read::<GroupCursor>(Some(bad)).is_err(), "{bad}");
        }
        assert!(read::<HostId>(Some("1-2-3")).is_err() && read::<LeaseCursor>(Some("1-2")).is_err());
    }
}
