//! Requeuing and deleting known URLs, the bulk jobs that do it, and revoking what is handed out.

use std::collections::{BTreeMap, BTreeSet};

use futures::StreamExt;
use wayleave_core::frontier::bulk_job::{JobPhase, JobRow, JobState};
use wayleave_core::frontier::conclude_jobs::{self, JOBS_HOME, Settled, settle};
use wayleave_core::frontier::refusal::Refusal;
use wayleave_core::frontier::requeue::{BulkAction, BulkOutcome};
use wayleave_core::frontier::view::{JobView, UrlFilter, UrlView};
use wayleave_core::ids::{ShardId, Token};
use wayleave_core::limits::SLICE_ROWS;
use wayleave_core::names::{CrawlName, HostName};
use wayleave_core::time::Time;

use crate::ask::{HoldsEnded, JobChange, Revoke, RowQuery, StateQuery, UrlChange};
use crate::handle::frontier::Frontier;
use crate::routing::router::{CallResult, worse};

/// Hosts that one request over a list of URLs asks concurrently.
const HOSTS_AT_ONCE: usize = 32;

/// Passes over the holds of a shard in which those of one host are revoked, while others hand out more of them.
const REVOKE_PASSES: usize = 8;

impl Frontier {
    /// Starts a job that requeues or deletes all URLs that match a filter and were last visited (requeue) or stored
    /// (delete) before a time. The job is durable and does not depend on the caller. Fails if too many run, or the
    /// store cannot be reached.
    pub async fn start_job(&self, what: BulkAction, filter: UrlFilter, before: Option<Time>) -> CallResult<JobView> {
        let id = Token::new(JOBS_HOME, (self.config.entropy)());
        let job = JobRow::new(id, what, filter, before, self.now());
        let begin = || self.router.ask::<()>(JOBS_HOME, JobChange::StartJob(Box::new(job.clone())));
        match begin().await {
            Err(Refusal::OverLimit(_)) => {
                self.conclude_jobs().await?;
                begin().await?;
            }
            answer => answer?,
        }
        Ok(view(std::slice::from_ref(&job), self.shards(), false))
    }

    /// Requeues that have not been announced to every shard. A check whether a crawl is finished asks for these first,
    /// then the shards.
    pub(crate) async fn unheard_requeues(&self) -> CallResult<Vec<JobRow>> {
        self.router.ask(JOBS_HOME, StateQuery::UnheardRequeues).await
    }

    /// Frees job slots taken by jobs that have ended on every shard. Fails with "unavailable", because no job has been
    /// started.
    pub(crate) async fn conclude_jobs(&self) -> CallResult<()> {
        let (first, second) = (self.look_at_jobs().await?, self.look_at_jobs().await?);
        let Settled { ended, forgotten } = settle(&first, &second);
        let ask = JobChange::ConcludeJobs { ended, forgotten };
        match self.router.ask::<()>(JOBS_HOME, ask.clone()).await {
            Err(Refusal::OutcomeUnknown(why)) => return Err(Refusal::Unavailable(why)),
            answer => answer?,
        }
        // A row that a shard keeps now is removed the next time jobs are settled.
        _ = self.router.ask_all::<()>(&self.away_from_home(), ask).await;
        Ok(())
    }

    /// All jobs, latest first.
    pub async fn jobs(&self) -> CallResult<Vec<JobView>> {
        let (rows, over) = self.job_rows().await?;
        let view = |(id, rows): (&Token, &Vec<JobRow>)| view(rows, self.shards(), over.contains(id));
        let mut jobs: Vec<JobView> = rows.iter().map(view).collect();
        jobs.sort_unstable_by_key(|job| (std::cmp::Reverse(job.started_at), job.id));
        Ok(jobs)
    }

    /// One job; `None` if it does not exist or ended long ago.
    pub async fn job(&self, id: Token) -> CallResult<Option<JobView>> {
        let (rows, over) = self.job_rows().await?;
        Ok(rows.get(&id).map(|rows| view(rows, self.shards(), over.contains(&id))))
    }

