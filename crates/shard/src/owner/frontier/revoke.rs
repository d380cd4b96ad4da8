//! Revocation: an operator ends reservations and holds early. To the holder it looks like expiry: its token is no
//! longer current. The URLs return unchanged, and the group's delay starts now.

use hashbrown::HashSet;
use wayleave_core::frontier::damage::Hold;
use wayleave_core::frontier::refusal::Refusal;
use wayleave_core::frontier::url_key::UrlKey;
use wayleave_core::frontier::view::UrlView;
use wayleave_core::ids::{HostId, QueueId};
use wayleave_core::limits::{HOST_HELD_SHOWN_MAX, SLICE_ROWS};
use wayleave_core::names::HostName;
use wayleave_engine::{Error, Key};

use crate::ask::{HoldsEnded, Revoke};
use crate::owner::frontier::Frontier;
use crate::owner::frontier::holds;
use crate::owner::port::Port;
use crate::owner::read_facts::{self, Found};

/// Slices of holds searched for those of one host before the listing is cut short.
const SLICES_MAX: usize = 8;

impl Frontier {
    /// Revokes one slice of the selected reservations; returns their number.
    pub async fn revoke(&mut self, which: &Revoke, port: &mut Port) -> Result<Result<u64, Refusal>, Error> {
        let now = self.now(port);
        let leases = match which {
            Revoke::Token(token) => match self.state.release_targets(*token, now) {
                Ok(urls) => vec![(*token, urls)],
                Err(refusal) => return Ok(Err(refusal)),
            },
            Revoke::Holder(holder) => self.state.leases_of_holder(holder, SLICE_ROWS),
            Revoke::Host(host) => self.state.leases_of_host(host, SLICE_ROWS),
        };
        let mut writes = Vec::new();
        let mut ended = 0;
        for (token, urls) in leases {
            let rows = self.readable_rows(&urls, port).await?;
            ended += u64::from(self.state.revoke(token, rows, now, &mut writes));
        }
        self.commit(writes, port);
        Ok(Ok(ended))
    }

    /// Revokes the holds of a host within one slice of all holds.
    pub async fn revoke_holds(
        &mut self,
        host: &HostName,
        after: Option<Key>,
        port: &mut Port,
    ) -> Result<HoldsEnded, Error> {
        let Some(id) = self.state.has_holds(host) else { return Ok(HoldsEnded::default()) };
        let (holds, next, cause) = self.holds_from(id, after, port).await?;
        let ended = holds.len() as u64;
        let now = self.now(port);
        self.expire_holds(holds, now, port).await?;
        Ok(HoldsEnded { ended, next, left: self.state.holds_of(id), cause })
    }

    /// A sample of the URLs of a host that are handed out, of those that can be read.
    pub async fn in_hand(&mut self, host: &HostName, port: &mut Port) -> Result<Vec<UrlView>, Error> {
        let Some(id) = self.state.has_holds(host) else { return Ok(Vec::new()) };
        let mut urls: Vec<(QueueId, UrlKey)> = self
            .state
            .leases_of_host(host, HOST_HELD_SHOWN_MAX)
            .into_iter()
            .flat_map(|(_, urls)| urls)
            .take(HOST_HELD_SHOWN_MAX)
            .collect();
        let (mut after, mut slices) = (None, 0);
        while urls.len() < HOST_HELD_SHOWN_MAX && slices < SLICES_MAX {
            let (holds, next, _) = self.holds_from(id, after.take(), port).await?;
            urls.extend(holds.into_iter().map(|(_, queue, key)| (queue, key)));
            after = next;
            slices += 1;
            if after.is_none() {
                break;
            }
        }
        urls.truncate(HOST_HELD_SHOWN_MAX);
        let mut once = HashSet::new();
        urls.retain(|url| once.insert(url.clone()));
        let rows = self.readable_rows(&urls, port).await?;
        let known = urls.into_iter().zip(rows).filter_map(|((queue, key), row)| Some((queue, key, row?)));
        let views = self.readable_views(known.collect(), port).await?;
        let mut views: Vec<UrlView> = views.into_iter().filter_map(|view| view.ok().flatten()).collect();
        views.retain(|view| view.held_until.is_some());
        views.sort_by_key(|view| view.held_until);
        Ok(views)
    }

    /// The holds of a host within one slice of the shard's holds, the start of the next slice, and why some holds cannot be read.
    async fn holds_from(
        &mut self,
        host: HostId,
        after: Option<Key>,
        port: &mut Port,
    ) -> Result<(Vec<Hold>, Option<Key>, Option<String>), Error> {
        let scan = self.holds.scan(after, SLICE_ROWS);
        let Found { rows, gaps, next } = read_facts::scan_past_damage(&*port.engine, &scan).await?;
        let mut holds = holds::parsed(&rows)?;
        holds.retain(|(_, queue, _)| queue.host == host);
        let cause = gaps.map(|gaps| gaps.cause).or_else(|| self.holds.cause().map(str::to_owned));
        Ok((holds, next, cause))
    }
}

#[cfg(test)]
#[path = "revoke_tests.rs"]
mod tests;
