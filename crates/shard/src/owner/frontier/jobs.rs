//! Bulk jobs, owner's side. Each shard keeps its own row of every job and runs one slice of it when its inbox is
//! drained, so callers wait for one slice at most.
//!
//! A job is announced at its home shard, which is the same for all jobs so that it can count them, and is durable there
//! before any other shard hears of it. The home shard then announces it to all other shards and, when all have
//! registered it, tells them to start; after a restart it resumes (`spread`). Interleavings that could go wrong:
//!
//! 1. The home's commit fails: the spreading task reads the job from the home shard first. That answer waits for the
//!    commit, so the task finds no job and spreads nothing.
//! 2. The home ends before all shards have heard: its row says so, and its next owner resumes.
//! 3. A shard hears twice: it already has the row, and nothing changes.
//! 4. A job is cancelled before all have heard: a shard that does not know it yet stores a row in state "cancelled",
//!    and a later announcement changes nothing there.
//! 5. A host moves from a shard that has not heard of the job to one that has finished its part: the host would be
//!    missed. So no shard starts before all have heard; from then on the giver knows what it owes the host, see
//!    `wayleave_core::frontier::bulk_job`.
//! 6. A host moves from a shard that still owes it a job to one that has forgotten the job: the host would be missed.
//!    So no shard forgets a job on its own, only when it has ended on all of them, see
//!    `wayleave_core::frontier::conclude_jobs`.
//! 7. A message about a job arrives late, from a task of an earlier owner: a job's stage never goes back.
//! 8. A job is cancelled and forgotten at once: its home does not register it again, and rows left on other shards are
//!    removed the next time jobs are settled.
//! 9. A caller asks whether a crawl is finished before a shard with URLs of it has heard of an accepted requeue: only
//!    the home shard knows. So the home is asked as well, before the others: every shard has heard of the jobs that it
//!    does not list.
//! 10. A slice is read and another call is decided before the slice is: impossible, an owner runs one thing at a time.

use std::collections::BTreeMap;
use std::sync::Weak;
use std::time::Duration;

use wayleave_core::frontier::bulk_job::{JobCursor, JobPhase, JobRow, JobState};
use wayleave_core::frontier::listing::Next;
use wayleave_core::frontier::refusal::Refusal;
use wayleave_core::frontier::requeue::{BulkAction, BulkOutcome, Known};
use wayleave_core::frontier::row::{Details, UrlRow, UrlStatus, Write};
use wayleave_core::frontier::url_key::UrlKey;
use wayleave_core::frontier::view::CrawlView;
use wayleave_core::ids::{HostId, QueueId, ShardId, Token};
use wayleave_core::limits::{JOBS_RUNNING_MAX, LISTING_LOOKS, SLICE_ROWS};
use wayleave_core::names::{CrawlName, HostName};
use wayleave_core::time::Time;
use wayleave_engine::rows::{due, key, url};
use wayleave_engine::{Error, Key, Scan};

use crate::ask::{JobChange, Response, StateQuery};
use crate::owner::frontier::Frontier;
use crate::owner::open::damaged;
use crate::owner::port::{Decided, Port};
use crate::owner::read_facts::{self, Found};
use crate::routing::router::{CallResult, Router};

/// Queues that one slice may start; most are short.
const SLICE_QUEUES: usize = 32;

/// Retry interval for announcing a job to the other shards.
const SPREAD_AGAIN_AFTER: Duration = Duration::from_secs(1);

/// The bulk jobs of a shard, including those that have ended.
pub(crate) struct Jobs(BTreeMap<Token, JobRow>);

impl Jobs {
    pub const fn new(rows: BTreeMap<Token, JobRow>) -> Self {
        Self(rows)
    }

    /// All of them.
    pub fn all(&self) -> Vec<JobRow> {
        self.0.values().cloned().collect()
    }

    /// Registers a job; one that is already known is left unchanged.
    pub fn start(&mut self, job: &JobRow, writes: &mut Vec<Write>, port: &Port) -> Result<(), Refusal> {
        if self.0.contains_key(&job.id) {
            return Ok(());
        }
        if job.id.shard() == port.shard {
            // Jobs that still run on other shards count as well.
            let running = self.0.values().filter(|job| job.stage < JobPhase::Ended).count();
            if running >= JOBS_RUNNING_MAX {
                return Err(Refusal::OverLimit(format!(
                    "{running} jobs are running, which is the limit; wait for one to end, or cancel one"
                )));
            }
            spread_one(job.id, port);
        }
        self.note(job.clone(), writes);
        Ok(())
    }

