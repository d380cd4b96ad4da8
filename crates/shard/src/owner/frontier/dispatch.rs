//! Calls to the frontier: each reads the rows it needs, decides, commits, and leaves its answer to the cycle.

use std::sync::Arc;

use wayleave_core::frontier::refusal::Refusal;
use wayleave_core::frontier::request::{
    HandOut, Parent, Release, Released, RequestId, Reservation, Reserve, UrlToFetch,
};
use wayleave_core::frontier::reserve::Grant;
use wayleave_core::frontier::visit::{PlannedVisit, Visit, Want};
use wayleave_core::ids::{CrawlNo, Token};
use wayleave_core::limits;
use wayleave_core::time::{Millis, Time};
use wayleave_engine::Error;

use crate::ask::{AdminChange, JobChange, Response, RowQuery, Take, UrlChange, VisitCall};
use crate::owner::frontier::Frontier;
use crate::owner::frontier::decide;
use crate::owner::frontier::page_claims::Claim;
use crate::owner::port::{Decided, Pending, Port};

impl Frontier {
    pub async fn query(&mut self, query: RowQuery, call: Pending<Response>, port: &mut Port) -> Result<(), Error> {
        match query {
            RowQuery::Lookup { crawl, host, url } => {
                let view = self.lookup(&crawl, &host, &url, port).await;
                port.answer(call, view)
            }
            RowQuery::Urls { filter, after, room } => {
                let page = self.url_page(&filter, after, room, port).await;
                port.answer(call, page)
            }
            RowQuery::InHand(host) => {
                let urls = self.in_hand(&host, port).await;
                port.answer(call, urls.map(Ok::<_, Refusal>))
            }
            RowQuery::Requested { holder, request } => {
                let found = self.requested(&holder, &request, port).await;
                port.answer(call, found)
            }
        }
    }

    /// Changes settings, or deletes what has no chunks: see also `Pipeline::delete_crawl`.
    pub fn change(
        &mut self,
        change: &AdminChange,
        now: Time,
        call: Pending<Response>,
        port: &mut Port,
    ) -> Result<(), Error> {
        if let AdminChange::SetHost { host, .. } = change
            && let Some(full) = self.refuse_hosts(std::iter::once(&**host), port)
        {
            return port.answer(call, Ok(Err::<(), _>(full)));
        }
        let mut writes = Vec::new();
        let told = decide::change(&mut self.state, change, now, &mut writes);
        self.follow_deletions(&writes);
        self.commit(writes, port);
        if matches!(change, AdminChange::SetActive(_)) {
            self.note_switches(port);
        }
        port.answer(call, Ok(told))
    }

    pub fn change_job(
        &mut self,
        change: JobChange,
        now: Time,
        call: Pending<Response>,
        port: &mut Port,
    ) -> Result<(), Error> {
        let mut writes = Vec::new();
        let mut done = Ok(());
        match change {
            JobChange::StartJob(job) => done = self.jobs.start(&job, &mut writes, port),
            JobChange::CancelJob(job) => self.jobs.cancel(&job, now, &mut writes, port),
            JobChange::BeginJob(id) => self.jobs.begin(id, &mut writes),
            JobChange::SetStage(id, stage) => self.jobs.set_stage(id, stage, &mut writes),
            JobChange::ConcludeJobs { ended, forgotten } => self.jobs.conclude(&ended, &forgotten, &mut writes),
        }
        self.commit(writes, port);
        port.answer(call, Ok(done))
    }

    pub async fn change_urls(
        &mut self,
        change: UrlChange,
        call: Pending<Response>,
        port: &mut Port,
    ) -> Result<(), Error> {
        match change {
            UrlChange::Purge { queue, before, after } => {
                let purged = self.purge(queue, before, after, port).await;
                port.answer(call, purged.map(Ok::<_, Refusal>))
            }
            UrlChange::ChangeUrls { crawl, host, urls, what } => {
                let told = self.change_listed_urls((&crawl, &host), &urls, what, port).await;
                port.answer(call, told)
            }
            UrlChange::Revoke(which) => {
                let ended = self.revoke(&which, port).await;
                port.answer(call, ended)
            }
            UrlChange::RevokeHolds { host, after } => {
                let ended = self.revoke_holds(&host, after, port).await;
                port.answer(call, ended.map(Ok::<_, Refusal>))
            }
        }
    }

