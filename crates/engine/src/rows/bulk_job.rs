//! A job over many URLs, as one shard stores it.
//! Lifetime: from its start until it has ended in all shards and enough later jobs have ended too.
//! Key: owning shard · 17 · job id. Value: version, the action and its filter, the progress, how often it was reopened, and
//! what it passed over as unreadable.

use wayleave_core::codec::{Damaged, Reader, Writer};
use wayleave_core::frontier::bulk_job::{JobCursor, JobPhase, JobRow, JobState};
use wayleave_core::frontier::requeue::{BulkAction, BulkOutcome};
use wayleave_core::frontier::view::{UrlFilter, UrlState};
use wayleave_core::ids::{HostId, QueueId, ShardId, Token};
use wayleave_core::time::Time;

use super::{Kind, key as keys};
use crate::Key;

const VERSION: u8 = 1;
const WHATS: [BulkAction; 2] = [BulkAction::Requeue, BulkAction::Delete];
const JOB_STATES: [JobState; 4] = [JobState::Waiting, JobState::Running, JobState::Done, JobState::Cancelled];
const STAGES: [JobPhase; 4] = [JobPhase::Announced, JobPhase::Known, JobPhase::Begun, JobPhase::Ended];
const URL_STATES: [UrlState; 5] =
    [UrlState::Queued, UrlState::Reserved, UrlState::Fetched, UrlState::Gone, UrlState::Failed];

/// The key of a job.
#[must_use]
pub fn key(shard: ShardId, id: Token) -> Key {
    let mut key = keys::start(shard, Kind::BulkJob, 16);
    key.extend_from_slice(&id.0);
    key
}

/// Encodes a row.
#[must_use]
pub fn encode(row: &JobRow) -> Vec<u8> {
    let mut out = Writer::with_capacity(128);
    out.byte(VERSION);
    out.raw(&row.id.0);
    out.number(position(&WHATS, &row.what));
    let UrlFilter { crawl, host, state, contains, ignore_case } = &row.filter;
    text(&mut out, crawl.as_deref());
    text(&mut out, host.as_deref());
    out.maybe(state.as_ref().map(|state| position(&URL_STATES, state)));
    text(&mut out, contains.as_deref());
    out.byte((*ignore_case).into());
    out.maybe(row.before.map(|at| at.0));
    out.number(row.started_at.0);
    out.number(position(&JOB_STATES, &row.state));
    out.maybe(row.ended_at.map(|at| at.0));
    out.number(position(&STAGES, &row.stage));
    out.byte(row.cursor.again.into());
    out.maybe(row.cursor.queue.map(|queue| queue.host.0));
    out.number(row.cursor.queue.map_or(0, |queue| queue.no).into());
    out.bytes(row.cursor.from.as_deref().unwrap_or_default());
    out.number(row.again.len() as u64);
    row.again.iter().for_each(|host| out.number(host.0));
    out.number(row.told.done);
    out.number(row.told.reserved);
    out.number(row.told.unknown);
    out.number(row.looked_at);
    out.number(row.openings);
    out.number(row.told.unreadable);
    out.into()
}

/// Decodes a row.
///
/// # Errors
/// If the bytes do not decode.
pub fn decode(bytes: &[u8]) -> Result<JobRow, Damaged> {
    let mut input = Reader::new(bytes);
    if input.byte()? != VERSION {
        return Err(Damaged("the row of a job has an unknown version"));
    }
    let id = Token(input.raw(16)?.try_into().map_err(|_| Damaged("the id of a job is too short"))?);
    let what = at(&WHATS, input.number()?)?;
    let filter = UrlFilter {
        crawl: maybe_text(&mut input)?.map(Into::into),
        host: maybe_text(&mut input)?.map(Into::into),
        state: input.maybe()?.map(|state| at(&URL_STATES, state)).transpose()?,
        contains: maybe_text(&mut input)?.map(Into::into),
        ignore_case: input.byte()? != 0,
    };
    let before = input.maybe()?.map(Time);
    let mut row = JobRow::new(id, what, filter, before, Time(input.number()?));
    row.state = at(&JOB_STATES, input.number()?)?;
    row.ended_at = input.maybe()?.map(Time);
    row.stage = at(&STAGES, input.number()?)?;
    let again = input.byte()? != 0;
    let (host, no) = (input.maybe()?.map(HostId), input.small()?);
    let from = Some(input.bytes()?.to_vec()).filter(|key| !key.is_empty());
    row.cursor = JobCursor { queue: host.map(|host| QueueId { host, no }), from, again };
    for _ in 0..input.number()? {
        row.again.push(HostId(input.number()?));
    }
    let (done, reserved, unknown) = (input.number()?, input.number()?, input.number()?);
    row.told = BulkOutcome { done, reserved, unknown, unreadable: 0 };
    row.looked_at = input.number()?;
    row.openings = input.number()?;
    row.told.unreadable = input.number()?;
    Ok(row)
}

fn position<T: PartialEq>(all: &[T], one: &T) -> u64 {
    all.iter().position(|other| other == one).unwrap_or_default() as u64
}

fn at<T: Copy>(all: &[T], number: u64) -> Result<T, Damaged> {
    usize::try_from(number)
        .ok()
        .and_then(|n| all.get(n))
        .copied()
        .ok_or(Damaged("a job row contains an unknown number"))
}

/// An optional text: an empty one differs from none.
fn text(out: &mut Writer, text: Option<&str>) {
    out.byte(text.is_some().into());
    out.text(text.unwrap_or_default());
}

fn maybe_text<'a>(input: &mut Reader<'a>) -> Result<Option<&'a str>, Damaged> {
    let is_some = input.byte()? != 0;
    let text = input.text()?;
    Ok(is_some.then_some(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_reads_back_as_it_was_written() {
        let filter = UrlFilter {
            crawl: Some("news".into()),
            host: Some("a.example".into()),
            state: Some(UrlState::Failed),
            contains: Some("".into()),
            ignore_case: true,
        };
        let mut row = JobRow::new(Token([7; 16]), BulkAction::Delete, filter, Some(Time(5)), Time(9));
        assert_eq!(decode(&encode(&row)), Ok(row.clone()));
        row.state = JobState::Cancelled;
        (row.ended_at, row.stage, row.again) = (Some(Time(11)), JobPhase::Known, vec![HostId(3), HostId(u64::MAX)]);
        let queue = Some(QueueId { host: HostId(4), no: 2 });
        row.cursor = JobCursor { queue, from: Some(vec![1, 2, 3]), again: true };
        (row.told, row.looked_at) = (BulkOutcome { done: 1, reserved: 2, unknown: 3, unreadable: 0 }, 4);
        assert_eq!(decode(&encode(&row)), Ok(row.clone()));
        let plain = JobRow::new(Token([0; 16]), BulkAction::Requeue, UrlFilter::default(), None, Time(0));
        assert_eq!(decode(&encode(&plain)), Ok(plain));
        for (stage, openings) in [(JobPhase::Ended, 0), (JobPhase::Begun, 3), (JobPhase::Ended, u64::MAX)] {
            (row.stage, row.openings) = (stage, openings);
            assert_eq!(decode(&encode(&row)), Ok(row.clone()));
        }
        assert!(decode(&[9]).is_err() && decode(&encode(&row)[..20]).is_err());
    }
}
