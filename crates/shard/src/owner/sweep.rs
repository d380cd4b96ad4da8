//! Background work, in slices: expired reservations and holds, rows of deleted queues, and the filter rebuild.

use wayleave_core::frontier::row::Write;
use wayleave_core::frontier::url_key::UrlKey;
use wayleave_core::ids::QueueId;
use wayleave_core::limits::SLICE_ROWS;
use wayleave_core::time::Time;
use wayleave_engine::rows::{Kind, due, hold, job, key, url};
use wayleave_engine::{Error, Scan};

use crate::owner::open::damaged;
use crate::owner::owner_loop::Owner;
use crate::owner::read_facts;

impl Owner {
    /// Returns what has expired. Only entries that are due are read; there is no polling.
    pub async fn sweep(&mut self) -> Result<(), Error> {
        let now = self.now();
        let expired = self.state.expired_leases(now, SLICE_ROWS);
        if !expired.is_empty() {
            let mut writes = Vec::new();
            for (token, urls) in expired {
                let rows = read_facts::url_rows(&*self.engine, &urls).await?;
                self.state.expire_lease(token, rows, now, &mut writes);
            }
            self.commit(writes);
        }
        self.sweep_chunks(now).await?;
        if self.state.next_hold() <= now {
            self.sweep_holds(now).await?;
        }
        Ok(())
    }

    async fn sweep_holds(&mut self, now: Time) -> Result<(), Error> {
        let (_, to) = key::range(self.shard, Kind::Hold, Kind::Hold);
        // One row more than a slice, to learn when the next hold expires.
        let scan = Scan { from: hold::from(self.shard, self.state.holds_swept()), to, limit: SLICE_ROWS + 1 };
        let rows = self.engine.scan_many(std::slice::from_ref(&scan)).await?.pop().unwrap_or_default();
        let holds: Result<Vec<_>, _> = rows.iter().map(|row| hold::parse_key(&row.key)).collect();
        let holds = holds.map_err(damaged)?;
        let over = holds.iter().take(SLICE_ROWS).take_while(|(until, _, _)| *until <= now).count();
        let next = holds.get(over).map_or(Time::NEVER, |(until, _, _)| *until);
        let urls: Vec<(QueueId, UrlKey)> =
            holds.iter().take(over).map(|(_, queue, key)| (*queue, key.clone())).collect();
        let rows = read_facts::url_rows(&*self.engine, &urls).await?;
        let mut writes = Vec::new();
        let swept = holds.iter().take(over).map(|(until, _, _)| *until).max();
        for (hold, row) in holds.into_iter().zip(rows) {
            self.state.expire_hold(hold, row, now, &mut writes);
        }
        self.state.set_holds_swept(swept.unwrap_or_else(|| self.state.holds_swept()), next);
        self.commit(writes);
        Ok(())
    }

    /// Registers deletions that were just decided.
    pub fn follow_deletions(&mut self, writes: &[Write]) {
        self.deleted_queues.extend(writes.iter().filter_map(|write| match write {
            Write::Job(queue, true) => Some(*queue),
            _ => None,
        }));
    }

    /// Removes one slice of the rows of a deleted queue.
    pub async fn remove_deleted_rows(&mut self) -> Result<(), Error> {
        let Some(queue) = self.deleted_queues.front().copied() else { return Ok(()) };
        let scans = [url::prefix(queue), due::prefix(queue)].map(|from| Scan {
            to: key::after_prefix(&from),
            from,
            limit: SLICE_ROWS / 2,
        });
        let found = self.engine.scan_many(&scans).await?;
        let mut rows: Vec<wayleave_engine::Write> =
            found.into_iter().flatten().map(|row| wayleave_engine::Write { key: row.key, value: None }).collect();
        if rows.is_empty() {
            self.deleted_queues.pop_front();
            rows.push(wayleave_engine::Write { key: job::key(self.shard, queue), value: None });
        }
        self.commit_rows(rows);
        Ok(())
    }

    /// Reads one slice of the URL rows of hosts born in this shard into the filter.
    pub async fn rebuild_filter(&mut self) -> Result<(), Error> {
        if !self.filter.is_learning() {
            return Ok(());
        }
        let (first, to) = key::range(self.shard, Kind::Url, Kind::Url);
        let from = self.filter.learned.take().unwrap_or(first);
        let scan = Scan { from, to, limit: SLICE_ROWS };
        let rows = self.engine.scan_many(std::slice::from_ref(&scan)).await?.pop().unwrap_or_default();
        for row in &rows {
            let (queue, key) = url::parse_key(&row.key).map_err(damaged)?;
            self.filter.add(self.fingerprinter.fingerprint(queue, &key));
        }
        match rows.into_iter().next_back() {
            Some(row) if self.filter.is_learning() => {
                let mut after = row.key;
                after.push(0);
                self.filter.learned = Some(after);
            }
            _ => self.filter.finish_learning(),
        }
        Ok(())
    }
}
