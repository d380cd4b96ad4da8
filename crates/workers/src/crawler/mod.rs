//! The crawler: claims chunks or reservations, fetches, reports, and publishes what it fetched.
//!
//! It must not know how a server decides. When to visit which host is the server's decision alone: the crawler never
//! fetches a URL that it does not hold, and never after its lease has ended. It obeys robots.txt, follows no link out of
//! its scope, and names a contact in its User-Agent off loopback.

mod bounds;
pub(crate) mod chunk;
mod outcome;
mod patience;
pub(crate) mod recorder;
mod single;
mod tally;
mod visit;

use std::sync::Arc;
use std::time::Duration;

use futures::TryStreamExt as _;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;
use url::Url;
use wayleave_api::chunks::{ClaimChunksRequest, Stage};
use wayleave_api::crawls::Crawl;
use wayleave_api::reservations::ReserveGroupsRequest;
use wayleave_client::Client;

use crate::fetch::{self, Fetcher};
use crate::limits::{CLAIM_WAIT, OUTAGE_PAUSE, STORE_FAILURES_MAX, TASKS_MAX};
use crate::robots::{self, Robots};
use crate::scope::Reach;
use crate::store::Store;
use bounds::Bounds;
pub use tally::{Counts, Tally};

/// When a crawler ends by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Until {
    /// On request.
    #[default]
    Stopped,
    /// After one chunk or visit, or when there is none within the time.
    Once,
    /// When its crawl is finished, or all crawls are if it has none.
    Idle,
}

impl Until {
    /// How long a claim waits.
    pub(crate) fn wait(self, lease_ms: u64) -> Duration {
        let wait = if self == Self::Once { CLAIM_WAIT * 5 } else { CLAIM_WAIT };
        wait.min(Duration::from_millis(lease_ms) / 4)
    }

    /// The answer to a claim. A dropped one may leave a chunk without a worker until its lease ends, so a worker that
    /// has to stop awaits it too, but no longer than a live server takes.
    pub(crate) async fn answer<T, E>(
        self,
        lease_ms: u64,
        stop: &CancellationToken,
        claim: impl Future<Output = Result<T, E>>,
    ) -> Result<Option<T>, E> {
        let gone = async {
            stop.cancelled().await;
            sleep(self.wait(lease_ms) + CLAIM_WAIT).await;
        };
        tokio::select! {
            biased;
            answer = claim => answer.map(Some),
            () = gone => Ok(None),
        }
    }
}

/// The crawl of URLs that name none.
const DEFAULT_CRAWL: &str = "DEFAULT";

/// Settings of a crawler.
#[derive(Debug, Clone)]
pub struct Config {
    /// Its name.
    pub id: String,
    /// Only URLs of this crawl.
    pub crawl: Option<String>,
    /// Reservations instead of chunks.
    pub single: bool,
    /// Chunks or visits at once, 1 to [`TASKS_MAX`].
    pub tasks: usize,
    /// Links of a chunk, or URLs of a visit.
    pub links: u64,
    /// Pages of one chunk that are fetched at once.
    pub fetches: usize,
    /// The time of a lease.
    pub lease_ms: u64,
    /// How long a claim waits for a chunk to fill up.
    pub linger_ms: u64,
    /// How far the crawl may wander.
    pub reach: Reach,
    /// Seeds that are in scope wherever they are linked from. One on loopback opens loopback for its crawl.
    pub seeds: Vec<Url>,
    /// When it ends.
    pub until: Until,
    /// How it fetches.
    pub fetch: fetch::Config,
    /// How it keeps robots.txt.
    pub robots: robots::Config,
}

