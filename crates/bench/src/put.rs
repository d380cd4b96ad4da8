//! Put streams: as many messages in flight as the window allows, until a time or a number is reached.

use std::pin::Pin;
use std::sync::atomic::{
    AtomicU64, AtomicUsize,
    Ordering::{Acquire, Relaxed, Release},
};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use bytes::Bytes;
use futures::Stream;
use futures::future::poll_fn;
use futures::task::AtomicWaker;
use tonic::transport::Channel;
use tonic::{Request, Streaming};
use wayleave_api::urlfrontier::{AckMessage, BatchAck, DiscoveredBatch, UrlItem};

use crate::codec::{Manner, Wire, path, ready};
use crate::latency::Latency;
use crate::source::{Source, timed};
use crate::wire;

/// One of this many single items is timed.
const TIMED_EVERY: u64 = 64;
/// The maximum number of timed messages in flight.
const TIMED_MAX: usize = 1_024;
/// A server that acknowledges nothing for this long after the end is abandoned.
const PATIENCE: Duration = Duration::from_secs(60);

/// What is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// PutURLs, one URL a message.
    Single,
    /// PutDiscovered, this many URLs per message.
    Batch(usize),
}

impl Form {
    const fn window(self) -> usize {
        match self {
            Self::Single => 1_024,
            Self::Batch(_) => 16,
        }
    }

    const fn urls(self) -> usize {
        match self {
            Self::Single => 1,
            Self::Batch(urls) => urls,
        }
    }

    const fn method(self) -> &'static str {
        match self {
            Self::Single => "/urlfrontier.URLFrontier/PutURLs",
            Self::Batch(_) => "/urlfrontier.URLFrontier/PutDiscovered",
        }
    }
}

/// The results of one or several streams.
#[derive(Clone, Debug, Default)]
pub struct Done {
    /// URLs acknowledged.
    pub urls: u64,
    /// URLs that the server could not store.
    pub failed: u64,
    /// Time from the first message to the last acknowledgement.
    pub took: Duration,
    /// Of single calls or messages.
    pub latency: Latency,
}

impl Done {
    /// Adds what another did at the same time.
    pub fn beside(&mut self, other: &Self) {
        self.urls += other.urls;
        self.failed += other.failed;
        self.took = self.took.max(other.took);
        self.latency.merge(&other.latency);
    }
}

/// What sender and receiver of a stream share.
struct Shared {
    in_flight: AtomicUsize,
    room: AtomicWaker,
    started: Instant,
    sent_at: Vec<AtomicU64>,
}

/// The sending half, polled by the connection.
struct Feed {
    shared: Arc<Shared>,
    source: Arc<Mutex<Source>>,
    form: Form,
    until: Instant,
    messages_left: u64,
    sent: u64,
}

impl Feed {
    fn message(&mut self) -> Bytes {
        let slot = |no: u64| usize::try_from(no).unwrap_or_default() % TIMED_MAX;
        let timed = match self.form {
            Form::Single => self.sent.is_multiple_of(TIMED_EVERY).then(|| slot(self.sent / TIMED_EVERY)),
            Form::Batch(_) => Some(slot(self.sent)),
        };
        self.sent += 1;
        if let Some(place) = timed.and_then(|slot| self.shared.sent_at.get(slot)) {
            place.store(nanos(self.shared.started.elapsed()), Relaxed);
        }
        let mut source = self.source.lock().unwrap_or_else(PoisonError::into_inner);
        match self.form {
            Form::Single => source.item(timed),
            Form::Batch(urls) => source.batch(urls, timed.unwrap_or_default()),
        }
    }
}

impl Stream for Feed {
    type Item = Bytes;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        if self.messages_left == 0 || Instant::now() >= self.until {
            self.messages_left = 0;
            return Poll::Ready(None);
        }
        if self.shared.in_flight.load(Acquire) >= self.form.window() {
            self.shared.room.register(cx.waker());
            if self.shared.in_flight.load(Acquire) >= self.form.window() {
                return Poll::Pending;
            }
        }
        self.shared.in_flight.fetch_add(1, Release);
        self.messages_left -= 1;
        Poll::Ready(Some(self.message()))
    }
}

fn nanos(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}

/// Sends URLs of a source through one stream for a time, up to a maximum number.
pub async fn put(
    channel: Channel,
    source: Arc<Mutex<Source>>,
    (form, manner): (Form, Manner),
    time: Duration,
    urls_max: u64,
) -> Result<Done> {
    let started = Instant::now();
    let sent_at = (0..TIMED_MAX).map(|_| AtomicU64::new(0)).collect();
    let shared = Arc::new(Shared { in_flight: AtomicUsize::new(0), room: AtomicWaker::new(), started, sent_at });
    let messages_left = urls_max.div_ceil(form.urls() as u64);
    let until = started + time;
    let feed = Feed { shared: Arc::clone(&shared), source, form, until, messages_left, sent: 0 };
    let receive = async {
        let mut grpc = ready(channel).await?;
        let (feed, path) = (Request::new(feed), path(form.method()));
        let acks = match form {
            Form::Single => grpc.streaming(feed, path, Wire::<UrlItem, AckMessage>::new(manner)).await?,
            Form::Batch(_) => grpc.streaming(feed, path, Wire::<DiscoveredBatch, BatchAck>::new(manner)).await?,
        };
        let acks = acks.into_inner();
        receive(acks, &shared).await
    };
    match tokio::time::timeout(time + PATIENCE, receive).await {
        Ok(done) => done,
        Err(_) => bail!("{} messages were not acknowledged in time", shared.in_flight.load(Relaxed)),
    }
}

/// Receives acknowledgements to the end, in batches as they arrive.
async fn receive(mut acks: Streaming<Bytes>, shared: &Shared) -> Result<Done> {
    let mut done = Done::default();
    loop {
        let (count, more) = poll_fn(|cx| drain(&mut acks, cx, shared, &mut done)).await?;
        shared.in_flight.fetch_sub(count, Release);
        shared.room.wake();
        if !more {
            done.took = shared.started.elapsed();
            return Ok(done);
        }
    }
}

/// The number of available acknowledgements, and whether more can come.
fn drain(
    acks: &mut Streaming<Bytes>,
    cx: &mut Context<'_>,
    shared: &Shared,
    done: &mut Done,
) -> Poll<Result<(usize, bool), tonic::Status>> {
    let mut count = 0;
    loop {
        match Pin::new(&mut *acks).poll_next(cx) {
            Poll::Ready(Some(Ok(bytes))) => {
                count += 1;
                note(&bytes, shared, done);
            }
            Poll::Ready(Some(Err(status))) => return Poll::Ready(Err(status)),
            Poll::Ready(None) => return Poll::Ready(Ok((count, false))),
            Poll::Pending if count > 0 => return Poll::Ready(Ok((count, true))),
            Poll::Pending => return Poll::Pending,
        }
    }
}

fn note(bytes: &[u8], shared: &Shared, done: &mut Done) {
    let ack = wire::ack(bytes);
    done.urls += ack.statuses.unwrap_or(1) as u64;
    done.failed += ack.failed as u64;
    if let Some(place) = timed(ack.id).and_then(|slot| shared.sent_at.get(slot)) {
        let sent = Duration::from_nanos(place.load(Relaxed));
        done.latency.add(shared.started.elapsed().saturating_sub(sent));
    }
}
