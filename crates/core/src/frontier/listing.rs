//! Listings, a slice at a time: each slice examines a bounded number of items and returns matches and a resume key.
//!
//! The resume key is the key of the last item examined: a host number, an alias, a crawl name. Keys never change and
//! are never reused, so an item that exists throughout is shown exactly once, whatever is created or deleted between
//! two slices, and after a restart as well.
//!
//! Hosts are listed by number, those born in this shard first. Numbers are consecutive, so the next host is found by
//! probing the next number: this needs no index, and numbers of deleted hosts cost a probe each.

use std::ops::Bound;

use serde::{Deserialize, Serialize};

use super::row::LeaseRow;
use super::slab::Ix;
use super::state::{Grouping, Host, State};
use super::view::{CrawlView, GroupView, HostFilter, HostView, ReservationView, UrlFilter, UrlView};
use crate::ids::{CrawlNo, HostId, QueueId, Token};
use crate::limits::LISTING_LOOKS;
use crate::names::{Alias, CrawlName, HostName};
use crate::time::Time;

/// Probes of unused host numbers are cheap: this many cost as much as one item.
const PROBES_A_LOOK: usize = 16;
/// After this many unused numbers in a row the next host is found in one pass over all hosts: a salvaged shard
/// numbers its hosts far above the numbers that it may have given out.
const PROBES_IN_GAP: usize = 2_048;
/// Queues or members of an item that cost as much as one item.
pub(super) const PARTS_A_LOOK: usize = 8;
/// Approximate size of the fixed part of a host, group or URL in an answer.
const ITEM_BYTES: usize = 512;
/// Approximate size of a queue in an answer, without its crawl's name.
const QUEUE_BYTES: usize = 160;

/// Size limit of a slice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Room {
    /// Number of items.
    pub items: usize,
    /// Approximate bytes. The first item is returned however large it is.
    pub bytes: usize,
}

impl Room {
    /// Consumes room for one item.
    pub const fn take(&mut self, bytes: usize) {
        self.items = self.items.saturating_sub(1);
        self.bytes = self.bytes.saturating_sub(bytes);
    }

    /// Whether it is used up.
    #[must_use]
    pub const fn is_full(&self) -> bool {
        self.items == 0 || self.bytes == 0
    }
}

/// Resume key of a listing of groups: aliases first, then hosts that are groups of their own.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum GroupCursor {
    /// After this alias.
    Alias(Alias),
    /// After this host.
    Host(HostId),
}

/// Resume key of a listing of reservations: the grant time of the last one and a few bits of its token's hash. Tokens
/// are secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct LeaseCursor(pub Time, pub u32);

impl LeaseCursor {
    pub(super) fn of(lease: &LeaseRow) -> Self {
        const SEED: u64 = 0x6a09_e667_f3bc_c908;
        let text = lease.token.to_string();
        Self(lease.granted_at, super::url_key::hash(&text, SEED) as u32)
    }
}

/// The successor of a resume key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next<T> {
    /// An item.
    Found(T),
    /// The slice's budget is used up; a later slice resumes after this host.
    Later(HostId),
    /// The end.
    End,
}

/// Names of queues, and how many were skipped.
pub type QueueNames = (Vec<HostName>, usize);

impl State {
    /// The next host after a key.
    fn host_after(&self, after: Option<HostId>, looks: &mut usize) -> Next<Ix> {
        if after.is_none_or(|after| after.birth() == self.shard) {
            let mut counter = after.map_or(0, |after| after.counter() + 1);
            let mut unused = 0;
            while counter < self.shard_row.next_host {
                if unused >= PROBES_IN_GAP {
                    let Some(ix) = self.hosts.own_from(HostId::new(self.shard, counter)) else { break };
                    return Next::Found(ix);
                }
                if *looks == 0 && counter > 0 {
                    return Next::Later(HostId::new(self.shard, counter - 1));
                }
                for _ in 0..PROBES_A_LOOK {
                    if let Some(ix) = self.hosts.by_id(HostId::new(self.shard, counter)) {
                        return Next::Found(ix);
                    }
                    counter += 1;
                    if counter >= self.shard_row.next_host {
                        break;
                    }
                }
                unused += PROBES_A_LOOK;
                *looks = looks.saturating_sub(1);
            }
        }
        let after = after.filter(|after| after.birth() != self.shard);
        self.hosts.foreign_after(after).map_or(Next::End, Next::Found)
    }

    /// Whether no host follows.
    fn is_last_host(&self, after: HostId) -> bool {
        matches!(self.host_after(Some(after), &mut 1), Next::End)
    }

