//! GetURLs: URLs that may be fetched now, each placed on hold for a time.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Instant;

use futures::Stream;
use tonic::Status;
use wayleave_api::urlfrontier::{GetParams, UrlInfo, get_params};
use wayleave_core::frontier::request::{HandOut, Put, PutKind, UrlToFetch};
use wayleave_core::limits;
use wayleave_core::names;
use wayleave_core::time::Millis;
use wayleave_shard::{CallResult, Frontier};

use super::metrics::GrpcMetrics;
use super::put_stream::URL_EXTRA_BYTES;
use super::{convert, refused};
use wayleave_listen::Share;

/// Answers a GetURLs call; `None` asks for nothing.
pub async fn get_urls(
    frontier: &Frontier,
    metrics: &GrpcMetrics,
    mut share: Share,
    request: Option<HandOut>,
) -> Result<HandedOut, Status> {
    let started = Instant::now();
    let urls = match request {
        Some(request) if frontier.seems_active() => match collect(frontier, request).await {
            Ok(urls) => urls,
            Err(refusal) if refused::is_unknown(&refusal) => Undelivered::new(frontier, Vec::new()),
            Err(refusal) => return Err(refused::status(&refusal)),
        },
        _ => return Ok(HandedOut { urls: Undelivered::new(frontier, Vec::new()), _share: share }),
    };
    metrics.on_get(urls.left.len(), started.elapsed());
    let size = |url: &UrlToFetch| url.url.len() + url.metadata.as_bytes().len() + URL_EXTRA_BYTES;
    let taken = share.take(urls.left.as_slice().iter().map(size).sum());
    let handed_out = HandedOut { urls, _share: share };
    if taken { Ok(handed_out) } else { Err(refused::memory_full()) }
}

/// Collects URLs to the end, though the caller may leave meanwhile: what shards have placed on hold by then would otherwise stay
/// there.
async fn collect(frontier: &Frontier, request: HandOut) -> CallResult<Undelivered> {
    let frontier = frontier.clone();
    let collected = async move { frontier.hand_out(request).await.map(|urls| Undelivered::new(&frontier, urls)) };
    ToItsEnd(Some(Box::pin(collected))).await
}

/// A future that becomes a task of its own if whoever polls it leaves: unlike a task from the start, it costs no other thread a
/// wake-up as long as nobody leaves.
struct ToItsEnd<T: Send + 'static>(Option<Pin<Box<dyn Future<Output = T> + Send>>>);

impl<T: Send + 'static> Future for ToItsEnd<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<T> {
        let Some(future) = &mut self.0 else { return Poll::Pending };
        let polled = future.as_mut().poll(cx);
        if polled.is_ready() {
            self.0 = None;
        }
        polled
    }
}

impl<T: Send + 'static> Drop for ToItsEnd<T> {
    fn drop(&mut self) {
        // Outside a runtime the server is stopping; what is on hold then expires by itself.
        if let (Some(future), Ok(runtime)) = (self.0.take(), tokio::runtime::Handle::try_current()) {
            runtime.spawn(future);
        }
    }
}

/// Parses the parameters; `None` for a key or a crawl that cannot exist.
pub fn request(params: &GetParams, hold_max: Option<Millis>) -> Option<HandOut> {
    let keyed = !params.key.is_empty();
    let crawl = match &params.item {
        Some(get_params::Item::CrawlId(crawl)) => Some(convert::crawl(crawl)?),
        // The official client sends a key without a crawl and means the default crawl.
        _ if keyed => Some(names::DEFAULT_CRAWL.into()),
        _ => None,
    };
    let host = if keyed { Some(convert::key(&params.key)?) } else { None };
    let hold = match params.delay_requestable {
        0 => limits::HOLD_DEFAULT,
        secs => Millis::from_secs(u64::from(secs)),
    };
    Some(HandOut {
        host,
        crawl,
        queues: if keyed { 1 } else { bounded(params.max_queues, limits::HAND_OUT_QUEUES_MAX) },
        urls: bounded(params.max_urls_per_queue, limits::HAND_OUT_URLS_MAX),
        held_below: Some(params.max_urls_per_queue).filter(|most| *most > 0),
        hold: hold_max.map_or(hold, |most| hold.min(most)),
    })
}

