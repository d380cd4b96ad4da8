//! Background work, in slices: expired reservations and holds, and the filter rebuild.

use wayleave_core::frontier::url_key::UrlKey;
use wayleave_core::ids::QueueId;
use wayleave_core::limits::{DAMAGED_RETRY_MIN, SLICE_ROWS};
use wayleave_core::time::{Millis, Time};
use wayleave_engine::rows::{Kind, hold, key, url};
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
                let rows = self.readable_rows(&urls).await?;
                self.state.expire_lease(token, rows, now, &mut writes);
            }
            self.commit(writes);
        }
        self.sweep_chunks(now).await?;
        if self.state.next_hold() <= now {
            self.sweep_holds(now).await?;
        }
        if self.state.forget_vacant(now) {
            self.commit(Vec::new());
        }
        self.sweep_stranded(now).await
    }

    /// Tries again to return what could not be read when it ended.
    async fn sweep_stranded(&mut self, now: Time) -> Result<(), Error> {
        if !self.state.is_damaged() {
            return Ok(());
        }
        let mut writes = Vec::new();
        for (token, urls) in self.state.stranded_leases(now, SLICE_ROWS) {
            let rows = self.readable_rows(&urls).await?;
            self.state.return_stranded(token, rows, now, &mut writes);
        }
        let holds = self.state.take_stranded_holds(now);
        let urls: Vec<(QueueId, UrlKey)> = holds.iter().map(|((_, queue, key), _)| (*queue, key.clone())).collect();
        let rows = self.readable_rows(&urls).await?;
        for ((hold, pause), row) in holds.into_iter().zip(rows) {
            self.state.expire_hold(hold, row, (pause, now), &mut writes);
        }
        self.commit(writes);
        Ok(())
    }

    async fn sweep_holds(&mut self, now: Time) -> Result<(), Error> {
        let (_, to) = key::range(self.shard, Kind::Hold, Kind::Hold);
        // One row more than a slice, to learn when the next hold expires.
        let scan = Scan { from: hold::from(self.shard, self.state.holds_swept()), to, limit: SLICE_ROWS + 1 };
        let (rows, damage) = read_facts::scan_to_damage(&*self.engine, &scan).await?;
        let holds: Result<Vec<_>, _> = rows.iter().map(|row| hold::parse_key(&row.key)).collect();
        let holds = holds.map_err(damaged)?;
        let over = holds.iter().take(SLICE_ROWS).take_while(|(until, _, _)| *until <= now).count();
        let mut behind = None;
        let next = match (holds.get(over), damage) {
            (Some((until, _, _)), _) => *until,
            (None, None) => Time::NEVER,
            (None, Some(cause)) => {
                self.log_damage(&cause, "expired holds cannot be found");
                let from = holds.last().map_or(self.state.holds_swept(), |(until, _, _)| *until);
                behind = self.behind_damaged_holds(from, now).await?;
                behind.unwrap_or_else(|| now.after(DAMAGED_RETRY_MIN))
            }
        };
        let urls: Vec<(QueueId, UrlKey)> =
            holds.iter().take(over).map(|(_, queue, key)| (*queue, key.clone())).collect();
        let rows = self.readable_rows(&urls).await?;
        let mut writes = Vec::new();
        let swept = holds.iter().take(over).map(|(until, _, _)| *until).max();
        for (hold, row) in holds.into_iter().zip(rows) {
            self.state.expire_hold(hold, row, (DAMAGED_RETRY_MIN, now), &mut writes);
        }
        let swept = behind.or(swept).unwrap_or_else(|| self.state.holds_swept());
        self.state.set_holds_swept(swept, next);
        self.commit(writes);
        Ok(())
    }

    /// The first deadline behind unreadable holds from which on holds can be read again; `None` if there is none until now. Holds in
    /// between are looked for again when the shard is next opened.
    async fn behind_damaged_holds(&mut self, from: Time, now: Time) -> Result<Option<Time>, Error> {
        let (mut bad, mut step) = (from, 1);
        let good = loop {
            let at = bad.after(Millis(step));
            if at > now {
                return Ok(None);
            }
            if self.can_read_holds(at).await? {
                break at;
            }
            (bad, step) = (at, step * 2);
        };
        // Between the last that cannot be read and the first that can.
        let (mut bad, mut good) = (bad.0, good.0);
        while good - bad > 1 {
            let middle = bad + (good - bad) / 2;
            if self.can_read_holds(Time(middle)).await? { good = middle } else { bad = middle }
        }
        Ok(Some(Time(good)))
    }

    async fn can_read_holds(&mut self, from: Time) -> Result<bool, Error> {
        let (_, to) = key::range(self.shard, Kind::Hold, Kind::Hold);
        let scan = Scan { from: hold::from(self.shard, from), to, limit: 1 };
        let (rows, damage) = read_facts::scan_to_damage(&*self.engine, &scan).await?;
        Ok(damage.is_none() || !rows.is_empty())
    }

    /// Reads one slice of the URL rows of hosts born in this shard into the filter.
    pub async fn rebuild_filter(&mut self) -> Result<(), Error> {
        if !self.filter.is_learning() {
            return Ok(());
        }
        let (first, to) = key::range(self.shard, Kind::Url, Kind::Url);
        let from = self.filter.learned.take().unwrap_or(first);
        let scan = Scan { from, to, limit: SLICE_ROWS };
        let (rows, damage) = read_facts::scan_to_damage(&*self.engine, &scan).await?;
        let mut unreadable = damage;
        for row in &rows {
            match url::parse_key(&row.key) {
                Ok((queue, key)) => self.filter.add(self.fingerprinter.fingerprint(queue, &key)),
                Err(damage) => unreadable = Some(damage.to_string()),
            }
        }
        if let Some(cause) = unreadable {
            // A filter that lacks a known URL would call it new. Without one every put reads the store.
            self.log_damage(&cause, "the filter of known URLs cannot be built; puts read the store instead");
            self.filter.give_up();
            return Ok(());
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