    /// Visits hosts after a key until `each` returns that it has enough, or the budget is used up.
    pub(super) fn walk(
        &self,
        after: Option<HostId>,
        mut each: impl FnMut(Ix, &Host, &mut usize) -> bool,
    ) -> Option<HostId> {
        let (mut looks, mut at) = (LISTING_LOOKS, after);
        loop {
            match self.host_after(at, &mut looks) {
                Next::End => return None,
                Next::Later(id) => return Some(id),
                Next::Found(ix) => {
                    let host = &self.hosts[ix];
                    looks = looks.saturating_sub(1);
                    let enough = each(ix, host, &mut looks);
                    at = Some(host.id);
                    if enough || looks == 0 {
                        return at.filter(|id| !self.is_last_host(*id));
                    }
                }
            }
        }
    }

    /// The hosts after a key that match a filter.
    #[must_use]
    pub fn list_hosts(
        &self,
        filter: &HostFilter,
        after: Option<HostId>,
        mut room: Room,
        now: Time,
    ) -> (Vec<HostView>, Option<HostId>) {
        let mut views = Vec::new();
        let crawl = match self.wanted(filter) {
            Ok(crawl) => crawl,
            Err(()) => return (views, None),
        };
        let next = self.walk(after, |ix, host, looks| {
            *looks = looks.saturating_sub(host.queues.len() / PARTS_A_LOOK);
            if crawl.is_none_or(|no| host.queues.iter().any(|queue| queue.crawl == no)) {
                let view = self.view_host(ix, now);
                if filter.state.is_none_or(|state| view.standing.state == state) {
                    room.take(view.weight());
                    views.push(view);
                }
            }
            room.is_full()
        });
        (views, next)
    }

    /// The crawl that a filter names; an error if it is unknown here.
    fn wanted(&self, filter: &HostFilter) -> Result<Option<CrawlNo>, ()> {
        filter.crawl.as_ref().map_or(Ok(None), |crawl| self.crawl_no(crawl).map(Some).ok_or(()))
    }

    /// The groups after a key that match a filter.
    #[must_use]
    pub fn list_groups(
        &self,
        filter: &HostFilter,
        after: Option<GroupCursor>,
        mut room: Room,
        now: Time,
    ) -> (Vec<GroupView>, Option<GroupCursor>) {
        let mut views = Vec::new();
        let crawl = match self.wanted(filter) {
            Ok(crawl) => crawl,
            Err(()) => return (views, None),
        };
        let mut show = |ix: Ix, room: &mut Room| {
            let mut queues = self.groups[ix].hosts().iter().flat_map(|host| &self.hosts[*host].queues);
            if crawl.is_none_or(|no| queues.any(|queue| queue.crawl == no)) {
                let view = self.view_group(ix, now);
                if filter.state.is_none_or(|state| view.standing.state == state) {
                    room.take(view.weight());
                    views.push(view);
                }
            }
        };
        let hosts_after = match after {
            Some(GroupCursor::Host(host)) => Some(host),
            aliases => {
                let from = match &aliases {
                    Some(GroupCursor::Alias(alias)) => Bound::Excluded(alias.clone()),
                    _ => Bound::Unbounded,
                };
                let mut looks = LISTING_LOOKS;
                for (alias, ix) in self.group_by_alias.range::<Alias, _>((from, Bound::Unbounded)) {
                    looks = looks.saturating_sub(1 + self.groups[*ix].hosts().len() / PARTS_A_LOOK);
                    show(*ix, &mut room);
                    if looks == 0 || room.is_full() {
                        return (views, Some(GroupCursor::Alias(alias.clone())));
                    }
                }
                None
            }
        };
        let next = self.walk(hosts_after, |_, host, looks| {
            *looks = looks.saturating_sub(host.queues.len() / PARTS_A_LOOK);
            if matches!(self.groups[host.group].grouping, Grouping::One(_)) {
                show(host.group, &mut room);
            }
            room.is_full()
        });
        (views, next.map(GroupCursor::Host))
    }

    /// The live reservations after a key, oldest first.
    #[must_use]
    pub fn list_reservations(
        &self,
        after: Option<LeaseCursor>,
        mut room: Room,
    ) -> (Vec<ReservationView>, Option<LeaseCursor>) {
        let from = after.map_or(Bound::Unbounded, |after| Bound::Excluded((after, Token([u8::MAX; 16]))));
        let mut leases = self.lease_order.range((from, Bound::Unbounded)).peekable();
        let (mut views, mut looks) = (Vec::new(), LISTING_LOOKS);
        while let Some((place, token)) = leases.next() {
            looks = looks.saturating_sub(1);
            if let Some(view) = self.leases.get(token).and_then(|lease| self.view_lease(lease)) {
                room.take(view.weight());
                views.push(view);
            }
            // A page does not end between two reservations with the same key: the second could not be resumed at.
            let ends = leases.peek().is_none_or(|(next, _)| next != place);
            if ends && (looks == 0 || room.is_full()) {
                let more = leases.peek().is_some();
                return (views, more.then_some(*place));
            }
        }
        (views, None)
    }

