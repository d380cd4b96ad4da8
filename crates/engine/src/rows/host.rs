//! A host with its queues and, while it is a group of its own, its pace.
//! Lifetime: from its first URL or setting until its last queue is deleted.
//! Key: owning shard · 4 · host id. Value: version, name, flags, settings, pace, queues with lanes.
//! A partial form with the pace and some of the queues occurs in log rows only.

use wayleave_core::codec::{Damaged, Reader, Writer};
use wayleave_core::frontier::row::{HostPart, HostRef, HostRow, Lane, Pace, QueueRow};
use wayleave_core::ids::{CrawlNo, GroupId, HostId};
use wayleave_core::settings::PaceSettings;
use wayleave_core::time::{Millis, Time};

const VERSION: u8 = 1;
/// Flag in the byte that counts a queue's visits_mod_ten (which need fewer bits): the number of its pages follows.
const WITH_PAGES: u8 = 0x80;

/// Encodes a row.
#[must_use]
pub fn encode(row: &HostRow) -> Vec<u8> {
    let mut out = Writer::with_capacity(64 + row.name.len());
    encode_into(&mut out, row.by_ref());
    out.into()
}

/// Encodes a row into a buffer.
pub fn encode_into(out: &mut Writer, row: HostRef<'_>) {
    out.byte(VERSION);
    out.text(row.name);
    out.maybe(row.group.map(|id| id.0));
    encode_settings(out, &row.settings);
    out.number(row.robots_delay.0);
    out.maybe(row.queued_at.map(|at| at.0));
    out.number(row.next_queue.into());
    encode_part_into(out, row);
}

/// Encodes the pace and the queues of a row.
pub fn encode_part_into(out: &mut Writer, row: HostRef<'_>) {
    encode_pace(out, row.pace);
    out.number(row.queues.len() as u64);
    for queue in row.queues {
        encode_queue(out, queue);
    }
}

/// Decodes a row; its id comes from the key.
///
/// # Errors
/// If the bytes do not decode.
pub fn decode(id: HostId, bytes: &[u8]) -> Result<HostRow, Damaged> {
    let mut input = Reader::new(bytes);
    if input.byte()? != VERSION {
        return Err(Damaged("a host row has an unknown version"));
    }
    let (name, group) = (input.text()?.into(), input.maybe()?.map(GroupId));
    let (settings, robots_delay) = (decode_settings(&mut input)?, Millis(input.number()?));
    let (queued_at, next_queue) = (input.maybe()?.map(Time), input.small()?);
    let HostPart { id, pace, queues } = decode_part(id, &mut input)?;
    Ok(HostRow { id, name, group, settings, robots_delay, queued_at, next_queue, pace, queues })
}

/// Decodes the pace and the queues of a host.
///
/// # Errors
/// If the bytes do not decode.
pub fn decode_part(id: HostId, input: &mut Reader<'_>) -> Result<HostPart, Damaged> {
    let (pace, count) = (decode_pace(input)?, input.small::<usize>()?);
    let mut queues = Vec::with_capacity(count.min(64));
    for _ in 0..count {
        queues.push(decode_queue(input)?);
    }
    Ok(HostPart { id, pace, queues })
}

pub(super) fn encode_pace(out: &mut Writer, pace: &Pace) {
    if *pace == Pace::default() {
        return out.byte(0);
    }
    let more = pace.backoff_status != 0 || pace.asked_by.is_some() || pace.not_before != Time::ZERO;
    out.byte(if more { 2 } else { 1 });
    out.number(pace.last_end.0);
    out.number(pace.last_duration.0);
    out.number(pace.last_crawl.0.into());
    out.number(pace.backoff_until.0);
    out.number(pace.backoff_count.into());
    if more {
        out.number(pace.backoff_status.into());
        out.number(pace.not_before.0);
        out.text(pace.asked_by.as_deref().unwrap_or_default());
    }
}

