//! Links: reservations that belong to a chunk. A link is reserved like any visit, but its deadline is the chunk's,
//! and its URLs outlive its visit. Once a link is reported, or its crawler is lost, the group is free. Only the URLs
//! stay reserved, until the chunk is complete or is offered again.
//!
//! A host that moves to another shard takes its links along as ordinary reservations: they leave their chunk and end
//! at the deadline that the chunk had then.

use super::request::{Outcome, Parent, UrlResult, UrlToFetch};
use super::row::{LeaseRow, Link, UrlRow, UrlStatus, Write};
use super::slab::Ix;
use super::state::State;
use super::url_key::UrlKey;
use super::view::UrlState;
use super::visit::{ScannedUrl, Taken, Visit, Want};
use crate::ids::{ChunkId, QueueId, Token};
use crate::names::HostName;
use crate::time::{Millis, Time};
use std::sync::Arc;

use hashbrown::HashSet;

/// A URL of a link.
pub type LinkUrl = (QueueId, UrlKey);

impl LeaseRow {
    /// Whether it only keeps URLs for a chunk, without a visit in progress.
    pub(super) const fn is_idle_link(&self) -> bool {
        matches!(self.link, Some(Link { visiting: false, .. }))
    }

    /// Makes a link an ordinary reservation, which ends at its chunk's deadline, or at once if its visit is over.
    pub(super) fn leave_chunk(&mut self, now: Time) {
        if let Some(link) = self.link.take()
            && !link.visiting
        {
            self.expires_at = now;
        }
    }
}

impl State {
    /// The URLs of a link; `None` if it has left its chunk.
    #[must_use]
    pub fn link_urls(&self, token: Token) -> Option<&[LinkUrl]> {
        self.leases.get(&token).filter(|lease| lease.link.is_some()).map(|lease| &*lease.urls)
    }

    /// Whether URLs were taken out of a link while it was reserved: a client reported them as fetched, or deleted
    /// them. Their rows show which ones.
    #[must_use]
    pub fn has_lost_urls(&self, token: Token) -> bool {
        self.leases.get(&token).is_some_and(|lease| lease.taken_away > 0)
    }

    /// Every link and the chunk that it belongs to.
    pub fn links(&self) -> impl Iterator<Item = (Token, Link)> {
        self.leases.values().filter_map(|lease| Some((lease.token, lease.link?)))
    }

    /// Whether the visit of a link is in progress.
    #[must_use]
    pub fn is_visiting(&self, token: Token) -> bool {
        self.leases.get(&token).is_some_and(|lease| matches!(lease.link, Some(Link { visiting: true, .. })))
    }

    /// The host of a link.
    #[must_use]
    pub fn link_host(&self, token: Token) -> Option<HostName> {
        let host = self.hosts.by_id(self.leases.get(&token)?.host)?;
        Some(self.hosts[host].name.clone())
    }

    /// What links found on the page of a link inherit; `None` if the page is no longer reserved by it.
    #[must_use]
    pub fn link_parent(&self, token: Token, (queue, _): &LinkUrl, row: &UrlRow, now: Time) -> Option<Parent> {
        let (host, at) = self.find_queue(*queue)?;
        let UrlStatus::Reserved { token: holder, details, .. } = &row.status else { return None };
        let crawl = self.crawl_of(self.queue(host, at).crawl).filter(|_| *holder == token)?;
        Some(Parent {
            crawl: crawl.name.clone(),
            depth: details.depth,
            since: self.deleted.crawl_since(&crawl.name, now),
        })
    }

    /// Sets the deadline of a link to that of its chunk. It is not written: the chunk's row has it.
    pub fn set_link_deadline(&mut self, token: Token, until: Time) {
        if let Some(lease) = self.leases.get_mut(&token).filter(|lease| lease.link.is_some()) {
            lease.expires_at = until;
        }
    }

