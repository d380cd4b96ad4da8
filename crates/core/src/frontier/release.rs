//! Release: a visit ends with results; URLs without a result return unchanged. A result finishes its URL, or queues it
//! again for a retry or revisit; a URL that has used up its attempts is set aside. What happens at a deadline is in
//! `expire`; docs/states.md draws all of it.

use super::pace::Cause;
use super::refusal::Refusal;
use super::request::{Outcome, Parent, Release, Released, UrlResult};
use super::row::{Details, DueRow, End, LeaseRow, QueuePosition, UrlRow, UrlStatus, Write};
use super::slab::Ix;
use super::state::State;
use super::url_key::UrlKey;
use super::view::LastVisit;
use crate::ids::{CrawlNo, QueueId, Token};
use crate::limits;
use crate::settings::Revisit;
use crate::time::{Millis, Time};

/// What happens to a URL when its visit ends.
enum Fate {
    Queue(QueuePosition, Details),
    Done(End, u8, Details),
}

impl State {
    /// The URL rows that a release (or expiry) of this token must read.
    pub fn release_targets(&self, token: Token, now: Time) -> Result<Vec<(QueueId, UrlKey)>, Refusal> {
        Ok(self.current(token, now)?.urls.clone())
    }

    /// A live reservation that its holder may renew and release. A link is not one: its chunk's token is.
    fn current(&self, token: Token, now: Time) -> Result<&LeaseRow, Refusal> {
        let lease = self.leases.get(&token).filter(|lease| lease.expires_at > now && lease.link.is_none());
        lease.ok_or(Refusal::NotCurrent)
    }

    /// Ends a reservation. `rows` are the rows of [`State::release_targets`]; `jitter` is random. Fails if the token is
    /// not current or a result names a URL that is not part of it; then nothing changes.
    pub fn release(
        &mut self,
        release: &Release,
        rows: Vec<Option<UrlRow>>,
        now: Time,
        jitter: u64,
        writes: &mut Vec<Write>,
    ) -> Result<Released, Refusal> {
        let lease = self.current(release.token, now)?;
        let places = self.places_in(lease, &rows, release.results.iter().map(|result| &*result.url))?;
        let mut results = vec![None; lease.urls.len()];
        for (at, result) in places.into_iter().zip(&release.results) {
            if let Some(place) = results.get_mut(at) {
                *place = Some(result);
            }
        }
        let (lease, place) = self.remove_lease(release.token).ok_or(Refusal::NotCurrent)?;
        self.end_lease_row(&lease, now, writes);
        for (((queue, key), row), result) in lease.urls.iter().zip(rows).zip(&results) {
            let Some(row) = row.filter(|row| row.is_reserved_by(lease.token)) else { continue };
            self.apply_result(*queue, key, row, *result, now, writes);
        }
        let Some((host, group)) = place else {
            return Ok(Released { group: "".into(), ready_at: now });
        };
        if let Some(at) = release.ready_at {
            self.hosts[host].queued_at = at.max(now);
            self.ensure_entry(group, CrawlNo::NONE);
            self.touch_host(host);
        }
        let reported = release.results.iter().filter_map(|r| r.duration).max();
        self.end_visit(group, lease.crawl, now, reported.unwrap_or_else(|| now.since(lease.granted_at)));
        self.learn_from(host, &release.results.iter().collect::<Vec<_>>(), now, jitter);
        self.reschedule(group, now);
        Ok(Released { group: self.group_name(group), ready_at: self.gate(group).max(now) })
    }

    /// What the results of a visit say about the pace of its host's group.
    pub(super) fn learn_from(&mut self, host: Ix, results: &[&UrlResult], now: Time, jitter: u64) {
        let group = self.hosts[host].group;
        if let Some(asked) = results.iter().filter_map(|r| r.crawl_delay).max() {
            self.set_crawl_delay(host, asked);
        }
        let asking = results.iter().filter(|result| result.asks_for_rest());
        match asking.max_by_key(|result| result.retry_after) {
            Some(result) => {
                let cause = Cause { url: &result.url, status: result.status, retry_after: result.retry_after };
                self.back_off(group, &cause, now, jitter);
            }
            None => self.forgive(group, results.iter().filter(|r| r.outcome == Outcome::Fetched).count()),
        }
    }

