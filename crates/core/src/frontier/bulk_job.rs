//! Bulk jobs: requeue or delete all URLs that match a filter, slice by slice, across restarts and moves of hosts.
//!
//! Every shard has its own row of a job and processes its own queues in order of id. The row's progress is written in
//! the commit of the slice it follows, so no slice is applied partially or twice. A host that moves may leave a shard
//! that has not reached it yet for one that has already passed its position: what the first shard still owed the host
//! is carried along ([`JobRow::owes`]), and the second processes it again. This works only if both know the job, so
//! no shard starts before all have registered it ([`JobPhase`]).
//!
//! A job covers what existed when it started. URLs stored or visited since are left alone, so a requeue terminates even
//! while workers are busy.

use serde::{Deserialize, Serialize};

use super::requeue::{BulkAction, BulkOutcome, Known};
use super::view::UrlFilter;
use crate::ids::{HostId, QueueId, ShardId, Token};
use crate::names::CrawlName;
use crate::time::Time;

/// State of a job in one shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum JobState {
    /// Registered; starts when all shards have registered it.
    Waiting,
    /// There is more to do.
    Running,
    /// Complete.
    Done,
    /// Cancelled by an operator.
    Cancelled,
}

/// How far the home shard has announced a job to the other shards.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum JobPhase {
    /// Some may not have registered it.
    Announced,
    /// All have registered it; some may not have got the start message.
    Known,
    /// All have started.
    Begun,
    /// All have ended; see [`super::conclude_jobs`].
    Ended,
}

/// A job, as stored by one shard.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobRow {
    /// Its id, which starts with its home shard.
    pub id: Token,
    /// The operation.
    pub what: BulkAction,
    /// Which URLs.
    pub filter: UrlFilter,
    /// Only URLs stored (delete) or last visited (requeue) before this.
    pub before: Option<Time>,
    /// When it started.
    pub started_at: Time,
    /// Its state here.
    pub state: JobState,
    /// When it ended here.
    pub ended_at: Option<Time>,
    /// On the home shard: progress of the announcement.
    pub stage: JobPhase,
    /// Progress.
    pub cursor: JobCursor,
    /// Hosts that arrived later and are processed after all others.
    pub again: Vec<HostId>,
    /// Result so far.
    pub outcome: BulkOutcome,
    /// URLs examined so far.
    pub looked_at: u64,
    /// How often it was reopened here after it had ended, because a host arrived.
    pub openings: u64,
}

/// Progress of a job.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobCursor {
    /// After or within this queue; `None` at the beginning.
    pub queue: Option<QueueId>,
    /// Resume key within that queue; `None` if the queue is done.
    pub from: Option<Vec<u8>>,
    /// Whether all hosts have been processed once, and those that arrived later are next.
    pub again: bool,
}

impl JobRow {
    /// A new job.
    #[must_use]
    pub fn new(id: Token, what: BulkAction, filter: UrlFilter, before: Option<Time>, now: Time) -> Self {
        Self {
            id,
            what,
            filter,
            before,
            started_at: now,
            state: JobState::Waiting,
            ended_at: None,
            stage: JobPhase::Announced,
            cursor: JobCursor::default(),
            again: Vec::new(),
            outcome: BulkOutcome::default(),
            looked_at: 0,
            openings: 0,
        }
    }

    /// Whether it has work to do here now.
    #[must_use]
    pub fn is_running(&self) -> bool {
        self.state == JobState::Running
    }

    /// Whether it has not ended here.
    #[must_use]
    pub fn is_open(&self) -> bool {
        matches!(self.state, JobState::Waiting | JobState::Running)
    }

    /// Whether it may still queue URLs of a crawl here.
    #[must_use]
    pub fn may_requeue(&self, crawl: &CrawlName) -> bool {
        let of_crawl = self.filter.crawl.as_ref().is_none_or(|only| only == crawl);
        self.what == BulkAction::Requeue && self.is_open() && of_crawl
    }

    /// Starts it, unless it was cancelled: all shards have registered it.
    pub fn begin(&mut self) {
        if self.state == JobState::Waiting {
            self.state = JobState::Running;
        }
    }

    /// Whether the job covers a URL that matches its filter.
    #[must_use]
    pub fn wants(&self, known: &Known) -> bool {
        let is_old = |at: Time| at <= self.started_at && self.before.is_none_or(|before| at < before);
        match self.what {
            BulkAction::Delete => is_old(known.row.created),
            BulkAction::Requeue => known.row.created <= self.started_at && is_old(known.last_seen()),
        }
    }

