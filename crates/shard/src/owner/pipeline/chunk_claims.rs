//! Claims and reports of chunks: the frontier's groups are reserved for a chunk in the same decision that makes the chunk.

use std::sync::Arc;

use wayleave_core::frontier::damage::longer;
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

use crate::owner::frontier::PageClaim;
use crate::owner::pipeline::{Links, Pipeline};
use crate::owner::port::Decided;

/// What the links of a chunk are reserved for.
struct LinkGrant {
    chunk: ChunkId,
    worker: Arc<str>,
    until: Time,
}

impl Pipeline {
    /// Claims chunks, each in a decision and commit of its own. What was claimed before a read failed is returned with
    /// the error.
    pub async fn claim_chunks(&mut self, claim: &Claim, with: &mut Links<'_>) -> (Vec<Claimed>, Option<Error>) {
        let mut claimed = Vec::new();
        while claimed.len() < claim.chunks {
            let one = match claim.stage {
                Stage::Crawl => self.claim_crawl(claim, with).await.map(|more| (more, false)),
                Stage::Build => self.claim_build(claim, claim.chunks - claimed.len(), with).await,
            };
            match one {
                Ok((more, met_damage)) if more.is_empty() && !met_damage => break,
                Ok((more, _)) => claimed.extend(more),
                Err(error) => return (claimed, Some(error)),
            }
        }
        (claimed, None)
    }

    /// Claims chunks for an index builder. Also returns whether it has met some that cannot be read, which it passes over until
    /// they are tried again.
    async fn claim_build(
        &mut self,
        claim: &Claim,
        most: usize,
        with: &mut Links<'_>,
    ) -> Result<(Vec<Claimed>, bool), Error> {
        let (mut claimed, mut met_damage) = (Vec::new(), false);
        let mut writes = Writes::default();
        let now = with.now();
        for id in self.state.plan_build(claim.crawl.as_ref(), most + self.damaged.len()) {
            if claimed.len() >= most {
                break;
            }
            let pause = match self.damaged.get(&id) {
                Some((retry_at, _)) if *retry_at > now => continue,
                known => longer(known.map_or(Millis(0), |(_, pause)| *pause)),
            };
            let row = match self.chunk_row(id, with).await? {
                Ok(row) => row,
                Err(_) => {
                    // It must not keep back those behind it.
                    self.damaged.insert(id, (now.after(pause), pause));
                    met_damage = true;
                    continue;
                }
            };
            self.damaged.remove(&id);
            let Some(row) = row else { continue };
            let now = with.now();
            let grant = with.grant(claim, now);
            claimed.extend(self.state.grant_build(&row, (claim, &grant), now, &mut writes.pipeline));
        }
        with.commit(writes);
        Ok((claimed, met_damage))
    }

    async fn claim_crawl(&mut self, claim: &Claim, with: &mut Links<'_>) -> Result<Vec<Claimed>, Error> {
        let now = with.now();
        while let Some(id) = self.state.plan_offered(claim, &with.frontier.state, now) {
            let Some(chunk) = self.state.active(id).cloned() else { break };
            let rows = with.link_rows(&chunk).await?;
            let (mut writes, grant) = (Writes::default(), with.grant(claim, now));
            let claimed =
                self.state.grant_offered(id, rows, (claim, &grant), now, &mut with.frontier.state, &mut writes);
            with.commit(writes);
            if let Some(claimed) = claimed {
                return Ok(vec![claimed]);
            }
        }
        let crawl = match claim.crawl.as_deref().map(|name| with.frontier.state.crawl_no(name)) {
            Some(None) => return Ok(Vec::new()),
            Some(known) => known,
            None => None,
        };
        if claim.host.is_none() && with.frontier.state.ready_groups(crawl) < claim.links_min.max(1) {
            return Ok(Vec::new());
        }
        with.frontier.load_passes(with.port);
        let mut pages = Vec::new();
        let mut writes = Writes::default();
        let mut now = now;
        // A group whose first URL was deleted or put off looks ready until it is planned: then it waits for its next one. The
        // claim goes on with the others, as it would not be woken for them again.
        let granted = loop {
            let (planned, granted) =
                self.reserve_links(claim, crawl, (&mut pages, &mut now), &mut writes.frontier, with).await?;
            if planned == 0 || !granted.is_empty() || claim.host.is_some() {
                break granted;
            }
            // None was taken. The next plan claims anew, and must find what was claimed for this one.
            with.frontier.return_pages(std::mem::take(&mut pages), with.port);
        };
        let grant = with.grant(claim, now);
        let made = self.state.make(granted, (claim, &grant), now, &mut with.frontier.state, &mut writes);
        with.commit(writes);
        with.frontier.publish_passes(with.port);
        // After the commit that takes the others.
        with.frontier.return_pages(pages, with.port);
        Ok(made.into_iter().collect())
    }