    /// Ends the visit of a link at `end`; its URLs stay reserved. The group's delay starts.
    pub fn end_link_visit(
        &mut self,
        token: Token,
        results: &[&UrlResult],
        (end, now): (Time, Time),
        jitter: u64,
        writes: &mut Vec<Write>,
    ) {
        let Some(mut lease) = self.leases.get(&token).cloned() else { return };
        let Some(Link { chunk, visiting: true }) = lease.link else { return };
        self.end_lease(&lease);
        lease.link = Some(Link { chunk, visiting: false });
        self.idle_links.entry(lease.host).or_default().push(token);
        self.end_link_pace(&lease, results, (end, now), jitter);
        writes.push(Write::Lease(token, Some(lease.clone())));
        self.leases.insert(token, lease);
    }

    /// From when on the visit of an idle link may begin again; `None` while something other than time forbids it.
    #[must_use]
    pub fn link_ready_at(&self, token: Token) -> Option<Time> {
        let lease = self.leases.get(&token)?;
        let queues = lease.urls.iter().any(|(queue, _)| self.find_queue(*queue).is_some());
        let Some(host) = self.hosts.by_id(lease.host).filter(|_| queues) else {
            // Nothing of it is left, so nothing forbids to find that out.
            return Some(Time::ZERO);
        };
        let host = &self.hosts[host];
        let open = !self.is_busy(host.group)
            && !self.groups[host.group].is_paused()
            && !host.is_paused()
            && !self.crawl_of(lease.crawl).is_some_and(|crawl| crawl.settings.paused);
        open.then(|| self.gate(host.group).max(host.blocked_until()))
    }

    /// The chunks that have links of a host without a visit in progress, and so reserve its URLs without visiting it.
    pub fn idle_chunks(&self, host: &str) -> impl Iterator<Item = ChunkId> {
        let id = self.host_ix(host).map(|host| self.hosts[host].id);
        let tokens = id.and_then(|id| self.idle_links.get(&id)).into_iter().flatten();
        tokens.filter_map(|token| Some(self.leases.get(token)?.link?.chunk))
    }

    /// Begins the visit of an idle link again, for a new holder. The group must be ready ([`State::link_ready_at`]).
    pub fn resume_link(&mut self, token: Token, holder: &Arc<str>, until: Time, now: Time, writes: &mut Vec<Write>) {
        let Some(mut lease) = self.leases.get(&token).cloned() else { return };
        let Some(Link { chunk, visiting: false }) = lease.link else { return };
        self.forget_idle_link(&lease);
        lease.link = Some(Link { chunk, visiting: true });
        (lease.holder, lease.granted_at, lease.expires_at) = (holder.clone(), now, until);
        self.begin_lease(&lease);
        writes.push(Write::Lease(token, Some(lease.clone())));
        let host = self.hosts.by_id(lease.host);
        self.leases.insert(token, lease);
        if let Some(host) = host {
            self.reschedule(self.hosts[host].group, now);
        }
    }

    pub(super) fn forget_idle_link(&mut self, lease: &LeaseRow) {
        if let Some(links) = self.idle_links.get_mut(&lease.host) {
            links.retain(|token| *token != lease.token);
            if links.is_empty() {
                self.idle_links.remove(&lease.host);
            }
        }
    }

    /// Ends a link for good: URLs with a result are settled by it, the others return unchanged. If its visit is in
    /// progress, that ends, too. `rows` are those of its URLs.
    pub fn end_link(
        &mut self,
        token: Token,
        rows: Vec<Option<UrlRow>>,
        results: &[Option<&UrlResult>],
        now: Time,
        jitter: u64,
        writes: &mut Vec<Write>,
    ) {
        if self.link_urls(token).is_none() {
            return;
        }
        let Some((lease, _)) = self.remove_lease(token) else { return };
        self.end_lease_row(&lease, now, writes);
        for (i, ((queue, key), row)) in lease.urls.iter().zip(rows).enumerate() {
            let Some(row) = row.filter(|row| row.is_reserved_by(token)) else { continue };
            self.apply_result(*queue, key, row, results.get(i).copied().flatten(), now, writes);
        }
        match lease.link {
            Some(Link { visiting: true, .. }) => {
                let results: Vec<&UrlResult> = results.iter().copied().flatten().collect();
                self.end_link_pace(&lease, &results, (now, now), jitter);
            }
            // URLs may have returned to their queues.
            _ => self.reschedule_host(&lease, now),
        }
    }

