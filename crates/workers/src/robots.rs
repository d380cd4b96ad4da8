//! robots.txt, as RFC 9309 wants it: fetched once per origin, kept for a bounded time in bounded memory.
//!
//! The parser is the crate `robotxt` (MIT): it follows the RFC (exact product token, groups merged, longest rule wins,
//! 500 KiB), returns the Crawl-delay, matches in linear time, and is maintained. `robotstxt`, the port of Google's
//! parser, is from 2021, slices inside characters of long lines and is cubic in hostile patterns; `texting_robots`
//! rests on long outdated dependencies and refuses a file for one rule that is too large.
//!
//! A request of robots.txt is part of the visit to a host, not a visit of its own. Interleavings: two tasks that ask
//! for one origin at once share one request; a task that is dropped while it fetches leaves the others to try again. A task for
//! which the origin is closed is refused, and leaves nothing behind for another for which it is open.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use robotxt::Robots as Rules;
use url::{Origin, Url};
use wayleave_api::redact;

use crate::fetch::{self, Fetched, Fetcher, Loopback, PRODUCT};
use crate::limits;

/// Whether a URL may be fetched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// It may, with this delay between visits if the host names one.
    Allowed {
        /// The Crawl-delay.
        crawl_delay: Option<Duration>,
    },
    /// The host's rules forbid it.
    Disallowed {
        /// The Crawl-delay.
        crawl_delay: Option<Duration>,
    },
    /// The rules are out of reach (a server error, no connection): nothing may be fetched for a time.
    Unreachable {
        /// When robots.txt will be tried again.
        retry_after: Duration,
    },
    /// The host's address may not be called.
    Refused,
}

/// Settings of the cache.
#[derive(Debug, Clone)]
pub struct Config {
    /// How long rules are used.
    pub age_max: Duration,
    /// How long a host is closed when its robots.txt is out of reach. A longer Retry-After holds instead.
    pub closed: Duration,
    /// Bytes of all cached files together.
    pub cache_bytes_max: usize,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            age_max: limits::ROBOTS_AGE_MAX,
            closed: limits::ROBOTS_CLOSED,
            cache_bytes_max: limits::ROBOTS_CACHE_BYTES_MAX,
        }
    }
}

/// The rules of all hosts that were asked of late.
#[derive(Debug)]
pub struct Robots {
    fetcher: Fetcher,
    config: Config,
    cache: Mutex<Cache>,
}

#[derive(Debug, Default)]
struct Cache {
    entries: HashMap<Origin, Cached>,
    bytes: usize,
}

#[derive(Debug)]
struct Cached {
    shared: Arc<SharedEntry>,
    used: Instant,
    bytes: usize,
}

/// One origin's rules; the lock is held during the fetch, so that others wait for it.
type SharedEntry = tokio::sync::Mutex<Option<Entry>>;

#[derive(Debug, Clone)]
struct Entry {
    /// None if the file is out of reach.
    rules: Option<Arc<Rules>>,
    until: Instant,
    bytes: usize,
}

/// What an entry costs besides the file: the origin, the map, the locks.
const ENTRY_BYTES: usize = 512;

impl Robots {
    /// An empty cache.
    #[must_use]
    pub fn new(fetcher: Fetcher, config: Config) -> Self {
        Self { fetcher, config, cache: Mutex::default() }
    }

    /// Judges a URL by the rules of its origin, which are fetched if there are none or they are too old at `now`.
    pub async fn judge(&self, url: &Url, loopback: Loopback, now: Instant) -> Verdict {
        let origin = url.origin();
        let shared = self.shared_entry(&origin, now);
        let mut held = shared.lock().await;
        let entry = match held.as_ref().filter(|entry| now < entry.until) {
            Some(entry) => entry.clone(),
            None => {
                let Some(entry) = self.load(url, loopback, now).await else { return Verdict::Refused };
                *held = Some(entry.clone());
                self.weigh(&origin, &shared, entry.bytes);
                entry
            }
        };
        drop(held);
        match entry.rules {
            None => Verdict::Unreachable { retry_after: entry.until.saturating_duration_since(now) },
            Some(rules) => {
                let crawl_delay = rules.crawl_delay().map(|delay| delay.min(limits::CRAWL_DELAY_MAX));
                match rules.is_url_allowed(url) {
                    true => Verdict::Allowed { crawl_delay },
                    false => Verdict::Disallowed { crawl_delay },
                }
            }
        }
    }

