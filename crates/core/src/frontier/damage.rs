//! Damage: rows of the store that cannot be read. It costs what they hold and nothing else.
//!
//! - If rows of a lane cannot be read, its visits continue behind this *gap*. The lane's cursor stays in front of it,
//!   so that the URLs in it are found once they can be read: they are looked for again after a pause, and after a
//!   restart.
//! - A reservation or hold that ends while the rows of some of its URLs cannot be read ends for the others. The rest is
//!   *stranded*: its row stays in the store, and it is retried with back-off. To call these URLs gone would lose
//!   them, to keep the visit open would block their group.
//!
//! All of it is kept in memory only. After a restart the same rows are met again: a stranded reservation is loaded as one
//! that has expired, a stranded hold is found by the first sweep. For operators: docs/operating.md.

use std::collections::BTreeMap;

use hashbrown::HashSet;

use super::refusal::Refusal;
use super::row::{LeaseRow, QueuePosition, QueueRow, UrlRow, Write};
use super::slab::Ix;
use super::state::State;
use super::url_key::UrlKey;
use super::visit::{LaneGap, LaneScan};
use crate::ids::{HostId, QueueId, Token};
use crate::limits::{DAMAGED_RETRY_MAX, DAMAGED_RETRY_MIN, STRANDED_HOLDS_MAX};
use crate::names::HostName;
use crate::time::{Millis, Time};

/// A hold: its deadline and its URL.
pub type Hold = (Time, QueueId, UrlKey);

/// What is known to be damaged.
#[derive(Default)]
pub(super) struct Damage {
    /// What could not be read of lanes.
    gaps: BTreeMap<(QueueId, u8), Gap>,
    /// Reservations that ended with URLs whose rows cannot be read, by the time of the next try.
    leases: BTreeMap<(Time, Token), (LeaseRow, Millis)>,
    /// Expired holds of such URLs, by the time of the next try.
    holds: BTreeMap<Time, Vec<(Hold, Millis)>>,
    /// The same holds: a sweep may meet one again.
    stranded_holds: HashSet<Hold>,
    /// The URLs whose rows could not be read for the present decision.
    unreadable: HashSet<(QueueId, UrlKey)>,
}

struct Gap {
    /// Until the next try, scans of the lane start here: all rows between the gap and this were taken.
    resume: Position,
    until: Time,
    pause: Millis,
    cause: Box<str>,
}

/// The due time and key of a row in a lane.
type Position = (Time, Box<[u8]>);

/// The pause after one more failure.
#[must_use]
pub fn longer(pause: Millis) -> Millis {
    Millis((pause.0 * 2).clamp(DAMAGED_RETRY_MIN.0, DAMAGED_RETRY_MAX.0))
}

impl Damage {
    /// Where a scan of a lane starts that leaves out what could not be read lately, and what that is.
    pub fn behind_gap(&self, queue: QueueId, lane: u8, start: &Position, now: Time) -> Option<(Position, LaneGap)> {
        if self.gaps.is_empty() {
            return None;
        }
        let gap = self.gaps.get(&(queue, lane)).filter(|gap| gap.until > now)?;
        Some((gap.resume.clone(), LaneGap { from: start.clone(), ended: None, cause: gap.cause.clone() }))
    }

    /// A row was written to a lane: scans behind a gap must find it.
    pub fn note_queued(&mut self, queue: QueueId, position: QueuePosition, key: &[u8]) {
        if self.gaps.is_empty() {
            return;
        }
        if let Some(gap) = self.gaps.get_mut(&(queue, position.lane))
            && (position.due, key) < (gap.resume.0, &*gap.resume.1)
        {
            gap.resume = (position.due, key.into());
        }
    }

    /// Forgets what was known of a queue that is gone from here.
    pub fn forget(&mut self, queue: QueueId) {
        self.gaps.retain(|(of, _), _| *of != queue);
    }

    /// The gaps of a host.
    fn gaps_of(&self, host: HostId) -> impl Iterator<Item = &Gap> {
        let first = (QueueId { host, no: 0 }, 0);
        self.gaps.range(first..).take_while(move |((queue, _), _)| queue.host == host).map(|(_, gap)| gap)
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
        leases.sum::<usize>() + self.stranded_holds.iter().filter(|(_, queue, _)| queue.host == host).count()
    }
}

impl State {
    /// The rows of these URLs could not be read for the decision that follows: there they appear as missing.
    pub fn set_unreadable(&mut self, urls: impl IntoIterator<Item = (QueueId, UrlKey)>) {
        self.damage.unreadable.clear();
        self.damage.unreadable.extend(urls);
    }

