//! Drives one put stream: messages in, batches to the frontier, acknowledgements out.
//!
//! All of a stream runs where its response is polled, without a task or channel of its own. That is the back-pressure:
//! a client that does not read its acknowledgements is not read from either. The interpretation and acknowledgement of
//! messages is left to [`Acks`].

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures::Stream;
use futures::future::BoxFuture;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tonic::{Code, Status};
use wayleave_core::frontier::request::{Put, PutOutcome};
use wayleave_shard::Frontier;
use wayleave_shard::Outcomes;

use super::metrics::{GrpcMetrics, PutTally};

/// The maximum number of puts submitted to the frontier at once (a single message may carry more).
const SUBMIT_MAX: usize = 512;

/// The same while visits are waiting. About three chunks of a stream are in flight at once, and a visit that arrives
/// waits behind them.
const SUBMIT_PRESSED: usize = 96;

/// The step in which a stream takes bytes from the budget.
pub const SHARE_STEP: usize = 16 << 10;
/// The memory overhead of a URL.
pub const URL_EXTRA_BYTES: usize = 256;

/// The memory of a message with `urls` URLs until it is settled.
pub fn cost(message: &impl prost::Message, urls: usize) -> usize {
    message.encoded_len() + urls * URL_EXTRA_BYTES
}

/// How messages of a stream are interpreted and acknowledged.
pub trait Acks {
    /// A message of the client.
    type In;
    /// An acknowledgement.
    type Out;

    /// Whether another message may be accepted before one is acknowledged.
    fn has_room(&self) -> bool;
    /// Accepts a message: its puts are appended to `puts`, each with a tag.
    fn take(&mut self, message: Self::In, puts: &mut Vec<(u64, Put)>, tally: &mut PutTally);
    /// Records the outcome of the put with this tag.
    fn settle(&mut self, tag: u64, outcome: &PutOutcome, tally: &mut PutTally);
    /// The next acknowledgement that can be sent.
    fn next(&mut self) -> Option<Self::Out>;
    /// Whether there are unacknowledged messages.
    fn is_waiting(&self) -> bool;
}

/// The destination of puts.
pub trait Intake: Send {
    /// Submits puts to the frontier; resolves when all of them are queued there.
    fn submit(&self, puts: Vec<(u64, Put)>, sink: UnboundedSender<Outcomes>) -> BoxFuture<'static, ()>;
    /// Whether visits are waiting, so that puts should come in small chunks.
    fn is_pressed(&self) -> bool;
}

impl Intake for Frontier {
    fn submit(&self, puts: Vec<(u64, Put)>, sink: UnboundedSender<Outcomes>) -> BoxFuture<'static, ()> {
        let frontier = self.clone();
        Box::pin(async move { frontier.put_into(puts, &sink).await })
    }

    fn is_pressed(&self) -> bool {
        self.awaits_visits()
    }
}

/// A put stream: the response that acknowledges the client's messages.
pub struct PutStream<I, A> {
    incoming: I,
    acks: A,
    intake: Box<dyn Intake>,
    metrics: Arc<GrpcMetrics>,
    sink: UnboundedSender<Outcomes>,
    outcomes: UnboundedReceiver<Outcomes>,
    submitting: Option<BoxFuture<'static, ()>>,
    /// Read but not yet submitted.
    gathered: Vec<(u64, Put)>,
    /// Submitted but not yet settled.
    unsettled: usize,
    end: Option<Result<(), Status>>,
}

impl<I, A> PutStream<I, A>
where
    I: Stream<Item = Result<A::In, Status>> + Unpin,
    A: Acks + Unpin,
{
    /// A stream that reads `incoming`.
    pub fn new(incoming: I, acks: A, intake: Box<dyn Intake>, metrics: Arc<GrpcMetrics>) -> Self {
        let (sink, outcomes) = unbounded_channel();
        let gathered = Vec::new();
        Self { incoming, acks, intake, metrics, sink, outcomes, submitting: None, gathered, unsettled: 0, end: None }
    }

    /// Takes outcomes from the frontier. True if there were any.
    fn settle(&mut self, cx: &mut Context<'_>, tally: &mut PutTally) -> bool {
        let mut any = false;
        while let Poll::Ready(Some(outcomes)) = self.outcomes.poll_recv(cx) {
            self.unsettled = self.unsettled.saturating_sub(outcomes.len());
            for (tag, outcome) in &outcomes {
                self.acks.settle(*tag, outcome, tally);
            }
            any = true;
        }
        any
    }

    /// Polls the running submission. True if it has completed.
    fn carry_on(&mut self, cx: &mut Context<'_>) -> bool {
        let Some(submitting) = &mut self.submitting else { return false };
        let done = submitting.as_mut().poll(cx).is_ready();
        if done {
            self.submitting = None;
        }
        done
    }

    /// Reads the available messages that fit. True if anything was read.
    fn read(&mut self, cx: &mut Context<'_>, tally: &mut PutTally) -> bool {
        let most = if self.intake.is_pressed() { SUBMIT_PRESSED } else { SUBMIT_MAX };
        let mut read = 0;
        while self.end.is_none() && read < most && self.gathered.len() < most && self.acks.has_room() {
            match Pin::new(&mut self.incoming).poll_next(cx) {
                Poll::Ready(Some(Ok(message))) => self.acks.take(message, &mut self.gathered, tally),
                Poll::Ready(Some(Err(status))) => self.end = Some(Err(refused_message(status))),
                Poll::Ready(None) => self.end = Some(Ok(())),
                Poll::Pending => break,
            }
            read += 1;
        }
        read > 0
    }

    /// Submits the gathered puts. While much is in flight, a small chunk is held back until more has arrived: outcomes
    /// wake this stream again, and chunks that grow with the load cost the shards less than many small ones.
    fn launch(&mut self) -> bool {
        let enough = self.end.is_some() || self.gathered.len() * 2 >= self.unsettled;
        if self.gathered.is_empty() || self.submitting.is_some() || !enough {
            return false;
        }
        let puts = std::mem::take(&mut self.gathered);
        self.unsettled += puts.len();
        self.submitting = Some(self.intake.submit(puts, self.sink.clone()));
        true
    }
}

/// Reports a message over the size limit as RESOURCE_EXHAUSTED, as other servers of the protocol do.
fn refused_message(status: Status) -> Status {
    match status.code() {
        Code::OutOfRange => Status::resource_exhausted(status.message()),
        _ => status,
    }
}

impl<I, A> Stream for PutStream<I, A>
where
    I: Stream<Item = Result<A::In, Status>> + Unpin,
    A: Acks + Unpin,
{
    type Item = Result<A::Out, Status>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = &mut *self;
        if let Some(ack) = this.acks.next() {
            return Poll::Ready(Some(Ok(ack)));
        }
        // Each iteration makes progress, or leaves a waker with everything that could.
        loop {
            let mut tally = PutTally::default();
            let mut moved = this.settle(cx, &mut tally);
            moved |= this.read(cx, &mut tally);
            moved |= this.launch();
            moved |= this.carry_on(cx);
            if tally != PutTally::default() {
                this.metrics.on_items(tally);
            }
            if let Some(ack) = this.acks.next() {
                return Poll::Ready(Some(Ok(ack)));
            }
            if moved {
                continue;
            }
            if this.acks.is_waiting() || this.submitting.is_some() {
                return Poll::Pending;
            }
            return match this.end.replace(Ok(())) {
                None => {
                    this.end = None;
                    Poll::Pending
                }
                Some(Ok(())) => Poll::Ready(None),
                Some(Err(status)) => Poll::Ready(Some(Err(status))),
            };
        }
    }
}