    /// Cancels a job; what it has done so far stays done. `None` if it does not exist.
    pub async fn cancel_job(&self, id: Token) -> CallResult<Option<JobView>> {
        let (rows, _) = self.job_rows().await?;
        let Some(job) = rows.get(&id).and_then(|rows| rows.first()) else { return Ok(None) };
        let JobRow { what, filter, before, started_at, .. } = job.clone();
        let job = JobRow::new(id, what, filter, before, started_at);
        self.router.ask_all::<()>(&self.all(), JobChange::CancelJob(Box::new(job))).await?;
        self.job(id).await.map_err(|refusal| refusal.after_partial_change("the job was cancelled"))
    }

    /// The rows of all jobs, by job, and which of the jobs are over. Excludes rows left behind on other shards by jobs
    /// that the home shard has already forgotten.
    async fn job_rows(&self) -> CallResult<(BTreeMap<Token, Vec<JobRow>>, BTreeSet<Token>)> {
        let mut shards = self.look_at_jobs().await?;
        // A single read cannot tell that a job is over, unless its home has settled that.
        let settled: BTreeSet<Token> = ids(shards.first(), |row| row.stage == JobPhase::Ended);
        let open: BTreeSet<Token> = ids(&shards, JobRow::is_open);
        let mut over = settled.clone();
        if shards.iter().flatten().any(|row| !open.contains(&row.id) && !settled.contains(&row.id)) {
            let second = self.look_at_jobs().await?;
            over.extend(conclude_jobs::over(&shards, &second));
            shards = second;
        }
        let known: BTreeSet<Token> = shards.first().into_iter().flatten().map(|row| row.id).collect();
        let mut jobs: BTreeMap<Token, Vec<JobRow>> = BTreeMap::new();
        for row in shards.into_iter().flatten() {
            jobs.entry(row.id).or_default().push(row);
        }
        jobs.retain(|id, rows| known.contains(id) || rows.iter().any(JobRow::is_open));
        Ok((jobs, over))
    }

    /// The job rows of each shard. The home shard is asked last: it forgets a job before the others do, so for every
    /// job that it knows no row is missing.
    async fn look_at_jobs(&self) -> CallResult<Vec<Vec<JobRow>>> {
        let mut shards: Vec<Vec<JobRow>> = self.router.ask_all(&self.away_from_home(), StateQuery::Jobs).await?;
        shards.insert(JOBS_HOME.0.into(), self.router.ask(JOBS_HOME, StateQuery::Jobs).await?);
        Ok(shards)
    }

    /// All shards except the home shard of jobs.
    fn away_from_home(&self) -> Vec<ShardId> {
        self.all().into_iter().filter(|shard| *shard != JOBS_HOME).collect()
    }

    /// Requeues or deletes the given URLs of a crawl, each with its host or queue key. Fails if the store cannot be
    /// reached; what was done by then stays done.
    pub async fn rework(
        &self,
        what: BulkAction,
        crawl: CrawlName,
        urls: Vec<(HostName, Box<str>)>,
    ) -> CallResult<BulkOutcome> {
        let mut hosts: BTreeMap<HostName, Vec<Box<str>>> = BTreeMap::new();
        for (host, url) in urls {
            hosts.entry(host).or_default().push(url);
        }
        let asks = hosts.into_iter().map(|(host, urls)| {
            let ask = UrlChange::ChangeUrls { crawl: crawl.clone(), host: host.clone(), urls, what };
            async move { self.at_host::<BulkOutcome>(&host, ask).await }
        });
        // Wait for all of them, so that the answer is true of each.
        let told: Vec<CallResult<BulkOutcome>> =
            futures::stream::iter(asks).buffer_unordered(HOSTS_AT_ONCE).collect().await;
        let (mut sum, mut trouble) = (BulkOutcome::default(), None);
        for part in told {
            match part {
                Ok(part) => sum.add(&part),
                Err(refusal) => trouble = Some(worse(trouble, refusal)),
            }
        }
        let done = format!("{} of the URLs were done", sum.done);
        trouble.map_or(Ok(sum), |refusal| Err(in_part(refusal, sum.done, &done)))
    }