    /// Ends an idle link, after this many attempts of its chunk without a result: they count as attempts at its URLs,
    /// which return to their queues or, after too many, have failed.
    pub fn return_link(
        &mut self,
        token: Token,
        rows: Vec<Option<UrlRow>>,
        attempts: u32,
        now: Time,
        writes: &mut Vec<Write>,
    ) {
        if attempts == 0 || self.is_visiting(token) {
            return self.end_link(token, rows, &[], now, 0, writes);
        }
        if self.link_urls(token).is_none() {
            return;
        }
        let Some((lease, _)) = self.remove_lease(token) else { return };
        self.end_lease_row(&lease, now, writes);
        for ((queue, key), row) in lease.urls.iter().zip(rows) {
            let Some(mut row) = row.filter(|row| row.is_reserved_by(token)) else { continue };
            if let UrlStatus::Reserved { details, .. } = &mut row.status {
                details.attempts = details.attempts.saturating_add(attempts - 1);
            }
            self.give_back(*queue, key, row, now, writes);
        }
        self.reschedule_host(&lease, now);
    }

    /// Takes a link's URLs away from its crawler, which does not know yet: they are settled at once, as in
    /// [`State::end_link`], but a visit in progress may last until the deadline that the crawler knows. Until then
    /// the group stays busy, under an ordinary reservation without URLs.
    pub fn abandon_link(
        &mut self,
        token: Token,
        rows: Vec<Option<UrlRow>>,
        results: &[Option<&UrlResult>],
        now: Time,
        writes: &mut Vec<Write>,
    ) {
        if !self.is_visiting(token) {
            return self.end_link(token, rows, results, now, 0, writes);
        }
        let Some(lease) = self.leases.get(&token) else { return };
        // Those that cannot be read stay until the reservation expires.
        let unreadable = self.stranded_part(&lease.urls);
        let Some(lease) = self.leases.get_mut(&token) else { return };
        let urls = std::mem::replace(&mut lease.urls, unreadable);
        lease.ended_chunk = lease.link.take().map(|link| link.chunk);
        lease.taken_away = 0;
        let until = lease.expires_at;
        writes.push(Write::Lease(token, Some(lease.clone())));
        self.lease_ends.insert((until, token));
        for (i, ((queue, key), row)) in urls.iter().zip(rows).enumerate() {
            let Some(row) = row.filter(|row| row.is_reserved_by(token)) else { continue };
            self.apply_result(*queue, key, row, results.get(i).copied().flatten(), now, writes);
        }
    }

    /// Settles one URL of a link that has several, by its result. The visit continues.
    pub fn end_link_url(
        &mut self,
        token: Token,
        key: &UrlKey,
        row: Option<UrlRow>,
        (result, now): (&UrlResult, Time),
        jitter: u64,
        writes: &mut Vec<Write>,
    ) {
        let Some(lease) = self.leases.get_mut(&token) else { return };
        let Some(at) = lease.urls.iter().position(|(_, known)| known == key) else { return };
        let (queue, key) = lease.urls.remove(at);
        if row.as_ref().is_none_or(|row| !row.is_reserved_by(token)) {
            // It was taken away before, and is no longer counted as one of these.
            lease.taken_away = lease.taken_away.saturating_sub(1);
        }
        let lease = lease.clone();
        writes.push(Write::Lease(token, Some(lease.clone())));
        if let Some(row) = row.filter(|row| row.is_reserved_by(token)) {
            self.apply_result(queue, &key, row, Some(result), now, writes);
        }
        if let Some(host) = self.hosts.by_id(lease.host) {
            self.learn_from(host, &[result], now, jitter);
        }
        self.reschedule_host(&lease, now);
    }

