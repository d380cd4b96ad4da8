//! Retention: chunks that were skipped or set aside are removed after a time; those of a deleted crawl soon, because they name its
//! URLs. Placed chunks stay: their content is served.
//!
//! Chunks at rest are not in memory, so a pass reads their rows, a few at a time, with pauses. A row may hold thousands of links.

use wayleave_core::ids::ShardId;
use wayleave_core::limits::{CHUNKS_KEPT, DELETED_CHUNKS_KEPT};
use wayleave_core::names::HostName;
use wayleave_core::pipeline::row::{ChunkRow, ChunkState};
use wayleave_core::time::{Millis, Time};
use wayleave_engine::rows::{Kind, chunk, key};
use wayleave_engine::{Error, Key, Scan};

use crate::owner::pipeline::{Links, Pipeline};
use crate::owner::read_facts;
use crate::routing::router::home;

/// From the end of a pass to the next.
const PASS_EVERY: Millis = Millis(2 * HOUR);
/// From the opening of a shard to its first pass,
const FIRST_AFTER: Millis = Millis(60_000);
/// and how much later that of the next shard begins: a start opens all shards at once. The delay starts over after this many.
const SHARD_AFTER: Millis = Millis(5_000);
const SHARDS_APART: u64 = 64;
/// Between two steps of a pass.
const STEP_EVERY: Millis = Millis(1_000);
/// Rows that one step reads in the first hour of a pass; in each further hour twice as many. In three hours a pass reads the rows of
/// 400,000 chunks.
const STEP_ROWS: usize = 16;
/// At most this many.
const STEP_ROWS_MAX: usize = 1_024;

const HOUR: u64 = 60 * 60 * 1_000;

/// How far the removal of old chunks has come.
pub(crate) struct Retention {
    next_at: Time,
    /// When the pass began, and where it goes on; `None` between passes.
    pass: Option<(Time, Key)>,
}

impl Retention {
    pub fn new(shard: ShardId, now: Time) -> Self {
        let apart = SHARD_AFTER.0 * (u64::from(shard.0) % SHARDS_APART);
        Self { next_at: now.after(Millis(FIRST_AFTER.0 + apart)), pass: None }
    }

    /// When the next step is due.
    pub fn due(&self) -> Time {
        self.next_at
    }
}

/// How many rows a step of a pass reads that has lasted so long.
fn step_rows(lasted: Millis) -> usize {
    let doubled = u32::try_from(lasted.0 / HOUR).unwrap_or(u32::MAX);
    STEP_ROWS.checked_shl(doubled).map_or(STEP_ROWS_MAX, |rows| rows.clamp(STEP_ROWS, STEP_ROWS_MAX))
}

impl Pipeline {
    /// Removes the old ones among a few chunks at rest, if a step is due.
    pub async fn remove_old_chunks(&mut self, with: &mut Links<'_>) -> Result<(), Error> {
        let now = with.port.engine.now();
        if self.retention.next_at > now {
            return Ok(());
        }
        let (first, to) = key::range(with.port.shard, Kind::RestingChunk, Kind::RestingChunk);
        let (begun, from) = self.retention.pass.take().unwrap_or((now, first));
        let scan = Scan { from, to, limit: step_rows(now.since(begun)) };
        let read_facts::Found { rows, gaps, next } = read_facts::scan_past_damage(&*with.port.engine, &scan).await?;
        if let Some(gaps) = &gaps {
            with.port
                .log_damage(&gaps.cause, "some chunks at rest cannot be read, so old ones among them are not removed");
        }
        self.retention.next_at = now.after(if next.is_some() { STEP_EVERY } else { PASS_EVERY });
        self.retention.pass = next.map(|next| (begun, next));
        let old = rows.into_iter().filter(|row| with.is_old(&row.value, now));
        let old: Vec<_> = old.map(|row| wayleave_engine::Write { key: row.key, value: None }).collect();
        if !old.is_empty() {
            with.port.commit_rows(old);
        }
        Ok(())
    }
}

impl Links<'_> {
    /// Whether a row is of an old chunk. Chunks at rest have all their links in one row.
    fn is_old(&self, row: &[u8], now: Time) -> bool {
        chunk::decode(row).and_then(|stored| stored.with_links([])).is_ok_and(|chunk| self.is_over(&chunk, now))
    }

    fn is_over(&self, row: &ChunkRow, now: Time) -> bool {
        let rests_for = |kept: Millis| row.since.after(kept) <= now;
        let is_home = |host: &HostName| home(host, self.port.config.shards) == self.port.shard;
        matches!(row.state, ChunkState::Skipped | ChunkState::SetAside)
            && rests_for(DELETED_CHUNKS_KEPT)
            && (rests_for(CHUNKS_KEPT) || row.is_of_deleted_crawl(&self.frontier.state, is_home))
    }
}

#[cfg(test)]
mod tests {
    use wayleave_core::limits::{DELETED_GONE, REMOVED_GONE};

    use super::*;

    /// How long a pass over as many chunks lasts as one shard is expected to have.
    const PASS_LASTS: Millis = Millis(3 * HOUR);

    #[test]
    fn the_urls_of_deleted_crawls_are_gone_from_chunks_early_enough_to_leave_the_files_within_a_day() {
        // In the worst case a pass has just read the row when the chunk gets old, and the next one reads it last.
        let removed = DELETED_CHUNKS_KEPT.0 + PASS_LASTS.0 + PASS_EVERY.0;
        assert!(removed + REMOVED_GONE.0 <= DELETED_GONE.0, "{} h", removed / HOUR);
        let hour_rows = |hour: u64| HOUR / STEP_EVERY.0 * step_rows(Millis(hour * HOUR)) as u64;
        assert!((0..PASS_LASTS.0 / HOUR).map(hour_rows).sum::<u64>() >= 400_000);
        assert_eq!([0, 7, 500].map(|hours| step_rows(Millis(hours * HOUR))), [16, 1_024, 1_024]);
    }

    #[test]
    fn the_first_pass_begins_soon_after_the_start_and_not_in_all_shards_at_once() {
        let due: Vec<u64> = (0..200).map(|shard| Retention::new(ShardId(shard), Time(7)).due().0 / 1_000).collect();
        assert!(due.iter().all(|due| (60..400).contains(due)), "{due:?}");
        let at_once = |due: &Vec<u64>| due.chunk_by(|a, b| a == b).map(<[u64]>::len).max();
        let mut sorted = due;
        sorted.sort_unstable();
        assert_eq!(at_once(&sorted), Some(4));
    }
}
