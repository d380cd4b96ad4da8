//! Dispatch of single calls: each reads the rows it needs, decides, commits, and leaves its answer to the cycle. A new
//! call gets its match arm here.

use wayleave_core::frontier::refusal::Refusal;
use wayleave_core::frontier::request::{HandOut, Parent, Release, Released, Reservation, Reserve, UrlToFetch};
use wayleave_core::frontier::reserve::Grant;
use wayleave_core::frontier::visit::Want;
use wayleave_core::ids::{CrawlNo, Token};
use wayleave_core::limits;
use wayleave_core::time::{Millis, Time};
use wayleave_engine::Error;

use crate::ask::{AdminChange, Ask, HostMove, JobChange, Response, RowQuery, Take, UrlChange, VisitCall};
use crate::message::Reply;
use crate::owner::cycle::CommitMark;
use crate::owner::decide;
use crate::owner::owner_loop::Owner;

/// The caller, and where the commits made for it begin.
pub(crate) struct PendingCall {
    pub reply: Reply,
    pub mark: CommitMark,
}

impl Owner {
    pub async fn handle(&mut self, ask: Ask, reply: Reply) -> Result<(), Error> {
        if ask.needs_caller() && reply.is_closed() {
            return Ok(());
        }
        if let Some(why) = self.refusal().filter(|_| !ask.only_looks()) {
            _ = reply.send(Err(why));
            return Ok(());
        }
        let call = PendingCall { reply, mark: self.cycle.mark() };
        if ask.host().is_some_and(|host| !self.belongs(host)) {
            return self.answer(call, Ok(Err::<(), _>(Refusal::Moved)));
        }
        let now = self.now();
        match ask {
            Ask::StateQuery(query) => {
                let mut told = self.answer_query(&query, now);
                if let Ok(told) = &mut told {
                    self.tell_of_requeues(told);
                }
                self.answer(call, Ok(told))
            }
            Ask::RowQuery(query) => self.query(query, call).await,
            Ask::Admin(change) => self.change(&change, now, call).await,
            Ask::Job(change) => self.change_job(change, now, call),
            Ask::Url(change) => self.change_urls(change, call).await,
            Ask::Visit(visit) => self.visit(visit, now, call).await,
            Ask::Move(HostMove::Give { hosts, way, to }) => self.give(hosts, way, to, call).await,
            Ask::Move(HostMove::Take { moving, way, part }) => self.take(moving, way, part, call.reply).await,
        }
    }

    async fn query(&mut self, query: RowQuery, call: PendingCall) -> Result<(), Error> {
        match query {
            RowQuery::Lookup { crawl, host, url } => {
                let view = self.lookup(&crawl, &host, &url).await;
                self.answer(call, view)
            }
            RowQuery::Urls { filter, after, room } => {
                let page = self.url_page(&filter, after, room).await;
                self.answer(call, page)
            }
            RowQuery::InHand(host) => {
                let urls = self.in_hand(&host).await;
                self.answer(call, urls)
            }
            RowQuery::Requested { holder, request } => {
                let found = self.requested(&holder, &request).await;
                self.answer(call, found)
            }
        }
    }

    async fn change(&mut self, change: &AdminChange, now: Time, call: PendingCall) -> Result<(), Error> {
        if let AdminChange::SetHost { host, .. } = change
            && let Some(full) = self.refuse_hosts(std::iter::once(&**host))
        {
            return self.answer(call, Ok(Err::<(), _>(full)));
        }
        let mut writes = Vec::new();
        let told = decide::change(&mut self.state, change, now, &mut writes);
        self.follow_deletions(&writes);
        let chunks = match change {
            AdminChange::DeleteCrawl { crawl, .. } => self.end_chunks_of(crawl, now, &mut writes),
            _ => Vec::new(),
        };
        self.commit_all(writes, chunks);
        if matches!(change, AdminChange::SetCrawl { .. } | AdminChange::SetActive(_)) {
            self.note_switches();
        }
        if let AdminChange::SetCrawl { .. } | AdminChange::DeleteCrawl { .. } = change
            && let Err(error) = self.tidy_pages().await
        {
            // A limit is in force once it is confirmed. The settings may have been stored.
            let why = format!("the settings were changed, the page limit is not in force yet: {error}");
            _ = call.reply.send(Err(Refusal::OutcomeUnknown(why)));
            return Err(error);
        }
        self.answer(call, Ok(told))
    }