    /// A page of a link with a visit in progress was fetched: a delay that the site asks for applies from now on.
    pub fn learn_crawl_delay(&mut self, token: Token, result: &UrlResult) {
        let host = self.leases.get(&token).and_then(|lease| self.hosts.by_id(lease.host));
        if let Some((host, asked)) = host.zip(result.crawl_delay) {
            self.set_crawl_delay(host, asked);
        }
    }

    /// Plans visits to replace links of a chunk: of groups that none of these links belongs to.
    pub fn plan_replacements(
        &mut self,
        links: impl Iterator<Item = Token>,
        want: &Want,
        most: usize,
        now: Time,
    ) -> Vec<Visit> {
        let group = |token: Token| Some(self.hosts[self.hosts.by_id(self.leases.get(&token)?.host)?].group);
        let own: HashSet<Ix> = links.filter_map(group).collect();
        let planned = self.plan_visits(want, most + own.len(), now);
        let (mut visits, mut rest): (Vec<Visit>, Vec<Visit>) =
            planned.into_iter().partition(|visit| !own.contains(&visit.group));
        rest.extend(visits.split_off(most.min(visits.len())));
        // Planning took them out of the schedule.
        rest.into_iter().for_each(|visit| self.reschedule(visit.group, now));
        visits
    }

    /// Returns a planned visit to the schedule.
    pub fn return_visit(&mut self, visit: &Visit, now: Time) {
        self.reschedule(visit.group, now);
    }

    /// Plans to take up to `most` more URLs of the host of a link with a visit in progress. `None` if the host may
    /// not be asked for more now: it was blocked or paused since, or asked for rest.
    pub fn plan_link_more(&mut self, token: Token, most: usize, now: Time) -> Option<Visit> {
        let lease = self.leases.get(&token)?;
        let (crawl, host) = (lease.crawl, self.hosts.by_id(lease.host)?);
        let group = self.hosts[host].group;
        let paused = self.groups[group].is_paused()
            || self.hosts[host].is_paused()
            || self.crawl_of(crawl).is_none_or(|crawl| crawl.settings.paused);
        let blocked = self.groups[group].settings.as_ref().and_then(|settings| settings.blocked_until);
        let blocked =
            [blocked.unwrap_or_default(), self.groups[group].pace.backoff_until, self.hosts[host].blocked_until()];
        if !self.is_visiting(token) || self.is_spent(crawl) || paused || blocked.into_iter().any(|until| until > now) {
            return None;
        }
        let want = Want { crawl: Some(crawl), urls: most, held_below: None, bare_hosts: false };
        Some(self.visit(group, host, crawl, &want, now))
    }

    /// Serves a plan of [`State::plan_link_more`].
    pub fn take_link_more(
        &mut self,
        token: Token,
        (visit, found): (&Visit, Vec<Vec<ScannedUrl>>),
        (most, now): (usize, Time),
        writes: &mut Vec<Write>,
    ) -> (Vec<UrlToFetch>, Millis) {
        let taken = self.take(visit, found, most, now);
        let delay = self.delay_after(visit.group, visit.crawl);
        let urls = taken.iter().map(|taken| self.to_fetch(visit, taken)).collect();
        for taken in taken {
            let Some(queue) = visit.queue else { continue };
            let Taken { position, key, created, whole, details } = taken;
            writes.push(Write::Due(queue, position, key.clone(), None));
            let status = UrlStatus::Reserved { token, position, details };
            writes.push(Write::Url(queue, key.clone(), Some(UrlRow { created, whole, status })));
            if let Some(lease) = self.leases.get_mut(&token) {
                lease.urls.push((queue, key));
            }
        }
        if let Some(lease) = self.leases.get(&token) {
            writes.push(Write::Lease(token, Some(lease.clone())));
        }
        self.reschedule(visit.group, now);
        (urls, delay)
    }

