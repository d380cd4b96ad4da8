//! Revocation: an operator ends reservations and holds early. To the holder it looks like expiry: its token is no
//! longer current. The URLs return unchanged, and the group's delay starts now.

use hashbrown::HashSet;
use wayleave_core::frontier::refusal::Refusal;
use wayleave_core::frontier::url_key::UrlKey;
use wayleave_core::frontier::view::UrlView;
use wayleave_core::ids::{HostId, QueueId};
use wayleave_core::limits::{DAMAGED_RETRY_MIN, HOST_HELD_SHOWN_MAX, SLICE_ROWS};
use wayleave_core::names::HostName;
use wayleave_core::time::Time;
use wayleave_engine::rows::{Kind, hold, key};
use wayleave_engine::{Error, Key, Scan};

use crate::ask::Revoke;
use crate::owner::chunks::Decided;
use crate::owner::open::damaged;
use crate::owner::owner_loop::Owner;
use crate::owner::read_facts;

/// Slices of holds searched for those of one host before the listing is cut short.
const SLICES_MAX: usize = 8;

type Hold = (Time, QueueId, UrlKey);

impl Owner {
    /// Revokes one slice of the selected reservations; returns their number.
    pub async fn revoke(&mut self, which: &Revoke) -> Result<Result<u64, Refusal>, Error> {
        let now = self.now();
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
            let rows = self.readable_rows(&urls).await?;
            ended += u64::from(self.state.revoke(token, rows, now, &mut writes));
        }
        self.commit(writes);
        Ok(Ok(ended))
    }

    /// Revokes the holds of a host within one slice of all holds; returns their number and the start of the next slice.
    pub async fn revoke_holds(&mut self, host: &HostName, after: Option<Key>) -> Decided<(u64, Option<Key>)> {
        let Some(id) = self.state.has_holds(host) else { return Ok(Ok((0, None))) };
        let (holds, next) = match self.holds_from((id, host), after).await? {
            Ok(found) => found,
            Err(refusal) => return Ok(Err(refusal)),
        };
        let urls: Vec<(QueueId, UrlKey)> = holds.iter().map(|(_, queue, key)| (*queue, key.clone())).collect();
        let rows = self.readable_rows(&urls).await?;
        let now = self.now();
        let mut writes = Vec::new();
        let ended = holds.len() as u64;
        for (hold, row) in holds.into_iter().zip(rows) {
            self.state.expire_hold(hold, row, (DAMAGED_RETRY_MIN, now), &mut writes);
        }
        self.commit(writes);
        Ok(Ok((ended, next)))
    }

    /// A sample of the URLs of a host that are handed out.
    pub async fn in_hand(&mut self, host: &HostName) -> Decided<Vec<UrlView>> {
        let Some(id) = self.state.has_holds(host) else { return Ok(Ok(Vec::new())) };
        let mut urls: Vec<(QueueId, UrlKey)> = self
            .state
            .leases_of_host(host, HOST_HELD_SHOWN_MAX)
            .into_iter()
            .flat_map(|(_, urls)| urls)
            .take(HOST_HELD_SHOWN_MAX)
            .collect();
        let (mut after, mut slices) = (None, 0);
        while urls.len() < HOST_HELD_SHOWN_MAX && slices < SLICES_MAX {
            let (holds, next) = match self.holds_from((id, host), after.take()).await? {
                Ok(found) => found,
                Err(refusal) => return Ok(Err(refusal)),
            };
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
        let rows = match self.url_rows(&urls).await? {
            Ok(rows) => rows,
            Err(refusal) => return Ok(Err(refusal)),
        };
        let known = urls.into_iter().zip(rows).filter_map(|((queue, key), row)| Some((queue, key, row?)));
        let mut views = match self.views(known.collect()).await? {
            Ok(views) => views,
            Err(refusal) => return Ok(Err(refusal)),
        };
        views.retain(|view| view.held_until.is_some());
        views.sort_by_key(|view| view.held_until);
        Ok(Ok(views))
    }

    /// The holds of a host within one slice of the shard's holds, and the start of the next slice. Holds are keyed by
    /// deadline.
    async fn holds_from(
        &mut self,
        (host, name): (HostId, &HostName),
        after: Option<Key>,
    ) -> Decided<(Vec<Hold>, Option<Key>)> {
        let (_, to) = key::range(self.shard, Kind::Hold, Kind::Hold);
        // Earlier ones are gone; in an LSM store their tombstones are not.
        let first = hold::from(self.shard, self.state.holds_swept());
        // A resume key is only valid for the shard that returned it; the host may have moved since.
        let after = after.filter(|after| *after >= first && *after < to);
        let scan = Scan { from: after.unwrap_or(first), to, limit: SLICE_ROWS };
        let (rows, damage) = read_facts::scan_to_damage(&*self.engine, &scan).await?;
        if let Some(cause) = damage {
            self.log_damage(&cause, "holds cannot be read");
            return Ok(Err(Refusal::Damaged { host: name.to_string(), cause }));
        }
        let mut holds = Vec::new();
        for row in &rows {
            let hold = hold::parse_key(&row.key).map_err(damaged)?;
            if hold.1.host == host {
                holds.push(hold);
            }
        }
        let full = rows.len() == SLICE_ROWS;
        let next = rows.into_iter().next_back().filter(|_| full).map(|row| [row.key.as_slice(), &[0]].concat());
        Ok(Ok((holds, next)))
    }
}

#[cfg(test)]
#[path = "revoke_tests.rs"]
mod tests;
