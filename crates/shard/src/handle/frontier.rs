//! The handle to the frontier, used by every API, tool and test.

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::sync::{Semaphore, mpsc};
use wayleave_core::frontier::refusal::Refusal;
use wayleave_core::frontier::request::{Parent, Put, PutOutcome, Release, Released};
use wayleave_core::ids::{ShardId, Token};
use wayleave_core::limits;
use wayleave_core::time::{Millis, Time};
use wayleave_engine::Engine;

use crate::ask::{AdminChange, Ask, Response, StateQuery, VisitCall};
use crate::config::Config;
use crate::handle::listing_permits::ListingPermits;
use crate::message::Outcomes;
use crate::owner::owner_threads::OwnerThreads;
use crate::routing::links::Links;
use crate::routing::router::{CallResult, Router, never_answered, stopping, worse};
use crate::shared::damage_report::DamageReport;
use crate::shared::readiness::Readiness;

/// The frontier as seen by one process. Safe to share; a clone counts one reference, because servers clone their state
/// several times per request.
#[derive(Clone)]
pub struct Frontier {
    parts: Arc<Parts>,
    /// Restricts listings and totals to this node's own shards.
    pub(crate) only_here: bool,
}

/// What all clones of a [`Frontier`] share; their methods reach it through `Deref`.
pub struct Parts {
    pub(crate) router: Arc<Router>,
    pub(crate) readiness: Arc<Readiness>,
    pub(crate) engine: Arc<dyn Engine>,
    pub(crate) config: Config,
    pub(crate) threads: OwnerThreads,
    /// Serialises moves of hosts: two owners that wait for each other would deadlock.
    pub(crate) moves: tokio::sync::Mutex<()>,
    /// Held by the call that reloads the routing hints for all that wait for them.
    pub(crate) learning: tokio::sync::Mutex<()>,
    /// Serialises changes of crawl settings over all shards.
    pub(crate) crawl_changes: tokio::sync::Mutex<()>,
    pub(crate) listings: Arc<ListingPermits>,
    /// Turns of calls of clients to ask the owner of a pool on another node.
    pub(crate) remote_match_calls: Arc<Semaphore>,
}

impl Deref for Frontier {
    type Target = Parts;

    fn deref(&self) -> &Parts {
        &self.parts
    }
}

impl Frontier {
    /// Opens all shards of a store for this process alone and spreads their owners over `threads`.
    pub async fn open(
        engine: Arc<dyn Engine>,
        config: Config,
        threads: impl Into<OwnerThreads>,
    ) -> Result<Self, Refusal> {
        let frontier = Self::new(engine, config, threads.into(), None);
        for shard in (0..frontier.shards()).map(ShardId) {
            frontier.open_shard(shard, Vec::new());
        }
        // A shard that cannot be opened refuses its callers; report the reason why it cannot be opened.
        let why = |refusal| frontier.readiness.troubles.all().map_or(refusal, Refusal::Unavailable);
        frontier.learn_hints(Duration::ZERO).await.map_err(why)?;
        let damaged = frontier.all().into_iter().filter(|shard| frontier.readiness.troubles.is_damaged(*shard)).count();
        if damaged > 0 && damaged == usize::from(frontier.shards()) {
            return Err(why(stopping()));
        }
        Ok(frontier)
    }

    /// The frontier of one node in a cluster. It owns no shard until told to, and reaches other nodes through `links`.
    #[must_use]
    pub fn join(
        engine: Arc<dyn Engine>,
        config: Config,
        threads: impl Into<OwnerThreads>,
        links: Arc<dyn Links>,
    ) -> Self {
        Self::new(engine, config, threads.into(), Some(links))
    }

    fn new(engine: Arc<dyn Engine>, config: Config, threads: OwnerThreads, links: Option<Arc<dyn Links>>) -> Self {
        let readiness = Arc::new(Readiness::new(config.shards));
        let router = Router::new(&config, links, readiness.misrouted.clone());
        let [moves, learning, crawl_changes] = std::array::from_fn(|_| tokio::sync::Mutex::default());
        let listings = Arc::new(ListingPermits::new(config.listings_max, config.listings_waiting_max));
        let remote_match_calls = Arc::new(Semaphore::new(limits::REMOTE_MATCH_CALLS_MAX));
        let parts = Parts {
            router,
            readiness,
            engine,
            config,
            threads,
            moves,
            learning,
            crawl_changes,
            listings,
            remote_match_calls,
        };
        Self { parts: Arc::new(parts), only_here: false }
    }

