//! Claims and reports of chunks: the frontier's groups are reserved for a chunk in the same decision that makes the chunk.

use std::sync::Arc;

use wayleave_core::frontier::link::LinkUrl;
use wayleave_core::frontier::refusal::Refusal;
use wayleave_core::frontier::request::{RequestId, Reservation};
use wayleave_core::frontier::reserve::Grant as VisitGrant;
use wayleave_core::frontier::row::{UrlRow, Write};
use wayleave_core::frontier::visit::{PlannedVisit, Visit, Want};
use wayleave_core::ids::{ChunkId, CrawlNo, Token};
use wayleave_core::pipeline::claim::{Grant, Writes};
use wayleave_core::pipeline::request::{Claim, Claimed, LinkToFetch, LinksReported, ReportLinks, Stage};
use wayleave_core::pipeline::row::ChunkRow;
use wayleave_core::time::{Millis, Time};
use wayleave_engine::Error;

use crate::owner::chunks::Decided;
use crate::owner::owner_loop::Owner;

/// What the links of a chunk are reserved for.
struct LinkGrant {
    chunk: ChunkId,
    worker: Arc<str>,
    until: Time,
}

impl Owner {
    /// Claims chunks, each in a decision and commit of its own. What was claimed before a read failed is returned with
    /// the error.
    pub async fn claim_chunks(&mut self, claim: &Claim) -> (Vec<Claimed>, Option<Error>) {
        let mut claimed = Vec::new();
        while claimed.len() < claim.chunks {
            let damaged = self.damaged_chunks.len();
            let one = match claim.stage {
                Stage::Crawl => self.claim_crawl(claim).await,
                Stage::Build => self.claim_build(claim, claim.chunks - claimed.len()).await,
            };
            match one {
                // It has met chunks that cannot be read, and passes over them from now on.
                Ok(more) if more.is_empty() && self.damaged_chunks.len() > damaged => {}
                Ok(more) if more.is_empty() => break,
                Ok(more) => claimed.extend(more),
                Err(error) => return (claimed, Some(error)),
            }
        }
        (claimed, None)
    }

    fn grant(&self, claim: &Claim, now: Time) -> Grant {
        Grant { token: Token::new(self.shard, (self.config.entropy)()), until: now.after(claim.lease) }
    }

    async fn claim_build(&mut self, claim: &Claim, most: usize) -> Result<Vec<Claimed>, Error> {
        let mut claimed = Vec::new();
        let mut writes = Writes::default();
        for id in self.pipeline.plan_build(claim.crawl.as_ref(), most + self.damaged_chunks.len()) {
            if claimed.len() >= most {
                break;
            }
            if self.damaged_chunks.contains(&id) {
                continue;
            }
            let row = match self.chunk_row(id).await? {
                Ok(Some(row)) => row,
                Ok(None) => continue,
                Err(_) => {
                    // It must not keep back those behind it. The next owner of the shard tries it again.
                    self.damaged_chunks.insert(id);
                    continue;
                }
            };
            let now = self.now();
            let grant = self.grant(claim, now);
            claimed.extend(self.pipeline.grant_build(&row, (claim, &grant), now, &mut writes.pipeline));
        }
        self.commit_chunks(writes);
        Ok(claimed)
    }