    fn change_job(&mut self, change: JobChange, now: Time, call: PendingCall) -> Result<(), Error> {
        let mut writes = Vec::new();
        let mut done = Ok(());
        match change {
            JobChange::StartJob(job) => done = self.start_job(&job, &mut writes),
            JobChange::CancelJob(job) => self.cancel_job(&job, now, &mut writes),
            JobChange::BeginJob(id) => self.begin_job(id, &mut writes),
            JobChange::SetStage(id, stage) => self.set_stage(id, stage, &mut writes),
            JobChange::ConcludeJobs { ended, forgotten } => self.conclude_jobs(&ended, &forgotten, &mut writes),
        }
        self.commit(writes);
        self.answer(call, Ok(done))
    }

    async fn change_urls(&mut self, change: UrlChange, call: PendingCall) -> Result<(), Error> {
        match change {
            UrlChange::Purge { queue, before, after } => {
                let purged = self.purge(queue, before, after).await;
                self.answer(call, purged.map(Ok::<_, Refusal>))
            }
            UrlChange::ChangeUrls { crawl, host, urls, what } => {
                let told = self.change_listed_urls((&crawl, &host), &urls, what).await;
                self.answer(call, told)
            }
            UrlChange::Revoke(which) => {
                let ended = self.revoke(&which).await;
                self.answer(call, ended)
            }
            UrlChange::RevokeHolds { host, after } => {
                let ended = self.revoke_holds(&host, after).await;
                self.answer(call, ended)
            }
        }
    }

    async fn visit(&mut self, visit: VisitCall, now: Time, call: PendingCall) -> Result<(), Error> {
        match visit {
            VisitCall::Take(Take::HandOut(request)) => {
                let (urls, trouble) = self.hand_out(&request).await;
                self.publish_crawl(request.crawl.as_ref());
                if let Some(refusal) = self.refuse_damaged(request.host.as_deref()).filter(|_| urls.is_empty()) {
                    return self.answer(call, trouble.map_or(Ok(Err::<(), _>(refusal)), Err));
                }
                self.answer_part(call, urls, trouble)
            }
            VisitCall::Take(Take::Reserve(request)) => self.reserve_for(&request, call).await,
            VisitCall::Keep { token, lease, pages } => {
                let parents = self.keep(token, lease, &pages).await;
                self.answer(call, parents)
            }
            VisitCall::Release(release) => {
                let released = self.release(&release).await;
                self.answer(call, released)
            }
            VisitCall::Renew { token, lease } => {
                let mut writes = Vec::new();
                let renewed = self.state.renew(token, lease, now, &mut writes);
                self.follow_deletions(&writes);
                self.commit(writes);
                self.answer(call, Ok(renewed))
            }
        }
    }

    async fn reserve_for(&mut self, request: &Reserve, call: PendingCall) -> Result<(), Error> {
        if let Some(id) = &request.request {
            // A retry of a request that this shard has already granted: never grant twice.
            let before = self.requested(&request.holder, id).await;
            if !matches!(&before, Ok(Ok(found)) if found.is_empty()) {
                return self.answer(call, before);
            }
        }
        let (reservations, trouble) = self.reserve(request).await;
        self.publish_crawl(request.crawl.as_ref());
        self.answer_part(call, reservations, trouble)
    }

    /// Queues an answer. A failed read is reported to the caller, for whom nothing was changed, and ends the owner's
    /// term.
    fn answer<T: Into<Response>>(
        &mut self,
        call: PendingCall,
        answer: Result<Result<T, Refusal>, Error>,
    ) -> Result<(), Error> {
        match answer {
            Ok(answer) => {
                let (answer, reply) = (answer.map(T::into), call.reply);
                self.cycle.answer(call.mark, Box::new(move |durable| _ = reply.send(durable.and(answer))));
                Ok(())
            }
            Err(error) => {
                _ = call.reply.send(Err(crate::owner::cycle::refusal(&error)));
                Err(error)
            }
        }
    }

    /// Answers a call that takes several steps, each with its own commit. If a later step fails to read the store, the
    /// caller still gets what earlier steps committed.
    fn answer_part<T>(&mut self, call: PendingCall, got: Vec<T>, trouble: Option<Error>) -> Result<(), Error>
    where
        Vec<T>: Into<Response>,
    {
        match trouble {
            None => self.answer(call, Ok(Ok(got))),
            Some(error) if got.is_empty() => self.answer(call, Err::<Result<Vec<T>, _>, _>(error)),
            Some(error) => self.answer(call, Ok(Ok(got))).and(Err(error)),
        }
    }

    async fn hand_out(&mut self, request: &HandOut) -> (Vec<UrlToFetch>, Option<Error>) {
        self.now();
        if !self.state.shard_row().active {
            return (Vec::new(), None);
        }
        let Ok(crawl) = self.crawl_wanted(request.crawl.as_deref()) else { return (Vec::new(), None) };
        let wanted = request.queues.saturating_mul(request.urls).min(limits::HAND_OUT_TOTAL_MAX);
        let claims = match self.claim_pages(crawl, request.host.is_some(), wanted).await {
            Ok(claims) => claims,
            Err(error) => return (Vec::new(), Some(error)),
        };
        self.load_passes();
        // After the claim, which may have waited for the store.
        let now = self.now();
        let out = self.hand_out_claimed(request, crawl, now).await;
        self.publish_passes();
        self.return_pages(claims);
        out
    }

