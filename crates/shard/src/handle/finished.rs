//! Views of one crawl over all shards: its state, whether it is finished, and long polls for that.
//!
//! Waiters are woken when a shard of this process has nothing of the crawl handed out any more. They also poll, because
//! shards of other nodes send no notification. All waiters of one crawl share one scan, provided it began after the
//! notification that woke them, and the first time after they came: then it reflects everything that was answered before
//! their call. So thousands that come together share two scans.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use hashbrown::HashMap;
use tokio::time::Instant;
use wayleave_core::frontier::refusal::Refusal;
use wayleave_core::frontier::view::{CrawlPart, CrawlScan, CrawlView};
use wayleave_core::ids::HostId;
use wayleave_core::names::CrawlName;
use wayleave_core::time::Millis;

use crate::ask::StateQuery;
use crate::handle::frontier::Frontier;
use crate::handle::views::{merge, tell_of_no_urls};
use crate::owner::frontier::jobs::tell_of_requeue;
use crate::routing::router::CallResult;
use crate::shared::broadcast::Broadcast;
use crate::shared::readiness::lock;

/// Polling interval of a crawl with waiters, for changes on other nodes.
const LOOK_EVERY: Duration = Duration::from_secs(2);

/// The crawls that have waiters.
#[derive(Default)]
pub(crate) struct Finishing {
    /// Number of waiters of all crawls, readable without the lock.
    waiting: AtomicUsize,
    crawls: Mutex<HashMap<CrawlName, Arc<Watched>>>,
}

#[derive(Default)]
struct Watched {
    changed: Broadcast,
    /// Scans that were begun.
    begun: AtomicU64,
    looked: tokio::sync::Mutex<Option<Scanned>>,
}

/// The last shared scan.
struct Scanned {
    /// Which one.
    number: u64,
    /// The version of `changed` and the time, before it began.
    heard: u64,
    began: Instant,
    view: CallResult<CrawlView>,
}

/// A waiter for a crawl; dropping it deregisters it.
struct Watching<'a> {
    all: &'a Finishing,
    crawl: &'a CrawlName,
    watched: Arc<Watched>,
}

impl Finishing {
    /// These crawls may have been finished in a shard.
    pub fn notify(&self, crawls: &[CrawlName]) {
        if crawls.is_empty() || self.waiting.load(Ordering::Acquire) == 0 {
            return;
        }
        let watched = lock(&self.crawls);
        crawls.iter().filter_map(|crawl| watched.get(crawl)).for_each(|watched| watched.changed.notify());
    }

    fn watch<'a>(&'a self, crawl: &'a CrawlName) -> Watching<'a> {
        self.waiting.fetch_add(1, Ordering::AcqRel);
        let watched = lock(&self.crawls).entry(crawl.clone()).or_default().clone();
        Watching { all: self, crawl, watched }
    }
}

