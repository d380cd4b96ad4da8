//! Damage: rows of the store that cannot be read. It costs what they hold and nothing else.
//!
//! - A host whose queue cannot be read is set aside: it is not visited until a later try, others are.
//! - A reservation or hold that ends while the rows of some of its URLs cannot be read ends for the others. The rest is
//!   *stranded*: its row stays in the store, and it is tried again ever more rarely. To call these URLs gone would lose
//!   them, to keep the visit open would block their group.
//!
//! All of it is kept in memory only. After a restart the same rows are met again: a stranded reservation is loaded as one that has
//! expired, a stranded hold is found by the first sweep.

use std::collections::BTreeMap;

use hashbrown::HashSet;

use super::refusal::Refusal;
use super::row::{LeaseRow, UrlRow, Write};
use super::state::State;
use super::url_key::UrlKey;
use super::visit::Visit;
use crate::ids::{HostId, QueueId, Token};
use crate::limits::{DAMAGED_RETRY_MAX, DAMAGED_RETRY_MIN, STRANDED_HOLDS_MAX};
use crate::names::HostName;
use crate::time::{Millis, Time};

/// A hold: its deadline and its URL.
pub type Hold = (Time, QueueId, UrlKey);

/// What is known to be damaged.
#[derive(Default)]
pub(super) struct Damage {
    /// Hosts whose queues could not be read.
    hosts: BTreeMap<HostId, SetAside>,
    /// Reservations that ended with URLs whose rows cannot be read, by the time of the next try.
    leases: BTreeMap<(Time, Token), (LeaseRow, Millis)>,
    /// Expired holds of such URLs.
    holds: BTreeMap<Time, Vec<(Hold, Millis)>>,
    hold_count: usize,
    /// The URLs whose rows could not be read for the present decision.
    unreadable: HashSet<(QueueId, UrlKey)>,
}

struct SetAside {
    until: Time,
    pause: Millis,
    cause: Box<str>,
}

/// The pause after one more failure.
fn longer(pause: Millis) -> Millis {
    Millis((pause.0 * 2).clamp(DAMAGED_RETRY_MIN.0, DAMAGED_RETRY_MAX.0))
}

impl Damage {
    /// Until when a host is set aside; in the past if it may be tried.
    pub fn set_aside_until(&self, host: HostId) -> Time {
        if self.hosts.is_empty() { Time::ZERO } else { self.hosts.get(&host).map_or(Time::ZERO, |aside| aside.until) }
    }

    fn is_unreadable(&self, queue: QueueId, key: &UrlKey) -> bool {
        !self.unreadable.is_empty() && self.unreadable.contains(&(queue, key.clone()))
    }

    fn strand(&mut self, lease: LeaseRow, pause: Millis, now: Time) {
        self.leases.insert((now.after(pause), lease.token), (lease, pause));
    }

    /// How many URLs of a queue are in stranded reservations.
    pub fn reserved_of(&self, queue: QueueId) -> u64 {
        let leases = self.leases.values().filter(|(lease, _)| lease.queue() == Some(queue));
        leases.map(|(lease, _)| lease.reserved()).sum()
    }

    /// When the next stranded reservation or hold is tried.
    pub fn next_try(&self) -> Option<Time> {
        let lease = self.leases.keys().next().map(|(at, _)| *at);
        lease.into_iter().chain(self.holds.keys().next().copied()).min()
    }

    fn stranded_urls(&self, host: HostId) -> usize {
        let leases = self.leases.values().filter(|(lease, _)| lease.host == host).map(|(lease, _)| lease.urls.len());
        let holds = self.holds.values().flatten().filter(|((_, queue, _), _)| queue.host == host).count();
        leases.sum::<usize>() + holds
    }
}

impl State {
    /// The rows of these URLs could not be read for the decision that follows: there they appear as missing.
    pub fn set_unreadable(&mut self, urls: impl IntoIterator<Item = (QueueId, UrlKey)>) {
        self.damage.unreadable.clear();
        self.damage.unreadable.extend(urls);
    }

    /// The queue of a planned visit cannot be read: its host is set aside, and its group returns to the schedule.
    pub fn set_aside(&mut self, visit: &Visit, cause: &str, now: Time) {
        let id = self.hosts[visit.host].id;
        let pause = longer(self.damage.hosts.get(&id).map_or(Millis(0), |aside| aside.pause));
        self.damage.hosts.insert(id, SetAside { until: now.after(pause), pause, cause: cause.into() });
        self.reschedule(visit.group, now);
    }

    /// The queue of a planned visit was read: its host is well again.
    pub fn note_read(&mut self, visit: &Visit) {
        if !self.damage.hosts.is_empty() {
            self.damage.hosts.remove(&self.hosts[visit.host].id);
        }
    }

    /// Why a host is set aside, and until when, if its queue could not be read.
    #[must_use]
    pub fn damage_of(&self, host: &str) -> Option<(&str, Time)> {
        let aside = self.damage.hosts.get(&self.host_id(host)?)?;
        Some((&*aside.cause, aside.until))
    }

    /// A sentence about the URLs of a host that cannot be returned, if there are any.
    pub(super) fn told_stranded(&self, host: HostId) -> Option<String> {
        let urls = self.damage.stranded_urls(host);
        (urls > 0).then(|| {
            let urls = crate::counted::counted(urls as u64, "handed-out URL");
            format!("{urls} cannot be returned, because the store is damaged there")
        })
    }

