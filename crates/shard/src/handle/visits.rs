//! Finding groups to visit, for both reservations and the paced form: longest ready first over all shards and nodes, in
//! the paced form to a resolution of 250 ms. While some shards cannot be asked, an empty answer is never given: work
//! might be ready there.
//!
//! Where crawls compete for a request of several groups, each shard is asked for a share, so that weights hold. If nothing
//! is ready the caller waits in line, see [`crate::shared::waiters`]. A request with an id first asks every shard that may
//! have granted it, see [`crate::routing::repeated_requests`].

use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures::future::join_all;
use tokio::time::Instant;
use wayleave_core::frontier::refusal::Refusal;
use wayleave_core::frontier::request::{HandOut, Reservation, Reserve, UrlToFetch};
use wayleave_core::ids::ShardId;
use wayleave_core::limits;
use wayleave_core::names::CrawlName;

use crate::ask::{Ask, Response, Take, VisitCall};
use crate::handle::frontier::Frontier;
use crate::patience::{Patience, Woke, nap};
use crate::routing::links::NodeCall;
use crate::routing::router::{CallResult, OwnerLocation, stopping, worse};
use crate::shared::readiness::{Source, VisitFilter};
use crate::shared::waiters::{Waiter, Wants};

/// Retry interval while some shards cannot be asked.
const LOOK_AGAIN: Duration = Duration::from_millis(50);
/// Interval at which the first in line looks again while something is ready for it that is not taken.
pub(crate) const LOOK_IN_LINE: Duration = Duration::from_secs(1);
/// Minimum number of queues requested from each shard when a hand-out is split.
const PART_QUEUES: usize = 16;
/// Shards that one hand-out asks concurrently.
const PARTS_MAX: usize = 4;

/// Minimum number of groups requested from a shard where crawls compete: each request costs a commit.
const SHARE_MIN: usize = 8;

impl Frontier {
    /// Reserves groups, longest ready first, over all shards. Long poll: waits up to `wait` if none is ready.
    pub async fn reserve(&self, request: Reserve) -> CallResult<Vec<Reservation>> {
        self.reserve_while(request, &mut ()).await
    }

    /// The same for a caller that may end the wait. Fails in the same cases, and if the call may not wait.
    pub async fn reserve_while(&self, request: Reserve, patience: &mut dyn Patience) -> CallResult<Vec<Reservation>> {
        let mut deadline = Instant::now() + Duration::from_millis(request.wait.0);
        let mut ask_until = Instant::now() + Duration::from_millis(limits::HAND_OVER_WAIT.0);
        let mut repeatable = None;
        if let Some(id) = &request.request {
            repeatable = Some(self.lock_while(&request.holder, id, patience).await?);
            let mut granted = self.granted_before(&request.holder, id).await?;
            if !granted.is_empty() {
                granted.truncate(request.groups);
                return Ok(granted);
            }
        }
        let wants = || Wants::one_of(request.crawl.as_ref());
        let mut waiter = (request.wait.0 > 0).then(|| self.readiness.waiters.join(wants()));
        loop {
            // Queue before checking, so that nothing that becomes ready meanwhile is missed.
            waiter.iter_mut().for_each(Waiter::enqueue);
            self.readiness.looks.fetch_add(1, Ordering::Relaxed);
            let sources = self.readiness.ready(self.visit_filter(request.crawl.as_ref(), false));
            let granted = match &repeatable {
                None => self.reserve_from(&request, &sources).await,
                Some(request_lock) => self.reserve_through(&request, sources, request_lock.clone()).await,
            };
            // Also after a failure: the next waiter would only fail as well.
            if !matches!(&granted, Ok(granted) if !granted.is_empty()) {
                waiter.iter_mut().for_each(Waiter::found_nothing);
            }
            let granted = granted?;
            self.listen(request.crawl.as_ref().filter(|_| !granted.is_empty() || waiter.is_some()));
            if !granted.is_empty() {
                waiter.into_iter().for_each(|waiter| waiter.leave(|crawl| self.has_ready(crawl)));
                return Ok(granted);
            }
            let unasked = self.unasked();
            let until = if unasked > 0 { deadline.max(ask_until) } else { deadline };
            if Instant::now() >= until {
                return if unasked > 0 { Err(self.cannot_ask(unasked)) } else { Ok(granted) };
            }
            let again = until.min(Instant::now() + LOOK_AGAIN);
            let woke = match &mut waiter {
                Some(waiter) if unasked == 0 => {
                    sleep_in_line(waiter, patience, (until, LOOK_IN_LINE), |crawl| self.readiness.is_ready_for(crawl))
                        .await?
                }
                // Only the first in line looks often: what a shard has when it opens again wakes the others.
                Some(waiter) => {
                    let again = if waiter.is_first() { again } else { until.min(Instant::now() + LOOK_IN_LINE) };
                    nap(patience, again, waiter.woken()).await?
                }
                // A call that does not wait is not charged for the short time of a hand-over.
                None => {
                    tokio::time::sleep_until(again).await;
                    Woke::InTime
                }
            };
            if woke.is_hurried() {
                (deadline, ask_until) = (Instant::now(), Instant::now());
            }
        }
    }

