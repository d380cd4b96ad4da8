//! Jobs over many URLs: the owner's side. A shard keeps its own row of each job and does a slice of it whenever it has done
//! what waits; callers wait for one slice at most.
//!
//! A job is announced at its home, which is the same shard for all so that it can count them, and is durable there before anybody
//! else hears of it. Its home then tells the other shards, and when all have it, that they are to begin; it goes on with that after a restart (`spread`). What
//! could go wrong between them:
//!
//! 1. The home's commit fails: the one that spreads looks at the home first, whose answer waits for that commit, and finds
//!    nothing to spread.
//! 2. The home ends before all shards have heard: its row says so, and whoever opens it next goes on.
//! 3. A shard hears twice: it has the row, and nothing changes.
//! 4. A job is cancelled before all have heard: a shard that does not know it yet keeps a row that says "cancelled", and what
//!    is spread later changes nothing there.
//! 5. A host moves from a shard that has not heard of the job to one that has done its part: nobody would visit it. So nobody
//!    begins before all have heard; from then on the giver knows what it owes, see `wayleave_core::frontier::rework`.
//! 6. A host moves from a shard that still owes it a visit to one that has forgotten the job: nobody would visit it. So no shard
//!    forgets a job by itself, only when it has ended in all of them, see `wayleave_core::frontier::settle_jobs`.
//! 7. What is told of a job comes late, from a task of an earlier owner: its stage never goes back.
//! 8. A job is cancelled and forgotten at once: its home does not take note of it again, and what the others keep is removed with
//!    the next that are settled.
//! 9. Somebody asks whether a crawl is finished before a shard that has URLs of it has heard of a requeue that was accepted: only
//!    the home knows. So the home is asked as well, before the others: those it does not speak of have been heard of by all.
//! 10. A slice is read, and something else is decided before it is: that cannot be, an owner does one thing after the other.

use std::sync::Weak;
use std::time::Duration;

use wayleave_core::frontier::listing::Next;
use wayleave_core::frontier::refusal::Refusal;
use wayleave_core::frontier::requeue::{Known, Rework, Reworked};
use wayleave_core::frontier::rework::{JobRow, JobState, Place as Spot, Stage};
use wayleave_core::frontier::row::{Details, Place, UrlRow, Write};
use wayleave_core::frontier::url_key::UrlKey;
use wayleave_core::frontier::view::CrawlView;
use wayleave_core::ids::{HostId, QueueId, ShardId, Token};
use wayleave_core::limits::{JOBS_RUNNING_MAX, LISTING_LOOKS, SLICE_ROWS};
use wayleave_core::names::{CrawlName, HostName};
use wayleave_core::time::Time;
use wayleave_engine::rows::{due, key, url};
use wayleave_engine::{Error, Key, Scan};

use crate::ask::{JobChange, Look, Told};
use crate::owner::open::damaged;
use crate::owner::owner_loop::Owner;
use crate::owner::read_facts;
use crate::routing::router::{Answer, Router};

/// Queues that one slice begins; most are short.
const SLICE_QUEUES: usize = 32;

/// Between two tries to tell the other shards of a job.
const SPREAD_AGAIN_AFTER: Duration = Duration::from_secs(1);

impl Owner {
    /// Takes a job on. One that is known stays as it is.
    pub fn start_job(&mut self, job: &JobRow, writes: &mut Vec<Write>) -> Result<(), Refusal> {
        if self.jobs_of_urls.contains_key(&job.id) {
            return Ok(());
        }
        if job.id.shard() == self.shard {
            // Those that go on in other shards count as well.
            let running = self.jobs_of_urls.values().filter(|job| job.stage < Stage::Ended).count();
            if running >= JOBS_RUNNING_MAX {
                return Err(Refusal::OverLimit(format!(
                    "{running} jobs are running, which is the limit; wait for one to end, or cancel one"
                )));
            }
            self.spread_job(job.id);
        }
        self.note_job(job.clone(), writes);
        Ok(())
    }

