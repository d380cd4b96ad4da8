//! PutURLs without a frontier: what is submitted, what is acknowledged, and when the stream ends.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use futures::future::BoxFuture;
use futures::{FutureExt, Stream, StreamExt, stream};
use tokio::sync::mpsc::UnboundedSender;
use tonic::Status;
use wayleave_api::urlfrontier::{DiscoveredUrlItem, KnownUrlItem, UrlInfo, url_item};
use wayleave_shard::Outcomes;

use super::super::metrics::GrpcMetrics;
use super::super::put_stream::{Intake, PutStream};
use super::*;

type Batch = (Vec<(u64, Put)>, UnboundedSender<Outcomes>);

/// A frontier that keeps what it is given until the test settles it.
#[derive(Clone, Default)]
struct Held(Arc<Mutex<Vec<Batch>>>, Arc<AtomicBool>);

impl Intake for Held {
    fn submit(&self, puts: Vec<(u64, Put)>, sink: UnboundedSender<Outcomes>) -> BoxFuture<'static, ()> {
        self.0.lock().unwrap().push((puts, sink));
        Box::pin(async {})
    }

    fn is_pressed(&self) -> bool {
        self.1.load(Ordering::Relaxed)
    }
}

impl Held {
    fn count(&self) -> usize {
        self.0.lock().unwrap().iter().map(|(puts, _)| puts.len()).sum()
    }

    /// Settles everything, last item first, each in a separate part.
    fn settle(&self, outcome: &PutOutcome) {
        for (puts, sink) in self.0.lock().unwrap().drain(..) {
            for (tag, _) in puts.into_iter().rev() {
                sink.send(vec![(tag, outcome.clone())]).unwrap();
            }
        }
    }
}

fn item(url: &str, id: &str) -> Result<UrlItem, Status> {
    let info = UrlInfo { url: url.into(), ..Default::default() };
    let discovered = DiscoveredUrlItem { info: Some(info) };
    Ok(UrlItem { id: id.into(), creation_date: 0, item: Some(url_item::Item::Discovered(discovered)) })
}

fn put_stream<I>(items: I, held: &Held) -> PutStream<I, ItemAcks>
where
    I: Stream<Item = Result<UrlItem, Status>> + Unpin,
{
    PutStream::new(items, no_acks(), Box::new(held.clone()), Arc::default())
}

fn no_acks() -> ItemAcks {
    ItemAcks::new(Arc::new(wayleave_listen::Budget::new(64 << 20)).share(1), false)
}

async fn acks<I>(stream: PutStream<I, ItemAcks>) -> Vec<(String, i32)>
where
    I: Stream<Item = Result<UrlItem, Status>> + Unpin,
{
    stream.map(|ack| ack.map(|ack| (ack.id, ack.status)).unwrap()).collect().await
}

#[tokio::test]
async fn every_item_is_acknowledged_by_its_id_or_its_url() {
    let held = Held::default();
    let items = [item("http://a/1", "one"), item("http://a/2", ""), item("http://a/3", "one"), item("", "")];
    let mut stream = put_stream(stream::iter(items), &held);
    let refused = stream.next().await.unwrap().unwrap();
    assert_eq!((refused.id.as_str(), refused.status), ("", ack_message::Status::Skipped.into()));
    held.settle(&PutOutcome::Added);
    let want = [("one", 0), ("http://a/2", 0), ("one", 0)].map(|(id, status)| (id.to_owned(), status));
    assert_eq!(acks(stream).await, want);
}

#[tokio::test]
async fn a_failed_item_is_acknowledged_and_the_stream_goes_on() {
    let held = Held::default();
    let (send, receive) = tokio::sync::mpsc::unbounded_channel();
    let mut stream = put_stream(tokio_stream::wrappers::UnboundedReceiverStream::new(receive), &held);
    for outcome in [
        PutOutcome::Failed(Box::new(wayleave_core::frontier::refusal::Refusal::Unavailable("stopping".to_owned()))),
        PutOutcome::Known,
    ] {
        send.send(item("http://a/", "x")).unwrap();
        assert!(stream.next().now_or_never().is_none(), "no ack before the outcome");
        held.settle(&outcome);
        assert_eq!(stream.next().await.unwrap().unwrap().status, i32::from(convert::ack(&outcome)));
    }
    drop(send);
    assert!(stream.next().await.is_none());
}