    /// How often callers have looked for groups to visit here.
    #[must_use]
    pub fn looks(&self) -> u64 {
        self.readiness.looks.load(Ordering::Relaxed)
    }

    /// Whether a group is ready for a crawl, or for any.
    fn has_ready(&self, crawl: Option<&CrawlName>) -> bool {
        self.readiness.has_ready(self.visit_filter(crawl, false))
    }

    fn visit_filter<'a>(&self, crawl: Option<&'a CrawlName>, paced: bool) -> VisitFilter<'a> {
        VisitFilter { crawl, paced, now: self.now() }
    }

    /// A worker was given URLs of this crawl and will ask for more, or waits for some: track its readiness.
    fn listen(&self, crawl: Option<&CrawlName>) {
        if let Some(crawl) = crawl {
            self.readiness.listen(crawl);
        }
    }

    /// Number of shards that cannot be asked at the moment. An empty answer would claim more than is known.
    fn unasked(&self) -> usize {
        let Some(_) = &self.router.links else { return 0 };
        let silent = |shard: &ShardId| match self.router.location(*shard) {
            OwnerLocation::Local(_) => false,
            OwnerLocation::Remote(node) => !self.readiness.hears(node),
            OwnerLocation::Unowned => true,
        };
        let count = self.all().iter().filter(|shard| silent(shard)).count();
        if count > 0 {
            self.router.note_misroute();
        }
        count
    }

    fn cannot_ask(&self, shards: usize) -> Refusal {
        let why = self.router.why_no_owner();
        Refusal::Unavailable(format!("{shards} shards cannot be asked and nothing is ready in the others: {why}"))
    }

    /// Reserves groups from these sources, in order.
    pub(crate) async fn reserve_from(&self, request: &Reserve, sources: &[Source]) -> CallResult<Vec<Reservation>> {
        let mut granted: Vec<Reservation> = Vec::new();
        let mut trouble = None;
        // A shard answers a request id it has seen with what it granted before, so it may be asked only once.
        let weighed = request.request.is_none() && self.is_weighed(request.crawl.as_ref(), request.groups);
        let mut rounds = Rounds::new(sources, weighed);
        while let Some((source, groups)) = rounds.next(request.groups.saturating_sub(granted.len())) {
            let repeatable = request.request.is_some();
            let request = Reserve { groups, ..request.clone() };
            match self.ask_source::<Vec<Reservation>>(source, Take::Reserve(request)).await {
                Ok(more) => {
                    rounds.gave(source, more.len() >= groups);
                    // A group that moves between two shards after the first has granted it is granted for this request
                    // id in the second one, too. It is one reservation, and must not be told twice.
                    granted.retain(|known| more.iter().all(|one| one.token != known.token));
                    granted.extend(more);
                }
                // A repeated call returns everything granted so far, including what is uncertain now. Asking further
                // sources would grant more than requested.
                Err(refusal @ Refusal::OutcomeUnknown(_)) if repeatable => return Err(refusal),
                // What was granted is durable and must reach its holder; one shard's failure does not affect the
                // others.
                Err(refusal) => trouble = Some(worse(trouble, refusal)),
            }
        }
        // A shard that is being handed over has nothing to offer right now; this is not the caller's problem.
        let trouble = trouble.filter(|refusal| *refusal != Refusal::Elsewhere);
        if granted.is_empty() { trouble.map_or(Ok(granted), Err) } else { Ok(granted) }
    }

    /// Asks a shard of this process, or another node for any of its shards. Does not wait for a missing owner.
    async fn ask_source<T: TryFrom<Response, Error = Refusal>>(&self, source: Source, take: Take) -> CallResult<T> {
        let _called = if let Source::Shard(shard) = source { Some(self.readiness.call(shard)) } else { None };
        let ask = || Ask::from(VisitCall::Take(take.clone()));
        let answer = match (source, &self.router.links) {
            (Source::Shard(shard), Some(_)) => {
                self.router.call_here(shard, ask()).await.unwrap_or(Err(Refusal::Elsewhere))
            }
            (Source::Node(node), Some(links)) => links.ask(node, &NodeCall::Take(take.clone()), false).await,
            (Source::Shard(shard), None) => {
                self.router.call_here(shard, ask()).await.unwrap_or_else(|| Err(stopping()))
            }
            (Source::Node(_), None) => Err(Refusal::Elsewhere),
        };
        answer.and_then(T::try_from)
    }

    /// Serves another node's request for something to visit.
    pub(crate) async fn take_here(&self, take: Take) -> CallResult<Response> {
        match take {
            Take::Reserve(request) => {
                // First: a shard that has nothing of the crawl then publishes that, and the other node does not ask again.
                self.listen(request.crawl.as_ref().filter(|_| request.wait.0 > 0));
                let sources = self.readiness.ready_here(self.visit_filter(request.crawl.as_ref(), false));
                self.reserve_from(&request, &sources).await.map(Response::from)
            }
            Take::HandOut(request) => {
                let sources = self.readiness.ready_here(self.visit_filter(request.crawl.as_ref(), true));
                self.hand_out_from(request, &sources).await.map(Response::from)
            }
        }
    }

    /// Whether workers have asked for visits recently; puts should then come in small batches.
    #[must_use]
    pub fn awaits_visits(&self) -> bool {
        self.router.admission.is_used()
    }

    /// Hands out URLs in the paced form, longest ready queues first.
    pub async fn hand_out(&self, request: HandOut) -> CallResult<Vec<UrlToFetch>> {
        if let Some(host) = &request.host {
            let crawl = request.crawl.clone().or_else(|| Some(wayleave_core::names::DEFAULT_CRAWL.into()));
            let one = HandOut { crawl, queues: 1, ..request.clone() };
            return self.at_host(host, VisitCall::Take(Take::HandOut(one))).await;
        }
        let patience = Instant::now() + Duration::from_millis(limits::HAND_OVER_WAIT.0);
        loop {
            let sources = self.readiness.ready(self.visit_filter(request.crawl.as_ref(), true));
            let urls = self.hand_out_from(request.clone(), &sources).await?;
            let unasked = if urls.is_empty() { self.unasked() } else { 0 };
            if unasked == 0 {
                self.listen(request.crawl.as_ref().filter(|_| !urls.is_empty()));
                return Ok(urls);
            }
            if Instant::now() >= patience {
                return Err(self.cannot_ask(unasked));
            }
            tokio::time::sleep(LOOK_AGAIN).await;
        }
    }

    /// Hands out URLs from these sources, in order. A request for many queues is split over several shards, which read
    /// and decide in parallel.
    async fn hand_out_from(&self, request: HandOut, sources: &[Source]) -> CallResult<Vec<UrlToFetch>> {
        let mut got = HandedOut { queues: request.queues, urls: Vec::new(), trouble: None };
        let weighed = self.is_weighed(request.crawl.as_ref(), request.queues);
        let parts = if weighed { 1 } else { parts(&request).min(sources.len()) };
        let (together, one_by_one) = sources.split_at(if parts > 1 { parts } else { 0 });
        let share = |part: usize| request.queues / parts + usize::from(part < request.queues % parts);
        let asked = together.iter().enumerate().map(|(part, source)| self.hand_out_of(*source, &request, share(part)));
        let mut left = one_by_one.to_vec();
        for ((part, source), answer) in together.iter().enumerate().zip(join_all(asked).await) {
            // A source that returned less than its share is exhausted; one that returned all of it may have more.
            if got.add(answer) >= share(part) {
                left.push(*source);
            }
        }
        let mut rounds = Rounds::new(&left, weighed);
        while let Some((source, queues)) = rounds.next(got.queues) {
            if got.urls.len() >= limits::HAND_OUT_TOTAL_MAX {
                break;
            }
            let gave = got.add(self.hand_out_of(source, &request, queues).await);
            rounds.gave(source, gave >= queues);
        }
        let trouble = got.trouble.filter(|refusal| *refusal != Refusal::Elsewhere);
        if got.urls.is_empty() { trouble.map_or(Ok(got.urls), Err) } else { Ok(got.urls) }
    }

    /// Whether a request for several groups must be spread over the shards for weights to hold: a shard that is asked
    /// for all of them grants everything it has ready, whatever the weights.
    fn is_weighed(&self, crawl: Option<&CrawlName>, wanted: usize) -> bool {
        wanted > 1 && crawl.is_none() && self.readiness.crawls_compete()
    }

    async fn hand_out_of(&self, source: Source, request: &HandOut, queues: usize) -> CallResult<Vec<UrlToFetch>> {
        self.ask_source(source, Take::HandOut(HandOut { queues, ..request.clone() })).await
    }
}