    fn view_lease(&self, lease: &LeaseRow) -> Option<ReservationView> {
        let host = self.hosts.by_id(lease.host)?;
        Some(ReservationView {
            token: lease.token,
            group: self.group_name(self.hosts[host].group),
            host: self.hosts[host].name.clone(),
            holder: lease.holder.clone(),
            granted_at: lease.granted_at,
            expires_at: lease.expires_at,
            urls: lease.urls.len(),
        })
    }

    /// The counters of crawls after a name, at most `most`, and whether there are more.
    #[must_use]
    pub fn list_crawls(&self, after: Option<&CrawlName>, most: usize) -> (Vec<CrawlView>, bool) {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let mut names = self.crawl_names.range::<CrawlName, _>((from, Bound::Unbounded));
        let most = most.min(LISTING_LOOKS);
        let views = names.by_ref().take(most).filter_map(|name| self.view_crawl(self.crawl_no(name)?)).collect();
        (views, names.next().is_some())
    }

    /// Names of the queues of a crawl at hosts after a key, at most `most` after skipping `skip` matches, and how many
    /// were skipped.
    #[must_use]
    pub fn list_queues(
        &self,
        (crawl, inactive): (&CrawlName, bool),
        after: Option<HostId>,
        (skip, most): (usize, usize),
        now: Time,
    ) -> (QueueNames, Option<HostId>) {
        let (mut names, mut passed) = (Vec::new(), 0);
        let Some(no) = self.crawl_no(crawl) else { return ((names, 0), None) };
        let next = self.walk(after, |_, host, looks| {
            *looks = looks.saturating_sub(host.queues.len() / PARTS_A_LOOK);
            let queue = host.queues.iter().find(|queue| queue.crawl == no);
            let active = |queue: &super::row::QueueRow| queue.counts().scheduled() > 0 && host.blocked_until() <= now;
            if queue.is_some_and(|queue| inactive || active(queue)) {
                if passed < skip {
                    passed += 1;
                } else {
                    names.push(host.name.clone());
                }
            }
            names.len() >= most
        });
        ((names, passed), next)
    }

    /// The first queue after another that matches a filter, ordered by host and queue number.
    pub fn next_queue(&self, after: Option<QueueId>, filter: &UrlFilter, looks: &mut usize) -> Next<QueueId> {
        let crawl = match &filter.crawl {
            Some(crawl) => match self.crawl_no(crawl) {
                Some(no) => Some(no),
                None => return Next::End,
            },
            None => None,
        };
        let first_of = |ix: Ix, above: Option<u32>| {
            let host = &self.hosts[ix];
            let fits = host.queues.iter().filter(|q| crawl.is_none_or(|no| no == q.crawl));
            let later = fits.map(|q| q.no).filter(|no| above.is_none_or(|above| *no > above));
            later.min().map(|no| QueueId { host: host.id, no })
        };
        if let Some(host) = &filter.host {
            let found = self.host_ix(host).and_then(|ix| first_of(ix, after.map(|after| after.no)));
            return found.map_or(Next::End, Next::Found);
        }
        let same_host = after.and_then(|after| first_of(self.hosts.by_id(after.host)?, Some(after.no)));
        if let Some(found) = same_host {
            return Next::Found(found);
        }
        let mut at = after.map(|after| after.host);
        loop {
            match self.host_after(at, looks) {
                Next::End => return Next::End,
                Next::Later(id) => return Next::Later(id),
                Next::Found(ix) => {
                    let host = &self.hosts[ix];
                    if let Some(found) = first_of(ix, None) {
                        return Next::Found(found);
                    }
                    at = Some(host.id);
                    if *looks == 0 {
                        return Next::Later(host.id);
                    }
                    *looks = looks.saturating_sub(1 + host.queues.len() / PARTS_A_LOOK);
                }
            }
        }
    }
}

/// Approximate size of an item in an answer.
pub trait Weigh {
    /// In bytes.
    fn weight(&self) -> usize;
}

impl Weigh for HostView {
    fn weight(&self) -> usize {
        let queues: usize = self.queues.iter().map(|queue| QUEUE_BYTES + queue.crawl.len()).sum();
        ITEM_BYTES + self.host.len() + queues
    }
}

impl Weigh for GroupView {
    fn weight(&self) -> usize {
        ITEM_BYTES + self.hosts.iter().map(|host| host.len() + 4).sum::<usize>()
    }
}

impl Weigh for ReservationView {
    fn weight(&self) -> usize {
        ITEM_BYTES
    }
}

impl Weigh for UrlView {
    fn weight(&self) -> usize {
        ITEM_BYTES + self.url.len() + self.metadata.as_bytes().len()
    }
}

#[cfg(test)]
#[path = "listing_tests.rs"]
mod tests;