    /// The shards covered by listings and totals.
    pub(crate) fn scope(&self) -> Vec<ShardId> {
        let shards = (0..self.shards()).map(ShardId);
        if self.only_here { shards.filter(|shard| self.owns(*shard)).collect() } else { shards.collect() }
    }

    /// All shards.
    pub(crate) fn all(&self) -> Vec<ShardId> {
        (0..self.shards()).map(ShardId).collect()
    }

    /// The store's time.
    #[must_use]
    pub fn now(&self) -> Time {
        self.engine.now()
    }

    /// Number of shards.
    #[must_use]
    pub fn shards(&self) -> u16 {
        self.config.shards
    }

    /// Stores URLs. Returns one outcome per URL, in the order sent; the call never fails as a whole.
    pub async fn put(&self, puts: Vec<Put>) -> Vec<PutOutcome> {
        let count = puts.len();
        let (sink, mut told) = mpsc::unbounded_channel();
        let puts = puts.into_iter().enumerate().map(|(i, put)| (i as u64, put)).collect();
        self.put_into(puts, &sink).await;
        drop(sink);
        let lost = || PutOutcome::Failed(Box::new(never_answered()));
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

    /// Stores URLs without waiting for their outcomes, which arrive at `sink` in any order, possibly in several parts,
    /// each item exactly once. Returns when all items are queued, which gives back-pressure when a shard is full.
    pub async fn put_into(&self, puts: Vec<(u64, Put)>, sink: &mpsc::UnboundedSender<Outcomes>) {
        self.refresh_hints(Duration::ZERO).await;
        let mut parts: Vec<(ShardId, Vec<(u64, Put)>)> = self.all().into_iter().map(|s| (s, Vec::new())).collect();
        for (tag, put) in puts {
            let shard = self.router.shard_of(&put.host);
            if let Some((_, part)) = parts.get_mut(usize::from(shard.0)) {
                part.push((tag, put));
            }
        }
        parts.retain(|(_, items)| !items.is_empty());
        self.router.put_parts(parts, sink).await;
    }

    /// Extends a reservation; returns the new deadline.
    pub async fn renew(&self, token: Token, lease: Millis) -> CallResult<Time> {
        self.with_token(token, VisitCall::Renew { token, lease }).await
    }

    /// First step of a release with found links: extends the reservation until they can be stored, and returns what the
    /// links on each of these pages inherit; `None` for a page that is no longer part of the reservation. Fails if the
    /// token is not current, or a page is not part of the reservation; then nothing has changed.
    pub async fn begin_release(&self, token: Token, pages: Vec<Box<str>>) -> CallResult<Vec<Option<Parent>>> {
        self.with_token(token, VisitCall::Keep { token, lease: limits::FOUND_STORE_TIME, pages }).await
    }

    /// Ends a reservation. Found links are stored first; [`Frontier::begin_release`] must have succeeded before. Fails
    /// if the token is not current, or a result names a URL that is not part of the reservation.
    pub async fn release(&self, release: Release, found: Vec<Put>) -> CallResult<(Released, Vec<PutOutcome>)> {
        let (token, stored) = (release.token, !found.is_empty());
        let outcomes = if stored { self.put(found).await } else { Vec::new() };
        // Do not complete the page while its links may be lost: it would never be fetched again to find them.
        if let Some(refusal) = refuse_links(&outcomes, "the reservation was kept, send the release again") {
            return Err(refusal);
        }
        let released: CallResult<Released> = self.with_token(token, VisitCall::Release(release)).await;
        let kept = "the found links were stored and the reservation was kept; send the release again";
        let released = released.map_err(|refusal| if stored { refusal.after_partial_change(kept) } else { refusal });
        Ok((released?, outcomes))
    }

    /// Asks the shard that granted a token and, if its host may have moved since, all other shards: a host that left
    /// its alias took its reservations along, and no shard records where it came from.
    pub(crate) async fn with_token<T: TryFrom<Response, Error = Refusal>>(
        &self,
        token: Token,
        ask: impl Into<Ask>,
    ) -> CallResult<T> {
        let ask = ask.into();
        let first = token.shard();
        if first.0 >= self.shards() {
            return Err(Refusal::NotCurrent);
        }
        let answer = self.router.ask(first, ask.clone()).await;
        if !matches!(answer, Err(Refusal::NotCurrent)) {
            return answer;
        }
        let others: Vec<ShardId> = self.all().into_iter().filter(|shard| *shard != first).collect();
        match self.ask_for_token(&others, &ask).await {
            // The host may have moved from a shard that was not asked yet to one that was. Moves are rare, so ask all
            // of them again.
            Err(Refusal::NotCurrent) if self.router.knows_moves() => self.ask_for_token(&self.all(), &ask).await,
            answer => answer,
        }
    }

    /// Asks all these shards. At most one has the token, so the order does not matter. The answer of the shard that has
    /// it wins; otherwise return the worst refusal, because that shard might have had it.
    async fn ask_for_token<T: TryFrom<Response, Error = Refusal>>(
        &self,
        shards: &[ShardId],
        ask: &Ask,
    ) -> CallResult<T> {
        let answers = shards.iter().map(|shard| self.router.ask(*shard, ask.clone()));
        let mut trouble = None;
        for answer in futures::future::join_all(answers).await {
            match answer {
                Ok(answer) => return Ok(answer),
                Err(Refusal::NotCurrent) => {}
                Err(refusal) => trouble = Some(worse(trouble, refusal)),
            }
        }
        Err(trouble.unwrap_or(Refusal::NotCurrent))
    }

    /// Asks the shard that a host lives in. If the host is not there, the routing hints are stale and are reloaded.
    pub(crate) async fn at_host<T: TryFrom<Response, Error = Refusal>>(
        &self,
        host: &str,
        ask: impl Into<Ask>,
    ) -> CallResult<T> {
        let ask = ask.into();
        const TRIES: usize = 3;
        let mut patience = Duration::ZERO;
        for _ in 1..TRIES {
            self.refresh_hints(patience).await;
            match self.router.ask(self.router.shard_of(host), ask.clone()).await {
                Err(Refusal::Moved) => self.router.mark_hints_stale(),
                answer => return answer,
            }
            // Finding the host may require an answer from a shard that is being handed over, so be more patient.
            patience = Duration::from_millis(limits::HAND_OVER_WAIT.0);
        }
        self.refresh_hints(patience).await;
        self.router.ask(self.router.shard_of(host), ask).await
    }

    /// Reloads the routing hints if they are in doubt. Of the calls that have no patience one asks, and the others wait for
    /// it; none of them waits for a group change, or for one with patience.
    pub(crate) async fn refresh_hints(&self, patience: Duration) {
        if !self.router.hints_may_be_stale() {
            return;
        }
        let _one = if patience.is_zero() { Some(self.learning.lock().await) } else { None };
        if !self.router.hints_may_be_stale() {
            return;
        }
        // If a shard cannot answer now, the hints stay in doubt and the next caller retries. A wrong hint only costs a
        // second request.
        _ = self.learn_hints(patience).await;
    }

    /// Asks every shard which of its hosts have moved; waits up to `patience` for shards that are being handed over.
    /// A shard that is closed because of damage is left out: it is asked when it opens, and refuses its hosts until then.
    pub(crate) async fn learn_hints(&self, patience: Duration) -> CallResult<()> {
        let ask = async |shard: ShardId| -> CallResult<Vec<_>> {
            match self.router.ask_within(shard, StateQuery::Moved, patience).await {
                Err(_) if self.readiness.troubles.is_damaged(shard) => Ok(Vec::new()),
                told => told,
            }
        };
        let (stale_marks, learner) = (self.router.stale_marks(), self.router.moved.learn());
        let told: Vec<Vec<_>> = futures::future::try_join_all(self.all().into_iter().map(ask)).await?;
        learner.finish(told.into_iter().flatten().collect());
        self.router.settle(stale_marks);
        Ok(())
    }

    /// What is known to be damaged in the shards of this process.
    #[must_use]
    pub fn damage(&self) -> DamageReport {
        self.readiness.damage_report()
    }

    /// Switches the paced form on or off for all shards; durable.
    pub async fn set_active(&self, active: bool) -> CallResult<()> {
        self.router.ask_all::<()>(&self.all(), AdminChange::SetActive(active)).await.map(drop)
    }

    /// Whether the paced form is switched on.
    pub async fn is_active(&self) -> CallResult<bool> {
        Ok(self.router.ask_all(&self.scope(), StateQuery::Active).await?.into_iter().all(|active: bool| active))
    }

    /// Whether the paced form is switched on, as far as this node knows. A stale answer is harmless: the owner checks
    /// again and hands out nothing.
    #[must_use]
    pub fn seems_active(&self) -> bool {
        self.readiness.active.load(Ordering::Acquire)
    }

    /// Whether the store answers and all shards of this process are open.
    pub fn readiness(&self) -> Result<(), String> {
        if let Some(trouble) = self.readiness.troubles.all() {
            return Err(trouble);
        }
        let mine: Vec<ShardId> = self.all().into_iter().filter(|shard| self.owns(*shard)).collect();
        let closed = mine.iter().filter(|shard| !self.readiness.is_open(**shard)).count();
        if closed == 0 { Ok(()) } else { Err(format!("{closed} of {} shards are not open", mine.len())) }
    }

    /// Stops accepting requests and completes those in progress.
    pub async fn stop(&self) {
        futures::future::join_all(self.all().into_iter().map(|shard| self.close_shard(shard))).await;
    }
}

/// The refusal of a release or report of whose found links some could not be stored. A store that takes no new URLs has stored
/// none of them: that is said as such, so that the caller knows that it may wait. `kept` says what the caller still has.
pub(crate) fn refuse_links(outcomes: &[PutOutcome], kept: &str) -> Option<Refusal> {
    let failed = |outcome: &PutOutcome| match outcome {
        PutOutcome::Failed(why) => Some((**why).clone()),
        PutOutcome::Moved => Some(Refusal::Moved),
        _ => None,
    };
    let changed =
        |outcome: &PutOutcome| matches!(outcome, PutOutcome::Added | PutOutcome::Updated | PutOutcome::Requeued);
    let worst = outcomes.iter().filter_map(failed).reduce(Refusal::or_worse)?;
    Some(match worst {
        Refusal::StoreFull(why) if !outcomes.iter().any(changed) => {
            Refusal::StoreFull(format!("{why}; the found links were not stored, {kept} when there is room"))
        }
        worst => Refusal::OutcomeUnknown(format!("a found link could not be stored ({worst}); {kept}")),
    })
}

#[cfg(test)]
mod tests {
    use wayleave_core::frontier::request::PutKind;
    use wayleave_core::metadata::Metadata;
    use wayleave_engine::clock::ManualClock;
    use wayleave_engine::memory::Memory;

