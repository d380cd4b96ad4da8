//! Holds of the paced form. They are keyed by deadline: a sweep ends those between where the last one got to and now.
//!
//! Holds that cannot be read are in *gaps* of keys. The sweep goes on behind a gap and remembers it, and later tries to read
//! the gap alone, ever more rarely. A call that needs all holds of a host cannot tell whose are in a gap, but the host's
//! queues count them: if as many were found as they count, none is missing.

use wayleave_core::frontier::damage::{Hold, longer};
use wayleave_core::frontier::url_key::UrlKey;
use wayleave_core::ids::{QueueId, ShardId};
use wayleave_core::limits::{DAMAGED_RETRY_MIN, SLICE_ROWS};
use wayleave_core::time::{Millis, Time};
use wayleave_engine::rows::{Kind, hold, key};
use wayleave_engine::{Error, Key, Row, Scan};

use crate::owner::frontier::Frontier;
use crate::owner::open::damaged;
use crate::owner::port::Port;
use crate::owner::read_facts::{self, Found};

/// Gaps that are remembered. Past that the last ones count as one, with all that lies between them.
const GAPS_MAX: usize = 64;

/// How far the sweep got, and what it could not read.
pub(crate) struct Holds {
    /// All holds before this are gone, but for those in gaps.
    from: Key,
    to: Key,
    /// In the order of their keys.
    gaps: Vec<Gap>,
    /// The rest of a gap that is being read again.
    retried: Option<Gap>,
}

/// Keys before `from` whose holds could not be read.
struct Gap {
    from: Key,
    to: Key,
    cause: String,
    retry_at: Time,
    pause: Millis,
}

impl Holds {
    pub fn new(shard: ShardId) -> Self {
        let (from, to) = key::range(shard, Kind::Hold, Kind::Hold);
        Self { from, to, gaps: Vec::new(), retried: None }
    }

    /// A scan of all holds from a key on, or from where the sweep got to: in an LSM store there are tombstones before that.
    pub fn scan(&self, after: Option<Key>, limit: usize) -> Scan {
        // A resume key is only valid for the shard that returned it.
        let after = after.filter(|after| *after >= self.from && *after < self.to);
        Scan { from: after.unwrap_or_else(|| self.from.clone()), to: self.to.clone(), limit }
    }

    /// Why some holds that the sweep has passed cannot be read.
    pub fn cause(&self) -> Option<&str> {
        self.gaps.iter().chain(&self.retried).map(|gap| &*gap.cause).next()
    }

    /// Holds came from another shard, which may have to be swept again.
    pub fn came(&mut self, shard: ShardId, holds: &[Hold]) {
        let keys = holds.iter().map(|(until, queue, url)| hold::key(shard, *until, *queue, &url.0));
        if let Some(first) = keys.min().filter(|first| *first < self.from) {
            self.from = first;
        }
    }

    /// Remembers gaps that were met before the sweep's position.
    fn keep(&mut self, ranges: Vec<(Key, Key)>, cause: &str, (retry_at, pause): (Time, Millis)) {
        for (from, to) in ranges {
            let mut new = Gap { from, to: to.min(self.from.clone()), cause: cause.to_owned(), retry_at, pause };
            self.gaps.retain(|known| {
                let apart = known.to <= new.from || new.to <= known.from;
                if !apart {
                    new.join(known);
                }
                apart
            });
            if new.from < new.to {
                let at = self.gaps.partition_point(|known| known.from < new.from);
                self.gaps.insert(at, new);
            }
            if self.gaps.len() > GAPS_MAX
                && let Some(last) = self.gaps.pop()
                && let Some(before) = self.gaps.last_mut()
            {
                before.join(&last);
            }
        }
    }

    /// A gap that it is time to look into.
    fn take_due(&mut self, now: Time) -> Option<Gap> {
        let due = self.gaps.iter().position(|gap| gap.retry_at <= now);
        self.retried.take().or_else(|| Some(self.gaps.remove(due?)))
    }