    /// Stops a job. A shard that has not heard of it remembers that it is not to begin; its home has, or has forgotten it.
    pub fn cancel_job(&mut self, job: &JobRow, now: Time, writes: &mut Vec<Write>) {
        let known = self.jobs_of_urls.get(&job.id);
        if known.is_none() && job.id.shard() == self.shard {
            return;
        }
        let mut job = known.unwrap_or(job).clone();
        job.end(JobState::Cancelled, now);
        self.note_job(job, writes);
    }

    /// All shards have heard of a job: it begins here.
    pub fn begin_job(&mut self, id: Token, writes: &mut Vec<Write>) {
        if let Some(mut job) = self.jobs_of_urls.get(&id).cloned() {
            job.begin();
            self.note_job(job, writes);
        }
    }

    /// The other shards have heard so much of a job of this one's.
    pub fn set_stage(&mut self, id: Token, stage: Stage, writes: &mut Vec<Write>) {
        if let Some(mut job) = self.jobs_of_urls.get(&id).cloned() {
            job.stage = job.stage.max(stage);
            self.note_job(job, writes);
        }
    }

    /// Jobs have ended in all shards.
    pub fn settle_jobs(&mut self, ended: &[Token], forgotten: &[Token], writes: &mut Vec<Write>) {
        ended.iter().for_each(|id| self.set_stage(*id, Stage::Ended, writes));
        for id in forgotten {
            if self.jobs_of_urls.remove(id).is_some() {
                writes.push(Write::Rework(*id, None));
            }
        }
    }

    /// Goes on telling of the jobs that not all may have heard of.
    pub fn spread_jobs(&self) {
        let mine = self.jobs_of_urls.values().filter(|job| job.id.shard() == self.shard && job.stage < Stage::Begun);
        mine.for_each(|job| self.spread_job(job.id));
    }

    fn spread_job(&self, id: Token) {
        tokio::spawn(spread(self.router.clone(), id));
    }

    fn note_job(&mut self, job: JobRow, writes: &mut Vec<Write>) {
        writes.push(Write::Rework(job.id, Some(Box::new(job.clone()))));
        self.jobs_of_urls.insert(job.id, job);
    }

    /// Jobs that still have to visit a host, which is about to leave.
    pub fn jobs_owed_to(&self, host: Option<HostId>) -> Vec<Token> {
        let owes = |job: &&JobRow| host.is_some_and(|host| job.owes(host, self.shard));
        self.jobs_of_urls.values().filter(owes).map(|job| job.id).collect()
    }

    /// A host came from a shard that owed it these jobs.
    pub fn take_jobs(&mut self, host: HostId, jobs: &[Token], writes: &mut Vec<Write>) {
        for id in jobs {
            if let Some(mut job) = self.jobs_of_urls.get(id).cloned() {
                job.visit_again(host);
                self.note_job(job, writes);
            }
        }
    }

    /// A crawl is not finished while URLs of it may be requeued.
    pub fn tell_of_requeues(&self, told: &mut Told) {
        match told {
            Told::Crawl(Some(part)) => tell_of_requeue(&mut part.view, self.jobs_of_urls.values()),
            Told::Crawls((views, _)) => {
                views.iter_mut().for_each(|view| tell_of_requeue(view, self.jobs_of_urls.values()));
            }
            _ => {}
        }
    }

    /// Requeues of which this home has not told all shards: others may take a crawl for finished that waits for one.
    pub fn unheard_requeues(&self) -> Vec<JobRow> {
        let mine = self.jobs_of_urls.values().filter(|job| job.id.shard() == self.shard && job.stage < Stage::Known);
        mine.filter(|job| job.what == Rework::Requeue && job.is_open()).cloned().collect()
    }

    /// Whether a job has something to do here.
    pub fn has_running_job(&self) -> bool {
        self.jobs_of_urls.values().any(JobRow::is_running)
    }

