//! Background work, in slices: expired reservations and holds, and the filter rebuild.

use wayleave_core::frontier::url_key::UrlKey;
use wayleave_core::ids::QueueId;
use wayleave_core::limits::SLICE_ROWS;
use wayleave_core::time::Time;
use wayleave_engine::rows::{Kind, key, url};
use wayleave_engine::{Error, Scan};

use crate::owner::frontier::Frontier;
use crate::owner::port::Port;
use crate::owner::read_facts;

impl Frontier {
    /// Returns the reservations that have expired. Only entries that are due are read; there is no polling.
    pub async fn sweep_leases(&mut self, now: Time, port: &mut Port) -> Result<(), Error> {
        let expired = self.state.expired_leases(now, SLICE_ROWS);
        if expired.is_empty() {
            return Ok(());
        }
        let mut writes = Vec::new();
        for (token, urls) in expired {
            let rows = self.readable_rows(&urls, port).await?;
            self.state.expire_lease(token, rows, now, &mut writes);
        }
        self.commit(writes, port);
        Ok(())
    }

    /// Ends the holds that are over, and what is left of hosts and leases.
    pub async fn sweep(&mut self, now: Time, port: &mut Port) -> Result<(), Error> {
        if self.state.next_hold() <= now {
            self.sweep_holds(now, port).await?;
        }
        if self.state.forget_vacant(now) {
            self.commit(Vec::new(), port);
        }
        self.sweep_stranded(now, port).await
    }

    /// Tries again to return what could not be read when it ended.
    async fn sweep_stranded(&mut self, now: Time, port: &mut Port) -> Result<(), Error> {
        if !self.state.is_damaged() {
            return Ok(());
        }
        let mut writes = Vec::new();
        for (token, urls) in self.state.stranded_leases(now, SLICE_ROWS) {
            let rows = self.readable_rows(&urls, port).await?;
            self.state.return_stranded(token, rows, now, &mut writes);
        }
        let holds = self.state.take_stranded_holds(now);
        let urls: Vec<(QueueId, UrlKey)> = holds.iter().map(|((_, queue, key), _)| (*queue, key.clone())).collect();
        let rows = self.readable_rows(&urls, port).await?;
        for ((hold, pause), row) in holds.into_iter().zip(rows) {
            self.state.expire_hold(hold, row, (pause, now), &mut writes);
        }
        self.commit(writes, port);
        Ok(())
    }

    /// Reads one slice of the URL rows of hosts born in this shard into the filter.
    pub async fn rebuild_filter(&mut self, port: &mut Port) -> Result<(), Error> {
        if !self.caches.filter.is_learning() {
            return Ok(());
        }
        let (first, to) = key::range(port.shard, Kind::Url, Kind::Url);
        let from = self.caches.filter.learned.take().unwrap_or(first);
        let scan = Scan { from, to, limit: SLICE_ROWS };
        let (rows, damage) = read_facts::scan_to_damage(&*port.engine, &scan).await?;
        let mut unreadable = damage;
        for row in &rows {
            match url::parse_key(&row.key) {
                Ok((queue, key)) => self.caches.filter.add(self.caches.fingerprinter.fingerprint(queue, &key)),
                Err(damage) => unreadable = Some(damage.to_string()),
            }
        }
        if let Some(cause) = unreadable {
            // A filter that lacks a known URL would call it new. Without one every put reads the store.
            port.log_damage(&cause, "the filter of known URLs cannot be built; puts read the store instead");
            self.caches.filter.give_up();
            return Ok(());
        }
        match rows.into_iter().next_back() {
            Some(row) if self.caches.filter.is_learning() => {
                let mut after = row.key;
                after.push(0);
                self.caches.filter.learned = Some(after);
            }
            _ => self.caches.filter.finish_learning(),
        }
        Ok(())
    }
}
