//! GetURLs: URLs that may be fetched now, each placed on hold for a time.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Instant;

use futures::Stream;
use tonic::Status;
use wayleave_api::urlfrontier::{GetParams, UrlInfo, get_params};
use wayleave_core::frontier::request::{HandOut, Put, PutKind, UrlToFetch};
use wayleave_core::limits;
use wayleave_core::names::{self, BadName};
use wayleave_core::time::Millis;
use wayleave_shard::Frontier;

use super::metrics::GrpcMetrics;
use super::put_stream::URL_EXTRA_BYTES;
use super::{convert, refused};
use wayleave_listen::Share;

/// ResponsesInFlight a GetURLs call.
pub async fn get_urls(
    frontier: &Frontier,
    metrics: &GrpcMetrics,
    mut share: Share,
    params: GetParams,
) -> Result<HandedOut, Status> {
    let request = request(&params).map_err(|name| refused::bad_name(&name))?;
    let started = Instant::now();
    let urls = match request {
        Some(request) if frontier.seems_active() => match frontier.hand_out(request).await {
            Ok(urls) => urls,
            Err(refusal) if refused::is_unknown(&refusal) => Vec::new(),
            Err(refusal) => return Err(refused::status(&refusal)),
        },
        _ => return Ok(HandedOut::new(frontier, Vec::new(), share)),
    };
    metrics.on_get(urls.len(), started.elapsed());
    let bytes = urls.iter().map(|url| url.url.len() + url.metadata.as_bytes().len() + URL_EXTRA_BYTES).sum();
    let taken = share.take(bytes);
    // If dropped unread, it returns its URLs.
    let handed_out = HandedOut::new(frontier, urls, share);
    if taken { Ok(handed_out) } else { Err(refused::memory_full()) }
}

/// Parses the parameters; `None` for a key that cannot name a queue.
fn request(params: &GetParams) -> Result<Option<HandOut>, BadName> {
    let keyed = !params.key.is_empty();
    let crawl = match &params.item {
        Some(get_params::Item::CrawlId(crawl)) => Some(names::crawl(crawl)?),
        // The official client sends a key without a crawl and means the default crawl.
        _ if keyed => Some(names::DEFAULT_CRAWL.into()),
        _ => None,
    };
    let host = if keyed { convert::key(&params.key) } else { None };
    if keyed && host.is_none() {
        return Ok(None);
    }
    let hold = match params.delay_requestable {
        0 => limits::HOLD_DEFAULT,
        secs => Millis::from_secs(u64::from(secs)),
    };
    Ok(Some(HandOut {
        host,
        crawl,
        queues: if keyed { 1 } else { bounded(params.max_queues, limits::HAND_OUT_QUEUES_MAX) },
        urls: bounded(params.max_urls_per_queue, limits::HAND_OUT_URLS_MAX),
        held_below: Some(params.max_urls_per_queue).filter(|most| *most > 0),
        hold,
    }))
}

/// A limit given by the client; 0 asks for the maximum.
fn bounded(asked: u32, max: usize) -> usize {
    match usize::try_from(asked) {
        Ok(0) | Err(_) => max,
        Ok(asked) => asked.min(max),
    }
}

/// The URLs of one call on their way to the client. URLs that were never passed to the transport, because the client is
/// gone, are returned to their queues instead of waiting for their holds to end.
pub struct HandedOut {
    frontier: Frontier,
    urls: std::vec::IntoIter<UrlToFetch>,
    /// Until the last of them is read.
    _share: Share,
}

impl HandedOut {
    fn new(frontier: &Frontier, urls: Vec<UrlToFetch>, share: Share) -> Self {
        Self { frontier: frontier.clone(), urls: urls.into_iter(), _share: share }
    }
}

impl Stream for HandedOut {
    type Item = Result<UrlInfo, Status>;

    fn poll_next(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        Poll::Ready(self.urls.next().map(|url| Ok(convert::handed_out(url))))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.urls.size_hint()
    }
}

impl Drop for HandedOut {
    fn drop(&mut self) {
        if self.urls.len() == 0 {
            return;
        }
        let back: Vec<Put> = self.urls.by_ref().filter_map(put_back).collect();
        let frontier = self.frontier.clone();
        // Outside a runtime the server is stopping; the holds then expire by themselves.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move { frontier.put(back).await });
        }
    }
}

/// Only under its own hold: a process that was suspended comes back to URLs that others have fetched since.
fn put_back(url: UrlToFetch) -> Option<Put> {
    let kind = PutKind::Undelivered { held_until: url.held_until? };
    Some(Put { url: url.url, host: url.host, crawl: url.crawl, kind, metadata: url.metadata })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(params: GetParams) -> HandOut {
        request(&params).unwrap().unwrap()
    }

    fn of_crawl(crawl: &str) -> Option<get_params::Item> {
        Some(get_params::Item::CrawlId(crawl.into()))
    }

    #[test]
    fn zero_asks_for_the_servers_limits() {
        let want = HandOut {
            host: None,
            crawl: None,
            queues: limits::HAND_OUT_QUEUES_MAX,
            urls: limits::HAND_OUT_URLS_MAX,
            held_below: None,
            hold: Millis(30_000),
        };
        assert_eq!(asked(GetParams::default()), want);
    }

    #[test]
    fn numbers_are_unsigned_and_bounded() {
        let most = GetParams {
            max_urls_per_queue: u32::MAX,
            max_queues: u32::MAX,
            delay_requestable: u32::MAX,
            ..Default::default()
        };
        let most = asked(most);
        assert_eq!((most.urls, most.queues), (limits::HAND_OUT_URLS_MAX, limits::HAND_OUT_QUEUES_MAX));
        assert_eq!(most.hold, Millis(4_294_967_295_000));
        assert_eq!(most.held_below, Some(u32::MAX), "what may be on hold is the client's to say");
        let few = asked(GetParams { max_urls_per_queue: 3, max_queues: 2, ..Default::default() });
        assert_eq!((few.urls, few.queues, few.held_below), (3, 2, Some(3)));
    }

    #[test]
    fn a_crawl_that_is_set_but_empty_is_the_default_one() {
        let crawl = |item| asked(GetParams { item, ..Default::default() }).crawl;
        assert_eq!(crawl(of_crawl("")).as_deref(), Some("DEFAULT"));
        assert_eq!(crawl(of_crawl("my_spider")).as_deref(), Some("my_spider"));
        assert_eq!(crawl(Some(get_params::Item::AnyCrawlId(Default::default()))), None);
        assert_eq!(crawl(None), None);
    }

    #[test]
    fn a_key_without_a_crawl_means_the_default_crawl() {
        let keyed = |item| asked(GetParams { key: "foo_bar.com".into(), max_queues: 9, item, ..Default::default() });
        assert_eq!(keyed(None).crawl.as_deref(), Some("DEFAULT"));
        assert_eq!(keyed(Some(get_params::Item::AnyCrawlId(Default::default()))).crawl.as_deref(), Some("DEFAULT"));
        assert_eq!(keyed(of_crawl("c")).crawl.as_deref(), Some("c"));
        assert_eq!(keyed(None).host.as_deref(), Some("foo_bar.com"));
        assert_eq!(keyed(None).queues, 1, "the number of queues is ignored");
        assert_eq!(request(&GetParams { key: "k".repeat(256), ..Default::default() }), Ok(None));
    }
}