    /// Cancels a job. A shard that does not know it records that it must not start. The home shard either knows it or
    /// has forgotten it.
    pub fn cancel(&mut self, job: &JobRow, now: Time, writes: &mut Vec<Write>, port: &Port) {
        let known = self.0.get(&job.id);
        if known.is_none() && job.id.shard() == port.shard {
            return;
        }
        let mut job = known.unwrap_or(job).clone();
        job.end(JobState::Cancelled, now);
        self.note(job, writes);
    }

    /// Starts a job that all shards have registered.
    pub fn begin(&mut self, id: Token, writes: &mut Vec<Write>) {
        if let Some(mut job) = self.0.get(&id).cloned() {
            job.begin();
            self.note(job, writes);
        }
    }

    /// Records how far the announcement of a job has reached; called on its home shard.
    pub fn set_stage(&mut self, id: Token, stage: JobPhase, writes: &mut Vec<Write>) {
        if let Some(mut job) = self.0.get(&id).cloned() {
            job.stage = job.stage.max(stage);
            self.note(job, writes);
        }
    }

    /// Jobs have ended on all shards.
    pub fn conclude(&mut self, ended: &[Token], forgotten: &[Token], writes: &mut Vec<Write>) {
        ended.iter().for_each(|id| self.set_stage(*id, JobPhase::Ended, writes));
        for id in forgotten {
            if self.0.remove(id).is_some() {
                writes.push(Write::BulkJob(*id, None));
            }
        }
    }

    /// Resumes announcing the jobs that some shards may not have heard of.
    pub fn spread_all(&self, port: &Port) {
        let mine = self.0.values().filter(|job| job.id.shard() == port.shard && job.stage < JobPhase::Begun);
        mine.for_each(|job| spread_one(job.id, port));
    }

    fn note(&mut self, job: JobRow, writes: &mut Vec<Write>) {
        writes.push(Write::BulkJob(job.id, Some(Box::new(job.clone()))));
        self.0.insert(job.id, job);
    }

    /// Jobs that still have to process a host that is about to leave.
    pub fn owed_to(&self, host: Option<HostId>, port: &Port) -> Vec<Token> {
        let owes = |job: &&JobRow| host.is_some_and(|host| job.owes(host, port.shard));
        self.0.values().filter(owes).map(|job| job.id).collect()
    }

    /// Takes over these jobs for a host that came from a shard that owed them.
    pub fn take(&mut self, host: HostId, jobs: &[Token], writes: &mut Vec<Write>) {
        for id in jobs {
            if let Some(mut job) = self.0.get(id).cloned() {
                job.visit_again(host);
                self.note(job, writes);
            }
        }
    }

    /// Marks crawls as unfinished while a requeue may still queue URLs of them.
    pub fn tell_of_requeues(&self, told: &mut Response) {
        match told {
            Response::Crawl(Some(part)) => tell_of_requeue(&mut part.view, self.0.values()),
            Response::Crawls((views, _)) => {
                views.iter_mut().for_each(|view| tell_of_requeue(view, self.0.values()));
            }
            _ => {}
        }
    }

    /// Requeues not announced to all shards yet: other shards may take a crawl for finished that one of these concerns.
    pub fn unheard_requeues(&self, port: &Port) -> Vec<JobRow> {
        let mine = self.0.values().filter(|job| job.id.shard() == port.shard && job.stage < JobPhase::Known);
        mine.filter(|job| job.what == BulkAction::Requeue && job.is_open()).cloned().collect()
    }

    /// Whether a job has work left here.
    pub fn is_running(&self) -> bool {
        self.0.values().any(JobRow::is_running)
    }
}

fn spread_one(id: Token, port: &Port) {
    tokio::spawn(spread(port.router.clone(), id));
}