    /// When it is time to look into a gap.
    fn next_try(&self) -> Time {
        let next = self.gaps.iter().chain(&self.retried).map(|gap| gap.retry_at).min();
        next.unwrap_or(Time::NEVER)
    }
}

impl Gap {
    fn join(&mut self, other: &Self) {
        if other.from < self.from {
            self.from.clone_from(&other.from);
        }
        if other.to > self.to {
            self.to.clone_from(&other.to);
        }
        self.retry_at = self.retry_at.min(other.retry_at);
        self.pause = self.pause.max(other.pause);
    }
}

impl Frontier {
    /// Ends a slice of the holds that are over, and looks into a gap if it is time.
    pub async fn sweep_holds(&mut self, now: Time, port: &mut Port) -> Result<(), Error> {
        let next = self.sweep_due(now, port).await?;
        if let Some(gap) = self.holds.take_due(now) {
            self.sweep_gap(gap, now, port).await?;
        }
        self.state.set_next_hold(next.min(self.holds.next_try()));
        Ok(())
    }

    /// Ends a slice of the holds that are over; returns when the next one is.
    async fn sweep_due(&mut self, now: Time, port: &mut Port) -> Result<Time, Error> {
        // One row more than a slice, to learn when the next hold expires.
        let scan = self.holds.scan(None, SLICE_ROWS + 1);
        let Found { rows, gaps, next } = read_facts::scan_past_damage(&*port.engine, &scan).await?;
        let mut over = parsed(&rows)?;
        let ahead = over.split_off(over.partition_point(|(until, ..)| *until <= now));
        let not_over = hold::from(port.shard, now.after(Millis(1)));
        let more = next.filter(|next| ahead.is_empty() && *next < not_over);
        let mut next = if more.is_some() { now } else { ahead.first().map_or(Time::NEVER, |(until, ..)| *until) };
        // A hold may still be made that ends now.
        self.holds.from = more.unwrap_or_else(|| hold::from(port.shard, now));
        if let Some(gaps) = gaps {
            port.log_damage(&gaps.cause, "some holds cannot be found");
            let retry_at = now.after(DAMAGED_RETRY_MIN);
            if gaps.ranges.iter().any(|(_, to)| *to > self.holds.from) {
                // It hides when holds end.
                next = next.min(retry_at);
            }
            self.holds.keep(gaps.ranges, &gaps.cause, (retry_at, DAMAGED_RETRY_MIN));
        }
        self.expire_holds(over, now, port).await?;
        Ok(next)
    }

    /// Ends a slice of the holds in a gap, as far as they can be read by now.
    async fn sweep_gap(&mut self, gap: Gap, now: Time, port: &mut Port) -> Result<(), Error> {
        let scan = Scan { from: gap.from.clone(), to: gap.to.clone(), limit: SLICE_ROWS };
        let Found { rows, gaps, next } = read_facts::scan_past_damage(&*port.engine, &scan).await?;
        if let Some(gaps) = gaps {
            port.log_damage(&gaps.cause, "some holds cannot be found");
            let pause = longer(gap.pause);
            self.holds.keep(gaps.ranges, &gaps.cause, (now.after(pause), pause));
        }
        self.holds.retried = next.map(|from| Gap { from, retry_at: now, ..gap });
        self.expire_holds(parsed(&rows)?, now, port).await
    }

    pub(super) async fn expire_holds(&mut self, holds: Vec<Hold>, now: Time, port: &mut Port) -> Result<(), Error> {
        let urls: Vec<(QueueId, UrlKey)> = holds.iter().map(|(_, queue, key)| (*queue, key.clone())).collect();
        let rows = self.readable_rows(&urls, port).await?;
        let mut writes = Vec::new();
        for (hold, row) in holds.into_iter().zip(rows) {
            self.state.expire_hold(hold, row, (DAMAGED_RETRY_MIN, now), &mut writes);
        }
        self.commit(writes, port);
        Ok(())
    }
}

/// The holds that rows are of.
pub(super) fn parsed(rows: &[Row]) -> Result<Vec<Hold>, Error> {
    rows.iter().map(|row| hold::parse_key(&row.key).map_err(damaged)).collect()
}
