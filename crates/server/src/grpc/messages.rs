//! The request body of a gRPC call, buffered until a message is complete.
//!
//! The decoder behind this allocates the announced length of a message and waits for it without a timeout. So bytes are
//! counted here as they arrive, a message that has begun must arrive in time, and only complete messages are passed on.
//! The put streams of URLFrontier may idle between two messages. One that has sent no whole message for a moment takes a place among
//! the calls that wait, keeps it until it does, and ends when that place is needed; without a place it ends in time, too. When the
//! server stops, they end between two messages.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::body::{Body, HttpBody};
use axum::http::Extensions;
use bytes::{Bytes, BytesMut};
use hyper::body::Frame;
use tokio::time::{Instant, Sleep};
use tokio_util::sync::WaitForCancellationFutureOwned;
use tonic::Status;
use wayleave_core::limits;

use crate::http::{App, QUIET, Waiting, deadline, waits_since};
use wayleave_listen::Share;

/// The message prefix: a flag and the length.
const HEAD_BYTES: usize = 5;
/// Streams that may wait for their client between two messages.
const MAY_IDLE: [&str; 2] = ["/urlfrontier.URLFrontier/PutURLs", "/urlfrontier.URLFrontier/PutDiscovered"];
/// The timer wakes the reader. A look this much after it shows that the reader was busy.
const LATE: Duration = Duration::from_secs(1);
const REFLECTION: &str = "/ServerReflectionInfo";

/// A body that is passed on message by message.
pub struct Messages {
    body: Body,
    partial: BytesMut,
    share: Share,
    /// When the current message began, or the call.
    since: Instant,
    timeout: Duration,
    timer: Pin<Box<Sleep>>,
    /// Only of a stream that may idle.
    waiting: Option<Waiting>,
    /// Once it has a place: when it is to end.
    hurry: Option<Pin<Box<WaitForCancellationFutureOwned>>>,
    stopping: Option<Pin<Box<WaitForCancellationFutureOwned>>>,
    /// A message over the limit is left to the decoder, which refuses it.
    passing: bool,
}

impl Messages {
    /// The body of a call of this method, by a caller that extensions of the request name.
    pub fn new(app: &App, method: &str, extensions: &Extensions, body: Body) -> Self {
        let may_idle = MAY_IDLE.contains(&method);
        let waiting = may_idle.then(|| Waiting::of(extensions, app));
        let is_stream = may_idle || method.ends_with(REFLECTION);
        let (since, timeout) = (Instant::now(), app.config.body_timeout);
        Self {
            body,
            partial: BytesMut::new(),
            share: app.budget.share(1),
            since,
            timeout,
            timer: Box::pin(tokio::time::sleep_until(since + timeout)),
            waiting,
            hurry: None,
            stopping: is_stream.then(|| Box::pin(app.stopping.clone().cancelled_owned())),
            passing: false,
        }
    }

    /// Buffers what has arrived; returns what is complete.
    fn take(&mut self, mut data: Bytes) -> Result<Bytes, Status> {
        if self.passing {
            return Ok(data);
        }
        if self.partial.is_empty() {
            // Most messages are small and many arrive in one chunk: these are not copied.
            let (end, over) = whole(&data);
            self.passing = over;
            if over {
                return Ok(data);
            }
            self.since = Instant::now();
            if end > 0 {
                self.leave_place();
            }
            let messages = data.split_to(end);
            return self.keep(&data).map(|()| messages);
        }
        self.keep(&data)?;
        let (end, over) = whole(&self.partial);
        self.passing = over;
        if over {
            return Ok(self.partial.split().freeze());
        }
        if end > 0 {
            self.share.give(end);
            self.since = Instant::now();
            self.leave_place();
        }
        Ok(self.partial.split_to(end).freeze())
    }

    fn keep(&mut self, data: &[u8]) -> Result<(), Status> {
        if !self.share.take(data.len()) {
            return Err(Status::unavailable("the server's memory budget for requests is exhausted; try again"));
        }
        self.partial.extend_from_slice(data);
        Ok(())
    }