    /// Revokes reservations: one by its token, or all of a holder or of a host; for a host also its holds. The URLs
    /// return unchanged. Returns the number of reservations and holds revoked. Fails if the store cannot be reached, or
    /// a token is not current.
    pub async fn revoke(&self, which: Revoke) -> CallResult<(u64, u64)> {
        match &which {
            Revoke::Token(token) => {
                let ended: u64 = self.with_token(*token, UrlChange::Revoke(which.clone())).await?;
                Ok((ended, 0))
            }
            Revoke::Holder(_) => {
                let mut reservations = 0;
                loop {
                    let ended: CallResult<Vec<u64>> =
                        self.router.ask_all(&self.all(), UrlChange::Revoke(which.clone())).await;
                    let done = format!("{reservations} reservations were revoked");
                    let ended = ended.map_err(|refusal| in_part(refusal, reservations, &done))?;
                    reservations += ended.iter().sum::<u64>();
                    if ended.iter().all(|ended| *ended < SLICE_ROWS as u64) {
                        return Ok((reservations, 0));
                    }
                }
            }
            Revoke::Host(host) => {
                // One slice suffices: a group never has more concurrent visits than that.
                let reservations: u64 = self.at_host(host, UrlChange::Revoke(which.clone())).await?;
                self.revoke_holds(host, reservations).await.map(|holds| (reservations, holds))
            }
        }
    }

    /// Revokes the holds of a host, in passes of slices; returns their number.
    ///
    /// Where some holds cannot be read, which may be of the host, its count tells: what a pass counts at its beginning and does
    /// not find cannot be read. Meanwhile others hand out URLs of the host and report them, so if a pass has found any, its
    /// counts prove nothing. Of ten holds it may miss one, and end nine and a new one.
    async fn revoke_holds(&self, host: &HostName, reservations: u64) -> CallResult<u64> {
        let (mut holds, mut after, mut unread) = (0, None, None::<String>);
        for _ in 0..REVOKE_PASSES {
            let (mut at_first, before) = (None, holds);
            let left = loop {
                let ask = UrlChange::RevokeHolds { host: host.clone(), after };
                let part: CallResult<HoldsEnded> = self.at_host(host, ask).await;
                let done = format!("{reservations} reservations and {holds} holds were revoked");
                let part = part.map_err(|refusal| in_part(refusal, reservations + holds, &done))?;
                at_first.get_or_insert(part.ended + part.left);
                holds += part.ended;
                unread = unread.or(part.cause);
                after = part.next;
                if after.is_none() {
                    break part.left;
                }
            };
            let is_last = holds == before;
            if left == 0 || unread.is_none() || (is_last && at_first == Some(0)) {
                return Ok(holds);
            }
            if is_last {
                break;
            }
        }
        let cause = unread.unwrap_or_default();
        let done = format!("all others, {reservations} reservations and {holds} holds, were revoked");
        Err(Refusal::Damaged { host: host.to_string(), cause: format!("{cause}; {done}") })
    }

    /// A sample of the URLs of a host that are handed out, earliest deadline first.
    pub async fn in_hand(&self, host: &HostName) -> CallResult<Vec<UrlView>> {
        self.at_host(host, RowQuery::InHand(host.clone())).await
    }
}

fn ids<'a>(
    rows: impl IntoIterator<Item = impl IntoIterator<Item = &'a JobRow>>,
    which: impl Fn(&JobRow) -> bool,
) -> BTreeSet<Token> {
    rows.into_iter().flatten().filter(|row| which(row)).map(|row| row.id).collect()
}

/// The refusal after part of the work has been done.
fn in_part(refusal: Refusal, count: u64, done: &str) -> Refusal {
    if count > 0 { refusal.after_partial_change(done) } else { refusal }
}

/// A job summed over all shards. No shard starts before all have registered the job, so a missing row means that
/// nothing was done. A job that was read as ended in all of them, but at different times, is not known to be `over`.
fn view(rows: &[JobRow], shards: u16, over: bool) -> JobView {
    let mut sum = JobView { shards, ..JobView::default() };
    let (mut running, mut cancelled) = (false, false);
    for row in rows {
        (sum.id, sum.what, sum.filter) = (row.id, row.what, row.filter.clone());
        (sum.before, sum.started_at) = (row.before, row.started_at);
        sum.outcome.add(&row.outcome);
        sum.looked_at += row.looked_at;
        sum.ended_at = sum.ended_at.max(row.ended_at);
        sum.shards_done += u16::from(!row.is_open());
        running |= row.is_open();
        cancelled |= row.state == JobState::Cancelled;
    }
    sum.state = match (running, cancelled) {
        (false, true) => JobState::Cancelled,
        (false, false) if over => JobState::Done,
        _ => JobState::Running,
    };
    if sum.state == JobState::Running {
        sum.ended_at = None;
    }
    sum
}