    /// Reserves the groups of a new chunk; how many were planned, and the reservations; `now` becomes the time of the decision. All are planned before the first is reserved: a group that may be visited
    /// several times at once would be found again, and its first URL with it, because nothing is committed yet.
    async fn reserve_links(
        &mut self,
        claim: &Claim,
        crawl: Option<CrawlNo>,
        (pages, now): (&mut Vec<PageClaim>, &mut Time),
        writes: &mut Vec<Write>,
        with: &mut Links<'_>,
    ) -> Result<(usize, Vec<Reservation>), Error> {
        let links = claim.links.max(1);
        let urls = if claim.host.is_some() { links } else { 1 };
        let want = |crawl| Want { crawl, urls, held_below: None, bare_hosts: false };
        let visits: Vec<Visit> = match &claim.host {
            Some(host) => with.frontier.state.plan_host(host, &want(crawl), *now).into_iter().collect(),
            None => {
                // The first link decides the crawl of all.
                let mut visits = with.frontier.state.plan_visits(&want(crawl), 1, *now);
                if let Some(first) = visits.first().map(Visit::crawl) {
                    visits.extend(with.frontier.state.plan_visits(&want(Some(first)), links - 1, *now));
                    if crawl.is_none() {
                        with.frontier.state.charge_visits(first, visits.len() - 1);
                    }
                }
                visits
            }
        };
        let count = visits.len();
        pages.extend(with.frontier.claim_pages(&visits, urls, with.port).await?);
        // After the claim, which may have waited for the store.
        *now = with.port.engine.now();
        let now = *now;
        let (chunk, worker, until) = (self.state.peek_id(), claim.worker.clone(), now.after(claim.lease));
        let planned = with.frontier.read_fronts(visits, urls, now, with.port).await?;
        Ok((count, with.reserve_visits(planned, (&LinkGrant { chunk, worker, until }, urls), now, writes)))
    }

    /// The live chunks granted for a request.
    pub async fn claimed_before(
        &mut self,
        worker: &Arc<str>,
        request: &RequestId,
        with: &mut Links<'_>,
    ) -> Decided<Vec<Claimed>> {
        let now = with.now();
        let ids = match self.state.requested(worker, request, now) {
            Ok(ids) => ids,
            Err(id) => return Ok(Err(Refusal::RequestReused(id.into()))),
        };
        let mut claimed = Vec::new();
        for id in ids {
            let Some(chunk) = self.state.active(id).cloned() else { continue };
            let rows = with.link_rows(&chunk).await?;
            claimed.extend(self.state.granted_again(id, rows, &with.frontier.state));
        }
        Ok(Ok(claimed))
    }

    /// Takes a report. What it returns to the queues is committed before replacements are taken from them. If a later
    /// read fails, the answer so far is returned with the error.
    pub async fn report_links(
        &mut self,
        report: &ReportLinks,
        with: &mut Links<'_>,
    ) -> (Decided<LinksReported>, Option<Error>) {
        let now = with.now();
        let chunk = match self.state.reported(report.chunk, report.token, now) {
            Ok(chunk) => chunk.clone(),
            Err(refusal) => return (Ok(Err(refusal.into())), None),
        };
        let named =
            self.state.named(report.chunk, report.results.iter().map(|result| &*result.url), &with.frontier.state);
        let rows = match with.all_rows_at(&chunk, &named).await {
            Ok(Ok(rows)) => rows,
            Ok(Err(refusal)) => return (Ok(Err(refusal)), None),
            Err(error) => return (Err(error), None),
        };
        let (mut writes, jitter) = (Writes::default(), (with.port.config.entropy)() as u64);
        let reported = self.state.report(report, &rows, now, jitter, &mut with.frontier.state, &mut writes);
        with.commit(writes);
        let (mut answer, vacancies) = match reported {
            Ok(reported) => reported,
            Err(refusal) => return (Ok(Err(refusal.into())), None),
        };
        let replaced = if vacancies.is_empty() && report.replace {
            self.replaced_before(report, with).await
        } else if vacancies.is_empty() {
            Ok(Vec::new())
        } else {
            self.replace_links(&chunk, &vacancies, with).await
        };
        let mut trouble = match replaced {
            Ok(replacements) => {
                answer.replacements = replacements;
                None
            }
            Err(error) => Some(error),
        };
        match self.unclear_rows(report.chunk, with).await {
            Ok(rows) => answer.left = self.state.links_left(report.chunk, &rows, &with.frontier.state),
            Err(error) => trouble = trouble.or(Some(error)),
        }
        (Ok(Ok(answer)), trouble)
    }

    /// The rows that tell which links have left a chunk in progress, in a list with a place for every link.
    pub(super) async fn unclear_rows(
        &mut self,
        id: ChunkId,
        with: &mut Links<'_>,
    ) -> Result<Vec<Option<UrlRow>>, Error> {
        let places = self.state.unclear(id, &with.frontier.state);
        let Some(chunk) = self.state.active(id).filter(|_| !places.is_empty()).cloned() else {
            return Ok(Vec::new());
        };
        with.rows_at(&chunk, &places).await
    }

