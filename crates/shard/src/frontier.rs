//! The handle to the frontier: every door, tool and test enters here.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use wayleave_core::frontier::State;
use wayleave_core::frontier::refusal::Refusal;
use wayleave_core::frontier::request::{HandOut, Put, PutOutcome, Release, Released, Reservation, Reserve, UrlToFetch};
use wayleave_core::frontier::row::Write;
use wayleave_core::ids::{ShardId, Token};
use wayleave_core::limits;
use wayleave_core::names::HostName;
use wayleave_core::time::{Millis, Time};
use wayleave_engine::Engine;

use crate::config::Config;
use crate::message::{Message, Outcomes, decide};
use crate::owner::{self, Post};
use crate::pulse::{Pulse, lock};
use crate::router::{Answer, MOVING, Router, belongs, moving, stopping};

/// A release keeps its reservation alive for this long while it stores what was found.
const RELEASE_TIME: Millis = Millis(30_000);

/// The frontier of this process: cheap to clone, safe to share.
#[derive(Clone)]
pub struct Frontier {
    pub(crate) router: Arc<Router>,
    pub(crate) pulse: Arc<Pulse>,
    pub(crate) engine: Arc<dyn Engine>,
    active: Arc<AtomicBool>,
    /// One move of hosts at a time: two owners that wait for each other would wait for ever.
    pub(crate) moves: Arc<tokio::sync::Mutex<()>>,
}

impl Frontier {
    /// Opens all shards of a store; their owners run on the given runtime.
    ///
    /// # Errors
    /// If a shard cannot be opened.
    pub async fn open(
        engine: Arc<dyn Engine>,
        config: Config,
        runtime: &tokio::runtime::Handle,
    ) -> Result<Self, Refusal> {
        let pulse = Arc::new(Pulse::new(config.shards));
        let mut inboxes = Vec::with_capacity(config.shards.into());
        for shard in (0..config.shards).map(ShardId) {
            let (inbox, messages) = crate::inbox::inbox();
            inboxes.push(inbox);
            let (engine, config, pulse) = (engine.clone(), config.clone(), pulse.clone());
            runtime.spawn(owner::run(Post { shard, engine, config, pulse }, messages));
        }
        let (router, moves) = (Router::new(inboxes), Arc::default());
        let frontier = Self { router, pulse, engine, active: Arc::new(AtomicBool::new(true)), moves };
        // A shard that cannot be opened turns its callers away; what matters to them is why.
        let why = |refusal| lock(&frontier.pulse.trouble).clone().map_or(refusal, Refusal::Unavailable);
        frontier.learn().await.map_err(why)?;
        Ok(frontier)
    }

    /// Asks every shard for what the router must know: which hosts have moved, whether the paced form serves.
    async fn learn(&self) -> Answer<()> {
        let told = self
            .router
            .decide_all(|state, _, _| {
                let moved: Vec<_> = state.moved().map(|(host, alias)| (host.clone(), alias.clone())).collect();
                let limits = state.crawl_views().into_iter().map(|crawl| crawl.settings.limits);
                let bounded = limits.into_iter().any(|l| l.urls.is_some() || l.pages.is_some());
                (moved, state.shard_row().active, bounded)
            })
            .await?;
        for (moved, active, bounded) in told {
            moved.iter().for_each(|(host, alias)| self.router.set_alias_of(host, Some(alias)));
            self.active.fetch_and(active, Ordering::AcqRel);
            self.pulse.bounded.fetch_or(bounded, Ordering::AcqRel);
        }
        Ok(())
    }

    /// The store's time.
    #[must_use]
    pub fn now(&self) -> Time {
        self.engine.now()
    }

    /// How many shards there are.
    #[must_use]
    pub fn shards(&self) -> u16 {
        self.router.shards()
    }

    /// Stores URLs; outcomes in the order sent. It never fails as a whole.
    pub async fn put(&self, puts: Vec<Put>) -> Vec<PutOutcome> {
        let count = puts.len();
        let (sink, mut told) = mpsc::unbounded_channel();
        let puts = puts.into_iter().enumerate().map(|(i, put)| (i as u64, put)).collect();
        self.put_into(puts, &sink).await;
        drop(sink);
        let lost = || PutOutcome::Failed(stopping().to_string().into());
        let mut outcomes: Vec<PutOutcome> = (0..count).map(|_| lost()).collect();
        while let Some(part) = told.recv().await {
            for (i, outcome) in part {
                if let Some(place) = outcomes.get_mut(i as usize) {
                    *place = outcome;
                }
            }
        }
        outcomes
    }