    use super::*;

    async fn frontier() -> Frontier {
        let engine = Memory::new(ManualClock::new(Time(1_000_000)));
        Frontier::open(Arc::new(engine), Config::new(4), &tokio::runtime::Handle::current()).await.unwrap()
    }

    fn put(no: usize) -> Put {
        let kind = PutKind::Discovered { at: None, priority: limits::PRIORITY_DEFAULT, depth: 0 };
        let (url, host) = (format!("http://{no}.example/").into(), format!("{no}.example").as_str().into());
        Put { url, host, crawl: "c".into(), kind, metadata: Metadata::default() }
    }

    /// A regression: while the hints were in doubt, every put of the process waited for the end of a group change.
    #[tokio::test]
    async fn a_put_does_not_wait_for_a_group_change_however_doubtful_the_hints_are() {
        let frontier = frontier().await;
        let group_change = frontier.moves.lock().await;
        frontier.router.mark_hints_stale();
        let puts = frontier.put((0..20).map(put).collect());
        let outcomes =
            tokio::time::timeout(Duration::from_secs(10), puts).await.expect("it waits for the group change");
        assert_eq!(outcomes, vec![PutOutcome::Added; 20]);
        assert!(!frontier.router.hints_may_be_stale(), "the hints were learned all the same");
        drop(group_change);
    }