    /// A scan of a lane is over; if there are more rows, the next one continues at `resume`. Keeps what it could not
    /// read.
    pub(super) fn keep_gap(&mut self, (host, at): (Ix, usize), scan: &LaneScan, resume: Option<Position>, now: Time) {
        let lane = (scan.queue, scan.lane);
        let gap = scan.gap.as_ref().filter(|gap| resume.as_ref().is_none_or(|resume| *resume >= gap.from));
        let known = self.damage.gaps.get(&lane).map(|gap| (gap.until, gap.pause));
        let (until, pause) = known.filter(|(until, _)| *until > now).unwrap_or_else(|| {
            let pause = longer(known.map_or(Millis(0), |(_, pause)| pause));
            (now.after(pause), pause)
        });
        match gap {
            Some(gap) if self.queue_mut(host, at).keep_gap(scan.lane, &gap.from, until) => {
                // A row that is written later lowers it.
                let resume = resume.unwrap_or_else(|| (Time::NEVER, [].into()));
                self.damage.gaps.insert(lane, Gap { resume, until, pause, cause: gap.cause.clone() });
            }
            _ => _ = self.damage.gaps.remove(&lane),
        }
    }

    /// Why nothing of a host can be handed out until a time, if all that is due by then cannot be read.
    #[must_use]
    pub fn damage_of(&self, host: &str) -> Option<(&str, Time)> {
        let host = &self.hosts[self.host_ix(host)?];
        let gap = self.damage.gaps_of(host.id).min_by_key(|gap| gap.until)?;
        let head = host.queues.iter().map(QueueRow::head).min()?;
        (head >= gap.until).then_some((&*gap.cause, gap.until))
    }

    /// A sentence about the queued URLs of a host that cannot be read, if there are any.
    pub(super) fn explain_gap(&self, host: HostId) -> Option<String> {
        let gap = self.damage.gaps_of(host).min_by_key(|gap| gap.until)?;
        Some(format!("some of its queued URLs cannot be read, the store is damaged there: {}", gap.cause))
    }

    /// A sentence about the URLs of a host that cannot be returned, if there are any.
    pub(super) fn explain_stranded(&self, host: HostId) -> Option<String> {
        let urls = self.damage.stranded_urls(host);
        (urls > 0).then(|| {
            let urls = crate::counted::counted(urls as u64, "handed-out URL");
            format!("{urls} cannot be returned, because the store is damaged there")
        })
    }

    /// The hosts that are known to have unreadable rows, and the number of their stranded URLs.
    #[must_use]
    pub fn damaged_hosts(&self) -> (Vec<HostName>, u64) {
        let Damage { gaps, leases, stranded_holds, .. } = &self.damage;
        let of_leases = leases.values().map(|(lease, _)| lease.host);
        let of_holds = stranded_holds.iter().map(|(_, queue, _)| queue.host);
        let mut ids: Vec<HostId> = gaps.keys().map(|(queue, _)| queue.host).chain(of_leases).chain(of_holds).collect();
        ids.sort_unstable();
        ids.dedup();
        let names = ids.into_iter().filter_map(|id| self.hosts.by_id(id)).map(|ix| self.hosts[ix].name.clone());
        let stranded = leases.values().map(|(lease, _)| lease.urls.len()).sum::<usize>() + stranded_holds.len();
        (names.collect(), stranded as u64)
    }

    /// Whether anything is known to be damaged.
    #[must_use]
    pub fn is_damaged(&self) -> bool {
        !(self.damage.gaps.is_empty() && self.damage.leases.is_empty() && self.damage.holds.is_empty())
    }

    /// How many holds of a host a full read must find that the sweep has not ended yet.
    #[must_use]
    pub fn holds_of(&self, host: HostId) -> u64 {
        let Some(ix) = self.hosts.by_id(host) else { return 0 };
        let of_queue = |queue: &QueueRow| {
            u64::from(queue.reserved).saturating_sub(self.reserved_of(QueueId { host, no: queue.no }))
        };
        let held: u64 = self.hosts[ix].queues.iter().map(of_queue).sum();
        let stranded = self.damage.stranded_holds.iter();
        let stranded = stranded.filter(|(_, queue, _)| queue.host == host && self.find_queue(*queue).is_some());
        held.saturating_sub(stranded.count() as u64)
    }

    /// A host with stranded URLs stays where it is: the reservations and holds that keep them would not move along.
    pub(super) fn refuse_stranded(&self, host: &str) -> Result<(), Refusal> {
        let cause = self.host_id(host).filter(|_| self.is_damaged()).and_then(|id| self.explain_stranded(id));
        cause.map_or(Ok(()), |cause| Err(Refusal::Damaged { host: host.to_owned(), cause }))
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
        if self.damage.stranded_holds.len() < STRANDED_HOLDS_MAX && self.damage.stranded_holds.insert(hold.clone()) {
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
        due.iter().for_each(|(hold, _)| _ = self.damage.stranded_holds.remove(hold));
        due
    }
}