    /// Stores URLs without waiting for them: outcomes arrive at `sink` in any order, possibly in several parts, each item
    /// exactly once. Returns when all items are queued, so a full shard slows its callers down.
    pub async fn put_into(&self, puts: Vec<(u64, Put)>, sink: &mpsc::UnboundedSender<Outcomes>) {
        self.settle_hints().await;
        let mut parts: Vec<Vec<(u64, Put)>> = (0..self.shards()).map(|_| Vec::new()).collect();
        for (tag, put) in puts {
            let shard = self.router.shard_of(&put.host);
            if let Some(part) = parts.get_mut(usize::from(shard.0)) {
                part.push((tag, put));
            }
        }
        for (shard, items) in parts.into_iter().enumerate().filter(|(_, items)| !items.is_empty()) {
            let tags: Vec<u64> = items.iter().map(|(tag, _)| *tag).collect();
            let message = Message::Put { items, sink: sink.clone() };
            if let Err(refusal) = self.router.send(ShardId(shard as u16), message).await {
                let failed = |tag| (tag, PutOutcome::Failed(refusal.to_string().into()));
                _ = sink.send(tags.into_iter().map(failed).collect());
            }
        }
    }

    /// Reserves groups, longest ready first, over all shards; waits up to `wait` if none is ready.
    ///
    /// # Errors
    /// If the store cannot be reached.
    pub async fn reserve(&self, request: Reserve) -> Answer<Vec<Reservation>> {
        let deadline = tokio::time::Instant::now() + Duration::from_millis(request.wait.0);
        loop {
            // In line before looking, so that nothing that becomes ready meanwhile is missed.
            let turn = (request.wait.0 > 0).then(|| self.pulse.wait(request.crawl.is_some()));
            let granted = self.reserve_now(&request).await?;
            let Some(turn) = turn.filter(|_| granted.is_empty()) else { return Ok(granted) };
            if tokio::time::timeout_at(deadline, turn).await.is_err() {
                return Ok(granted);
            }
        }
    }

    async fn reserve_now(&self, request: &Reserve) -> Answer<Vec<Reservation>> {
        let mut granted = Vec::new();
        let mut trouble = None;
        for shard in self.pulse.ready(self.now()) {
            let groups = request.groups.saturating_sub(granted.len());
            if groups == 0 {
                break;
            }
            let request = Reserve { groups, ..request.clone() };
            let ask = self.router.ask(ShardId(shard as u16), |reply| Message::Reserve { request, reply });
            match ask.await {
                Ok(more) => granted.extend(more),
                // What was granted is durable and must reach its holder, and one shard's trouble is not the others'.
                Err(refusal) => trouble = Some(refusal),
            }
        }
        if granted.is_empty() { trouble.map_or(Ok(granted), Err) } else { Ok(granted) }
    }

    /// Extends a reservation; says the new deadline.
    ///
    /// # Errors
    /// If the token is not current.
    pub async fn renew(&self, token: Token, lease: Millis) -> Answer<Time> {
        self.with_token(token, move |shard| {
            self.router.decide(shard, move |state, now, writes| state.renew(token, lease, now, writes))
        })
        .await
    }

    /// Ends a reservation. What was found is stored first, and only if the token is current.
    ///
    /// # Errors
    /// If the token is not current, or a result names a URL that is not part of the reservation.
    pub async fn release(&self, release: Release, found: Vec<Put>) -> Answer<(Released, Vec<PutOutcome>)> {
        let token = release.token;
        let mut outcomes = Vec::new();
        if !found.is_empty() {
            let keep = |shard| {
                self.router
                    .decide(shard, move |state, now, writes| state.keep(token, now.after(RELEASE_TIME), now, writes))
            };
            self.with_token(token, keep).await?;
            outcomes = self.put(found).await;
        }
        let end = |shard| {
            let release = release.clone();
            self.router.ask(shard, |reply| Message::Release { release, reply })
        };
        Ok((self.with_token(token, end).await?, outcomes))
    }

    /// Asks the shard that granted a token; if its host may have moved since, all others: a host that has left its
    /// alias took its reservations home, and nobody remembers from where.
    async fn with_token<T, F: Future<Output = Answer<T>>>(
        &self,
        token: Token,
        ask: impl Fn(ShardId) -> F,
    ) -> Answer<T> {
        let first = token.shard();
        if first.0 >= self.shards() {
            return Err(Refusal::NotCurrent);
        }
        let answer = ask(first).await;
        if !matches!(answer, Err(Refusal::NotCurrent)) {
            return answer;
        }
        for shard in (0..self.shards()).map(ShardId).filter(|shard| *shard != first) {
            match ask(shard).await {
                Err(Refusal::NotCurrent) => {}
                other => return other,
            }
        }
        Err(Refusal::NotCurrent)
    }

    /// Asks the shard that a host lives in. If the host is not there the hints are out of date and are read again.
    pub(crate) async fn at_host<T, F: Future<Output = Answer<T>>>(
        &self,
        host: &str,
        ask: impl Fn(ShardId) -> F,
    ) -> Answer<T> {
        const TRIES: usize = 3;
        for _ in 1..TRIES {
            self.settle_hints().await;
            match ask(self.router.shard_of(host)).await {
                Err(Refusal::Unavailable(why)) if why == MOVING => self.router.doubt(),
                answer => return answer,
            }
        }
        self.settle_hints().await;
        ask(self.router.shard_of(host)).await
    }