impl Frontier {
    /// Runs one slice of the oldest job.
    pub async fn run_bulk_job(&mut self, port: &mut Port) -> Result<(), Error> {
        let running = self.jobs.0.values().filter(|job| job.is_running());
        let Some(mut job) = running.min_by_key(|job| (job.started_at, job.id)).cloned() else { return Ok(()) };
        let slice = self.job_slice(&job);
        let mut writes = Vec::new();
        if slice.is_empty() {
            let now = self.now(port);
            end_of_round(&mut job, now);
            self.jobs.note(job, &mut writes);
            self.commit(writes, port);
            return Ok(());
        }
        let scans: Vec<Scan> = slice.iter().map(|(_, scan)| scan.clone()).collect();
        let pages = read_facts::scan_each(&*port.engine, &scans).await?;
        let mut found = Vec::new();
        let mut told = BulkOutcome::default();
        for ((queue, _), Found { rows, gaps, next }) in slice.into_iter().zip(pages) {
            job.looked_at += rows.len() as u64;
            // What cannot be read is passed over: a row, or all rows of a gap.
            let passed_over = |told: &mut BulkOutcome, gaps: usize, cause: &str| {
                self.damaged(Some(queue), cause, port);
                told.unreadable += gaps as u64;
            };
            if let Some(gaps) = gaps {
                passed_over(&mut told, gaps.ranges.len(), &gaps.cause);
            }
            for row in rows {
                let (id, key) = url::parse_key(&row.key).map_err(damaged)?;
                match url::decode(&row.value) {
                    Ok(row) if self.matches(&job.filter, id, &key, &row) => found.push((id, key, row)),
                    Ok(_) => {}
                    Err(unread) => passed_over(&mut told, 1, &unread.to_string()),
                }
            }
            let more = next.is_some();
            job.cursor = JobCursor { queue: Some(queue), from: next, again: job.cursor.again };
            if more {
                // Rows already read from later queues are read again when their turn comes.
                break;
            }
        }
        let (found, unreadable) = self.known(found, job.what, port).await?;
        told.unreadable += unreadable;
        let now = self.now(port);
        for (queue, mut urls) in found {
            urls.retain(|known| job.wants(known));
            told.add(&self.state.rework(queue, urls, job.what, now, &mut writes));
        }
        job.outcome.add(&told);
        if writes.is_empty() && told.unreadable == 0 {
            // Nothing changed, so progress is not written: after a restart the same rows are read again.
            self.jobs.0.insert(job.id, job);
        } else {
            self.jobs.note(job, &mut writes);
            self.commit(writes, port);
        }
        Ok(())
    }

    /// What the next slice of a job reads: the rest of one queue, or the starts of several.
    fn job_slice(&self, job: &JobRow) -> Vec<(QueueId, Scan)> {
        let scan = |queue: QueueId, from: Option<Key>, limit: usize| {
            let prefix = url::prefix(queue);
            (queue, Scan { to: key::after_prefix(&prefix), from: from.unwrap_or(prefix), limit })
        };
        if let JobCursor { queue: Some(queue), from: Some(from), .. } = &job.cursor {
            return vec![scan(*queue, Some(from.clone()), SLICE_ROWS)];
        }
        let mut filter = job.filter.clone();
        if job.cursor.again {
            let Some(host) = job.again.first().and_then(|id| self.state.host_by_id(*id)) else { return Vec::new() };
            if filter.host.as_ref().is_some_and(|only| only != host.name) {
                return Vec::new();
            }
            filter.host = Some(host.name.clone());
        }
        let (mut queue, mut slice) = (job.cursor.queue, Vec::new());
        let mut room = SLICE_ROWS;
        while slice.len() < SLICE_QUEUES {
            match self.state.next_queue(queue, &filter, &mut LISTING_LOOKS.clone()) {
                Next::Found(next) => {
                    // One row more than the queue has, to learn that it is whole. Only queues that fit: what is read of the
                    // queues behind one that does not would be read again.
                    let rows = usize::try_from(self.state.queue_len(next)).unwrap_or(SLICE_ROWS).saturating_add(1);
                    if rows > room && !slice.is_empty() {
                        break;
                    }
                    slice.push(scan(next, None, rows.min(room)));
                    room = room.saturating_sub(rows);
                    queue = Some(next);
                }
                // Hosts without a matching queue; skipping them is cheap.
                Next::Later(host) => queue = Some(QueueId { host, no: u32::MAX }),
                Next::End => break,
            }
        }
        slice
    }

    /// The URLs of each queue, with the details stored in their due rows, and how many of these cannot be read.
    async fn known(
        &mut self,
        found: Vec<(QueueId, UrlKey, UrlRow)>,
        what: BulkAction,
        port: &mut Port,
    ) -> Result<(Vec<(QueueId, Vec<Known>)>, u64), Error> {
        let due_key = |(queue, key, row): &(QueueId, UrlKey, UrlRow)| match &row.status {
            UrlStatus::Queued(position) if what == BulkAction::Requeue => Some(due::key(*queue, *position, &key.0)),
            _ => None,
        };
        let keys: Vec<Key> = found.iter().filter_map(due_key).collect();
        let mut waiting = read_facts::due_rows(&*port.engine, &keys).await?.into_iter();
        let mut queues: Vec<(QueueId, Vec<Known>)> = Vec::new();
        let mut unreadable = 0;
        for (queue, key, row) in found {
            let waiting = match (&row.status, what) {
                (UrlStatus::Queued(_), BulkAction::Requeue) => match waiting.next().unwrap_or(Ok(None)) {
                    Ok(row) => row.map(|row| row.details),
                    Err(cause) => {
                        self.damaged(Some(queue), &cause, port);
                        unreadable += 1;
                        continue;
                    }
                },
                // A deletion needs none of the details.
                (UrlStatus::Queued(_), BulkAction::Delete) => Some(Details::default()),
                _ => None,
            };
            let known = Known { key, row, waiting };
            match queues.last_mut().filter(|(last, _)| *last == queue) {
                Some((_, urls)) => urls.push(known),
                None => queues.push((queue, vec![known])),
            }
        }
        Ok((queues, unreadable))
    }