    fn shared_entry(&self, origin: &Origin, now: Instant) -> Arc<SharedEntry> {
        let mut cache = self.cache.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(cached) = cache.entries.get_mut(origin) {
            cached.used = now;
            return Arc::clone(&cached.shared);
        }
        let shared = Arc::new(SharedEntry::default());
        cache.entries.insert(origin.clone(), Cached { shared: Arc::clone(&shared), used: now, bytes: ENTRY_BYTES });
        cache.bytes += ENTRY_BYTES;
        cache.evict(self.config.cache_bytes_max, origin);
        shared
    }

    /// Accounts for what was fetched, unless the entry was evicted meanwhile.
    fn weigh(&self, origin: &Origin, shared: &Arc<SharedEntry>, bytes: usize) {
        let mut cache = self.cache.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(cached) = cache.entries.get_mut(origin).filter(|cached| Arc::ptr_eq(&cached.shared, shared)) else {
            return;
        };
        let before = std::mem::replace(&mut cached.bytes, bytes + ENTRY_BYTES);
        cache.bytes = cache.bytes - before + bytes + ENTRY_BYTES;
        cache.evict(self.config.cache_bytes_max, origin);
    }

    /// None if the host may not be called. A host that redirects to such a one counts as unreachable.
    async fn load(&self, url: &Url, loopback: Loopback, now: Instant) -> Option<Entry> {
        let mut target = robotxt::robots_url(url).ok();
        for hop in 0..=limits::ROBOTS_REDIRECTS_MAX {
            let Some(from) = target.take() else { break };
            let fetched = match self.fetcher.fetch(&from, loopback).await {
                Ok(fetched) => fetched,
                Err(fetch::Error::Refused(_)) if hop == 0 => return None,
                Err(error) => {
                    tracing::info!(robots.url = redact::url(from.as_str()), error = %error, "robots.txt is out of reach");
                    return Some(self.closed(now, None));
                }
            };
            match fetched.status.as_u16() {
                200..=299 => return Some(self.open(now, &fetched)),
                // Too many requests is load, not absence: Google's crawler reads it in the same way.
                429 | 500..=599 => return Some(self.closed(now, fetched.retry_after)),
                300..=399 => target = fetched.redirect,
                _ => break,
            }
        }
        // Not found, or not within five redirects: everything is allowed (2.3.1.2, 2.3.1.3).
        Some(Entry { rules: Some(Arc::new(Rules::allow_all())), until: now + self.config.age_max, bytes: 0 })
    }

    fn open(&self, now: Instant, fetched: &Fetched) -> Entry {
        let Ok((body, _)) = fetched.body() else { return self.closed(now, None) };
        let rules = Rules::parse(&body, PRODUCT);
        let bytes = body.len().min(robotxt::BYTE_LIMIT);
        Entry { rules: Some(Arc::new(rules)), until: now + self.config.age_max, bytes }
    }

    fn closed(&self, now: Instant, retry_after: Option<Duration>) -> Entry {
        let wait = retry_after.unwrap_or_default().max(self.config.closed);
        Entry { rules: None, until: now + wait, bytes: 0 }
    }
}

impl Cache {
    /// Drops least-recently-used entries when there are too many bytes, an eighth at a time, so that a full cache is not
    /// searched for every new host. The entry that is being asked for stays.
    fn evict(&mut self, bytes_max: usize, keep: &Origin) {
        if self.bytes <= bytes_max {
            return;
        }
        let others = self.entries.iter().filter(|(origin, _)| *origin != keep);
        let mut oldest: Vec<_> = others.map(|(origin, cached)| (cached.used, origin.clone())).collect();
        oldest.sort_by_key(|(used, _)| *used);
        for (_, origin) in oldest {
            if self.bytes <= bytes_max - bytes_max / 8 {
                return;
            }
            self.bytes -= self.entries.remove(&origin).map_or(0, |cached| cached.bytes);
        }
    }
}

#[cfg(test)]
#[path = "robots_tests.rs"]
mod tests;