pub(super) fn decode_pace(input: &mut Reader<'_>) -> Result<Pace, Damaged> {
    let form = input.byte()?;
    if form == 0 {
        return Ok(Pace::default());
    }
    let mut pace = Pace {
        last_end: Time(input.number()?),
        last_duration: Millis(input.number()?),
        last_crawl: CrawlNo(input.small()?),
        backoff_until: Time(input.number()?),
        backoff_count: input.small()?,
        ..Pace::default()
    };
    if form == 2 {
        (pace.backoff_status, pace.not_before) = (input.small()?, Time(input.number()?));
        pace.asked_by = Some(input.text()?).filter(|url| !url.is_empty()).map(Into::into);
    }
    Ok(pace)
}

pub(super) fn encode_settings(out: &mut Writer, settings: &PaceSettings) {
    if settings.is_empty() {
        return out.byte(0);
    }
    let PaceSettings { delay, factor_milli, delay_min, delay_max, blocked_until, paused, limit, parallel } = *settings;
    out.byte(1);
    out.maybe(delay.map(|m| m.0));
    out.maybe(factor_milli.map(u64::from));
    out.maybe(delay_min.map(|m| m.0));
    out.maybe(delay_max.map(|m| m.0));
    out.maybe(blocked_until.map(|t| t.0));
    out.maybe(paused.map(u64::from));
    out.maybe(limit);
    out.maybe(parallel.map(u64::from));
}

pub(super) fn decode_settings(input: &mut Reader<'_>) -> Result<PaceSettings, Damaged> {
    if input.byte()? == 0 {
        return Ok(PaceSettings::default());
    }
    Ok(PaceSettings {
        delay: input.maybe()?.map(Millis),
        factor_milli: input.maybe()?.map(|n| n as u32),
        delay_min: input.maybe()?.map(Millis),
        delay_max: input.maybe()?.map(Millis),
        blocked_until: input.maybe()?.map(Time),
        paused: input.maybe()?.map(|n| n != 0),
        limit: input.maybe()?,
        parallel: input.maybe()?.map(|n| n as u32),
    })
}

fn encode_queue(out: &mut Writer, queue: &QueueRow) {
    let QueueRow { no, crawl, lanes, reserved, fetched, gone, failed, limit, visits_mod_ten, pages } = queue;
    out.number((*no).into());
    out.number(crawl.0.into());
    for count in [reserved, fetched, gone, failed] {
        out.number((*count).into());
    }
    out.maybe(*limit);
    // In most queues no page was visited twice, so the finished count equals the page count and is not repeated.
    if *pages == finished(*fetched, *gone, *failed) {
        out.byte(*visits_mod_ten);
    } else {
        out.byte(*visits_mod_ten | WITH_PAGES);
        out.number((*pages).into());
    }
    out.number(lanes.len() as u64);
    for Lane { lane, count, head, from } in lanes {
        out.byte(*lane);
        out.number((*count).into());
        out.number(head.0);
        out.number(from.0.0);
        out.bytes(&from.1);
    }
}

fn decode_queue(input: &mut Reader<'_>) -> Result<QueueRow, Damaged> {
    let (no, crawl) = (input.small()?, CrawlNo(input.small()?));
    let (reserved, fetched, gone, failed) = (input.small()?, input.small()?, input.small()?, input.small()?);
    let (limit, visits_mod_ten) = (input.maybe()?, input.byte()?);
    let pages = if visits_mod_ten & WITH_PAGES == 0 { finished(fetched, gone, failed) } else { input.small()? };
    let visits_mod_ten = visits_mod_ten & !WITH_PAGES;
    let count: usize = input.small()?;
    let mut lanes = Vec::with_capacity(count.min(16));
    for _ in 0..count {
        let (lane, count, head) = (input.byte()?, input.small()?, Time(input.number()?));
        lanes.push(Lane { lane, count, head, from: (Time(input.number()?), input.bytes()?.into()) });
    }
    Ok(QueueRow { no, crawl, lanes, reserved, fetched, gone, failed, limit, visits_mod_ten, pages })
}

const fn finished(fetched: u32, gone: u32, failed: u32) -> u32 {
    fetched.saturating_add(gone).saturating_add(failed)
}