#[tokio::test]
async fn less_is_taken_while_visits_are_waited_for() {
    let held = Held::default();
    held.1.store(true, Ordering::Relaxed);
    let items = stream::iter((0..3_000).map(|no| item(&format!("http://a/{no}"), "")));
    let mut stream = put_stream(items, &held);
    assert!(stream.next().now_or_never().is_none());
    let under_way = held.count();
    assert!(under_way < limits::PUT_IN_FLIGHT_MAX / 2, "{under_way}");
    held.1.store(false, Ordering::Relaxed);
    held.settle(&PutOutcome::Added);
    assert!(stream.next().await.unwrap().is_ok());
    while let Some(Some(_)) = stream.next().now_or_never() {}
    assert!(held.count() > under_way, "and then more again");
}

#[tokio::test]
async fn at_most_the_window_is_taken_before_acknowledgements() {
    let held = Held::default();
    let items = stream::iter((0..3_000).map(|no| item(&format!("http://a/{no}"), "")));
    let mut stream = put_stream(items, &held);
    assert!(stream.next().now_or_never().is_none());
    assert_eq!(held.count(), limits::PUT_IN_FLIGHT_MAX);
    let mut acked = 0;
    while acked < 3_000 {
        held.settle(&PutOutcome::Added);
        // The channel gives a task only so much before it must yield.
        tokio::task::yield_now().await;
        while let Some(Some(ack)) = stream.next().now_or_never() {
            assert_eq!(ack.unwrap().status, 0);
            acked += 1;
        }
        assert!(held.count() <= limits::PUT_IN_FLIGHT_MAX);
    }
    assert!(stream.next().await.is_none());
}

#[tokio::test]
async fn a_broken_request_ends_the_stream_only_after_what_was_taken_is_acknowledged() {
    let held = Held::default();
    let items = [item("http://a/1", "one"), Err(Status::out_of_range("message too large"))];
    let mut stream = put_stream(stream::iter(items), &held);
    assert!(stream.next().now_or_never().is_none());
    held.settle(&PutOutcome::Added);
    assert_eq!(stream.next().await.unwrap().unwrap().id, "one");
    assert_eq!(stream.next().await.unwrap().unwrap_err().code(), tonic::Code::ResourceExhausted);
    assert!(stream.next().await.is_none());
}

#[tokio::test]
async fn the_counters_tell_discovered_known_and_completed_apart() {
    let held = Held::default();
    let known = |date| {
        let info = UrlInfo { url: "http://a/".into(), ..Default::default() };
        let known = KnownUrlItem { info: Some(info), refetchable_from_date: date };
        Ok(UrlItem { id: String::new(), creation_date: 0, item: Some(url_item::Item::Known(known)) })
    };
    let metrics: Arc<GrpcMetrics> = Arc::default();
    let items = stream::iter([item("http://a/", ""), known(0), known(9)]);
    let mut stream = PutStream::new(items, no_acks(), Box::new(held.clone()), Arc::clone(&metrics));
    assert!(stream.next().now_or_never().is_none());
    held.settle(&PutOutcome::Known);
    assert_eq!(stream.count().await, 3);
    let mut text = String::new();
    metrics.render(&mut text);
    for line in [
        "frontier_putURLs_total 3",
        "frontier_putURLs_discovered_total{discovered=\"true\"} 1",
        "frontier_putURLs_completed_total 1",
        "frontier_putURLs_ignored_total 3",
    ] {
        assert!(text.lines().any(|found| found == line), "{line} in {text}");
    }
}