    async fn claim_crawl(&mut self, claim: &Claim) -> Result<Vec<Claimed>, Error> {
        let now = self.now();
        while let Some(id) = self.pipeline.plan_offered(claim, &self.state, now) {
            let Some(chunk) = self.pipeline.active(id).cloned() else { break };
            let rows = self.link_rows(&chunk).await?;
            let (mut writes, grant) = (Writes::default(), self.grant(claim, now));
            let claimed = self.pipeline.grant_offered(id, rows, (claim, &grant), now, &mut self.state, &mut writes);
            self.commit_chunks(writes);
            if let Some(claimed) = claimed {
                return Ok(vec![claimed]);
            }
        }
        let crawl = match claim.crawl.as_deref().map(|name| self.state.crawl_no(name)) {
            Some(None) => return Ok(Vec::new()),
            Some(known) => known,
            None => None,
        };
        if claim.host.is_none() && self.state.ready_groups(crawl) < claim.links_min.max(1) {
            return Ok(Vec::new());
        }
        let pages = self.claim_pages(crawl, claim.host.is_some(), claim.links).await?;
        self.load_passes();
        // After the claim, which may have waited for the store.
        let now = self.now();
        let mut writes = Writes::default();
        // A group whose first URL was deleted or put off looks ready until it is planned: then it waits for its next one. The
        // claim goes on with the others, as it would not be woken for them again.
        let granted = loop {
            let (planned, granted) = self.reserve_links(claim, crawl, now, &mut writes.frontier).await?;
            if planned == 0 || !granted.is_empty() || claim.host.is_some() {
                break granted;
            }
        };
        let grant = self.grant(claim, now);
        let made = self.pipeline.make(granted, (claim, &grant), now, &mut self.state, &mut writes);
        self.commit_chunks(writes);
        self.publish_passes();
        // After the commit that takes the others.
        self.return_pages(pages);
        Ok(made.into_iter().collect())
    }

    /// Reserves the groups of a new chunk; how many were planned, and the reservations. All are planned before the first is reserved: a group that may be visited
    /// several times at once would be found again, and its first URL with it, because nothing is committed yet.
    async fn reserve_links(
        &mut self,
        claim: &Claim,
        crawl: Option<CrawlNo>,
        now: Time,
        writes: &mut Vec<Write>,
    ) -> Result<(usize, Vec<Reservation>), Error> {
        let links = claim.links.max(1);
        let urls = if claim.host.is_some() { links } else { 1 };
        let want = |crawl| Want { crawl, urls, held_below: None, bare_hosts: false };
        let visits: Vec<Visit> = match &claim.host {
            Some(host) => self.state.plan_host(host, &want(crawl), now).into_iter().collect(),
            None => {
                // The first link decides the crawl of all.
                let mut visits = self.state.plan_visits(&want(crawl), 1, now);
                if let Some(first) = visits.first().map(Visit::crawl) {
                    visits.extend(self.state.plan_visits(&want(Some(first)), links - 1, now));
                    if crawl.is_none() {
                        self.state.charge_visits(first, visits.len() - 1);
                    }
                }
                visits
            }
        };
        let (chunk, worker, until) = (self.pipeline.peek_id(), claim.worker.clone(), now.after(claim.lease));
        let count = visits.len();
        let planned = self.read_fronts(visits, urls, now).await?;
        Ok((count, self.reserve_visits(planned, (&LinkGrant { chunk, worker, until }, urls), now, writes)))
    }

    fn reserve_visits(
        &mut self,
        planned: Vec<PlannedVisit>,
        (link, urls): (&LinkGrant, usize),
        now: Time,
        writes: &mut Vec<Write>,
    ) -> Vec<Reservation> {
        let mut granted = Vec::new();
        for (visit, found) in planned {
            let grant = VisitGrant {
                holder: link.worker.clone(),
                urls,
                lease: Millis(link.until.since(now).0),
                entropy: (self.config.entropy)(),
                request: None,
                chunk: Some(link.chunk),
            };
            granted.extend(self.state.reserve(&visit, found, &grant, now, writes));
        }
        granted
    }

    /// The live chunks granted for a request.
    pub async fn claimed_before(&mut self, worker: &Arc<str>, request: &RequestId) -> Decided<Vec<Claimed>> {
        let now = self.now();
        let ids = match self.pipeline.requested(worker, request, now) {
            Ok(ids) => ids,
            Err(id) => return Ok(Err(Refusal::RequestReused(id.into()))),
        };
        let mut claimed = Vec::new();
        for id in ids {
            let Some(chunk) = self.pipeline.active(id).cloned() else { continue };
            let rows = self.link_rows(&chunk).await?;
            claimed.extend(self.pipeline.granted_again(id, rows, &self.state));
        }
        Ok(Ok(claimed))
    }

