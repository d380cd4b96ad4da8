//! One URL: robots.txt, fetch, record, judge.

use std::sync::Arc;
use std::time::Instant;

use url::Url;
use wayleave_api::reservations::{Outcome, UrlResult};

use super::recorder::Recorder;
use super::{Crawler, outcome};
use crate::fetch::{self, Fetched, Loopback, is_loopback};
use crate::robots::Verdict;

/// What became of a URL.
#[derive(Debug)]
pub(super) struct Visited {
    pub result: UrlResult,
    pub out_of_scope: usize,
    /// Whether its address may not be called.
    pub refused: bool,
}

/// Why a crawler cannot continue.
#[derive(Debug, thiserror::Error)]
pub(super) enum Trouble {
    /// No contact is set, and a host off loopback is to be fetched.
    #[error("{0}")]
    NoContact(fetch::Error),
    #[error("{0}")]
    Record(#[from] super::recorder::Error),
}

impl Crawler {
    /// Visits a URL, which must be of a group that a current lease holds.
    pub(super) async fn visit(
        &self,
        (url, crawl, depth): (&str, &str, u32),
        recorder: Option<&Recorder>,
    ) -> Result<Visited, Trouble> {
        let alone = |result| Visited { result, out_of_scope: 0, refused: false };
        let refused = || Visited { result: UrlResult::new(url, Outcome::Failed), out_of_scope: 0, refused: true };
        // The server takes URLs of schemes that this crawler does not speak.
        let Ok(target) = url.parse::<Url>() else { return Ok(alone(UrlResult::new(url, Outcome::Failed))) };
        match self.fetcher.allowed(&target) {
            Ok(()) => {}
            // Not the URL's fault: nothing is reported of it.
            Err(error @ fetch::Error::NoContact(_)) => return Err(Trouble::NoContact(error)),
            Err(_) => return Ok(alone(UrlResult::new(url, Outcome::Failed))),
        }
        let loopback = self.loopback(crawl, &target);
        let verdict = self.robots.judge(&target, loopback, Instant::now()).await;
        if let Some(barred) = outcome::barred(url, verdict) {
            return Ok(alone(barred));
        }
        let crawl_delay = match verdict {
            Verdict::Allowed { crawl_delay } => crawl_delay,
            Verdict::Refused => return Ok(refused()),
            Verdict::Disallowed { .. } | Verdict::Unreachable { .. } => None,
        };
        match self.fetcher.fetch(&target, loopback).await {
            Ok(fetched) => self.settle(url, depth, fetched, crawl_delay, recorder).await,
            Err(fetch::Error::Refused(_)) => Ok(refused()),
            Err(error) => {
                tracing::info!(error = %error, "no response");
                let crawl_delay_ms = crawl_delay.and_then(|delay| u64::try_from(delay.as_millis()).ok());
                Ok(alone(UrlResult { crawl_delay_ms, ..UrlResult::new(url, Outcome::Retry) }))
            }
        }
    }

    /// Loopback is open for a URL there, in the crawl that has a seed there.
    fn loopback(&self, crawl: &str, url: &Url) -> Loopback {
        let open = self.loopback_crawl.as_deref() == Some(crawl) && is_loopback(url);
        if open { Loopback::Open } else { Loopback::Closed }
    }

    /// Parses and compresses on a thread of its own: a large page takes long.
    async fn settle(
        &self,
        url: &str,
        depth: u32,
        fetched: Fetched,
        crawl_delay: Option<std::time::Duration>,
        recorder: Option<&Recorder>,
    ) -> Result<Visited, Trouble> {
        let (url, bounds, recorder) = (url.to_owned(), Arc::clone(&self.bounds), recorder.cloned());
        let work = tokio::task::spawn_blocking(move || {
            if let Some(recorder) = recorder {
                recorder.record(&fetched)?;
            }
            Ok::<_, std::io::Error>(outcome::of(&url, depth, &fetched, crawl_delay, &bounds))
        });
        let judged = work.await.map_err(super::recorder::Error::from)?.map_err(super::recorder::Error::from)?;
        Ok(Visited { result: judged.result, out_of_scope: judged.out_of_scope, refused: false })
    }
}
