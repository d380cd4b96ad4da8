//! Cursors of listings: opaque to callers, exact to us.

use wayleave_core::frontier::refusal::Refusal;
use wayleave_core::ids::{HostId, QueueId, ShardId};

use crate::ask::UrlPlace;

/// A place in a listing over shards: a shard and a place in it.
pub(crate) fn write(shard: u16, place: u32) -> String {
    format!("{shard:x}-{place:x}")
}

/// Reads what [`write`] wrote; without a cursor a listing starts at the beginning.
pub(crate) fn read(cursor: Option<&str>) -> Result<(u16, u32), Refusal> {
    let Some(cursor) = cursor else { return Ok((0, 0)) };
    let parts = cursor.split_once('-').ok_or(Refusal::BadCursor)?;
    let shard = u16::from_str_radix(parts.0, 16).map_err(|_| Refusal::BadCursor)?;
    let place = u32::from_str_radix(parts.1, 16).map_err(|_| Refusal::BadCursor)?;
    Ok((shard, place))
}

/// A place in a listing of URLs.
pub(crate) fn write_url(shard: ShardId, place: Option<&UrlPlace>) -> String {
    use std::fmt::Write as _;
    let mut text = format!("{:x}", shard.0);
    if let Some(place) = place {
        _ = write!(text, "-{:x}-{:x}-", place.queue.host.0, place.queue.no);
        place.key.iter().for_each(|byte| _ = write!(text, "{byte:02x}"));
    }
    text
}

/// Reads what [`write_url`] wrote.
pub(crate) fn read_url(cursor: Option<&str>) -> Result<(ShardId, Option<UrlPlace>), Refusal> {
    let Some(cursor) = cursor else { return Ok((ShardId(0), None)) };
    let mut parts = cursor.split('-');
    let mut number = || parts.next().map(|part| u64::from_str_radix(part, 16).map_err(|_| Refusal::BadCursor));
    let shard = number().ok_or(Refusal::BadCursor)??;
    let shard = ShardId(u16::try_from(shard).map_err(|_| Refusal::BadCursor)?);
    let (Some(host), Some(no)) = (number().transpose()?, number().transpose()?) else { return Ok((shard, None)) };
    let no = u32::try_from(no).map_err(|_| Refusal::BadCursor)?;
    let key = parts.next().ok_or(Refusal::BadCursor)?;
    let digits = key.as_bytes().chunks(2).map(|pair| std::str::from_utf8(pair).ok());
    let bytes: Option<Vec<u8>> = digits.map(|pair| u8::from_str_radix(pair?, 16).ok()).collect();
    let queue = QueueId { host: HostId(host), no };
    Ok((shard, Some(UrlPlace { queue, key: bytes.ok_or(Refusal::BadCursor)? })))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cursors_read_back_and_nonsense_is_refused() {
        assert_eq!(read(Some(&write(7, 99))), Ok((7, 99)));
        let place = UrlPlace { queue: QueueId { host: HostId(77), no: 3 }, key: vec![0, 255, 16] };
        assert_eq!(read_url(Some(&write_url(ShardId(2), Some(&place)))), Ok((ShardId(2), Some(place))));
        assert_eq!(read_url(Some(&write_url(ShardId(2), None))), Ok((ShardId(2), None)));
        for bad in ["", "x", "1-2-3", "1-2-3-0g", "zz-1", "1-2-3-\u{e9}"] {
            assert!(read_url(Some(bad)).is_err(), "{bad}");
            assert!(read(Some(bad)).is_err(), "{bad}");
        }
    }
}