impl Drop for Watching<'_> {
    fn drop(&mut self) {
        let mut crawls = lock(&self.all.crawls);
        // One reference is this one, the other the map's. New references are only handed out under the lock.
        if Arc::strong_count(&self.watched) == 2 {
            crawls.remove(self.crawl);
        }
        self.all.waiting.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Frontier {
    /// A crawl, over all shards. Fails if it is not known, too many listings are queued, or the store cannot be
    /// reached.
    pub async fn crawl(&self, crawl: CrawlName) -> CallResult<CrawlView> {
        self.see_crawl(&crawl, true).await
    }

    /// Whether a crawl is finished: nothing of it is handed out or can become due. Fails if it is not known, too many
    /// listings are queued, or the store cannot be reached.
    pub async fn is_finished(&self, crawl: &CrawlName) -> CallResult<bool> {
        Ok(self.see_crawl(crawl, false).await?.waits_for.is_none())
    }

    /// Returns a crawl as soon as it is finished, or when the time is up. Fails if it is not known, too many listings
    /// are queued, or the store cannot be reached.
    pub async fn crawl_when_finished(&self, crawl: &CrawlName, wait: Millis) -> CallResult<CrawlView> {
        let asked = Instant::now();
        let deadline = asked + Duration::from_millis(wait.0);
        let watching = self.readiness.finishing.watch(crawl);
        let watched = &*watching.watched;
        let mut news = watched.changed.subscribe();
        let before = watched.begun.load(Ordering::Acquire);
        let mut view = self.scan_shared(crawl, watched, |scan| scan.number > before).await?;
        while view.waits_for.is_some() && Instant::now() < deadline {
            let look_by = deadline.min(Instant::now() + LOOK_EVERY);
            let notified = tokio::time::timeout_at(look_by, news.changed()).await.is_ok();
            let fresh = |scan: &Scanned| {
                if notified {
                    scan.heard >= news.seen()
                } else {
                    scan.number > before && scan.began.elapsed() < LOOK_EVERY / 2
                }
            };
            view = self.scan_shared(crawl, watched, fresh).await?;
        }
        Ok(view)
    }

    /// The last shared scan, if it is fresh enough, else a new one.
    async fn scan_shared(
        &self,
        crawl: &CrawlName,
        watched: &Watched,
        is_fresh: impl Fn(&Scanned) -> bool,
    ) -> CallResult<CrawlView> {
        let mut looked = watched.looked.lock().await;
        if let Some(scan) = looked.as_ref().filter(|scan| is_fresh(scan)) {
            return scan.view.clone();
        }
        let (heard, began) = (watched.changed.version(), Instant::now());
        let number = watched.begun.fetch_add(1, Ordering::AcqRel) + 1;
        let view = self.see_crawl(crawl, true).await;
        *looked = Some(Scanned { number, heard, began, view: view.clone() });
        view
    }

    /// A crawl and whether it is finished; on request with the end of its last visit.
    async fn see_crawl(&self, crawl: &CrawlName, with_last_visit: bool) -> CallResult<CrawlView> {
        let first = self.crawl_once(crawl).await?;
        if first.view.waits_for.is_some() {
            return Ok(first.view);
        }
        let mut scanned = CrawlScan::default();
        if first.unsure || with_last_visit {
            scanned = self.scan_crawl(crawl).await?;
            if scanned.waits_for.is_some() {
                return Ok(CrawlView { waits_for: scanned.waits_for, ..first.view });
            }
        }
        let unheard = self.unheard_requeues().await?;
        // Shards are asked one after the other. Links found on a page of a shard that was not asked yet may have gone
        // to one that was. They are stored before the page is released, so a second pass finds them or what they led
        // to.
        let mut second = self.crawl_once(crawl).await?.view;
        if second.counts != first.view.counts && second.waits_for.is_none() {
            second.waits_for = Some("its URLs are changing just now".to_owned());
        }
        tell_of_requeue(&mut second, unheard.iter());
        tell_of_no_urls(&mut second);
        second.last_visit_at = scanned.last_visit_at;
        if second.waits_for.is_none() {
            // Nothing can become due any more, so what is still queued is held back by a limit.
            second.over_limit = second.counts.queued;
            second.limit_reached = second.limit_reached.or(scanned.held_back);
        }
        Ok(second)
    }

    async fn crawl_once(&self, crawl: &CrawlName) -> CallResult<CrawlPart> {
        let parts: Vec<Option<CrawlPart>> =
            self.router.ask_all(&self.scope(), StateQuery::Crawl(crawl.clone())).await?;
        let mut parts = parts.into_iter().flatten();
        let mut sum = parts.next().ok_or_else(|| Refusal::UnknownCrawl(crawl.to_string()))?;
        for part in parts {
            merge(&mut sum.view, &part.view);
            sum.unsure |= part.unsure;
            sum.spent |= part.spent;
            sum.used = sum.used.saturating_add(part.used);
        }
        // What one shard may not use of the limit, another may hold unused and return.
        let limit = sum.view.settings.limits.pages.unwrap_or_default();
        if sum.spent && sum.used < limit {
            let why =
                || format!("{} of the {limit} pages of its limit are used, the rest is being shared out", sum.used);
            sum.view.waits_for.get_or_insert_with(why);
            sum.view.limit_reached = None;
        }
        Ok(sum)
    }

    /// Scans the hosts of all shards until one is found that still has work of the crawl.
    async fn scan_crawl(&self, crawl: &CrawlName) -> CallResult<CrawlScan> {
        let _permit = self.listings.acquire().await?;
        let mut sum = CrawlScan::default();
        let scope = self.scope();
        // Most shards have few hosts of it: all are asked for their first slice at once.
        let first = StateQuery::ScanCrawl { crawl: crawl.clone(), after: None };
        let first: Vec<(CrawlScan, Option<HostId>)> = self.router.ask_all(&scope, first).await?;
        for (shard, first) in scope.into_iter().zip(first) {
            let mut slice = Some(first);
            let mut after = None;
            loop {
                let (part, next) = match slice.take() {
                    Some(slice) => slice,
                    None => self.router.ask(shard, StateQuery::ScanCrawl { crawl: crawl.clone(), after }).await?,
                };
                sum.last_visit_at = sum.last_visit_at.max(part.last_visit_at);
                sum.waits_for = part.waits_for;
                sum.held_back = sum.held_back.or(part.held_back);
                if sum.waits_for.is_some() {
                    return Ok(sum);
                }
                after = next;
                if after.is_none() {
                    break;
                }
            }
        }
        Ok(sum)
    }
}

#[cfg(test)]
mod tests {
    use tokio::runtime::Handle;
    use wayleave_core::settings::CrawlChanges;
    use wayleave_engine::clock::SystemClock;
    use wayleave_engine::memory::Memory;

    use super::*;
    use crate::Config;

    /// Each of them looked by itself: ten thousand took gigabytes, and the server with them.
    #[tokio::test(start_paused = true)]
    async fn callers_that_come_together_share_their_first_look() {
        let engine = Arc::new(Memory::new(SystemClock::default()));
        let frontier = Frontier::open(engine, Config::new(4), &Handle::current()).await.unwrap();
        frontier.set_crawl("c".into(), CrawlChanges::default(), true).await.unwrap();
        let waiting: Vec<_> = (0..1_000)
            .map(|_| {
                let frontier = frontier.clone();
                tokio::spawn(async move { frontier.crawl_when_finished(&"c".into(), Millis(60_000)).await })
            })
            .collect();
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert!(waiting.iter().all(|call| !call.is_finished()), "it has received no URLs yet");
        let finishing = &frontier.readiness.finishing;
        assert_eq!(finishing.waiting.load(Ordering::Acquire), 1_000);
        let looks = lock(&finishing.crawls).values().map(|watched| watched.begun.load(Ordering::Acquire)).sum::<u64>();
        assert!((1..=2).contains(&looks), "{looks} looks");
        waiting.iter().for_each(tokio::task::JoinHandle::abort);
    }
}
