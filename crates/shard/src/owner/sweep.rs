//! Background work, in slices: expired reservations and holds, and the filter rebuild.

use wayleave_core::frontier::damage::Hold;
use wayleave_core::frontier::url_key::UrlKey;
use wayleave_core::ids::QueueId;
use wayleave_core::limits::{DAMAGED_RETRY_MIN, SLICE_ROWS};
use wayleave_core::time::Time;
use wayleave_engine::rows::{Kind, hold, key, url};
use wayleave_engine::{Error, Scan};

use crate::owner::open::damaged;
use crate::owner::owner_loop::Owner;
use crate::owner::read_facts::{self, Found};

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

    /// Ends holds that have expired. Holds that cannot be read are passed over: later sweeps go on behind this gap, and look
    /// into it again after a pause. The position that the state knows stays before it, because others read all holds from
    /// there on.
    async fn sweep_holds(&mut self, now: Time) -> Result<(), Error> {
        let (_, to) = key::range(self.shard, Kind::Hold, Kind::Hold);
        let behind = self.holds_behind.take().filter(|(_, retry)| *retry > now);
        let start = behind.map_or(self.state.holds_swept(), |(resume, _)| resume);
        // One row more than a slice, to learn when the next hold expires.
        let scan = Scan { from: hold::from(self.shard, start), to, limit: SLICE_ROWS + 1 };
        let Found { rows, gaps, next } = read_facts::scan_past_damage(&*self.engine, &scan).await?;
        let holds: Result<Vec<_>, _> = rows.iter().map(|row| hold::parse_key(&row.key)).collect();
        let holds = holds.map_err(damaged)?;
        let over = holds.iter().take(SLICE_ROWS).take_while(|(until, _, _)| *until <= now).count();
        // Where the scan met too many gaps.
        let ended = next.filter(|_| over == holds.len()).and_then(|next| hold::parse_key(&next).ok());
        let ended = ended.map(|(until, _, _)| until);
        let mut next = holds.get(over).map(|(until, _, _)| *until).or(ended).unwrap_or(Time::NEVER);
        let last = |holds: &[Hold]| holds.iter().map(|(until, _, _)| *until).max();
        let swept = last(holds.get(..over).unwrap_or_default()).max(ended).unwrap_or(start);
        let gap = gaps.filter(|gaps| gaps.first <= over);
        if let Some(gap) = &gap {
            self.log_damage(&gap.cause, "some holds cannot be found");
        }
        let gap = gap.map(|gap| last(holds.get(..gap.first).unwrap_or_default()).unwrap_or(start));
        let retry = behind.map_or_else(|| now.after(DAMAGED_RETRY_MIN), |(_, retry)| retry);
        let known = if behind.is_some() { Some(self.state.holds_swept()) } else { gap };
        if known.is_some() {
            self.holds_behind = Some((swept, retry));
            next = next.min(retry);
        }
        let urls: Vec<(QueueId, UrlKey)> =
            holds.iter().take(over).map(|(_, queue, key)| (*queue, key.clone())).collect();
        let rows = self.readable_rows(&urls).await?;
        let mut writes = Vec::new();
        for (hold, row) in holds.into_iter().zip(rows) {
            self.state.expire_hold(hold, row, (DAMAGED_RETRY_MIN, now), &mut writes);
        }
        self.state.set_holds_swept(known.unwrap_or(swept), next);
        self.commit(writes);
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