    /// A regression: the answers of shards that were asked before it also ended a doubt that was raised meanwhile.
    #[tokio::test]
    async fn a_doubt_that_is_raised_while_the_hints_are_learned_stays() {
        let frontier = frontier().await;
        let mut learning = std::pin::pin!(frontier.learn_hints(Duration::ZERO));
        assert!(futures::poll!(learning.as_mut()).is_pending());
        frontier.router.mark_hints_stale();
        learning.await.unwrap();
        assert!(frontier.router.hints_may_be_stale());
        frontier.refresh_hints(Duration::ZERO).await;
        assert!(!frontier.router.hints_may_be_stale());
    }

    /// A regression: each call that had waited for the hints asked every shard once more.
    #[tokio::test]
    async fn calls_that_waited_for_the_hints_do_not_ask_again() {
        let frontier = frontier().await;
        frontier.router.mark_hints_stale();
        let asking = frontier.learning.lock().await;
        let waiting = {
            let frontier = frontier.clone();
            tokio::spawn(async move { frontier.refresh_hints(Duration::ZERO).await })
        };
        tokio::task::yield_now().await;
        frontier.router.settle(1);
        drop(asking);
        waiting.await.unwrap();
        assert_eq!(frontier.router.moved.learn().number, 2, "only the one at the start has asked");
    }
}