    pub async fn visit(
        &mut self,
        visit: VisitCall,
        now: Time,
        call: Pending<Response>,
        port: &mut Port,
    ) -> Result<(), Error> {
        match visit {
            VisitCall::Take(Take::HandOut(request)) => {
                let (urls, trouble) = self.hand_out(&request, port).await;
                self.publish_crawl(request.crawl.as_ref(), port);
                if let Some(refusal) = self.refuse_damaged(request.host.as_deref(), port).filter(|_| urls.is_empty()) {
                    return port.answer(call, trouble.map_or(Ok(Err::<(), _>(refusal)), Err));
                }
                port.answer_part(call, urls, trouble)
            }
            VisitCall::Take(Take::Reserve(request)) => self.reserve_for(&request, call, port).await,
            VisitCall::Keep { token, lease, pages } => {
                let parents = self.keep(token, lease, &pages, port).await;
                port.answer(call, parents)
            }
            VisitCall::Release(release) => {
                let released = self.release(&release, port).await;
                port.answer(call, released)
            }
            VisitCall::Renew { token, lease } => {
                let mut writes = Vec::new();
                let renewed = self.state.renew(token, lease, now, &mut writes);
                self.follow_deletions(&writes);
                self.commit(writes, port);
                port.answer(call, Ok(renewed))
            }
        }
    }

    async fn reserve_for(&mut self, request: &Reserve, call: Pending<Response>, port: &mut Port) -> Result<(), Error> {
        if let Some(id) = &request.request {
            // A retry of a request that this shard has already granted: never grant twice.
            let before = self.requested(&request.holder, id, port).await;
            if !matches!(&before, Ok(Ok(found)) if found.is_empty()) {
                return port.answer(call, before);
            }
        }
        let (reservations, trouble) = self.reserve(request, port).await;
        self.publish_crawl(request.crawl.as_ref(), port);
        port.answer_part(call, reservations, trouble)
    }

    /// The live reservations of this shard that were granted for a request.
    pub async fn requested(
        &mut self,
        holder: &Arc<str>,
        request: &RequestId,
        port: &mut Port,
    ) -> Decided<Vec<Reservation>> {
        let now = self.now(port);
        let leases = match self.state.requested(holder, request, now) {
            Ok(leases) => leases,
            Err(refusal) => return Ok(Err(refusal)),
        };
        let mut found = Vec::with_capacity(leases.len());
        for (token, urls) in leases {
            let rows = match self.url_rows(&urls, port).await? {
                Ok(rows) => rows,
                Err(refusal) => return Ok(Err(refusal)),
            };
            found.extend(self.state.granted_again(token, rows));
        }
        Ok(Ok(found))
    }

    async fn hand_out(&mut self, request: &HandOut, port: &mut Port) -> (Vec<UrlToFetch>, Option<Error>) {
        self.now(port);
        if !self.state.shard_row().active {
            return (Vec::new(), None);
        }
        let Ok(crawl) = self.crawl_wanted(request.crawl.as_deref()) else { return (Vec::new(), None) };
        self.load_passes(port);
        let out = self.hand_out_of(request, crawl, port).await;
        self.publish_passes(port);
        out
    }

    async fn hand_out_of(
        &mut self,
        request: &HandOut,
        crawl: Option<CrawlNo>,
        port: &mut Port,
    ) -> (Vec<UrlToFetch>, Option<Error>) {
        let want = Want { crawl, urls: request.urls, held_below: request.held_below, bare_hosts: false };
        let mut urls = Vec::new();
        let mut queues = request.queues;
        while queues > 0 && urls.len() < limits::HAND_OUT_TOTAL_MAX {
            let now = port.engine.now();
            let room = (limits::HAND_OUT_TOTAL_MAX - urls.len()).div_ceil(request.urls.max(1));
            let visits = match &request.host {
                Some(host) => self.state.plan_host(host, &want, now).into_iter().collect(),
                None => self.state.plan_visits(&want, queues.min(room), now),
            };
            if visits.is_empty() {
                break;
            }
            let (claims, now, planned) = match self.claim_and_read(visits, request.urls, port).await {
                Ok(planned) => planned,
                Err(error) => return (urls, Some(error)),
            };
            let mut writes = Vec::new();
            for (visit, found) in planned {
                let out = self.state.hand_out(&visit, found, (request.urls, request.hold), now, &mut writes);
                queues -= usize::from(!out.is_empty());
                urls.extend(out);
            }
            self.commit(writes, port);
            self.return_pages(claims, port);
            if request.host.is_some() {
                break;
            }
        }
        (urls, None)
    }

