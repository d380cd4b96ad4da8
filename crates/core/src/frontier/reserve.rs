//! Reservation: a lease on a group for one holder, with a token and a deadline.

use std::sync::Arc;

use super::listing::LeaseCursor;
use super::request::{RequestId, Reservation};
use super::row::{LeaseRow, Link, UrlRow, UrlStatus, Write};
use super::slab::Ix;
use super::state::State;
use super::visit::{ScannedUrl, Taken, Visit};
use crate::ids::{ChunkId, CrawlNo, QueueId, Token};
use crate::names::GroupName;
use crate::time::{Millis, Time};

/// Parameters of a grant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    /// The requester.
    pub holder: Arc<str>,
    /// At most this many URLs; 0 reserves the host alone.
    pub urls: usize,
    /// Duration of the lease.
    pub lease: Millis,
    /// Random bits for the token.
    pub entropy: u128,
    /// The idempotent request it is granted for, if any.
    pub request: Option<RequestId>,
    /// The chunk it is granted for, if any.
    pub chunk: Option<ChunkId>,
}

impl State {
    /// Serves a planned visit as a reservation. `None` if nothing was due after all.
    pub fn reserve(
        &mut self,
        visit: &Visit,
        found: Vec<Vec<ScannedUrl>>,
        grant: &Grant,
        now: Time,
        writes: &mut Vec<Write>,
    ) -> Option<Reservation> {
        let taken = self.take(visit, found, grant.urls, now);
        let bare = visit.crawl == CrawlNo::NONE;
        if taken.is_empty() && !bare && grant.urls > 0 {
            self.reschedule(visit.group, now);
            return None;
        }
        let token = Token::new(self.shard, grant.entropy);
        let mut lease = LeaseRow {
            token,
            host: self.hosts[visit.host].id,
            holder: grant.holder.clone(),
            granted_at: now,
            expires_at: now.after(grant.lease),
            crawl: visit.crawl,
            queued_at: bare.then_some(self.hosts[visit.host].queued_at),
            urls: Vec::with_capacity(taken.len()),
            taken_away: 0,
            request: grant.request.clone().map(Box::new),
            link: grant.chunk.map(|chunk| Link { chunk, visiting: true }),
            ended_chunk: None,
        };
        if bare {
            self.hosts[visit.host].queued_at = Time::NEVER;
            self.touch_host(visit.host);
        }
        let urls = taken.iter().map(|taken| self.to_fetch(visit, taken)).collect();
        for taken in taken {
            let Some(queue) = visit.queue else { continue };
            let Taken { position, key, created, whole, details } = taken;
            writes.push(Write::Due(queue, position, key.clone(), None));
            let status = UrlStatus::Reserved { token, position, details };
            writes.push(Write::Url(queue, key.clone(), Some(UrlRow { created, whole, status })));
            lease.urls.push((queue, key));
        }
        let reservation = Reservation {
            token,
            group: self.group_name(visit.group),
            host: self.hosts[visit.host].name.clone(),
            holder: grant.holder.clone(),
            granted_at: now,
            expires_at: lease.expires_at,
            // The delay that also applies between the pages of this visit.
            delay: self
                .delay_after(visit.group, if bare { self.groups[visit.group].pace.last_crawl } else { visit.crawl }),
            urls,
        };
        writes.push(Write::Lease(token, Some(lease.clone())));
        self.insert_lease(lease);
        self.reschedule(visit.group, now);
        Some(reservation)
    }

    /// Adds a lease; its group is busy from now on, unless it is a link whose visit has ended.
    pub(super) fn insert_lease(&mut self, lease: LeaseRow) {
        match lease.link {
            None => {
                self.begin_lease(&lease);
                self.lease_ends.insert((lease.expires_at, lease.token));
            }
            // The deadline is the chunk's, which ends all its links together.
            Some(Link { visiting: true, .. }) => self.begin_lease(&lease),
            Some(Link { visiting: false, .. }) => self.idle_links.entry(lease.host).or_default().push(lease.token),
        }
        self.note_request(&lease);
        self.leases.insert(lease.token, lease);
    }

    /// A visit under this lease begins: its group is busy, and the lease is listed.
    pub(super) fn begin_lease(&mut self, lease: &LeaseRow) {
        if let Some(host) = self.hosts.by_id(lease.host) {
            let group = self.hosts[host].group;
            self.groups[group].leases.push(lease.token);
        }
        self.lease_order.insert((LeaseCursor::of(lease), lease.token));
    }

    /// The visit under this lease is over.
    pub(super) fn end_lease(&mut self, lease: &LeaseRow) {
        self.lease_order.remove(&(LeaseCursor::of(lease), lease.token));
        if let Some(host) = self.hosts.by_id(lease.host) {
            let group = self.hosts[host].group;
            self.groups[group].leases.retain(|token| *token != lease.token);
        }
    }

    /// Removes a lease; its group may be free from now on. Returns the lease, its host and its group.
    pub(super) fn remove_lease(&mut self, token: Token) -> Option<(LeaseRow, Option<(Ix, Ix)>)> {
        let lease = self.leases.remove(&token)?;
        self.lease_ends.remove(&(lease.expires_at, token));
        self.end_lease(&lease);
        self.forget_idle_link(&lease);
        self.forget_request(&lease);
        let place = self.hosts.by_id(lease.host).map(|host| (host, self.hosts[host].group));
        Some((lease, place))
    }

    /// How many of a queue's handed-out URLs are in reservations, not holds.
    pub(super) fn reserved_of(&self, queue: QueueId) -> u64 {
        let group = self.hosts.by_id(queue.host).map(|host| &self.groups[self.hosts[host].group]);
        let idle = self.idle_links.get(&queue.host).into_iter().flatten();
        let tokens = group.into_iter().flat_map(|group| &group.leases).chain(idle);
        let leases = tokens.filter_map(|token| self.leases.get(token));
        let live: u64 = leases.filter(|lease| lease.queue() == Some(queue)).map(LeaseRow::reserved).sum();
        live + self.damage.reserved_of(queue)
    }

    /// Records that a URL is no longer part of its reservation.
    pub(super) fn take_from_lease(&mut self, token: Token, writes: &mut Vec<Write>) {
        if let Some(lease) = self.leases.get_mut(&token) {
            lease.taken_away += 1;
            writes.push(Write::Lease(token, Some(lease.clone())));
        }
    }

    /// The name of a group: its alias, or the name of its only host.
    pub(super) fn group_name(&self, group: Ix) -> GroupName {
        let group = &self.groups[group];
        let first = || group.hosts().first().map(|h| self.hosts[*h].name.clone().into());
        group.alias().cloned().map(GroupName::from).or_else(first).unwrap_or_default()
    }
}

impl LeaseRow {
    /// The queue of its URLs.
    pub(super) fn queue(&self) -> Option<QueueId> {
        self.urls.first().map(|(queue, _)| *queue)
    }

    /// How many of its URLs are still reserved.
    pub(super) fn reserved(&self) -> u64 {
        (self.urls.len() as u64).saturating_sub(self.taken_away.into())
    }
}