    /// Takes a report. What it returns to the queues is committed before replacements are taken from them. If a later
    /// read fails, the answer so far is returned with the error.
    pub async fn report_links(&mut self, report: &ReportLinks) -> (Decided<LinksReported>, Option<Error>) {
        let now = self.now();
        let chunk = match self.pipeline.reported(report.chunk, report.token, now) {
            Ok(chunk) => chunk.clone(),
            Err(refusal) => return (Ok(Err(refusal.into())), None),
        };
        let named = self.pipeline.named(report.chunk, report.results.iter().map(|result| &*result.url), &self.state);
        let rows = match self.all_rows_at(&chunk, &named).await {
            Ok(Ok(rows)) => rows,
            Ok(Err(refusal)) => return (Ok(Err(refusal)), None),
            Err(error) => return (Err(error), None),
        };
        let (mut writes, jitter) = (Writes::default(), (self.config.entropy)() as u64);
        let reported = self.pipeline.report(report, &rows, now, jitter, &mut self.state, &mut writes);
        self.commit_chunks(writes);
        let (mut answer, vacancies) = match reported {
            Ok(reported) => reported,
            Err(refusal) => return (Ok(Err(refusal.into())), None),
        };
        let replaced = if vacancies.is_empty() && report.replace {
            self.replaced_before(report).await
        } else if vacancies.is_empty() {
            Ok(Vec::new())
        } else {
            self.replace_links(&chunk, &vacancies).await
        };
        let mut trouble = match replaced {
            Ok(replacements) => {
                answer.replacements = replacements;
                None
            }
            Err(error) => Some(error),
        };
        match self.unclear_rows(report.chunk).await {
            Ok(rows) => answer.left = self.pipeline.links_left(report.chunk, &rows, &self.state),
            Err(error) => trouble = trouble.or(Some(error)),
        }
        (Ok(Ok(answer)), trouble)
    }

    /// The rows that tell which links have left a chunk in progress, in a list with a place for every link.
    pub(super) async fn unclear_rows(&mut self, id: ChunkId) -> Result<Vec<Option<UrlRow>>, Error> {
        let places = self.pipeline.unclear(id, &self.state);
        let Some(chunk) = self.pipeline.active(id).filter(|_| !places.is_empty()).cloned() else {
            return Ok(Vec::new());
        };
        self.rows_at(&chunk, &places).await
    }

    /// The rows of some links as far as they can be read, in a list with a place for every link.
    pub(super) async fn rows_at(&mut self, chunk: &ChunkRow, places: &[usize]) -> Result<Vec<Option<UrlRow>>, Error> {
        let found = self.readable_rows(&urls_at(chunk, places)).await?;
        Ok(at_places(chunk, places, found))
    }

    /// The rows of some links, all of which the call needs, in a list with a place for every link.
    pub(super) async fn all_rows_at(&mut self, chunk: &ChunkRow, places: &[usize]) -> Decided<Vec<Option<UrlRow>>> {
        let found = self.url_rows(&urls_at(chunk, places)).await?;
        Ok(found.map(|found| at_places(chunk, places, found)))
    }

    /// What a repeated report was answered with before.
    async fn replaced_before(&mut self, report: &ReportLinks) -> Result<Vec<LinkToFetch>, Error> {
        let Some(chunk) = self.pipeline.active(report.chunk).cloned() else { return Ok(Vec::new()) };
        let unclear = self.unclear_rows(report.chunk).await?;
        let places = chunk.replacements(report, &unclear, &self.state);
        let rows = self.rows_at(&chunk, &places).await?;
        let fetch = |at: usize| {
            let link = chunk.links.get(at)?;
            let (url, delay) = self.state.link_to_fetch(link.lease?, &link.url.1, rows.get(at)?.clone())?;
            Some(LinkToFetch { host: link.host.clone(), url, delay })
        };
        Ok(places.into_iter().filter_map(fetch).collect())
    }

