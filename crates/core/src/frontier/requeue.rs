//! Requeuing and deleting known URLs, by puts and by operators. URLs that are handed out stay with their holder.

use super::request::{Put, PutKind, PutOutcome};
use super::row::{Details, DueRow, QueuePosition, UrlRow, UrlStatus, Write};
use super::slab::Ix;
use super::state::State;
use super::url_key::UrlKey;
use crate::ids::QueueId;
use crate::metadata::Metadata;
use crate::time::Time;

/// What a put asks for a URL that is known.
pub(super) struct Wish<'a> {
    /// This lane, if it is an earlier one.
    pub lane: Option<u8>,
    /// A new due time, as if the URL were new; `None` leaves it unchanged.
    pub due: Option<Time>,
    /// New metadata, if not empty.
    pub metadata: &'a Metadata,
}

/// A known URL, as found by a job or a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Known {
    /// Its key.
    pub key: UrlKey,
    /// Its row.
    pub row: UrlRow,
    /// The details in its due row; `None` if it is not queued.
    pub waiting: Option<Details>,
}

/// Bulk operation on known URLs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum BulkAction {
    /// Due now, with the attempts reset.
    Requeue,
    /// Deleted.
    Delete,
}

/// Result of a bulk operation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct BulkOutcome {
    /// URLs changed.
    pub done: u64,
    /// URLs left alone because they are handed out.
    pub reserved: u64,
    /// Unknown URLs.
    pub unknown: u64,
    /// URLs, and ranges of URLs, that a job passed over because the store is damaged there.
    pub unreadable: u64,
}

impl BulkOutcome {
    /// Adds another part.
    pub const fn add(&mut self, other: &Self) {
        self.done += other.done;
        self.reserved += other.reserved;
        self.unknown += other.unknown;
        self.unreadable += other.unreadable;
    }
}

impl Put {
    /// Whether the put stores its URL if that is new.
    #[must_use]
    pub const fn may_add(&self) -> bool {
        !matches!(self.kind, PutKind::Undelivered { .. })
    }

    /// Whether the put may move a queued URL; then [`super::put::Target::waiting`] is needed, because the URL's details
    /// are in its due row.
    #[must_use]
    pub const fn may_move(&self) -> bool {
        match self.kind {
            PutKind::Wanted { .. } | PutKind::Known { .. } => true,
            PutKind::Found { explicit, again, .. } => explicit || again,
            _ => false,
        }
    }
}

impl Known {
    /// When it was last visited; when it was stored, if no visit has been reported.
    #[must_use]
    pub fn last_seen(&self) -> Time {
        let details = match &self.row.status {
            UrlStatus::Queued(_) => self.waiting.as_ref(),
            UrlStatus::Held { details, .. } | UrlStatus::Reserved { details, .. } | UrlStatus::Done { details, .. } => {
                Some(details)
            }
        };
        details.and_then(|details| details.last).map_or(self.row.created, |last| last.at)
    }

    /// Its queue position and details, if it is not handed out.
    pub(super) fn at_rest(self) -> Option<(QueuePosition, Details)> {
        match (self.row.status, self.waiting) {
            (UrlStatus::Queued(position), Some(details)) => Some((position, details)),
            (UrlStatus::Done { lane, details, .. }, _) => Some((QueuePosition { lane, due: Time::NEVER }, details)),
            _ => None,
        }
    }
}

impl State {
    /// Decides the put of a known URL.
    pub(super) fn want_again(
        &mut self,
        (key, place): (UrlKey, Option<(Ix, usize)>),
        found: Option<UrlRow>,
        waiting: Option<Details>,
        wish: Wish<'_>,
        now: Time,
        writes: &mut Vec<Write>,
    ) -> PutOutcome {
        let (Some((host, at)), Some(row)) = (place, found) else { return PutOutcome::Known };
        let known = Known { key, row, waiting };
        let is_done = matches!(known.row.status, UrlStatus::Done { .. });
        let Some((was, mut details)) = known.clone().at_rest() else { return PutOutcome::Known };
        let lane = wish.lane.filter(|lane| *lane < was.lane || wish.due.is_some()).unwrap_or(was.lane);
        let Some(due) = wish.due.or_else(|| (!is_done && lane != was.lane).then_some(was.due)) else {
            return PutOutcome::Known;
        };
        if wish.due.is_some() {
            details.attempts = 0;
            if !wish.metadata.is_empty() {
                details.metadata = wish.metadata.clone();
            }
        }
        self.queue_anew((host, at), known, (QueuePosition { lane, due }, details), now, writes);
        if wish.due.is_some() { PutOutcome::Requeued } else { PutOutcome::Updated }
    }

    /// Requeues or deletes URLs of a queue. Those handed out stay as they are.
    pub fn rework(
        &mut self,
        queue: QueueId,
        urls: Vec<Known>,
        what: BulkAction,
        now: Time,
        writes: &mut Vec<Write>,
    ) -> BulkOutcome {
        let mut outcome = BulkOutcome::default();
        let Some((host, at)) = self.find_queue(queue) else { return outcome };
        for known in urls {
            let Some((position, details)) = known.clone().at_rest() else {
                outcome.reserved += 1;
                continue;
            };
            match what {
                BulkAction::Requeue => {
                    let details = Details { attempts: 0, ..details };
                    self.queue_anew((host, at), known, (QueuePosition { due: now, ..position }, details), now, writes);
                }
                BulkAction::Delete => self.forget_url((host, at), known.key, &known.row, writes),
            }
            outcome.done += 1;
        }
        if outcome.done > 0 {
            self.reschedule(self.hosts[host].group, now);
        }
        outcome
    }

    fn queue_anew(
        &mut self,
        (host, at): (Ix, usize),
        known: Known,
        (position, details): (QueuePosition, Details),
        now: Time,
        writes: &mut Vec<Write>,
    ) {
        let Known { key, row: UrlRow { created, whole, status }, .. } = known;
        self.take_out(host, at, &key, &status, writes);
        self.enqueue(host, at, key, position, DueRow { created, whole, details }, writes);
        let (group, crawl) = (self.hosts[host].group, self.queue(host, at).crawl);
        let entry = self.ensure_entry(group, crawl);
        self.reschedule_entry(group, entry, now);
    }

    /// Deletes a URL as if it had never been stored: its place under a limit is free again.
    pub(super) fn forget_url(&mut self, (host, at): (Ix, usize), key: UrlKey, row: &UrlRow, writes: &mut Vec<Write>) {
        let id = QueueId { host: self.hosts[host].id, no: self.queue(host, at).no };
        self.take_out(host, at, &key, &row.status, writes);
        if matches!(row.status, UrlStatus::Done { .. }) {
            self.uncount_page(host, at);
        }
        writes.push(Write::Url(id, key, None));
    }
}