/// Sleeps until a waiter is woken, until then, or until the call is to answer. The first in line also looks at intervals while
/// something is `ready` for it: the one that was woken for that may have failed.
pub(crate) async fn sleep_in_line(
    waiter: &mut Waiter<'_>,
    patience: &mut dyn Patience,
    (until, every): (Instant, Duration),
    ready: impl Fn(Option<&CrawlName>) -> bool,
) -> CallResult<Woke<()>> {
    loop {
        let pause = until.min(Instant::now() + every);
        let woke = nap(patience, pause, waiter.woken()).await?;
        if !matches!(woke, Woke::InTime) || pause == until {
            return Ok(woke);
        }
        if waiter.is_first() && ready(waiter.wants().crawl()) {
            waiter.looks_unwoken();
            return Ok(woke);
        }
    }
}

/// The order in which sources are asked. Where crawls compete, each is asked for an equal share of what is still wanted,
/// and a source that granted its full share is asked again in the next round; otherwise the first is asked for everything.
struct Rounds {
    left: VecDeque<Source>,
    next: VecDeque<Source>,
    weighed: bool,
}

impl Rounds {
    fn new(sources: &[Source], weighed: bool) -> Self {
        Self { left: sources.iter().copied().collect(), next: VecDeque::new(), weighed }
    }