    /// Lets the shard of a host decide something about it.
    pub(crate) async fn decide_at<T: Send + 'static>(
        &self,
        host: &HostName,
        decision: impl Fn(&mut State, Time, &mut Vec<Write>) -> Answer<T> + Clone + Send + 'static,
    ) -> Answer<T> {
        let shards = self.shards();
        self.at_host(host, |shard| {
            let (host, decision) = (host.clone(), decision.clone());
            self.decide(
                shard,
                move |state, now, writes| {
                    if belongs(state, &host, shards) { decision(state, now, writes) } else { Err(moving()) }
                },
            )
        })
        .await
    }

    /// Reads the router's hints again if they are in doubt, once no move is under way.
    pub(crate) async fn settle_hints(&self) {
        if !self.router.is_doubted() {
            return;
        }
        let _no_move = self.moves.lock().await;
        let told = self.router.decide_all(|state, _, _| {
            state.moved().map(|(host, alias)| (host.clone(), alias.clone())).collect::<Vec<_>>()
        });
        // If a shard cannot answer now the doubt stays and the next caller asks.
        if let Ok(told) = told.await {
            self.router.set_aliases(told.into_iter().flatten().collect());
        }
    }

    /// Hands out URLs in the paced form, longest ready queues first.
    ///
    /// # Errors
    /// If the store cannot be reached.
    pub async fn hand_out(&self, request: HandOut) -> Answer<Vec<UrlToFetch>> {
        if !self.is_active() {
            return Ok(Vec::new());
        }
        if let Some(host) = &request.host {
            let crawl = request.crawl.clone().or_else(|| Some(wayleave_core::names::DEFAULT_CRAWL.into()));
            let one = HandOut { crawl, queues: 1, ..request.clone() };
            let ask = |shard| {
                let request = one.clone();
                self.router.ask(shard, |reply| Message::HandOut { request, reply })
            };
            return self.at_host(host, ask).await;
        }
        let mut urls: Vec<UrlToFetch> = Vec::new();
        let mut queues = request.queues;
        let mut trouble = None;
        for shard in self.pulse.ready(self.now()) {
            if queues == 0 || urls.len() >= limits::HAND_OUT_TOTAL_MAX {
                break;
            }
            let request = HandOut { queues, ..request.clone() };
            let ask = self.router.ask(ShardId(shard as u16), |reply| Message::HandOut { request, reply });
            match ask.await {
                Ok(more) => {
                    let mut served: Vec<_> = more.iter().map(|url| (&url.host, &url.crawl)).collect();
                    served.dedup();
                    queues = queues.saturating_sub(served.len());
                    urls.extend(more);
                }
                Err(refusal) => trouble = Some(refusal),
            }
        }
        if urls.is_empty() { trouble.map_or(Ok(urls), Err) } else { Ok(urls) }
    }

    /// Sets whether the paced form serves at all; durable.
    ///
    /// # Errors
    /// If the store cannot be reached.
    pub async fn set_active(&self, active: bool) -> Answer<()> {
        self.router.decide_all(move |state, _, _| state.set_active(active)).await?;
        self.active.store(active, Ordering::Release);
        Ok(())
    }

    /// Whether the paced form serves.
    #[must_use]
    pub fn is_active(&self) -> bool {
        self.active.load(Ordering::Acquire)
    }

    /// Whether the store answers and all shards are open; the reason if not.
    ///
    /// # Errors
    /// The reason.
    pub fn readiness(&self) -> Result<(), String> {
        if let Some(trouble) = lock(&self.pulse.trouble).clone() {
            return Err(trouble);
        }
        let closed = self.pulse.beats.iter().filter(|beat| !beat.open.load(Ordering::Acquire)).count();
        if closed == 0 { Ok(()) } else { Err(format!("{closed} of {} shards are not open", self.shards())) }
    }

    /// Stops taking requests and finishes what is under way.
    pub async fn stop(&self) {
        let stops = self.router.inboxes.iter().map(|inbox| async move {
            let (done, stopped) = oneshot::channel();
            if inbox.send(Message::Stop { done }).await.is_ok() {
                _ = stopped.await;
            }
        });
        futures::future::join_all(stops).await;
    }

    /// Lets one shard decide something and answers when it is durable.
    pub(crate) async fn decide<T: Send + 'static>(
        &self,
        shard: ShardId,
        decision: impl FnOnce(&mut State, Time, &mut Vec<Write>) -> Answer<T> + Send + 'static,
    ) -> Answer<T> {
        self.router.ask(shard, |reply| decide(reply, decision)).await
    }
}