    async fn hand_out_claimed(
        &mut self,
        request: &HandOut,
        crawl: Option<CrawlNo>,
        now: Time,
    ) -> (Vec<UrlToFetch>, Option<Error>) {
        let want = Want { crawl, urls: request.urls, held_below: request.held_below, bare_hosts: false };
        let mut urls = Vec::new();
        let mut queues = request.queues;
        while queues > 0 && urls.len() < limits::HAND_OUT_TOTAL_MAX {
            let room = (limits::HAND_OUT_TOTAL_MAX - urls.len()).div_ceil(request.urls.max(1));
            let visits = match &request.host {
                Some(host) => self.state.plan_host(host, &want, now).into_iter().collect(),
                None => self.state.plan_visits(&want, queues.min(room), now),
            };
            if visits.is_empty() {
                break;
            }
            let planned = match self.read_fronts(visits, request.urls, now).await {
                Ok(planned) => planned,
                Err(error) => return (urls, Some(error)),
            };
            let mut writes = Vec::new();
            for (visit, found) in planned {
                let out = self.state.hand_out(&visit, found, (request.urls, request.hold), now, &mut writes);
                queues -= usize::from(!out.is_empty());
                urls.extend(out);
            }
            self.commit(writes);
            if request.host.is_some() {
                break;
            }
        }
        (urls, None)
    }

    async fn reserve(&mut self, request: &Reserve) -> (Vec<Reservation>, Option<Error>) {
        self.now();
        let Ok(crawl) = self.crawl_wanted(request.crawl.as_deref()) else { return (Vec::new(), None) };
        let claims = match self.claim_pages(crawl, false, request.groups.saturating_mul(request.urls)).await {
            Ok(claims) => claims,
            Err(error) => return (Vec::new(), Some(error)),
        };
        self.load_passes();
        // After the claim, which may have waited for the store.
        let now = self.now();
        let granted = self.reserve_claimed(request, crawl, now).await;
        self.publish_passes();
        self.return_pages(claims);
        granted
    }

    async fn reserve_claimed(
        &mut self,
        request: &Reserve,
        crawl: Option<CrawlNo>,
        now: Time,
    ) -> (Vec<Reservation>, Option<Error>) {
        let want = Want { crawl, urls: request.urls, held_below: None, bare_hosts: crawl.is_none() };
        let mut granted = Vec::new();
        while granted.len() < request.groups {
            let visits = self.state.plan_visits(&want, request.groups - granted.len(), now);
            if visits.is_empty() {
                break;
            }
            let planned = match self.read_fronts(visits, request.urls, now).await {
                Ok(planned) => planned,
                Err(error) => return (granted, Some(error)),
            };
            let mut writes = Vec::new();
            for (visit, found) in planned {
                let grant = Grant {
                    holder: request.holder.clone(),
                    urls: request.urls,
                    lease: request.lease,
                    entropy: (self.config.entropy)(),
                    request: request.request.clone(),
                    chunk: None,
                };
                granted.extend(self.state.reserve(&visit, found, &grant, now, &mut writes));
            }
            self.commit(writes);
        }
        (granted, None)
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
    ) -> Result<Result<Vec<Option<Parent>>, Refusal>, Error> {
        let now = self.now();
        let targets = match self.state.release_targets(token, now) {
            Ok(targets) => targets,
            Err(refusal) => return Ok(Err(refusal)),
        };
        let rows = match self.url_rows(&targets).await? {
            Ok(rows) => rows,
            Err(refusal) => return Ok(Err(refusal)),
        };
        let mut writes = Vec::new();
        let parents = self.state.parents(token, pages, &rows, now);
        let kept = parents.and_then(|parents| {
            self.state.keep(token, now.after(lease), now, &mut writes)?;
            Ok(parents)
        });
        self.commit(writes);
        Ok(kept)
    }

    async fn release(&mut self, release: &Release) -> Result<Result<Released, Refusal>, Error> {
        let now = self.now();
        let targets = match self.state.release_targets(release.token, now) {
            Ok(targets) => targets,
            Err(refusal) => return Ok(Err(refusal)),
        };
        let rows = match self.url_rows(&targets).await? {
            Ok(rows) => rows,
            Err(refusal) => return Ok(Err(refusal)),
        };
        let mut writes = Vec::new();
        let jitter = (self.config.entropy)() as u64;
        let released = self.state.release(release, rows, now, jitter, &mut writes);
        self.commit(writes);
        Ok(released)
    }
}