    /// The source to ask next, and for how many of the groups still wanted.
    fn next(&mut self, wanted: usize) -> Option<(Source, usize)> {
        if self.left.is_empty() {
            std::mem::swap(&mut self.left, &mut self.next);
        }
        let even = wanted.div_ceil(self.left.len().max(1)).max(SHARE_MIN).min(wanted);
        let share = if self.weighed { even } else { wanted };
        if wanted == 0 { None } else { self.left.pop_front().map(|source| (source, share)) }
    }

    /// Records whether a source granted its full share. One that granted less is exhausted.
    fn gave(&mut self, source: Source, all: bool) {
        if self.weighed && all {
            self.next.push_back(source);
        }
    }
}

/// What several sources have handed out.
struct HandedOut {
    /// Queues still wanted.
    queues: usize,
    urls: Vec<UrlToFetch>,
    trouble: Option<Refusal>,
}

impl HandedOut {
    /// Adds the answer of one source; returns its number of queues.
    fn add(&mut self, answer: CallResult<Vec<UrlToFetch>>) -> usize {
        match answer {
            Ok(more) => {
                let mut served: Vec<_> = more.iter().map(|url| (&url.host, &url.crawl)).collect();
                served.dedup();
                let count = served.len();
                self.queues = self.queues.saturating_sub(count);
                self.urls.extend(more);
                count
            }
            Err(refusal) => {
                self.trouble = Some(worse(self.trouble.take(), refusal));
                0
            }
        }
    }
}

/// How many sources a hand-out asks concurrently: each gets enough to do, and together they stay within the limit.
fn parts(request: &HandOut) -> usize {
    if request.queues.saturating_mul(request.urls) > limits::HAND_OUT_TOTAL_MAX {
        return 1;
    }
    (request.queues / PART_QUEUES).clamp(1, PARTS_MAX)
}