    /// Nothing has arrived: decides whether the call ends.
    fn wait(&mut self, cx: &mut Context<'_>) -> Poll<Status> {
        let between = self.partial.is_empty();
        if between
            && let Some(stopping) = &mut self.stopping
            && stopping.as_mut().poll(cx).is_ready()
        {
            return Poll::Ready(Status::unavailable("the server is stopping; send what was not acknowledged again"));
        }
        let end = |since| deadline(since, self.timeout, self.partial.len());
        self.since = waits_since(self.since, end(self.since) + LATE, Instant::now());
        loop {
            if let Some(hurry) = &mut self.hurry {
                if hurry.as_mut().poll(cx).is_ready() {
                    let why = "the server needs the place of this stream; send what was not acknowledged again";
                    return Poll::Ready(Status::unavailable(why));
                }
                if between {
                    return Poll::Pending;
                }
            }
            let unplaced = self.waiting.as_mut().filter(|waiting| self.hurry.is_none() && !waiting.is_refused());
            let until = match &unplaced {
                Some(_) => self.since + QUIET,
                None => deadline(self.since, self.timeout, self.partial.len()),
            };
            if self.timer.deadline() != until {
                self.timer.as_mut().reset(until);
            }
            ready!(self.timer.as_mut().poll(cx));
            match unplaced.map(Waiting::begin) {
                Some(place) => self.hurry = place.map(|hurry| Box::pin(hurry.cancelled_owned())),
                None if between => {
                    return Poll::Ready(Status::deadline_exceeded(
                        "no message came; send what was not acknowledged again",
                    ));
                }
                None => return Poll::Ready(Status::deadline_exceeded("the message stopped arriving; send it again")),
            }
        }
    }

    /// A whole message has come.
    fn leave_place(&mut self) {
        self.hurry = None;
        self.waiting.iter_mut().for_each(Waiting::end);
    }
}

/// The number of bytes that are complete messages, and whether one over the limit follows.
fn whole(bytes: &[u8]) -> (usize, bool) {
    let mut end = 0;
    while let Some([_, a, b, c, d]) = bytes.get(end..end + HEAD_BYTES) {
        let length = u32::from_be_bytes([*a, *b, *c, *d]) as usize;
        if length > limits::MESSAGE_BYTES_MAX {
            return (end, true);
        }
        if bytes.len() < end + HEAD_BYTES + length {
            break;
        }
        end += HEAD_BYTES + length;
    }
    (end, false)
}

impl HttpBody for Messages {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        loop {
            let frame = match Pin::new(&mut self.body).poll_frame(cx) {
                Poll::Ready(Some(Ok(frame))) => frame,
                Poll::Ready(Some(Err(error))) => return Poll::Ready(Some(Err(Status::from_error(error.into_inner())))),
                // The decoder reports a truncated message.
                Poll::Ready(None) if self.partial.is_empty() => return Poll::Ready(None),
                Poll::Ready(None) => return Poll::Ready(Some(Ok(Frame::data(self.partial.split().freeze())))),
                Poll::Pending => return self.wait(cx).map(|status| Some(Err(status))),
            };
            let data = match frame.into_data() {
                Ok(data) => data,
                Err(trailers) => return Poll::Ready(Some(Ok(trailers))),
            };
            match self.take(data) {
                Ok(whole) if whole.is_empty() => {}
                Ok(whole) => return Poll::Ready(Some(Ok(Frame::data(whole)))),
                Err(status) => return Poll::Ready(Some(Err(status))),
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.partial.is_empty() && self.body.is_end_stream()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use futures::{StreamExt, poll};
    use http_body_util::BodyExt;

    use super::*;
    use wayleave_listen::Budget;

    fn messages(body: Body) -> Messages {
        let (since, timeout) = (Instant::now(), Duration::from_secs(30));
        let timer = Box::pin(tokio::time::sleep_until(since + timeout));
        let share = Arc::new(Budget::new(1 << 20)).share(1);
        let (partial, passing) = (BytesMut::new(), false);
        Messages { body, partial, share, since, timeout, timer, waiting: None, hurry: None, stopping: None, passing }
    }

    /// A regression: while acknowledgements waited for the client its messages were not read, and the first look after that ended
    /// the stream.
    #[tokio::test(start_paused = true)]
    async fn the_time_in_which_messages_are_not_read_is_not_the_clients() {
        let (sink, pieces) = tokio::sync::mpsc::unbounded_channel::<Result<Bytes, std::io::Error>>();
        let pieces = tokio_stream::wrappers::UnboundedReceiverStream::new(pieces);
        let mut messages = messages(Body::from_stream(pieces.boxed()));
        sink.send(Ok(Bytes::from_static(&[0, 0, 0, 0, 2, 7]))).unwrap();
        assert!(poll!(messages.frame()).is_pending(), "a byte is missing");
        tokio::time::advance(Duration::from_secs(300)).await;
        assert!(poll!(messages.frame()).is_pending(), "the rest was held back");
        sink.send(Ok(Bytes::from_static(&[8]))).unwrap();
        let frame = messages.frame().await.unwrap().unwrap();
        assert_eq!(frame.into_data().unwrap().as_ref(), [0, 0, 0, 0, 2, 7, 8]);
        // A client that stops in the middle of a message while it is read from.
        sink.send(Ok(Bytes::from_static(&[0]))).unwrap();
        let ended = messages.frame().await.unwrap().unwrap_err();
        assert_eq!(ended.code(), tonic::Code::DeadlineExceeded);
    }
}