    pub(super) fn set_crawl_delay(&mut self, host: Ix, asked: Millis) {
        self.hosts[host].robots_delay = asked.min(limits::CRAWL_DELAY_MAX);
        self.touch_host(host);
    }

    /// What links on the pages of a reservation inherit, page by page; `None` for a page that is no longer part of it.
    /// `rows` are the rows of [`State::release_targets`].
    ///
    /// Fails if the token is not current or names no such URL.
    pub fn parents(
        &self,
        token: Token,
        pages: &[Box<str>],
        rows: &[Option<UrlRow>],
        now: Time,
    ) -> Result<Vec<Option<Parent>>, Refusal> {
        let lease = self.current(token, now)?;
        let places = self.places_in(lease, rows, pages.iter().map(|page| &**page))?;
        let parent = |at: usize| {
            let (host, queue) = self.find_queue(lease.urls.get(at)?.0)?;
            let row = rows.get(at)?.as_ref().filter(|row| row.is_reserved_by(token))?;
            let UrlStatus::Reserved { details, .. } = &row.status else { return None };
            let crawl = self.crawl_of(self.queue(host, queue).crawl)?;
            let since = self.deleted.crawl_since(&crawl.name, now);
            Some(Parent { crawl: crawl.name.clone(), depth: details.depth, since })
        };
        Ok(places.into_iter().map(parent).collect())
    }

