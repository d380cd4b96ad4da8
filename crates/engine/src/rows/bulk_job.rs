//! A job over many URLs, as one shard stores it.
//! Lifetime: from its start until it has ended in all shards and enough later jobs have ended too.
//! Key: owning shard · 17 · job id. Value: version, the action and its filter, the progress, how often it was reopened, and
//! what it passed over as unreadable.

use wayleave_core::codec::{Damaged, Reader, Writer};
use wayleave_core::frontier::bulk_job::{JobCursor, JobPhase, JobRow, JobState};
use wayleave_core::frontier::requeue::{BulkAction, BulkOutcome};
use wayleave_core::frontier::view::{UrlFilter, UrlState};
use wayleave_core::ids::{ShardId, Token};

use super::field::{self, Field, codec, fields, numbered};
use super::{Kind, key as keys};
use crate::Key;

numbered! {
    BulkAction: Requeue, Delete;
    JobState: Waiting, Running, Done, Cancelled;
    JobPhase: Announced, Known, Begun, Ended;
    UrlState: Queued, Reserved, Fetched, Gone, Failed;
}
fields!(UrlFilter { crawl, host, state, contains, ignore_case });
fields! {
    JobRow {
        id, what, filter, before, started_at, state, ended_at, stage, cursor, again, outcome, looked_at, openings,
    }
}
fields!(JobCursor { queue, from, again });
fields!(BulkOutcome { done, reserved, unknown, unreadable });
codec!(JobRow);

/// The key of a job.
#[must_use]
pub fn key(shard: ShardId, id: Token) -> Key {
    keys::of(shard, Kind::BulkJob, &[&id.0])
}