    /// What a repeated report was answered with before.
    async fn replaced_before(&mut self, report: &ReportLinks, with: &mut Links<'_>) -> Result<Vec<LinkToFetch>, Error> {
        let Some(chunk) = self.state.active(report.chunk).cloned() else { return Ok(Vec::new()) };
        let unclear = self.unclear_rows(report.chunk, with).await?;
        let places = chunk.replacements(report, &unclear, &with.frontier.state);
        let rows = with.rows_at(&chunk, &places).await?;
        let fetch = |at: usize| {
            let link = chunk.links.get(at)?;
            let (url, delay) = with.frontier.state.link_to_fetch(link.lease?, &link.url.1, rows.get(at)?.clone())?;
            Some(LinkToFetch { host: link.host.clone(), url, delay })
        };
        Ok(places.into_iter().filter_map(fetch).collect())
    }

    /// Replaces links that failed: by some of other ready groups or, in a chunk of one host, by others of that host.
    async fn replace_links(
        &mut self,
        chunk: &ChunkRow,
        vacancies: &[usize],
        with: &mut Links<'_>,
    ) -> Result<Vec<LinkToFetch>, Error> {
        let Some(crawl) = with.frontier.state.crawl_no(&chunk.crawl) else { return Ok(Vec::new()) };
        let pages = with.frontier.claim_pages_of(crawl, vacancies.len(), with.port).await?.into_iter().collect();
        // After the claim, which may have waited for the store.
        let now = with.now();
        let mut writes = Writes::default();
        let replaced = self.replace_claimed(chunk, (vacancies, crawl), now, &mut writes, with).await;
        with.commit(writes);
        with.frontier.return_pages(pages, with.port);
        replaced
    }

    async fn replace_claimed(
        &mut self,
        chunk: &ChunkRow,
        (vacancies, crawl): (&[usize], CrawlNo),
        now: Time,
        writes: &mut Writes,
        with: &mut Links<'_>,
    ) -> Result<Vec<LinkToFetch>, Error> {
        let most = vacancies.len();
        // The lease may have been renewed, or have ended, while the store was asked.
        let leased = self.state.active(chunk.id).and_then(|chunk| Some((chunk, chunk.lease.clone()?)));
        let Some((chunk, lease)) = leased.filter(|(_, lease)| lease.expires_at > now) else { return Ok(Vec::new()) };
        let chunk = chunk.clone();
        if let Some(token) = chunk.visit {
            let Some(visit) = with.frontier.state.plan_link_more(token, most, now) else { return Ok(Vec::new()) };
            let Some((visit, found)) = with.frontier.read_fronts(vec![visit], most, now, with.port).await?.pop() else {
                return Ok(Vec::new());
            };
            let most = self.state.fresh_in(chunk.id, &found, now).min(most);
            let taken = with.frontier.state.take_link_more(token, (&visit, found), (most, now), &mut writes.frontier);
            let links = (token, taken.0, taken.1);
            return Ok(self.state.replace_here(chunk.id, vacancies, links, &with.frontier.state, writes));
        }
        let grant = LinkGrant { chunk: chunk.id, worker: lease.worker, until: lease.expires_at };
        let want = Want { crawl: Some(crawl), urls: 1, held_below: None, bare_hosts: false };
        let visits = with.frontier.state.plan_replacements(chunk.leases(), &want, most + chunk.failed_links(), now);
        let planned = with.frontier.read_fronts(visits, 1, now, with.port).await?;
        let planned = self.state.fresh_visits(chunk.id, planned, (most, now), &mut with.frontier.state);
        let granted = with.reserve_visits(planned, (&grant, 1), now, &mut writes.frontier);
        Ok(self.state.replace(chunk.id, vacancies, granted, &mut with.frontier.state, writes))
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

impl Links<'_> {
    fn grant(&self, claim: &Claim, now: Time) -> Grant {
        Grant { token: Token::new(self.port.shard, (self.port.config.entropy)()), until: now.after(claim.lease) }
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
                entropy: (self.port.config.entropy)(),
                request: None,
                chunk: Some(link.chunk),
            };
            granted.extend(self.frontier.state.reserve(&visit, found, &grant, now, writes));
        }
        granted
    }

    /// The rows of some links as far as they can be read, in a list with a place for every link.
    pub(super) async fn rows_at(&mut self, chunk: &ChunkRow, places: &[usize]) -> Result<Vec<Option<UrlRow>>, Error> {
        let found = self.frontier.readable_rows(&urls_at(chunk, places), self.port).await?;
        Ok(at_places(chunk, places, found))
    }

    /// The rows of some links, all of which the call needs, in a list with a place for every link.
    pub(super) async fn all_rows_at(&mut self, chunk: &ChunkRow, places: &[usize]) -> Decided<Vec<Option<UrlRow>>> {
        let found = self.frontier.url_rows(&urls_at(chunk, places), self.port).await?;
        Ok(found.map(|found| at_places(chunk, places, found)))
    }

    /// The refusal of a claim for a host that does not live here, or that has no queue of the crawl.
    pub fn refuse_host(&self, claim: &Claim) -> Option<Refusal> {
        let host = claim.host.as_ref()?;
        (!self.frontier.belongs(host, self.port)).then_some(Refusal::Moved)
    }
}