/// Why a crawler ended before its time.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say it")]
pub enum Error {
    #[error(transparent)]
    Server(#[from] wayleave_client::Error),
    #[error("{0}")]
    SetUp(String),
    #[error("{STORE_FAILURES_MAX} times in a row nothing could be stored, the last time because: {0}")]
    Store(String),
    #[error("cannot set up TLS: {0}")]
    Tls(String),
    #[error("chunks need a store")]
    NoStore,
    #[error("a task has stopped: {0}")]
    Stopped(#[from] tokio::task::JoinError),
}

/// How work on a chunk or reservation ended.
#[derive(Debug)]
enum Ended {
    Done,
    /// The lease, or the server. Others continue with it.
    Lost,
    NotStored(String),
    /// This crawler cannot continue with anything.
    Fatal(String),
}

/// A crawler.
#[derive(Debug)]
pub struct Crawler {
    client: Client,
    config: Config,
    fetcher: Fetcher,
    robots: Robots,
    bounds: Arc<Bounds>,
    /// The crawl that has a seed on loopback.
    loopback_crawl: Option<String>,
    store: Option<Store>,
    user_agent: String,
    tally: Arc<Tally>,
    stop: CancellationToken,
    pause: crate::pause::Pause,
    full_pause: Duration,
}

impl Crawler {
    /// A crawler that ends its work when `stop` is cancelled, and begins none while `pause` is on. Fails if its
    /// settings cannot be used.
    pub fn new(
        client: Client,
        config: Config,
        store: Option<Store>,
        stop: CancellationToken,
        pause: crate::pause::Pause,
    ) -> Result<Arc<Self>, Error> {
        if store.is_none() && !config.single {
            return Err(Error::NoStore);
        }
        let fetcher = Fetcher::new(config.fetch.clone()).map_err(|error| Error::Tls(error.to_string()))?;
        let robots = Robots::new(fetcher.clone(), config.robots.clone());
        let agent = fetch::user_agent(config.fetch.contact.as_ref());
        let user_agent = agent.to_str().unwrap_or(fetch::PRODUCT).to_owned();
        let bounds = Arc::new(Bounds::new(config.reach, &config.seeds));
        let crawl = config.crawl.as_deref().unwrap_or(DEFAULT_CRAWL);
        let loopback_crawl = config.seeds.iter().any(fetch::is_loopback).then(|| crawl.to_owned());
        Ok(Arc::new(Self {
            client,
            config,
            fetcher,
            robots,
            bounds,
            loopback_crawl,
            store,
            user_agent,
            tally: Arc::default(),
            stop,
            pause,
            full_pause: patience::FULL_PAUSE,
        }))
    }

    /// What it has done.
    #[must_use]
    pub fn tally(&self) -> Arc<Tally> {
        Arc::clone(&self.tally)
    }

    /// Works until it is stopped, or as its settings say. What it holds is finished or given back.
    pub async fn run(self: &Arc<Self>) -> Result<(), Error> {
        let tasks = if self.config.until == Until::Once { 1 } else { self.config.tasks.clamp(1, TASKS_MAX) };
        let mut running = JoinSet::new();
        for _ in 0..tasks {
            let crawler = Arc::clone(self);
            running.spawn(async move { crawler.work().await });
        }
        let mut first = Ok(());
        while let Some(ended) = running.join_next().await {
            let ended = ended.map_err(Error::from).flatten();
            if ended.is_err() && first.is_ok() {
                // The others finish what they have.
                self.stop.cancel();
                first = ended;
            }
        }
        first
    }

    /// One task: claims and works until the end.
    async fn work(self: &Arc<Self>) -> Result<(), Error> {
        let mut not_stored = 0;
        while !self.stop.is_cancelled() {
            tokio::select! {
                () = self.pause.over() => {}
                () = self.stop.cancelled() => return Ok(()),
            }
            let worked = match self.step().await {
                Ok(worked) => worked,
                Err(error) if error.is_transient() => {
                    tracing::warn!(error = %error, "no work: the server does not answer");
                    self.rest().await;
                    continue;
                }
                Err(error) => return Err(error.into()),
            };
            for ended in worked.ended {
                match ended {
                    Ended::Fatal(why) => return Err(Error::SetUp(why)),
                    Ended::NotStored(why) if not_stored + 1 == STORE_FAILURES_MAX => return Err(Error::Store(why)),
                    Ended::NotStored(_) => {
                        not_stored += 1;
                        self.rest().await;
                    }
                    Ended::Done => not_stored = 0,
                    Ended::Lost if self.config.until == Until::Once => {}
                    // The next one might be lost for the same reason, each time with the pages that were fetched.
                    Ended::Lost => self.rest().await,
                }
            }
            if worked.finished || self.config.until == Until::Once {
                return Ok(());
            }
        }
        Ok(())
    }

    async fn rest(&self) {
        tokio::select! {
            () = sleep(OUTAGE_PAUSE) => {}
            () = self.stop.cancelled() => {}
        }
    }

    async fn step(self: &Arc<Self>) -> Result<Step, wayleave_client::Error> {
        let asked = Instant::now();
        let wait = self.config.until.wait(self.config.lease_ms);
        let mut ended = Vec::new();
        let (nothing, finished) = match (&self.store, self.config.single) {
            (Some(store), false) => {
                let Some(answer) = self.answer(self.client.claim_chunks(&self.claim(wait))).await? else {
                    return Ok(Step::default());
                };
                let nothing = answer.chunks.is_empty();
                for chunk in answer.chunks {
                    self.tally.begin();
                    ended.push(self.chunk(chunk, asked, store).await);
                    self.tally.end();
                }
                (nothing, answer.finished)
            }
            (store, _) => {
                let Some(answer) = self.answer(self.client.reserve(&self.reserve(wait))).await? else {
                    return Ok(Step::default());
                };
                let nothing = answer.reservations.is_empty();
                for held in answer.reservations {
                    self.tally.begin();
                    ended.push(self.reservation(held, asked, store.as_ref()).await);
                    self.tally.end();
                }
                (nothing, answer.finished)
            }
        };
        let mut finished = finished && nothing && self.config.until == Until::Idle;
        if self.config.until == Until::Idle && nothing && !finished {
            finished = self.answer(self.all_finished()).await?.unwrap_or_default();
        }
        Ok(Step { ended, finished })
    }

    async fn answer<T>(
        &self,
        call: impl Future<Output = Result<T, wayleave_client::Error>>,
    ) -> Result<Option<T>, wayleave_client::Error> {
        self.config.until.answer(self.config.lease_ms, &self.stop, call).await
    }

    fn claim(&self, wait: Duration) -> ClaimChunksRequest {
        ClaimChunksRequest {
            crawl: self.config.crawl.clone(),
            max: Some(1),
            links: self.config.links,
            lease_ms: self.config.lease_ms,
            linger_ms: self.config.linger_ms,
            wait_ms: u64::try_from(wait.as_millis()).unwrap_or_default(),
            ..ClaimChunksRequest::new(Stage::Crawl, self.config.id.clone())
        }
    }

    fn reserve(&self, wait: Duration) -> ReserveGroupsRequest {
        ReserveGroupsRequest {
            crawl: self.config.crawl.clone(),
            urls: self.config.links,
            lease_ms: self.config.lease_ms,
            wait_ms: u64::try_from(wait.as_millis()).unwrap_or_default(),
            ..ReserveGroupsRequest::new(self.config.id.clone())
        }
    }

    /// Whether there will be nothing more to claim; notes what is waited for if not.
    async fn all_finished(&self) -> Result<bool, wayleave_client::Error> {
        let waits_for = self.waits_for().await?;
        let finished = waits_for.is_none();
        if let Some(why) = waits_for {
            self.tally.wait_for(why);
        }
        Ok(finished)
    }

    /// A claim without a crawl does not show whether all of them are finished. One with a crawl that is not known, or
    /// was deleted, is answered by an empty list: then this is an error, because it would never be finished.
    async fn waits_for(&self) -> Result<Option<String>, wayleave_client::Error> {
        let why = |crawl: Crawl| match crawl.finished {
            true => None,
            false => Some(format!("crawl {}: {}", crawl.crawl, crawl.waits_for.unwrap_or_default())),
        };
        if let Some(crawl) = &self.config.crawl {
            return Ok(why(self.client.crawl(crawl).await?));
        }
        let mut unfinished =
            std::pin::pin!(self.client.all_crawls().try_filter(|crawl| std::future::ready(!crawl.finished)));
        let Some(listed) = unfinished.try_next().await? else { return Ok(None) };
        // A listing only counts URLs; the crawl itself says for which host it waits.
        let shown = self.client.crawl(&listed.crawl).await;
        Ok(shown.ok().and_then(why).or_else(|| why(listed)))
    }
}

/// What one round of a task led to.
#[derive(Default)]
struct Step {
    ended: Vec<Ended>,
    finished: bool,
}

#[cfg(test)]
mod tests;
