//! Puts: new URLs are stored, known ones are updated or left alone.

use super::deleted::Verdict;
use super::refusal::Refusal;
use super::request::{Past, Put, PutKind, PutOutcome};
use super::requeue::Wish;
use super::row::{Details, DueRow, End, QueuePosition, UrlRow, UrlStatus, Write};
use super::slab::Ix;
use super::state::State;
use super::url_key::UrlKey;
use super::view::{LastVisit, UrlState};
use crate::counted::counted;
use crate::ids::QueueId;
use crate::limits::{self, PRIORITY_DEFAULT, PRIORITY_MAX};
use crate::time::Time;

/// The lane of URLs without an explicit priority.
pub const LANE_DEFAULT: u8 = PRIORITY_MAX - PRIORITY_DEFAULT;

/// The URL that a put addresses: the row to read, if its queue exists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// The queue; `None` if it does not exist yet, so that the URL is unknown.
    pub queue: Option<QueueId>,
    /// Host index and queue index, so that the queue is looked up once.
    place: Option<(Ix, usize)>,
    /// The URL within the queue.
    pub key: UrlKey,
    /// The details in the URL's due row, where the put needs them: see [`Put::may_move`].
    pub waiting: Option<Details>,
}

impl State {
    /// The row that a put needs.
    #[must_use]
    pub fn put_target(&self, put: &Put) -> Target {
        self.target_of(put, self.queue_place(&put.host, &put.crawl))
    }

