//! A host with its queues and, while it is a group of its own, its pace.
//! Lifetime: from its first URL or setting until its last queue is deleted.
//! Key: owning shard · 4 · host id. Value: version, name, flags, settings, pace, queues with lanes.
//! A partial form with the pace and some of the queues occurs in log rows only.

use wayleave_core::codec::{Damaged, Reader, Writer};
use wayleave_core::frontier::row::{HostPart, HostRef, HostRow, Lane, Pace, QueueRow};
use wayleave_core::ids::HostId;
use wayleave_core::settings::PaceSettings;

use super::field::{Field, fields, fields_of, sparse, write_all, write_list};
use crate::format;

sparse!(QueueRow { no, crawl, lanes; reserved, fetched, gone, failed, limit, visits_mod_ten, pages });
fields!(Lane { lane, count, head, from });
// Most hosts have none of these two: one zero byte each.
sparse!(Pace {
    ;
    last_end, last_duration, last_crawl, backoff_until, backoff_count, backoff_status, asked_by, not_before,
});
sparse!(PaceSettings {
    ;
    delay, factor_milli, delay_min, delay_max, blocked_until, paused, limit, parallel,
});

/// Encodes a row.
#[must_use]
pub fn encode(row: &HostRow) -> Vec<u8> {
    let mut out = Writer::with_capacity(64 + row.name.len());
    encode_into(&mut out, row.by_ref());
    out.into()
}

/// Encodes a row into a buffer.
pub fn encode_into(out: &mut Writer, row: HostRef<'_>) {
    format::write(out);
    write_all!(out, row.name, &row.group, &row.settings, &row.robots_delay, &row.queued_at, &row.next_queue);
    encode_part_into(out, row);
}

/// Encodes the pace and the queues of a row.
pub fn encode_part_into(out: &mut Writer, row: HostRef<'_>) {
    row.pace.write(out);
    write_list(row.queues, out);
}

/// Decodes a row; its id comes from the key.
pub fn decode(id: HostId, bytes: &[u8]) -> Result<HostRow, Damaged> {
    let input = &mut fields_of(bytes)?;
    Ok(HostRow {
        id,
        name: Field::read(input)?,
        group: Field::read(input)?,
        settings: Field::read(input)?,
        robots_delay: Field::read(input)?,
        queued_at: Field::read(input)?,
        next_queue: Field::read(input)?,
        pace: Field::read(input)?,
        queues: Field::read(input)?,
    })
}

/// Decodes the pace and the queues of a host.
pub fn decode_part(id: HostId, input: &mut Reader<'_>) -> Result<HostPart, Damaged> {
    Ok(HostPart { id, pace: Field::read(input)?, queues: Field::read(input)? })
}