    /// Does a slice of the job that began first.
    pub async fn run_job_of_urls(&mut self) -> Result<(), Error> {
        let running = self.jobs_of_urls.values().filter(|job| job.is_running());
        let Some(mut job) = running.min_by_key(|job| (job.started_at, job.id)).cloned() else { return Ok(()) };
        let slice = self.job_slice(&job);
        let mut writes = Vec::new();
        if slice.is_empty() {
            let now = self.now();
            end_of_round(&mut job, now);
            self.note_job(job, &mut writes);
            self.commit(writes);
            return Ok(());
        }
        let scans: Vec<Scan> = slice.iter().map(|(_, scan)| scan.clone()).collect();
        let pages = self.engine.scan_many(&scans).await?;
        let mut found = Vec::new();
        for ((queue, scan), rows) in slice.into_iter().zip(pages) {
            let more = rows.len() == scan.limit;
            job.looked_at += rows.len() as u64;
            let mut last = None;
            for row in rows {
                let (id, key) = url::parse_key(&row.key).map_err(damaged)?;
                last = Some(row.key);
                let row = url::decode(&row.value).map_err(damaged)?;
                if self.matches(&job.filter, id, &key, &row) {
                    found.push((id, key, row));
                }
            }
            let from = last.filter(|_| more).map(key_after);
            job.place = Spot { queue: Some(queue), from, again: job.place.again };
            if more {
                // What was read of the queues behind it is read again when it is their turn.
                break;
            }
        }
        let found = self.known(found, job.what).await?;
        let now = self.now();
        let mut told = Reworked::default();
        for (queue, mut urls) in found {
            urls.retain(|known| job.wants(known));
            told.add(&self.state.rework(queue, urls, job.what, now, &mut writes));
        }
        job.told.add(&told);
        if writes.is_empty() {
            // Nothing was changed: should this process end, the same rows are looked at again.
            self.jobs_of_urls.insert(job.id, job);
        } else {
            self.note_job(job, &mut writes);
            self.commit(writes);
        }
        Ok(())
    }

    /// What the next slice of a job reads: the rest of a queue, or the beginnings of some.
    fn job_slice(&self, job: &JobRow) -> Vec<(QueueId, Scan)> {
        let scan = |queue: QueueId, from: Option<Key>, limit: usize| {
            let prefix = url::prefix(queue);
            (queue, Scan { to: key::after_prefix(&prefix), from: from.unwrap_or(prefix), limit })
        };
        if let Spot { queue: Some(queue), from: Some(from), .. } = &job.place {
            return vec![scan(*queue, Some(from.clone()), SLICE_ROWS)];
        }
        let mut filter = job.filter.clone();
        if job.place.again {
            let Some(host) = job.again.first().and_then(|id| self.state.host_by_id(*id)) else { return Vec::new() };
            if filter.host.as_ref().is_some_and(|only| only != host.name) {
                return Vec::new();
            }
            filter.host = Some(host.name.clone());
        }
        let (mut queue, mut slice) = (job.place.queue, Vec::new());
        while slice.len() < SLICE_QUEUES {
            match self.state.next_queue(queue, &filter, &mut LISTING_LOOKS.clone()) {
                Next::Found(next) => {
                    slice.push(scan(next, None, SLICE_ROWS / SLICE_QUEUES));
                    queue = Some(next);
                }
                // Hosts without a queue that fits; they are cheap to pass over.
                Next::Later(host) => queue = Some(QueueId { host, no: u32::MAX }),
                Next::End => break,
            }
        }
        slice
    }

    /// URLs with what waits in the queue with them, queue by queue.
    async fn known(
        &mut self,
        found: Vec<(QueueId, UrlKey, UrlRow)>,
        what: Rework,
    ) -> Result<Vec<(QueueId, Vec<Known>)>, Error> {
        let turn = |(queue, key, row): &(QueueId, UrlKey, UrlRow)| match &row.place {
            Place::Queued(turn) if what == Rework::Requeue => Some(due::key(*queue, *turn, &key.0)),
            _ => None,
        };
        let keys: Vec<Key> = found.iter().filter_map(turn).collect();
        let mut waiting = read_facts::due_rows(&*self.engine, &keys).await?.into_iter();
        let mut queues: Vec<(QueueId, Vec<Known>)> = Vec::new();
        for (queue, key, row) in found {
            let waiting = match (&row.place, what) {
                (Place::Queued(_), Rework::Requeue) => waiting.next().flatten().map(|row| row.details),
                // Whoever is forgotten needs nothing of what is kept.
                (Place::Queued(_), Rework::Delete) => Some(Details::default()),
                _ => None,
            };
            let known = Known { key, row, waiting };
            match queues.last_mut().filter(|(last, _)| *last == queue) {
                Some((_, urls)) => urls.push(known),
                None => queues.push((queue, vec![known])),
            }
        }
        Ok(queues)
    }

