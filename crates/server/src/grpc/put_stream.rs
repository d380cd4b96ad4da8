//! Moves one put stream along: messages in, batches to the frontier, acknowledgements out.
//!
//! All of a stream happens where its response is polled: no task and no channel of its own, so a client that does not
//! read its acknowledgements is not read from either. What a message is and how it is acknowledged is [`Acks`]' business.

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

/// Puts that go to the frontier in one piece, at most (one message may carry more).
const SUBMIT_MAX: usize = 512;

/// The same while visits are waited for. About three pieces of a stream are under way at once; what is under way before a
/// visit that comes is what it waits for.
const SUBMIT_PRESSED: usize = 96;

/// Bytes that a stream takes from the budget at once.
pub const SHARE_STEP: usize = 16 << 10;
/// What a URL takes in memory beside its bytes.
pub const URL_EXTRA_BYTES: usize = 256;

/// What a message with so many URLs takes in memory until it is settled.
pub fn cost(message: &impl prost::Message, urls: usize) -> usize {
    message.encoded_len() + urls * URL_EXTRA_BYTES
}

/// What a stream sends and how it is acknowledged.
pub trait Acks {
    /// A message of the client.
    type In;
    /// An acknowledgement.
    type Out;

    /// Whether another message may be taken before one is acknowledged.
    fn has_room(&self) -> bool;
    /// Takes a message: what is to be stored goes to `puts`, each under a tag.
    fn take(&mut self, message: Self::In, puts: &mut Vec<(u64, Put)>, tally: &mut PutTally);
    /// Notes what became of the put with this tag.
    fn settle(&mut self, tag: u64, outcome: &PutOutcome, tally: &mut PutTally);
    /// The next acknowledgement that can be sent.
    fn next(&mut self) -> Option<Self::Out>;
    /// Whether messages wait for their acknowledgement.
    fn is_waiting(&self) -> bool;
}

/// Where puts go.
pub trait Intake: Send {
    /// Gives puts to the frontier; done when all of them are queued there.
    fn submit(&self, puts: Vec<(u64, Put)>, sink: UnboundedSender<Outcomes>) -> BoxFuture<'static, ()>;
    /// Whether visits are waited for, so that puts had better come in small pieces.
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

/// A put stream: the response that acknowledges what the client sends.
pub struct PutStream<I, A> {
    incoming: I,
    acks: A,
    intake: Box<dyn Intake>,
    metrics: Arc<GrpcMetrics>,
    sink: UnboundedSender<Outcomes>,
    outcomes: UnboundedReceiver<Outcomes>,
    submitting: Option<BoxFuture<'static, ()>>,
    /// Read, and not yet given to the frontier.
    gathered: Vec<(u64, Put)>,
    /// Given to the frontier, and not yet settled.
    unsettled: usize,
    end: Option<Result<(), Status>>,
}

impl<I, A> PutStream<I, A>
where
    I: Stream<Item = Result<A::In, Status>> + Unpin,
    A: Acks + Unpin,
{
    /// A pump that reads `incoming`.
    pub fn new(incoming: I, acks: A, intake: Box<dyn Intake>, metrics: Arc<GrpcMetrics>) -> Self {
        let (sink, outcomes) = unbounded_channel();
        let gathered = Vec::new();
        Self { incoming, acks, intake, metrics, sink, outcomes, submitting: None, gathered, unsettled: 0, end: None }
    }

    /// Takes what the frontier has settled. True if there was anything.
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

    /// Carries a submission on. True if it came to its end.
    fn carry_on(&mut self, cx: &mut Context<'_>) -> bool {
        let Some(submitting) = &mut self.submitting else { return false };
        let done = submitting.as_mut().poll(cx).is_ready();
        if done {
            self.submitting = None;
        }
        done
    }

    /// Reads as many messages as are there and fit. True if anything was read.
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

    /// Submits what was gathered. While much is under way, little is held back until more has come: what is settled
    /// wakes this stream again, and pieces that grow with the load cost the shards less than many small ones.
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

/// A message over the size limit is a matter of resources, as other servers of the protocol say it.
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
        // Each turn either moves something or leaves a waker with everything that could move next.
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