    /// The same for many puts. A lookup follows five dependent pointers; doing each step for all puts overlaps their
    /// cache misses.
    pub fn put_targets<'a>(&self, puts: impl Iterator<Item = &'a Put> + Clone) -> Vec<Target> {
        let hosts: Vec<Option<Ix>> = puts.clone().map(|put| self.host_ix(&put.host)).collect();
        let places: Vec<_> = puts.clone().zip(hosts).map(|(put, host)| self.queue_at(host?, &put.crawl)).collect();
        puts.zip(places).map(|(put, place)| self.target_of(put, place)).collect()
    }

    fn target_of(&self, put: &Put, place: Option<(Ix, usize)>) -> Target {
        let queue = place.map(|(host, at)| QueueId { host: self.hosts[host].id, no: self.queue(host, at).no });
        Target { queue, place, key: UrlKey::new(&put.host, &put.url), waiting: None }
    }

    fn queue_place(&self, host: &str, crawl: &str) -> Option<(Ix, usize)> {
        self.queue_at(self.host_ix(host)?, crawl)
    }

    fn queue_at(&self, host: Ix, crawl: &str) -> Option<(Ix, usize)> {
        let no = *self.crawl_by_name.get(crawl)?;
        self.hosts[host].queues.iter().position(|q| q.crawl == no).map(|at| (host, at))
    }

    /// Decides a put. `target` is the result of [`State::put_target`], with only puts decided since; `found` is its
    /// row.
    pub fn put(
        &mut self,
        put: Put,
        target: Target,
        found: Option<UrlRow>,
        now: Time,
        writes: &mut Vec<Write>,
    ) -> PutOutcome {
        let Target { key, place, waiting, .. } = target;
        if let Some(refusal) = refuse_other(&put, found.as_ref()).or_else(|| self.refuse_host(&put, place)) {
            return PutOutcome::Rejected(refusal.into());
        }
        let mut put = put;
        if let PutKind::Found { at, priority, explicit, depth, again, since } = put.kind {
            match self.deleted.judge(&put.crawl, since) {
                Verdict::Lives if explicit || again => {
                    put.kind = PutKind::Wanted { at, priority, explicit, depth, again };
                }
                Verdict::Lives => put.kind = PutKind::Discovered { at, priority, depth },
                Verdict::Deleted => return PutOutcome::Rejected(crawl_deleted(&put).into()),
                Verdict::Unknown => return PutOutcome::Failed(Box::new(Refusal::Unavailable(OPENED_SINCE.to_owned()))),
            }
        }
        match put.kind {
            PutKind::Discovered { .. } | PutKind::Restored { .. } if found.is_some() => PutOutcome::Known,
            PutKind::Wanted { at, priority, explicit, again, .. } if found.is_some() => {
                let lane = explicit.then_some(PRIORITY_MAX - priority.min(PRIORITY_MAX));
                let wish = Wish { lane, due: again.then(|| at.unwrap_or(now).max(now)), metadata: &put.metadata };
                self.want_again((key, place), found, waiting, wish, now, writes)
            }
            PutKind::Discovered { at, priority, depth } | PutKind::Wanted { at, priority, depth, .. } => {
                if let Some(refusal) = self.over_limit(&put, place, depth) {
                    return PutOutcome::Rejected(refusal.into());
                }
                let lane = PRIORITY_MAX - priority.min(PRIORITY_MAX);
                let position = QueuePosition { lane, due: at.unwrap_or(now).max(now) };
                let details = Details { depth, metadata: put.metadata.clone(), ..Details::default() };
                let (host, at) = self.place_of(&put, place);
                if self.queue(host, at).head() <= position.due {
                    // Queued behind one that is due no later: the group's entry does not move.
                    let row = DueRow { created: now, whole: key.is_cut().then(|| put.url.clone()), details };
                    self.enqueue(host, at, key, position, row, writes);
                } else {
                    self.store(host, at, (&put, key), now, (position.lane, Ok(position), details), now, writes);
                }
                PutOutcome::Added
            }
            // Converted to another kind above.
            PutKind::Found { .. } => PutOutcome::Known,
            PutKind::Restored { due, priority, depth, ref past } => {
                if let Some(refusal) = self.over_limit(&put, place, depth) {
                    return PutOutcome::Rejected(refusal.into());
                }
                let lane = PRIORITY_MAX - priority.min(PRIORITY_MAX);
                self.restore(&put, (key, place), (lane, due), (depth, **past), now, writes);
                PutOutcome::Added
            }
            PutKind::Known { due } => {
                let depth = waiting.map_or(0, |details| details.depth);
                self.update(put, (key, place), (found, depth), due, now, writes)
            }
            PutKind::Undelivered { held_until } => self.take_back(&put, (key, place), found, held_until, now, writes),
        }
    }

    /// Puts back, unchanged, a URL that was handed out but not delivered.
    fn take_back(
        &mut self,
        put: &Put,
        (key, place): (UrlKey, Option<(Ix, usize)>),
        found: Option<UrlRow>,
        held_until: Time,
        now: Time,
        writes: &mut Vec<Write>,
    ) -> PutOutcome {
        let Some(row) = found else { return PutOutcome::Known };
        let (position, details) = match &row.status {
            UrlStatus::Held { until, position, details } if *until == held_until => (*position, details.clone()),
            _ => return PutOutcome::Known,
        };
        let (host, at) = self.place_of(put, place);
        self.take_out(host, at, &key, &row.status, writes);
        let position = QueuePosition { due: now, ..position };
        self.store(host, at, (put, key), row.created, (position.lane, Ok(position), details), now, writes);
        PutOutcome::Updated
    }

    fn update(
        &mut self,
        put: Put,
        (key, place): (UrlKey, Option<(Ix, usize)>),
        (found, depth_queued): (Option<UrlRow>, u32),
        due: Option<Time>,
        now: Time,
        writes: &mut Vec<Write>,
    ) -> PutOutcome {
        let (host, at) = self.place_of(&put, place);
        let created = found.as_ref().map_or(now, |row| row.created);
        let (mut lane, mut depth) = (LANE_DEFAULT, 0);
        let outcome = if found.is_some() { PutOutcome::Updated } else { PutOutcome::Added };
        if let Some(row) = found {
            match &row.status {
                UrlStatus::Queued(position) => (lane, depth) = (position.lane, depth_queued),
                UrlStatus::Held { position, details, .. } | UrlStatus::Reserved { position, details, .. } => {
                    (lane, depth) = (position.lane, details.depth);
                }
                UrlStatus::Done { lane: was, details, .. } => (lane, depth) = (*was, details.depth),
            }
            self.take_out(host, at, &key, &row.status, writes);
            if !matches!(row.status, UrlStatus::Done { .. }) {
                // Its holder reports that it was fetched, perhaps after the hold expired.
                self.count_page(host, at);
            }
        } else if due.is_none() {
            self.count_page(host, at);
        }
        let details = Details { depth, metadata: put.metadata.clone(), ..Details::default() };
        let place = queue_place(lane, due, End::Fetched);
        self.store(host, at, (&put, key), created, (lane, place, details), now, writes);
        outcome
    }

    /// Stores an unknown URL as another store knew it. Its clock may have been ahead.
    fn restore(
        &mut self,
        put: &Put,
        (key, place): (UrlKey, Option<(Ix, usize)>),
        (lane, due): (u8, Option<Time>),
        (depth, past): (u32, Past),
        now: Time,
        writes: &mut Vec<Write>,
    ) {
        let (host, at) = self.place_of(put, place);
        if due.is_none() {
            self.count_page(host, at);
        }
        let last = past.last.map(|last| LastVisit { at: last.at.min(now), ..last });
        let details =
            Details { attempts: past.attempts, depth, last, metadata: put.metadata.clone(), ..Details::default() };
        let created = past.created.map_or(now, |created| created.min(now));
        let due = due.map(|due| if due == Time::ZERO { now } else { due });
        let place = queue_place(lane, due, past.end);
        self.store(host, at, (put, key), created, (lane, place, details), now, writes);
    }

    /// Counts a page against the limits.
    pub(super) fn count_page(&mut self, host: Ix, at: usize) {
        let queue = self.queue_mut(host, at);
        queue.pages = queue.pages.saturating_add(1);
        let crawl = queue.crawl;
        self.note_limited(crawl);
        if let Some(row) = self.crawls.get_mut(&crawl) {
            row.pages += 1;
            self.follow_limit(crawl);
        }
    }

    /// Uncounts a page.
    pub(super) fn uncount_page(&mut self, host: Ix, at: usize) {
        let queue = self.queue_mut(host, at);
        let (crawl, before) = (queue.crawl, queue.pages);
        queue.pages = before.saturating_sub(1);
        self.note_limited(crawl);
        if let Some(row) = self.crawls.get_mut(&crawl).filter(|_| before > 0) {
            row.pages = row.pages.saturating_sub(1);
            self.follow_limit(crawl);
        }
    }

    /// Removes a URL from its present place, in counts and rows; the caller writes its URL row.
    pub(super) fn take_out(&mut self, host: Ix, at: usize, key: &UrlKey, status: &UrlStatus, writes: &mut Vec<Write>) {
        let was_active = self.queue(host, at).counts().scheduled() > 0;
        let id = QueueId { host: self.hosts[host].id, no: self.queue(host, at).no };
        match status {
            UrlStatus::Queued(position) => {
                writes.push(Write::Due(id, *position, key.clone(), None));
                self.queue_mut(host, at).dequeue(*position);
                self.shift(host, at, Some(UrlState::Queued), None);
            }
            UrlStatus::Held { until, .. } => {
                writes.push(Write::Hold(*until, id, key.clone(), false));
                self.holds = self.holds.saturating_sub(1);
                self.shift(host, at, Some(UrlState::Reserved), None);
            }
            UrlStatus::Reserved { token, .. } => {
                self.take_from_lease(*token, writes);
                self.shift(host, at, Some(UrlState::Reserved), None);
            }
            UrlStatus::Done { end, .. } => self.shift(host, at, Some(end.state()), None),
        }
        self.recount_active(host, at, was_active);
    }

    /// Inserts a URL into its queue, or among the finished ones, in counts and rows.
    #[expect(clippy::too_many_arguments, reason = "one place writes the rows of a URL; all of them are needed")]
    fn store(
        &mut self,
        host: Ix,
        at: usize,
        (put, key): (&Put, UrlKey),
        created: Time,
        (lane, place, details): (u8, Result<QueuePosition, End>, Details),
        now: Time,
        writes: &mut Vec<Write>,
    ) {
        let whole = key.is_cut().then(|| put.url.clone());
        match place {
            Ok(position) => self.enqueue(host, at, key, position, DueRow { created, whole, details }, writes),
            Err(end) => self.finish(host, at, key, (created, whole), (end, lane, details), writes),
        }
        let (group, crawl) = (self.hosts[host].group, self.queue(host, at).crawl);
        let entry = self.ensure_entry(group, crawl);
        self.reschedule_entry(group, entry, now);
    }

    /// Inserts a URL into its queue. The caller reschedules the group.
    pub(super) fn enqueue(
        &mut self,
        host: Ix,
        at: usize,
        key: UrlKey,
        position: QueuePosition,
        row: DueRow,
        writes: &mut Vec<Write>,
    ) {
        let was_active = self.queue(host, at).counts().scheduled() > 0;
        let id = QueueId { host: self.hosts[host].id, no: self.queue(host, at).no };
        if self.queue_mut(host, at).enqueue(position, &key.0) {
            self.changed.begun.push((id, position.lane));
        }
        self.damage.note_queued(id, position, &key.0);
        self.shift(host, at, None, Some(UrlState::Queued));
        self.recount_active(host, at, was_active);
        let url = UrlRow { created: row.created, whole: row.whole.clone(), status: UrlStatus::Queued(position) };
        writes.push(Write::Url(id, key.clone(), Some(url)));
        writes.push(Write::Due(id, position, key, Some(row)));
    }

    /// Stores a URL that will not be visited again.
    pub(super) fn finish(
        &mut self,
        host: Ix,
        at: usize,
        key: UrlKey,
        (created, whole): (Time, Option<Box<str>>),
        (end, lane, details): (End, u8, Details),
        writes: &mut Vec<Write>,
    ) {
        let id = QueueId { host: self.hosts[host].id, no: self.queue(host, at).no };
        self.shift(host, at, None, Some(end.state()));
        let row = UrlRow { created, whole, status: UrlStatus::Done { end, lane, details } };
        writes.push(Write::Url(id, key, Some(row)));
    }

    fn place_of(&mut self, put: &Put, known: Option<(Ix, usize)>) -> (Ix, usize) {
        if let Some(place) = known {
            return place;
        }
        let crawl = self.ensure_crawl(&put.crawl);
        let host = self.ensure_host(&put.host);
        (host, self.ensure_queue(host, crawl))
    }

    /// Why a put may not create the host or queue it needs. Existing ones are never refused.
    fn refuse_host(&self, put: &Put, known: Option<(Ix, usize)>) -> Option<String> {
        if known.is_some() {
            return None;
        }
        let host = self.host_ix(&put.host);
        if host.is_none() && self.group_by_alias.contains_key(&*put.host) {
            return Some(format!("'{}' is the name of an alias; use another key", put.host));
        }
        if let Some(room) = self.host_room.filter(|room| room.left == 0 && host.is_none()) {
            return Some(hosts_full(&put.host, room.limit));
        }
        let crawl = self.crawl_by_name.get(&put.crawl).and_then(|no| Some((*no, self.crawl_of(*no)?)));
        let Some((no, crawl)) = crawl else { return self.crawls_full(&put.crawl) };
        let limit = crawl.settings.limits.hosts.filter(|limit| crawl.queues + crawl.hosts_elsewhere >= *limit)?;
        // An earlier put of the same batch may have created the queue.
        let has_queue = host.is_some_and(|host| self.hosts[host].queues.iter().any(|queue| queue.crawl == no));
        (!has_queue).then(|| {
            let (host, crawl, limit) = (&put.host, &put.crawl, counted(limit, "host"));
            format!("host '{host}' is new to crawl '{crawl}', which has reached its limit of {limit}; raise limits.hosts, or delete queues of it")
        })
    }

    fn over_limit(&self, put: &Put, known: Option<(Ix, usize)>, depth: u32) -> Option<String> {
        let place = known.or_else(|| self.queue_place(&put.host, &put.crawl));
        let queue = place.map(|(host, at)| self.queue(host, at));
        if queue.is_none() {
            let queues = self.host_ix(&put.host).map_or(0, |ix| self.hosts[ix].queues.len());
            if queues >= limits::HOST_QUEUES_MAX {
                return Some(format!("host '{}' has queues of {queues} crawls, which is the limit", put.host));
            }
        }
        let no = queue.map(|queue| queue.crawl).or_else(|| self.crawl_by_name.get(&put.crawl).copied());
        let crawl = no.and_then(|no| self.crawl_of(no))?;
        let bounds = &crawl.settings.limits;
        if let Some(limit) = bounds.depth.filter(|limit| depth > *limit) {
            return Some(format!("depth {depth} is over the limit of {limit} of crawl '{}'", put.crawl));
        }
        let here = || queue.map_or(0, |q| q.counts().total());
        if let Some(limit) = bounds.urls_per_host.filter(|limit| here() >= *limit) {
            let (host, limit) = (&put.host, counted(limit, "URL"));
            return Some(format!("host '{host}' has reached the limit of {limit} of crawl '{}'", put.crawl));
        }
        let all = crawl.counts.total() + crawl.elsewhere.total();
        let limit = bounds.urls.filter(|limit| all >= *limit)?;
        Some(format!("crawl '{}' has reached its limit of {}", put.crawl, counted(limit, "URL")))
    }
}

