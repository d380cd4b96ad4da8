//! GetStats: counts of a crawl or of one of its queues; zeros if it is unknown.

use tonic::Status;
use wayleave_api::urlfrontier::{QueueWithinCrawlParams, Stats};
use wayleave_core::frontier::view::Counts;
use wayleave_shard::Frontier;

use super::{convert, refused};

/// Answers a GetStats call.
pub async fn get_stats(frontier: &Frontier, params: QueueWithinCrawlParams) -> Result<Stats, Status> {
    let Some(crawl) = convert::crawl(&params.crawl_id) else {
        return Ok(stats(&params.crawl_id, &Counts::default(), 0, 0));
    };
    let counted = if params.key.is_empty() {
        frontier.crawl(crawl.clone()).await.map(|view| (view.counts, view.queues, view.active_queues))
    } else {
        let Some(host) = convert::key(&params.key) else { return Ok(stats(&crawl, &Counts::default(), 0, 0)) };
        frontier.host(host).await.map(|view| {
            let queue = view.queues.into_iter().find(|queue| queue.crawl == crawl);
            queue.map_or((Counts::default(), 0, 0), |q| (q.counts, 1, u64::from(q.counts.scheduled() > 0)))
        })
    };
    match counted {
        Ok((counts, queues, active)) => Ok(stats(&crawl, &counts, queues, active)),
        Err(refusal) if refused::is_unknown(&refusal) => Ok(stats(&crawl, &Counts::default(), 0, 0)),
        Err(refusal) => Err(refused::status(&refusal)),
    }
}

fn stats(crawl: &str, counts: &Counts, queues: u64, active: u64) -> Stats {
    let further = [("completed", counts.completed()), ("active_queues", active)];
    Stats {
        size: counts.scheduled(),
        in_process: u32::try_from(counts.reserved).unwrap_or(u32::MAX),
        counts: further.into_iter().map(|(name, count)| (name.to_owned(), count)).collect(),
        number_of_queues: queues,
        crawl_id: crawl.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_have_the_protocols_names() {
        let counts = Counts { queued: 5, reserved: 2, fetched: 3, gone: 1, failed: 1 };
        let stats = stats("c", &counts, 4, 3);
        assert_eq!((stats.size, stats.in_process, stats.number_of_queues), (7, 2, 4));
        assert_eq!(stats.counts.get("completed"), Some(&5));
        assert_eq!(stats.counts.get("active_queues"), Some(&3));
        assert_eq!(stats.crawl_id, "c");
    }

    #[test]
    fn zeros_are_told_too() {
        let stats = stats("c", &Counts::default(), 0, 0);
        assert_eq!(
            stats.counts.into_iter().collect::<Vec<_>>(),
            [("active_queues".into(), 0), ("completed".into(), 0)]
        );
    }
}
