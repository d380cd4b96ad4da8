//! Retention: chunks that were skipped or set aside are removed after a time; those of a deleted crawl soon, because they name its
//! URLs. Placed chunks stay: their content is served.
//!
//! Chunks at rest are not in memory, so a pass reads their rows, a few at a time, with pauses. A row may hold thousands of links.

use wayleave_core::limits::{CHUNKS_KEPT, DELETED_CHUNKS_KEPT};
use wayleave_core::pipeline::row::{ChunkRow, ChunkState};
use wayleave_core::time::{Millis, Time};
use wayleave_engine::rows::{Kind, chunk, key};
use wayleave_engine::{Error, Key, Scan};

use crate::owner::owner_loop::Owner;
use crate::owner::read_facts;

/// From the end of a pass to the next; the first one begins as long after the shard was opened.
const PASS_EVERY: Millis = Millis(6 * 60 * 60 * 1_000);
/// Between two steps of a pass.
const STEP_EVERY: Millis = Millis(1_000);
/// Rows that one step reads.
const STEP_ROWS: usize = 16;

/// How far the removal of old chunks has come.
pub(crate) struct Retention {
    next_at: Time,
    /// Where the pass goes on; `None` between passes.
    from: Option<Key>,
}

impl Retention {
    pub fn new(now: Time) -> Self {
        Self { next_at: now.after(PASS_EVERY), from: None }
    }

    /// When the next step is due.
    pub fn due(&self) -> Time {
        self.next_at
    }
}

/// Whether a row is of an old chunk. Chunks at rest have all their links in one row.
fn is_old(row: &[u8], now: Time) -> bool {
    chunk::decode(row).and_then(|stored| stored.with_links([])).is_ok_and(|chunk| is_over(&chunk, now))
}

fn is_over(row: &ChunkRow, now: Time) -> bool {
    let kept = if row.is_of_deleted_crawl() { DELETED_CHUNKS_KEPT } else { CHUNKS_KEPT };
    matches!(row.state, ChunkState::Skipped | ChunkState::SetAside) && row.since.after(kept) <= now
}

impl Owner {
    /// Removes the old ones among a few chunks at rest, if a step is due.
    pub async fn remove_old_chunks(&mut self) -> Result<(), Error> {
        let now = self.engine.now();
        if self.retention.next_at > now {
            return Ok(());
        }
        let (first, to) = key::range(self.shard, Kind::RestingChunk, Kind::RestingChunk);
        let scan = Scan { from: self.retention.from.take().unwrap_or(first), to, limit: STEP_ROWS };
        let read_facts::Found { rows, gaps, next } = read_facts::scan_past_damage(&*self.engine, &scan).await?;
        if let Some(gaps) = &gaps {
            self.log_damage(&gaps.cause, "some chunks at rest cannot be read, so old ones among them are not removed");
        }
        self.retention.next_at = now.after(if next.is_some() { STEP_EVERY } else { PASS_EVERY });
        self.retention.from = next;
        let old = rows.into_iter().filter(|row| is_old(&row.value, now));
        let old: Vec<_> = old.map(|row| wayleave_engine::Write { key: row.key, value: None }).collect();
        if !old.is_empty() {
            self.commit_rows(old);
        }
        Ok(())
    }
}