    /// Requeues or deletes some URLs of a queue.
    pub async fn rework_urls(
        &mut self,
        (crawl, host): (&CrawlName, &HostName),
        urls: &[Box<str>],
        what: Rework,
    ) -> Result<Reworked, Error> {
        let mut told = Reworked { unknown: urls.len() as u64, ..Reworked::default() };
        let Some(queue) = self.state.queue_id(host, crawl) else { return Ok(told) };
        // Each once: a row that was read before the first is decided is out of date for a second.
        let mut once = hashbrown::HashSet::new();
        let named = urls.iter().map(|url| (UrlKey::new(host, url), url));
        let named: Vec<(UrlKey, &Box<str>)> = named.filter(|(key, _)| once.insert(key.clone())).collect();
        told.unknown = named.len() as u64;
        let targets: Vec<(QueueId, UrlKey)> = named.iter().map(|(key, _)| (queue, key.clone())).collect();
        let rows = read_facts::url_rows(&*self.engine, &targets).await?;
        let mut found = Vec::new();
        for ((key, url), row) in named.into_iter().zip(rows) {
            // A key that was cut may be another URL's.
            let is_it = |row: &UrlRow| row.whole.as_deref().is_none_or(|whole| *whole == **url);
            if let Some(row) = row.filter(is_it) {
                found.push((queue, key, row));
            }
        }
        told.unknown -= found.len() as u64;
        let found = self.known(found, what).await?;
        let now = self.now();
        let mut writes = Vec::new();
        for (queue, urls) in found {
            told.add(&self.state.rework(queue, urls, what, now, &mut writes));
        }
        self.commit(writes);
        Ok(told)
    }
}

/// A job has come to the end of its queues, or to that of a host that came later.
fn end_of_round(job: &mut JobRow, now: Time) {
    if job.place.again && !job.again.is_empty() {
        job.again.remove(0);
    }
    job.place = Spot { again: true, ..Spot::default() };
    if job.again.is_empty() {
        job.end(JobState::Done, now);
    }
}

/// Says that a crawl waits for one of these jobs, if it waits for nothing else.
pub(crate) fn tell_of_requeue<'a>(view: &mut CrawlView, mut jobs: impl Iterator<Item = &'a JobRow>) {
    if view.waits_for.is_none() {
        let job = jobs.find(|job| job.may_requeue(&view.crawl));
        view.waits_for = job.map(|job| format!("job {} is requeuing URLs", job.id));
    }
}

fn key_after(mut key: Key) -> Key {
    key.push(0);
    key
}

/// Tells all shards of a job until they have heard; ends with the process.
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

async fn spread_once(router: &Router, id: Token) -> Answer<()> {
    let home = id.shard();
    let jobs: Vec<JobRow> = router.ask(home, Look::Jobs).await?;
    let Some(job) = jobs.into_iter().find(|job| job.id == id) else { return Ok(()) };
    let JobRow { what, filter, before, started_at, stage, state, .. } = job;
    let all: Vec<ShardId> = (0..router.shards()).map(ShardId).collect();
    // Never the home itself: it may have forgotten the job by the time this arrives, and would take it for a new one.
    let others: Vec<ShardId> = all.iter().copied().filter(|shard| *shard != home).collect();
    let row = || Box::new(JobRow::new(id, what, filter.clone(), before, started_at));
    if state == JobState::Cancelled && stage < Stage::Begun {
        // Whoever cancelled it may have reached the home alone.
        router.ask_all::<()>(&others, JobChange::CancelJob(row())).await?;
    }
    if stage == Stage::Announced {
        router.ask_all::<()>(&others, JobChange::StartJob(row())).await?;
        router.ask::<()>(home, JobChange::SetStage(id, Stage::Known)).await?;
    }
    if stage < Stage::Begun {
        router.ask_all::<()>(&all, JobChange::BeginJob(id)).await?;
        router.ask::<()>(home, JobChange::SetStage(id, Stage::Begun)).await?;
    }
    Ok(())
}

#[cfg(test)]
#[path = "jobs_tests.rs"]
mod tests;
