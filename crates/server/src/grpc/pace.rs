//! SetDelay, BlockQueueUntil and SetCrawlLimit: pace settings of hosts and queues.

use tonic::Status;
use wayleave_api::urlfrontier::{BlockQueueParams, CrawlLimitParams, QueueDelayParams};
use wayleave_core::frontier::refusal::Refusal;
use wayleave_core::names;
use wayleave_core::settings::{Change, CrawlChanges, PaceChanges};
use wayleave_core::time::{Millis, Time};
use wayleave_shard::Frontier;

use super::{convert, refused};

/// Answers a SetDelay call. An unknown host is created; without a key the delay is the crawl's, and without a crawl the
/// server's.
pub async fn set_delay(frontier: &Frontier, params: &QueueDelayParams) -> Result<(), Status> {
    let delay = Millis::from_secs(u64::from(params.delay_requestable));
    let done = if !params.key.is_empty() {
        // A key that cannot name a queue has no delay to keep.
        let Some(host) = convert::key(&params.key) else { return Ok(()) };
        let changes = PaceChanges { delay: Change::Set(delay), ..Default::default() };
        frontier.set_host(host, changes, false, None).await.map(drop)
    } else if params.crawl_id.trim().is_empty() {
        frontier.set_default_delay(Some(delay)).await
    } else {
        let crawl = names::crawl(&params.crawl_id).map_err(|name| refused::bad_name(&name))?;
        let changes = CrawlChanges { delay: Change::Set(delay), ..Default::default() };
        frontier.set_crawl(crawl, changes, false).await.map(drop)
    };
    done.map_err(|refusal| refused::status(&refusal))
}

/// Answers a BlockQueueUntil call. An unknown host is created, unless there is nothing to store.
pub async fn block_queue_until(frontier: &Frontier, params: &BlockQueueParams) -> Result<(), Status> {
    let Some(host) = convert::key(&params.key) else { return Ok(()) };
    let blocked_until = block(params.time, frontier.now());
    if blocked_until == Change::Clear {
        match frontier.host(host.clone()).await {
            Err(refusal) if refused::is_unknown(&refusal) => return Ok(()),
            Ok(view) if view.settings.blocked_until.is_none() => return Ok(()),
            _ => {}
        }
    }
    let changes = PaceChanges { blocked_until, ..Default::default() };
    let done = frontier.set_host(host, changes, false, None).await;
    done.map(drop).map_err(|refusal| refused::status(&refusal))
}

/// Answers a SetCrawlLimit call. An unknown queue is an error: the limit would be lost.
pub async fn set_crawl_limit(frontier: &Frontier, params: &CrawlLimitParams) -> Result<(), Status> {
    let unknown = || Refusal::UnknownQueue { host: params.key.clone(), crawl: params.crawl_id.clone() };
    let (Some(crawl), Some(host)) = (convert::crawl(&params.crawl_id), convert::key(&params.key)) else {
        return Err(refused::status(&unknown()));
    };
    let limit = (params.limit > 0).then_some(u64::from(params.limit));
    match frontier.set_queue_limit(crawl, host, limit).await {
        Ok(()) => Ok(()),
        Err(refusal) if refused::is_unknown(&refusal) => Err(refused::status(&unknown())),
        Err(refusal) => Err(refused::status(&refusal)),
    }
}

/// A time in the past lifts the block.
fn block(until_secs: u64, now: Time) -> Change<Time> {
    let until = Time::from_secs(until_secs);
    if until > now { Change::Set(until) } else { Change::Clear }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_that_has_passed_lifts_the_block() {
        let now = Time(10_500);
        assert_eq!(block(0, now), Change::Clear);
        assert_eq!(block(10, now), Change::Clear);
        assert_eq!(block(11, now), Change::Set(Time(11_000)));
        assert_eq!(block(u64::MAX, now), Change::Set(Time(Time::NEVER.0)));
    }
}