    /// Makes URLs of one host that have ended an idle link again: their content is lost, or an operator asks for them.
    /// URLs that are no longer known, are queued, or are handed out are left out: their queue or their holder has
    /// them. Returns those that were taken.
    pub fn link_again(
        &mut self,
        (token, chunk): (Token, ChunkId),
        urls: Vec<(LinkUrl, Option<UrlRow>)>,
        (holder, now): (&Arc<str>, Time),
        writes: &mut Vec<Write>,
    ) -> Vec<LinkUrl> {
        let mut lease: Option<LeaseRow> = None;
        for ((queue, key), row) in urls {
            let (Some((host, at)), Some(row)) = (self.find_queue(queue), row) else { continue };
            let UrlRow { created, whole, status: UrlStatus::Done { end, lane, details } } = row else { continue };
            let was_active = self.queue(host, at).counts().scheduled() > 0;
            self.shift(host, at, Some(end.state()), Some(UrlState::Reserved));
            self.recount_active(host, at, was_active);
            // It counted as a page when it ended, and counts as one that is handed out now.
            self.uncount_page(host, at);
            let position = super::row::QueuePosition { lane, due: now };
            let status = UrlStatus::Reserved { token, position, details };
            writes.push(Write::Url(queue, key.clone(), Some(UrlRow { created, whole, status })));
            let lease = lease.get_or_insert_with(|| LeaseRow {
                token,
                host: queue.host,
                holder: holder.clone(),
                granted_at: now,
                expires_at: now,
                crawl: self.queue(host, at).crawl,
                queued_at: None,
                urls: Vec::new(),
                taken_away: 0,
                request: None,
                link: Some(Link { chunk, visiting: false }),
                ended_chunk: None,
            });
            lease.urls.push((queue, key));
        }
        let Some(lease) = lease else { return Vec::new() };
        let taken = lease.urls.clone();
        writes.push(Write::Lease(token, Some(lease.clone())));
        self.insert_lease(lease);
        taken
    }

    /// A link's URL as it is handed out again; `None` if it is no longer reserved by the link.
    #[must_use]
    pub fn link_to_fetch(&self, token: Token, key: &UrlKey, row: Option<UrlRow>) -> Option<(UrlToFetch, Millis)> {
        // One that has left its chunk is an ordinary visit of the crawler that had it.
        let lease = self.leases.get(&token).filter(|lease| lease.link.is_some())?;
        let host = self.hosts.by_id(lease.host)?;
        let (queue, _) = lease.urls.iter().find(|(_, known)| known == key)?;
        let name = self.hosts[host].name.clone();
        let url = self.reserved_url(&name, token, (*queue, key), row?)?;
        Some((url, self.delay_after(self.hosts[host].group, lease.crawl)))
    }

    fn end_link_pace(&mut self, lease: &LeaseRow, results: &[&UrlResult], (end, now): (Time, Time), jitter: u64) {
        let Some(host) = self.hosts.by_id(lease.host) else { return };
        let group = self.hosts[host].group;
        let reported = results.iter().filter_map(|result| result.duration).max();
        self.end_visit(group, lease.crawl, end, reported.unwrap_or_else(|| end.since(lease.granted_at)));
        self.learn_from(host, results, now, jitter);
        self.reschedule(group, now);
    }

    fn reschedule_host(&mut self, lease: &LeaseRow, now: Time) {
        if let Some(host) = self.hosts.by_id(lease.host) {
            self.reschedule(self.hosts[host].group, now);
        }
    }

    /// Marks a link's URLs as failed: its chunk is set aside.
    pub fn fail_link(&mut self, token: Token, rows: Vec<Option<UrlRow>>, now: Time, writes: &mut Vec<Write>) {
        let Some(urls) = self.link_urls(token).map(<[_]>::to_vec) else { return };
        let failed: Vec<UrlResult> = urls.iter().map(|_| UrlResult::new("", Outcome::Failed)).collect();
        let results: Vec<Option<&UrlResult>> = failed.iter().map(Some).collect();
        self.abandon_link(token, rows, &results, now, writes);
    }
}