/// A limit given by the client; 0 asks for the maximum.
fn bounded(asked: u32, max: usize) -> usize {
    match usize::try_from(asked) {
        Ok(0) | Err(_) => max,
        Ok(asked) => asked.min(max),
    }
}

/// The URLs of one call on their way to the client.
pub struct HandedOut {
    urls: Undelivered,
    /// Until the last of them is read.
    _share: Share,
}

impl Stream for HandedOut {
    type Item = Result<UrlInfo, Status>;

    fn poll_next(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        Poll::Ready(self.urls.left.next().map(|url| Ok(convert::handed_out(url))))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.urls.left.size_hint()
    }
}

/// URLs that were not passed to the transport yet. If the client is gone they return to their queues instead of waiting
/// for their holds to end.
struct Undelivered {
    frontier: Frontier,
    left: std::vec::IntoIter<UrlToFetch>,
}

impl Undelivered {
    fn new(frontier: &Frontier, urls: Vec<UrlToFetch>) -> Self {
        Self { frontier: frontier.clone(), left: urls.into_iter() }
    }
}

impl Drop for Undelivered {
    fn drop(&mut self) {
        if self.left.len() == 0 {
            return;
        }
        let back: Vec<Put> = self.left.by_ref().filter_map(put_back).collect();
        let frontier = self.frontier.clone();
        // Outside a runtime: as above.
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
    use std::sync::Arc;
    use std::time::Duration;

    use tokio::runtime::Handle;
    use wayleave_core::metadata::Metadata;
    use wayleave_core::time::Time;
    use wayleave_engine::clock::ManualClock;
    use wayleave_engine::memory::Memory;
    use wayleave_shard::Config;

    use super::*;
    use wayleave_listen::Budget;

    fn asked(params: GetParams) -> HandOut {
        request(&params, None).unwrap()
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
    }

    #[test]
    fn a_key_or_a_crawl_that_cannot_exist_asks_for_nothing() {
        assert_eq!(request(&GetParams { key: "k".repeat(256), ..Default::default() }, None), None);
        assert_eq!(request(&GetParams { item: of_crawl("line\nfeed"), ..Default::default() }, None), None);
    }

    #[test]
    fn holds_are_as_long_as_asked_for_up_to_the_servers_bound() {
        let hold =
            |secs, most| request(&GetParams { delay_requestable: secs, ..Default::default() }, most).unwrap().hold;
        assert_eq!(hold(36_000, None), Millis(36_000_000));
        assert_eq!(hold(36_000, Some(Millis(600_000))), Millis(600_000));
        assert_eq!(hold(60, Some(Millis(600_000))), Millis(60_000));
        assert_eq!(hold(0, Some(Millis(10_000))), Millis(10_000), "also the default");
    }

    /// A regression: what shards had placed on hold for a call that was cancelled stayed there for as long as the client had
    /// asked.
    #[tokio::test]
    async fn what_was_collected_for_a_call_that_was_cancelled_returns_to_its_queue() {
        let clock = ManualClock::new(Time::from_secs(1_800_000_000));
        let config = Config { clock_step: Millis(0), ..Config::new(2) };
        let frontier = Frontier::open(Arc::new(Memory::new(clock)), config, &Handle::current()).await.unwrap();
        let put = |url: &str| Put {
            url: url.into(),
            host: "a.com".into(),
            crawl: names::DEFAULT_CRAWL.into(),
            kind: convert::DISCOVERED,
            metadata: Metadata::default(),
        };
        frontier.put(vec![put("http://a.com/1"), put("http://a.com/2")]).await;
        let (metrics, budget) = (GrpcMetrics::default(), Arc::new(Budget::new(1 << 20)));
        let params = GetParams { delay_requestable: 36_000, ..GetParams::default() };
        let mut call = Box::pin(get_urls(&frontier, &metrics, budget.share(1), request(&params, None)));
        assert!(futures::poll!(&mut call).is_pending());
        let held = async |wanted: u64| {
            for _ in 0..500 {
                if frontier.stats().await.unwrap().holds == wanted {
                    return true;
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            false
        };
        assert!(held(2).await, "the shards have placed both on hold");
        drop(call);
        assert!(held(0).await, "they are still on hold");
    }
}