    /// Requeues or deletes the given URLs of one queue.
    pub async fn change_listed_urls(
        &mut self,
        (crawl, host): (&CrawlName, &HostName),
        urls: &[Box<str>],
        what: BulkAction,
        port: &mut Port,
    ) -> Decided<BulkOutcome> {
        let mut told = BulkOutcome { unknown: urls.len() as u64, ..BulkOutcome::default() };
        let Some(queue) = self.state.queue_id(host, crawl) else { return Ok(Ok(told)) };
        // Each URL once: after its first occurrence is decided, the row that was read is stale.
        let mut once = hashbrown::HashSet::new();
        let named = urls.iter().map(|url| (UrlKey::new(host, url), url));
        let named: Vec<(UrlKey, &Box<str>)> = named.filter(|(key, _)| once.insert(key.clone())).collect();
        told.unknown = named.len() as u64;
        let targets: Vec<(QueueId, UrlKey)> = named.iter().map(|(key, _)| (queue, key.clone())).collect();
        let rows = match self.url_rows(&targets, port).await? {
            Ok(rows) => rows,
            Err(refusal) => return Ok(Err(refusal)),
        };
        let mut found = Vec::new();
        for ((key, url), row) in named.into_iter().zip(rows) {
            // A truncated key may belong to another URL.
            let is_it = |row: &UrlRow| row.whole.as_deref().is_none_or(|whole| *whole == **url);
            if let Some(row) = row.filter(is_it) {
                found.push((queue, key, row));
            }
        }
        told.unknown -= found.len() as u64;
        let (found, unreadable) = self.known(found, what, port).await?;
        if unreadable > 0 {
            let cause = "queued URLs cannot be read".to_owned();
            return Ok(Err(Refusal::Damaged { host: host.to_string(), cause }));
        }
        let now = self.now(port);
        let mut writes = Vec::new();
        for (queue, urls) in found {
            told.add(&self.state.rework(queue, urls, what, now, &mut writes));
        }
        self.commit(writes, port);
        Ok(Ok(told))
    }
}

/// A job has reached the end of its queues, or of a host that arrived later.
fn end_of_round(job: &mut JobRow, now: Time) {
    if job.cursor.again && !job.again.is_empty() {
        job.again.remove(0);
    }
    job.cursor = JobCursor { again: true, ..JobCursor::default() };
    if job.again.is_empty() {
        job.end(JobState::Done, now);
    }
}

/// Reports one of these jobs as what the crawl waits for, if it waits for nothing else.
pub(crate) fn tell_of_requeue<'a>(view: &mut CrawlView, mut jobs: impl Iterator<Item = &'a JobRow>) {
    if view.waits_for.is_none() {
        let job = jobs.find(|job| job.may_requeue(&view.crawl));
        view.waits_for = job.map(|job| format!("job {} is requeuing URLs", job.id));
    }
}

/// Announces a job to all shards until they have heard; ends with the process.
async fn spread(router: Weak<Router>, id: Token) {
    loop {
        let Some(router) = router.upgrade() else { return };
        if spread_once(&router, id).await.is_ok() {
            return;
        }
        drop(router);
        tokio::time::sleep(SPREAD_AGAIN_AFTER).await;
    }
}

async fn spread_once(router: &Router, id: Token) -> CallResult<()> {
    let home = id.shard();
    let jobs: Vec<JobRow> = router.ask(home, StateQuery::Jobs).await?;
    let Some(job) = jobs.into_iter().find(|job| job.id == id) else { return Ok(()) };
    let JobRow { what, filter, before, started_at, stage, state, .. } = job;
    let all: Vec<ShardId> = (0..router.shards()).map(ShardId).collect();
    // Never to the home itself: it may have forgotten the job by then and would register it as a new one.
    let others: Vec<ShardId> = all.iter().copied().filter(|shard| *shard != home).collect();
    let row = || Box::new(JobRow::new(id, what, filter.clone(), before, started_at));
    if state == JobState::Cancelled && stage < JobPhase::Begun {
        // The cancellation may have reached the home only.
        router.ask_all::<()>(&others, JobChange::CancelJob(row())).await?;
    }
    if stage == JobPhase::Announced {
        router.ask_all::<()>(&others, JobChange::StartJob(row())).await?;
        router.ask::<()>(home, JobChange::SetStage(id, JobPhase::Known)).await?;
    }
    if stage < JobPhase::Begun {
        router.ask_all::<()>(&all, JobChange::BeginJob(id)).await?;
        router.ask::<()>(home, JobChange::SetStage(id, JobPhase::Begun)).await?;
    }
    Ok(())
}

#[cfg(test)]
#[path = "jobs_tests.rs"]
mod tests;