    /// The hosts of which something cannot be read, as far as that is known, and the number of their stranded URLs.
    #[must_use]
    pub fn damaged_hosts(&self) -> (Vec<HostName>, u64) {
        let Damage { hosts, leases, holds, .. } = &self.damage;
        let of_leases = leases.values().map(|(lease, _)| lease.host);
        let of_holds = holds.values().flatten().map(|((_, queue, _), _)| queue.host);
        let mut ids: Vec<HostId> = hosts.keys().copied().chain(of_leases).chain(of_holds).collect();
        ids.sort_unstable();
        ids.dedup();
        let names = ids.into_iter().filter_map(|id| self.hosts.by_id(id)).map(|ix| self.hosts[ix].name.clone());
        let stranded = leases.values().map(|(lease, _)| lease.urls.len()).sum::<usize>() + self.damage.hold_count;
        (names.collect(), stranded as u64)
    }

    /// Whether anything is known to be damaged.
    #[must_use]
    pub fn is_damaged(&self) -> bool {
        !(self.damage.hosts.is_empty() && self.damage.leases.is_empty() && self.damage.holds.is_empty())
    }

    /// A host with stranded URLs stays where it is: the reservations and holds that keep them would not move along.
    pub(super) fn refuse_stranded(&self, host: &str) -> Result<(), Refusal> {
        let told = self.host_id(host).filter(|_| self.is_damaged()).and_then(|id| self.told_stranded(id));
        told.map_or(Ok(()), |cause| Err(Refusal::Damaged { host: host.to_owned(), cause }))
    }

    /// Ends the row of a reservation that was removed from memory: deletes it, unless some of its URLs cannot be read.
    pub(super) fn end_lease_row(&mut self, lease: &LeaseRow, now: Time, writes: &mut Vec<Write>) {
        let stranded = self.stranded_part(&lease.urls);
        if stranded.is_empty() {
            writes.push(Write::Lease(lease.token, None));
            return;
        }
        let rest = LeaseRow {
            urls: stranded,
            taken_away: 0,
            link: None,
            queued_at: None,
            expires_at: lease.expires_at.min(now),
            ..lease.clone()
        };
        writes.push(Write::Lease(rest.token, Some(rest.clone())));
        self.damage.strand(rest, DAMAGED_RETRY_MIN, now);
    }

    /// Those of some URLs that cannot be read, and whose queues still exist.
    pub(super) fn stranded_part(&self, urls: &[(QueueId, UrlKey)]) -> Vec<(QueueId, UrlKey)> {
        let stays = |(queue, key): &&(QueueId, UrlKey)| {
            self.damage.is_unreadable(*queue, key) && self.find_queue(*queue).is_some()
        };
        urls.iter().filter(stays).cloned().collect()
    }

    /// Stranded reservations whose next try is due, at most `most`, each with the URL rows to read.
    #[must_use]
    pub fn stranded_leases(&self, now: Time, most: usize) -> Vec<(Token, Vec<(QueueId, UrlKey)>)> {
        let due = self.damage.leases.iter().take_while(|((at, _), _)| *at <= now).take(most);
        due.map(|((_, token), (lease, _))| (*token, lease.urls.clone())).collect()
    }

    /// Returns what can be read of a stranded reservation by now.
    pub fn return_stranded(&mut self, token: Token, rows: Vec<Option<UrlRow>>, now: Time, writes: &mut Vec<Write>) {
        let Some(at) = self.damage.leases.keys().find(|(_, known)| *known == token).copied() else { return };
        let Some((lease, pause)) = self.damage.leases.remove(&at) else { return };
        for ((queue, key), row) in lease.urls.iter().zip(rows) {
            if let Some(row) = row.filter(|row| row.is_reserved_by(token)) {
                self.give_back(*queue, key, row, now, writes);
            }
        }
        if let Some(host) = self.hosts.by_id(lease.host) {
            self.reschedule(self.hosts[host].group, now);
        }
        let rest = self.stranded_part(&lease.urls);
        if rest.is_empty() {
            writes.push(Write::Lease(token, None));
        } else if rest.len() == lease.urls.len() {
            self.damage.strand(lease, longer(pause), now);
        } else {
            let rest = LeaseRow { urls: rest, ..lease };
            writes.push(Write::Lease(token, Some(rest.clone())));
            self.damage.strand(rest, longer(pause), now);
        }
    }

    /// Keeps an expired hold whose URL cannot be read; false if it can, or if its queue is gone. Past a bound it is forgotten until
    /// the shard is opened again; its row stays.
    pub(super) fn strand_hold(&mut self, hold: &Hold, pause: Millis, now: Time) -> bool {
        let (_, queue, key) = hold;
        if !self.damage.is_unreadable(*queue, key) || self.find_queue(*queue).is_none() {
            return false;
        }
        if self.damage.hold_count < STRANDED_HOLDS_MAX {
            self.damage.hold_count += 1;
            self.damage.holds.entry(now.after(pause)).or_default().push((hold.clone(), pause));
        }
        true
    }

    /// Takes the stranded holds whose next try is due. Each must be expired again, with its URL's row.
    pub fn take_stranded_holds(&mut self, now: Time) -> Vec<(Hold, Millis)> {
        let mut due = Vec::new();
        while let Some(first) = self.damage.holds.first_entry().filter(|first| *first.key() <= now) {
            due.extend(first.remove().into_iter().map(|(hold, pause)| (hold, longer(pause))));
        }
        self.damage.hold_count -= due.len();
        due
    }
}