    /// The position of each of some URLs among those of a lease.
    fn places_in<'a>(
        &self,
        lease: &LeaseRow,
        rows: &[Option<UrlRow>],
        urls: impl Iterator<Item = &'a str>,
    ) -> Result<Vec<usize>, Refusal> {
        let name = self.hosts.by_id(lease.host).map(|host| self.hosts[host].name.clone()).unwrap_or_default();
        let place = |url: &str| {
            let key = UrlKey::new(&name, url);
            let at = lease.urls.iter().position(|(_, k)| *k == key)?;
            // A truncated key may belong to another URL.
            let whole = rows.get(at).and_then(|row| row.as_ref()?.whole.as_deref());
            whole.is_none_or(|whole| whole == url).then_some(at)
        };
        urls.map(|url| place(url).ok_or_else(|| Refusal::ForeignResult(crate::redact::url(url)))).collect()
    }

    pub(super) fn apply_result(
        &mut self,
        queue: QueueId,
        key: &UrlKey,
        row: UrlRow,
        result: Option<&UrlResult>,
        now: Time,
        writes: &mut Vec<Write>,
    ) {
        let UrlStatus::Reserved { position, details, .. } = row.status else { return };
        let fate = match result {
            None => Fate::Queue(position, details),
            Some(result) => self.judge(queue, position, details, result, now),
        };
        let is_page = result.is_some_and(|result| result.outcome == Outcome::Fetched);
        self.send(queue, key, (row.created, row.whole), (fate, is_page), writes);
    }

    /// Returns a URL whose holder let it expire. An expired reservation counts as an attempt. An expired hold does not:
    /// in the paced form crawlers may keep a URL longer than its hold, and some clients hand out URLs only to inspect
    /// queues.
    pub(super) fn give_back(&mut self, queue: QueueId, key: &UrlKey, row: UrlRow, now: Time, writes: &mut Vec<Write>) {
        let fate = match row.status {
            UrlStatus::Held { position, details, .. } => Fate::Queue(position, details),
            UrlStatus::Reserved { position, details, .. } => self.count_attempt(queue, position, details, None, now),
            UrlStatus::Queued(_) | UrlStatus::Done { .. } => return,
        };
        self.send(queue, key, (row.created, row.whole), (fate, false), writes);
    }

    fn send(
        &mut self,
        queue: QueueId,
        key: &UrlKey,
        (created, whole): (Time, Option<Box<str>>),
        (fate, is_page): (Fate, bool),
        writes: &mut Vec<Write>,
    ) {
        let Some((host, at)) = self.find_queue(queue) else { return };
        if is_page || matches!(fate, Fate::Done(..)) {
            self.count_page(host, at);
        }
        let was_active = self.queue(host, at).counts().scheduled() > 0;
        self.shift(host, at, Some(super::view::UrlState::Reserved), None);
        // Before the URL returns: enqueueing it updates the count itself.
        self.recount_active(host, at, was_active);
        match fate {
            Fate::Queue(position, details) => {
                self.enqueue(host, at, key.clone(), position, DueRow { created, whole, details }, writes);
            }
            Fate::Done(end, lane, details) => {
                self.finish(host, at, key.clone(), (created, whole), (end, lane, details), writes);
            }
        }
    }

    fn judge(
        &self,
        queue: QueueId,
        position: QueuePosition,
        mut details: Details,
        result: &UrlResult,
        now: Time,
    ) -> Fate {
        let last = Some(LastVisit { at: now, status: result.status, exhausted: false });
        match result.outcome {
            Outcome::Gone => Fate::Done(End::Gone, position.lane, Details { last, ..details }),
            Outcome::Failed => Fate::Done(End::Failed, position.lane, Details { last, ..details }),
            Outcome::Retry => self.count_attempt(queue, position, details, Some(result), now),
            Outcome::Fetched => {
                let again = result.next_at.or_else(|| self.revisit(queue, &mut details, result, now));
                if result.digest.is_some() {
                    details.digest.clone_from(&result.digest);
                }
                details.attempts = 0;
                details.last = last;
                match again {
                    Some(due) => Fate::Queue(QueuePosition { due: due.max(now), ..position }, details),
                    None => Fate::Done(End::Fetched, position.lane, details),
                }
            }
        }
    }

    /// When the crawl's revisit policy wants a page again.
    fn revisit(&self, queue: QueueId, details: &mut Details, result: &UrlResult, now: Time) -> Option<Time> {
        let (host, at) = self.find_queue(queue)?;
        match self.crawl_of(self.queue(host, at).crawl)?.settings.revisit {
            Revisit::Never => None,
            Revisit::Fixed(span) => Some(now.after(span)),
            Revisit::Adaptive { min, max } => {
                let changed = result.changed.unwrap_or_else(|| result.has_changed(details.digest.as_deref()));
                let before = details.interval.unwrap_or(min).0;
                let next = if changed { before / 2 } else { before.saturating_mul(3) / 2 };
                let next = Millis(next.clamp(min.0, max.0.max(min.0)));
                details.interval = Some(next);
                Some(now.after(next))
            }
        }
    }

    /// Counts an attempt without result: requeue the URL, or set it aside after too many attempts.
    fn count_attempt(
        &self,
        queue: QueueId,
        position: QueuePosition,
        mut details: Details,
        retry: Option<&UrlResult>,
        now: Time,
    ) -> Fate {
        details.attempts = details.attempts.saturating_add(1);
        let status = retry.and_then(|r| r.status);
        let crawl = self.find_queue(queue).map(|(host, at)| self.queue(host, at).crawl);
        let settings = crawl.and_then(|no| self.crawl_of(no)).map(|crawl| crawl.settings).unwrap_or_default();
        if details.attempts >= settings.attempts_max() {
            details.last = Some(LastVisit { at: now, status, exhausted: true });
            return Fate::Done(End::Failed, position.lane, details);
        }
        let Some(retry) = retry else { return Fate::Queue(position, details) };
        details.last = Some(LastVisit { at: now, status, exhausted: false });
        let wait = retry
            .retry_after
            .map_or_else(|| settings.retry.after(details.attempts), |asked| asked.min(limits::RETRY_AFTER_MAX));
        let due = retry.next_at.unwrap_or_else(|| now.after(wait)).max(now);
        Fate::Queue(QueuePosition { due, ..position }, details)
    }
}

impl UrlRow {
    pub(crate) fn is_reserved_by(&self, by: Token) -> bool {
        matches!(&self.status, UrlStatus::Reserved { token, .. } if *token == by)
    }
}

impl UrlResult {
    /// Whether the content changed, where the worker does not say. `before` is the digest of the last visit.
    fn has_changed(&self, before: Option<&str>) -> bool {
        let same = before.is_some() && self.digest.as_deref() == before;
        self.status != Some(304) && !same
    }

    /// Whether the site asked to back off.
    fn asks_for_rest(&self) -> bool {
        self.retry_after.is_some_and(|asked| asked.0 > 0) || matches!(self.status, Some(429 | 503))
    }
}