    /// Whether it still has to process a host, in a shard that processes hosts born there first, then the others.
    #[must_use]
    pub fn owes(&self, host: HostId, shard: ShardId) -> bool {
        let order = |host: HostId| (host.birth() != shard, host);
        let comes_to = !self.cursor.again && self.cursor.queue.is_none_or(|queue| order(queue.host) <= order(host));
        let is_there = self.cursor.again && self.cursor.queue.is_some_and(|queue| queue.host == host);
        self.is_open() && (comes_to || is_there || self.again.contains(&host))
    }

    /// Adds a host that came from a shard which had not processed it yet.
    pub fn visit_again(&mut self, host: HostId) {
        if self.state == JobState::Cancelled || self.again.contains(&host) {
            return;
        }
        self.again.push(host);
        if self.state == JobState::Done {
            (self.state, self.ended_at) = (JobState::Running, None);
            self.openings += 1;
        }
    }

    /// Ends it here.
    pub fn end(&mut self, state: JobState, now: Time) {
        if self.is_open() {
            (self.state, self.ended_at) = (state, Some(now));
            self.again.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frontier::row::{Details, End, UrlRow, UrlStatus};
    use crate::frontier::url_key::UrlKey;
    use crate::frontier::view::LastVisit;

    fn job(what: BulkAction, before: Option<Time>) -> JobRow {
        JobRow::new(Token([1; 16]), what, UrlFilter::default(), before, Time(100))
    }

    fn fetched(created: u64, last: Option<u64>) -> Known {
        let last = last.map(|at| LastVisit { at: Time(at), status: Some(200), exhausted: false });
        let details = Details { last, ..Details::default() };
        let status = UrlStatus::Done { end: End::Fetched, lane: 4, details };
        Known {
            key: UrlKey::new("h.example", "http://h.example/"),
            row: UrlRow { created: Time(created), whole: None, status },
            waiting: None,
        }
    }

    #[test]
    fn what_came_after_the_job_began_is_left_alone() {
        assert!(job(BulkAction::Delete, None).wants(&fetched(100, None)));
        assert!(!job(BulkAction::Delete, None).wants(&fetched(101, None)));
        assert!(job(BulkAction::Requeue, None).wants(&fetched(10, Some(100))));
        assert!(!job(BulkAction::Requeue, None).wants(&fetched(10, Some(101))), "visited since: it would never end");
        assert!(!job(BulkAction::Requeue, None).wants(&fetched(101, Some(50))), "deleted and stored anew since");
    }

    #[test]
    fn older_than_means_stored_for_a_deletion_and_visited_for_a_requeue() {
        let (delete, requeue) = (job(BulkAction::Delete, Some(Time(50))), job(BulkAction::Requeue, Some(Time(50))));
        assert!(delete.wants(&fetched(49, Some(90))) && !delete.wants(&fetched(50, Some(90))));
        assert!(requeue.wants(&fetched(10, Some(49))) && !requeue.wants(&fetched(10, Some(50))));
        assert!(requeue.wants(&fetched(10, None)) && !requeue.wants(&fetched(60, None)), "no visit was reported");
    }

    #[test]
    fn a_host_is_owed_a_visit_until_the_job_has_passed_it() {
        let host = |n| HostId(n);
        let mut job = job(BulkAction::Requeue, None);
        assert!(job.owes(host(1), ShardId(0)) && !job.is_running(), "it waits until all have heard");
        job.begin();
        job.cursor.queue = Some(QueueId { host: host(5), no: 0 });
        assert!(
            !job.owes(host(4), ShardId(0)) && job.owes(host(5), ShardId(0)) && job.owes(host(6), ShardId(0)),
            "it is in the middle of the fifth"
        );
        let born_elsewhere = HostId::new(ShardId(2), 1);
        job.cursor.queue = Some(QueueId { host: HostId::new(ShardId(5), 7), no: 0 });
        assert!(
            job.owes(born_elsewhere, ShardId(5)),
            "hosts that were born elsewhere come last, whatever their numbers are"
        );
        job.cursor.queue = Some(QueueId { host: host(5), no: 0 });
        job.visit_again(host(4));
        assert!(job.owes(host(4), ShardId(0)));
        job.cursor = JobCursor { again: true, ..JobCursor::default() };
        assert!(job.owes(host(4), ShardId(0)) && !job.owes(host(6), ShardId(0)));
        job.end(JobState::Done, Time(200));
        assert!(!job.owes(host(4), ShardId(0)));
        job.visit_again(host(9));
        assert!(
            job.is_running() && job.owes(host(9), ShardId(0)),
            "one that has ended here goes on for a host that comes"
        );
        job.end(JobState::Cancelled, Time(300));
        job.visit_again(host(10));
        job.begin();
        assert!(!job.is_open(), "one that was stopped does not");
    }
}