    /// Replaces links that failed: by some of other ready groups or, in a chunk of one host, by others of that host.
    async fn replace_links(&mut self, chunk: &ChunkRow, vacancies: &[usize]) -> Result<Vec<LinkToFetch>, Error> {
        let Some(crawl) = self.state.crawl_no(&chunk.crawl) else { return Ok(Vec::new()) };
        let pages = self.claim_pages(Some(crawl), chunk.visit.is_some(), vacancies.len()).await?;
        // After the claim, which may have waited for the store.
        let now = self.now();
        let mut writes = Writes::default();
        let replaced = self.replace_claimed(chunk, (vacancies, crawl), now, &mut writes).await;
        self.commit_chunks(writes);
        self.return_pages(pages);
        replaced
    }

    async fn replace_claimed(
        &mut self,
        chunk: &ChunkRow,
        (vacancies, crawl): (&[usize], CrawlNo),
        now: Time,
        writes: &mut Writes,
    ) -> Result<Vec<LinkToFetch>, Error> {
        let most = vacancies.len();
        // The lease may have been renewed, or have ended, while the store was asked.
        let leased = self.pipeline.active(chunk.id).and_then(|chunk| Some((chunk, chunk.lease.clone()?)));
        let Some((chunk, lease)) = leased.filter(|(_, lease)| lease.expires_at > now) else { return Ok(Vec::new()) };
        let chunk = chunk.clone();
        if let Some(token) = chunk.visit {
            let Some(visit) = self.state.plan_link_more(token, most, now) else { return Ok(Vec::new()) };
            let Some((visit, found)) = self.read_fronts(vec![visit], most, now).await?.pop() else {
                return Ok(Vec::new());
            };
            let most = self.pipeline.fresh_in(chunk.id, &found, now).min(most);
            let taken = self.state.take_link_more(token, (&visit, found), (most, now), &mut writes.frontier);
            let links = (token, taken.0, taken.1);
            return Ok(self.pipeline.replace_here(chunk.id, vacancies, links, &self.state, writes));
        }
        let grant = LinkGrant { chunk: chunk.id, worker: lease.worker, until: lease.expires_at };
        let want = Want { crawl: Some(crawl), urls: 1, held_below: None, bare_hosts: false };
        let visits = self.state.plan_replacements(chunk.leases(), &want, most + chunk.failed_links(), now);
        let planned = self.read_fronts(visits, 1, now).await?;
        let planned = self.pipeline.fresh_visits(chunk.id, planned, (most, now), &mut self.state);
        let granted = self.reserve_visits(planned, (&grant, 1), now, &mut writes.frontier);
        Ok(self.pipeline.replace(chunk.id, vacancies, granted, &mut self.state, writes))
    }
}

fn urls_at(chunk: &ChunkRow, places: &[usize]) -> Vec<LinkUrl> {
    places.iter().filter_map(|at| chunk.links.get(*at)).map(|link| link.url.clone()).collect()
}

fn at_places(chunk: &ChunkRow, places: &[usize], found: Vec<Option<UrlRow>>) -> Vec<Option<UrlRow>> {
    let mut rows = vec![None; chunk.links.len()];
    for (at, row) in places.iter().zip(found) {
        if let Some(place) = rows.get_mut(*at) {
            *place = row;
        }
    }
    rows
}

/// Claims for a host must reach the shard that it lives in.
impl Owner {
    /// The refusal of a claim for a host that does not live here, or that has no queue of the crawl.
    pub fn refuse_host(&self, claim: &Claim) -> Option<Refusal> {
        let host = claim.host.as_ref()?;
        (!self.belongs(host)).then_some(Refusal::Moved)
    }
}
