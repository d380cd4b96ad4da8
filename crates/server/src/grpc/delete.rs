//! DeleteQueue, DeleteCrawl and PurgeURLs; each returns the number of URLs deleted.

use tonic::Status;
use wayleave_api::urlfrontier::{DeleteCrawlMessage, Long, PurgeUrlParams, QueueWithinCrawlParams};
use wayleave_core::time::{Millis, Time};
use wayleave_shard::CallResult;
use wayleave_shard::Frontier;

use super::{convert, refused};

const DAY_MS: u64 = 86_400_000;

/// Answers a DeleteQueue call.
pub async fn delete_queue(frontier: &Frontier, params: &QueueWithinCrawlParams) -> Result<Long, Status> {
    match (convert::crawl(&params.crawl_id), convert::key(&params.key)) {
        (Some(crawl), Some(host)) => removed(frontier.delete_queue(crawl, host).await),
        _ => Ok(Long { value: 0 }),
    }
}

/// Answers a DeleteCrawl call.
pub async fn delete_crawl(frontier: &Frontier, params: &DeleteCrawlMessage) -> Result<Long, Status> {
    let Some(crawl) = convert::crawl(&params.value) else { return Ok(Long { value: 0 }) };
    removed(frontier.delete_crawl(crawl).await)
}

/// Answers a PurgeURLs call.
pub async fn purge_urls(frontier: &Frontier, params: &PurgeUrlParams) -> Result<Long, Status> {
    let Some(crawl) = convert::crawl(&params.crawl_id) else { return Ok(Long { value: 0 }) };
    let host = convert::key(&params.key);
    if host.is_none() && !params.key.is_empty() {
        return Ok(Long { value: 0 });
    }
    removed(frontier.purge(crawl, host, cut(frontier.now(), params.days)).await)
}

fn removed(answer: CallResult<u64>) -> Result<Long, Status> {
    match answer {
        Ok(value) => Ok(Long { value }),
        Err(refusal) if refused::is_unknown(&refusal) => Ok(Long { value: 0 }),
        Err(refusal) => Err(refused::status(&refusal)),
    }
}

/// The purge cutoff: with zero days, it includes what was stored in this very millisecond.
const fn cut(now: Time, days: u32) -> Time {
    match days {
        0 => now.after(Millis(1)),
        days => now.before(Millis(days as u64 * DAY_MS)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_days_purge_everything_and_many_nothing() {
        assert_eq!(cut(Time(5), 0), Time(6));
        assert_eq!(cut(Time(3 * DAY_MS), 2), Time(DAY_MS));
        assert_eq!(cut(Time(5), u32::MAX), Time(0));
    }
}
