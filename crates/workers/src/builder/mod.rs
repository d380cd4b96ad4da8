//! The index builder: claims crawled chunks, fetches their WARC files, and publishes one index for each.
//!
//! It must not know how a server decides, or where indexes go: placement is the server's.

mod chunk;
mod extract;
mod scratch;
mod unreachable;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::TryStreamExt as _;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;
use wayleave_api::chunks::{ChunkState, ClaimChunksRequest, ListChunksQuery, Stage};
use wayleave_client::Client;
use wayleave_outgoing::Policy;

use crate::crawler::Until;
use crate::limits::{OUTAGE_PAUSE, STORE_FAILURES_MAX};
use crate::pause::Pause;
use crate::store::Store;
use unreachable::Unreachable;

/// How long a builder waits in silence.
const SAYS_AFTER: Duration = Duration::from_secs(5);

/// Settings of a builder.
#[derive(Debug, Clone)]
pub struct Config {
    /// Its name.
    pub id: String,
    /// Only chunks of this crawl.
    pub crawl: Option<String>,
    /// Chunks to claim at once.
    pub chunks: u64,
    /// The time of a lease.
    pub lease_ms: u64,
    /// How long the machine that has a WARC file may be out of reach.
    pub patience: Duration,
    /// When it ends.
    pub until: Until,
    /// Which addresses it may call.
    pub policy: Policy,
}

/// Numbers of a builder.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Indexes published.
    pub chunks: u64,
    /// Their pages.
    pub pages: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Chunks whose WARC file is gone, and whose links are crawled again.
    pub inputs_lost: u64,
    /// Chunks that were lost or could not be built; others continue with them.
    pub lost: u64,
}

/// Why a builder ended before its time.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The server refuses its calls.
    #[error(transparent)]
    Server(#[from] wayleave_client::Error),
    /// What it builds cannot be stored.
    #[error("{STORE_FAILURES_MAX} times in a row nothing could be stored, the last time because: {0}")]
    Store(String),
}

/// How work on a chunk ended.
enum Ended {
    Built {
        pages: u64,
        bytes: u64,
    },
    InputLost,
    /// The machine that has its input is out of reach: it is still in hand, and is tried again when nothing else is.
    Unreachable,
    /// Its input is where this builder cannot read.
    Unreadable,
    Lost,
    NotStored(String),
}

/// A stretch without work; after a while the log says what the builder waits for.
struct Stretch {
    since: Instant,
    is_logged: bool,
}

impl Stretch {
    /// Whether to say it now.
    fn goes_on(&mut self, worked: bool, now: Instant) -> bool {
        if worked {
            *self = Self { since: now, is_logged: false };
        }
        let logs = !self.is_logged && now.duration_since(self.since) >= SAYS_AFTER;
        self.is_logged |= logs;
        logs
    }
}

/// An index builder.
#[derive(Debug)]
pub struct Builder {
    client: Client,
    config: Config,
    store: Store,
    unreachable: Unreachable,
    counts: Arc<Mutex<Counts>>,
    stop: CancellationToken,
    pause: Pause,
}

impl Builder {
    /// A builder that ends its work when `stop` is cancelled, and begins none while `pause` is on.
    #[must_use]
    pub fn new(client: Client, config: Config, store: Store, stop: CancellationToken, pause: Pause) -> Self {
        let unreachable = Unreachable::new(config.patience);
        Self { client, config, store, unreachable, counts: Arc::default(), stop, pause }
    }

    /// What it has done, as often as it is called.
    pub fn counts(&self) -> impl Fn() -> Counts + Send + 'static {
        let counts = Arc::clone(&self.counts);
        move || *counts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Works until it is stopped, or as its settings say. What it holds is finished.
    pub async fn run(&self) -> Result<(), Error> {
        let removed = tokio::task::spawn_blocking(|| scratch::remove_dead(&std::env::temp_dir())).await;
        if let Ok(folders @ 1..) = removed {
            tracing::info!(folders, "temporary folders of builders that have died were removed");
        }
        let mut not_stored = 0;
        let mut stretch = Stretch { since: Instant::now(), is_logged: false };
        while !self.stop.is_cancelled() {
            tokio::select! {
                () = self.pause.over() => {}
                () = self.stop.cancelled() => return Ok(()),
            }
            let (worked, idle) = match self.step(&mut not_stored).await {
                Ok(step) => step,
                Err(Error::Server(error)) if error.is_transient() => {
                    tracing::warn!(error = %error, "no work: the server does not answer");
                    self.rest(OUTAGE_PAUSE).await;
                    continue;
                }
                Err(error) => return Err(error),
            };
            if self.config.until == Until::Once || (idle && !worked) {
                return Ok(());
            }
            if stretch.goes_on(worked, Instant::now()) {
                let crawl = self.config.crawl.as_deref().unwrap_or("any");
                // At a level that is shown by default: it is all that a builder without work says.
                tracing::warn!(
                    crawl,
                    "nothing to build: waiting for crawled chunks; `wayleave chunks` lists those on their way"
                );
            }
        }
        Ok(())
    }