/// The place of a URL: in its queue, or among the finished ones.
fn queue_place(lane: u8, due: Option<Time>, end: End) -> Result<QueuePosition, End> {
    due.map(|due| QueuePosition { lane, due: due.min(Time(Time::NEVER.0 - 1)) }).ok_or(end)
}

/// Rejection of a link whose shard cannot know whether its crawl still exists.
const OPENED_SINCE: &str = "the shard was opened after the page was looked up";

fn crawl_deleted(put: &Put) -> String {
    format!(
        "crawl '{}' was deleted while its page was visited; name 'crawl' and 'depth' of the link to store it all the same",
        put.crawl
    )
}

/// Rejection when a server holds the maximum number of hosts.
#[must_use]
pub fn hosts_full(host: &str, limit: u64) -> String {
    format!(
        "host '{host}' is new, and this server holds {limit} hosts, which is its limit; raise --hosts-max, add a node, or delete queues that are done"
    )
}

/// Why a put is rejected whose key belongs to another URL: keys of long URLs end in a hash.
fn refuse_other(put: &Put, found: Option<&UrlRow>) -> Option<String> {
    let other = found?.whole.as_deref().filter(|whole| **whole != *put.url)?;
    let start: String = crate::redact::url(other).chars().take(80).collect();
    Some(format!("another URL of this queue, '{start}…', has the same key; shorten this one to 1,024 bytes or less"))
}

impl End {
    /// The URL state for an outcome.
    #[must_use]
    pub const fn state(self) -> UrlState {
        match self {
            Self::Fetched => UrlState::Fetched,
            Self::Gone => UrlState::Gone,
            Self::Failed => UrlState::Failed,
        }
    }
}