    async fn reserve(&mut self, request: &Reserve, port: &mut Port) -> (Vec<Reservation>, Option<Error>) {
        self.now(port);
        let Ok(crawl) = self.crawl_wanted(request.crawl.as_deref()) else { return (Vec::new(), None) };
        self.load_passes(port);
        let granted = self.reserve_of(request, crawl, port).await;
        self.publish_passes(port);
        granted
    }

    async fn reserve_of(
        &mut self,
        request: &Reserve,
        crawl: Option<CrawlNo>,
        port: &mut Port,
    ) -> (Vec<Reservation>, Option<Error>) {
        let want = Want { crawl, urls: request.urls, held_below: None, bare_hosts: crawl.is_none() };
        let mut granted = Vec::new();
        while granted.len() < request.groups {
            let now = port.engine.now();
            let visits = self.state.plan_visits(&want, request.groups - granted.len(), now);
            if visits.is_empty() {
                break;
            }
            let (claims, now, planned) = match self.claim_and_read(visits, request.urls, port).await {
                Ok(planned) => planned,
                Err(error) => return (granted, Some(error)),
            };
            let mut writes = Vec::new();
            for (visit, found) in planned {
                let grant = Grant {
                    holder: request.holder.clone(),
                    urls: request.urls,
                    lease: request.lease,
                    entropy: (port.config.entropy)(),
                    request: request.request.clone(),
                    chunk: None,
                };
                granted.extend(self.state.reserve(&visit, found, &grant, now, &mut writes));
            }
            self.commit(writes, port);
            self.return_pages(claims, port);
        }
        (granted, None)
    }

    /// Claims pages for planned visits, and reads the fronts of their lanes. Returns the time of the decisions that follow:
    /// the claim may have waited for the store.
    async fn claim_and_read(
        &mut self,
        visits: Vec<Visit>,
        urls: usize,
        port: &mut Port,
    ) -> Result<(Vec<Claim>, Time, Vec<PlannedVisit>), Error> {
        let claims = self.claim_pages(&visits, urls, port).await?;
        // Groups that have become ready meanwhile are left for later: the plan is made.
        let now = port.engine.now();
        let planned = self.read_fronts(visits, urls, now, port).await?;
        Ok((claims, now, planned))
    }

    /// The number of the requested crawl; an error if this shard has never seen it.
    fn crawl_wanted(&self, crawl: Option<&str>) -> Result<Option<CrawlNo>, ()> {
        crawl.map_or(Ok(None), |name| self.state.crawl_no(name).map(Some).ok_or(()))
    }

    /// Extends a reservation so that it can be released, after checking that the results belong to it.
    async fn keep(
        &mut self,
        token: Token,
        lease: Millis,
        pages: &[Box<str>],
        port: &mut Port,
    ) -> Decided<Vec<Option<Parent>>> {
        let now = self.now(port);
        let targets = match self.state.release_targets(token, now) {
            Ok(targets) => targets,
            Err(refusal) => return Ok(Err(refusal)),
        };
        let rows = match self.url_rows(&targets, port).await? {
            Ok(rows) => rows,
            Err(refusal) => return Ok(Err(refusal)),
        };
        let mut writes = Vec::new();
        let parents = self.state.parents(token, pages, &rows, now);
        let kept = parents.and_then(|parents| {
            self.state.keep(token, now.after(lease), now, &mut writes)?;
            Ok(parents)
        });
        self.commit(writes, port);
        Ok(kept)
    }

    async fn release(&mut self, release: &Release, port: &mut Port) -> Decided<Released> {
        let now = self.now(port);
        let targets = match self.state.release_targets(release.token, now) {
            Ok(targets) => targets,
            Err(refusal) => return Ok(Err(refusal)),
        };
        let rows = match self.url_rows(&targets, port).await? {
            Ok(rows) => rows,
            Err(refusal) => return Ok(Err(refusal)),
        };
        let mut writes = Vec::new();
        let jitter = (port.config.entropy)() as u64;
        let released = self.state.release(release, rows, now, jitter, &mut writes);
        self.commit(writes, port);
        Ok(released)
    }
}