    /// Claims and builds. Returns whether there was work, and whether there will be none.
    async fn step(&self, not_stored: &mut usize) -> Result<(bool, bool), Error> {
        let asked = Instant::now();
        let Some(answer) = self.answer(self.client.claim_chunks(&self.claim())).await? else {
            return Ok((false, false));
        };
        if answer.chunks.is_empty() {
            // What failed before is long past, and not in a row with what fails next.
            *not_stored = 0;
            let idle = self.config.until == Until::Idle && self.answer(self.is_idle()).await?.unwrap_or_default();
            return Ok((false, idle));
        }
        let held: Vec<_> = answer.chunks.into_iter().map(|chunk| self.hold(chunk, asked)).collect();
        if self.stop.is_cancelled() {
            for chunk in held {
                let ended = self.give_back(&chunk).await;
                self.count(&ended);
            }
            return Ok((true, false));
        }
        let (mut late, mut unreadable) = (Vec::new(), false);
        for chunk in held {
            match self.build(&chunk, false).await {
                Ended::Unreachable => late.push(chunk),
                ended => {
                    unreadable |= matches!(ended, Ended::Unreadable);
                    self.settle(ended, not_stored).await?;
                }
            }
        }
        // Last, so that no other chunk in hand waits for their machines.
        let waited = !late.is_empty();
        for chunk in late {
            let ended = self.build(&chunk, true).await;
            self.settle(ended, not_stored).await?;
        }
        if let Some(time) = self.unreachable.rest(waited, Instant::now()) {
            tracing::warn!("no machine with WARC files can be reached: see whether this builder is cut off");
            self.rest(time).await;
        }
        if unreadable && self.config.until != Until::Once {
            self.rest(OUTAGE_PAUSE).await;
        }
        Ok((true, false))
    }

    async fn answer<T, E>(&self, call: impl Future<Output = Result<T, E>>) -> Result<Option<T>, E> {
        self.config.until.answer(self.config.lease_ms, &self.stop, call).await
    }

    async fn settle(&self, ended: Ended, not_stored: &mut usize) -> Result<(), Error> {
        self.count(&ended);
        match ended {
            Ended::Built { .. } => *not_stored = 0,
            Ended::NotStored(why) => {
                *not_stored += 1;
                if *not_stored >= STORE_FAILURES_MAX {
                    return Err(Error::Store(why));
                }
                self.rest(OUTAGE_PAUSE).await;
            }
            Ended::InputLost | Ended::Unreadable | Ended::Lost | Ended::Unreachable => {}
        }
        Ok(())
    }

    fn count(&self, ended: &Ended) {
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        match ended {
            Ended::Built { pages, bytes } => {
                counts.chunks += 1;
                counts.pages += pages;
                counts.bytes += bytes;
            }
            Ended::InputLost => counts.inputs_lost += 1,
            Ended::Unreadable | Ended::Lost | Ended::NotStored(_) | Ended::Unreachable => counts.lost += 1,
        }
    }

    async fn rest(&self, time: Duration) {
        tokio::select! {
            () = sleep(time) => {}
            () = self.stop.cancelled() => {}
        }
    }

    fn claim(&self) -> ClaimChunksRequest {
        let once = self.config.until == Until::Once;
        let wait = self.config.until.wait(self.config.lease_ms);
        ClaimChunksRequest {
            crawl: self.config.crawl.clone(),
            max: Some(if once { 1 } else { self.config.chunks }),
            lease_ms: self.config.lease_ms,
            wait_ms: u64::try_from(wait.as_millis()).unwrap_or_default(),
            ..ClaimChunksRequest::new(Stage::Build, self.config.id.clone())
        }
    }

    /// Whether no chunk is on its way to a builder and no link on its way to a chunk.
    async fn is_idle(&self) -> Result<bool, Error> {
        let finished = match &self.config.crawl {
            Some(crawl) => self.client.crawl(crawl).await?.finished,
            None => {
                let crawls = self.client.all_crawls();
                crawls.try_fold(true, |all, crawl| async move { Ok(all && crawl.finished) }).await?
            }
        };
        if !finished {
            return Ok(false);
        }
        for state in [ChunkState::Crawling, ChunkState::Crawled, ChunkState::Building] {
            let crawl = self.config.crawl.clone();
            let query = ListChunksQuery { state: Some(state), crawl, limit: Some(1), ..ListChunksQuery::default() };
            if !self.client.list_chunks(&query).await?.chunks.is_empty() {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

#[cfg(test)]
mod tests;
