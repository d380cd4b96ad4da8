//! Responses in flight: every byte counts against the memory budget until the connection has sent it, and a response
//! that the client does not read is detected.
//!
//! HTTP/2 flow control lets a client stall a response by granting no window, while it still answers pings and reads
//! other streams. So each response is monitored individually, and one that stalls closes its connection: once HTTP/2
//! has buffered the bytes, there is no other handle on them.

use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::body::{Body, HttpBody};
use bytes::Bytes;
use hyper::body::{Frame, SizeHint};
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::budget::{Budget, Share};

/// Bytes passed to the connection at a time: it asks for more when it has room, and what it has cannot be taken back.
const PIECE_BYTES: usize = 32 << 10;
/// How many times per stall timeout the responses of a connection are checked.
const LOOKS: u32 = 4;

/// The responses of one connection.
pub struct ResponsesInFlight {
    /// Those in flight, and some that have ended.
    list: Mutex<Vec<Weak<ResponseInFlight>>>,
    begun: Notify,
    /// Requests in flight, including the reading of their responses.
    pub busy: Arc<AtomicUsize>,
    last_request: Mutex<Instant>,
    /// Whether any request has arrived.
    asked: AtomicBool,
}

impl Default for ResponsesInFlight {
    fn default() -> Self {
        let last_request = Mutex::new(Instant::now());
        let asked = AtomicBool::new(false);
        Self { list: Mutex::default(), begun: Notify::new(), busy: Arc::default(), last_request, asked }
    }
}

/// One response.
pub struct ResponseInFlight {
    state: Mutex<State>,
    busy: Arc<AtomicUsize>,
}

struct State {
    share: Share,
    /// Bytes that the connection has buffered.
    given: usize,
    /// When the connection last took or released some.
    moved: Instant,
}

impl ResponsesInFlight {
    /// Starts a request; it is in flight until the returned response is dropped.
    pub fn begin(&self, budget: &Arc<Budget>) -> Arc<ResponseInFlight> {
        self.busy.fetch_add(1, Ordering::Relaxed);
        self.asked.store(true, Ordering::Relaxed);
        *self.last_request.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
        let state = State { share: budget.share(1), given: 0, moved: Instant::now() };
        let response = Arc::new(ResponseInFlight { state: Mutex::new(state), busy: Arc::clone(&self.busy) });
        let mut list = self.list();
        if list.len() == list.capacity() {
            list.retain(|response| response.strong_count() > 0);
        }
        list.push(Arc::downgrade(&response));
        drop(list);
        self.begun.notify_one();
        response
    }

    /// Whether any request has arrived.
    pub fn has_asked(&self) -> bool {
        self.asked.load(Ordering::Relaxed)
    }

    /// When the last request arrived; before the first, when the connection was opened.
    pub fn last_request(&self) -> Instant {
        *self.last_request.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Resolves when a response has stalled for this long.
    pub async fn stalled(&self, after: Duration) {
        loop {
            tokio::time::sleep(after / LOOKS).await;
            let under_way = self.under_way();
            if under_way.iter().any(|response| response.is_stalled(Instant::now(), after)) {
                return;
            }
            if under_way.is_empty() {
                // A stale permit costs one more check.
                self.begun.notified().await;
            }
        }
    }

    fn under_way(&self) -> Vec<Arc<ResponseInFlight>> {
        let mut list = self.list();
        list.retain(|response| response.strong_count() > 0);
        list.iter().filter_map(Weak::upgrade).collect()
    }

    fn list(&self) -> MutexGuard<'_, Vec<Weak<ResponseInFlight>>> {
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ResponseInFlight {
    /// A response outside any connection.
    pub fn alone(budget: &Arc<Budget>) -> Arc<Self> {
        ResponsesInFlight::default().begin(budget)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_stalled(&self, now: Instant, after: Duration) -> bool {
        let state = self.state();
        state.given > 0 && now.duration_since(state.moved) >= after
    }

    /// Wraps the body so that it is counted. It is never refused: what it reports may already have been done.
    pub fn carry(self: Arc<Self>, body: Body) -> Body {
        let counted = body.size_hint().exact().map_or(0, |bytes| bytes as usize);
        self.state().share.overdraw(counted);
        Body::new(Carried { body, response: self, counted, rest: Bytes::new() })
    }
}

impl Drop for ResponseInFlight {
    fn drop(&mut self) {
        self.busy.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A body whose bytes are counted.
struct Carried {
    body: Body,
    response: Arc<ResponseInFlight>,
    /// Bytes that were counted before they arrived.
    counted: usize,
    /// What has arrived and was not yet passed on.
    rest: Bytes,
}

impl Carried {
    fn piece(&mut self) -> Option<Frame<Bytes>> {
        if self.rest.is_empty() {
            return None;
        }
        let bytes = self.rest.split_to(self.rest.len().min(PIECE_BYTES));
        let mut state = self.response.state();
        state.given += bytes.len();
        state.moved = Instant::now();
        drop(state);
        Some(Frame::data(Bytes::from_owner(Piece { bytes, response: Arc::clone(&self.response) })))
    }

    fn count(&mut self, bytes: usize) -> bool {
        let before = self.counted.min(bytes);
        self.counted -= before;
        bytes == before || self.response.state().share.take(bytes - before)
    }
}

impl HttpBody for Carried {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        loop {
            if let Some(piece) = self.piece() {
                return Poll::Ready(Some(Ok(piece)));
            }
            let frame = match ready!(Pin::new(&mut self.body).poll_frame(cx)) {
                Some(Ok(frame)) => frame,
                other => return Poll::Ready(other),
            };
            match frame.into_data() {
                Ok(data) if !self.count(data.len()) => {
                    let full = "the response was cut: the server's memory budget for unread responses is exhausted";
                    return Poll::Ready(Some(Err(axum::Error::new(std::io::Error::other(full)))));
                }
                Ok(data) => self.rest = data,
                Err(trailers) => return Poll::Ready(Some(Ok(trailers))),
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let (inner, rest) = (self.body.size_hint(), self.rest.len() as u64);
        let mut hint = SizeHint::new();
        hint.set_lower(inner.lower() + rest);
        if let Some(upper) = inner.upper() {
            hint.set_upper(upper + rest);
        }
        hint
    }
}

/// Bytes buffered by the connection. They are released when it drops them.
struct Piece {
    bytes: Bytes,
    response: Arc<ResponseInFlight>,
}

impl AsRef<[u8]> for Piece {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Piece {
    fn drop(&mut self) {
        let mut state = self.response.state();
        state.given = state.given.saturating_sub(self.bytes.len());
        state.share.give(self.bytes.len());
        state.moved = Instant::now();
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt;

    use super::*;

    const AFTER: Duration = Duration::from_secs(60);

    #[tokio::test]
    async fn bytes_count_until_the_connection_lets_go_of_them() {
        let budget = Arc::new(Budget::new(1 << 20));
        let whole = vec![7; 100_000];
        let mut body = ResponseInFlight::alone(&budget).carry(whole.clone().into());
        assert_eq!((budget.held(), body.size_hint().exact()), (100_000, Some(100_000)));
        let mut pieces = Vec::new();
        while let Some(frame) = body.frame().await {
            pieces.push(frame.unwrap().into_data().unwrap());
        }
        drop(body);
        assert_eq!((pieces.concat(), budget.held()), (whole, 100_000), "read from here, not by the client");
        pieces.pop();
        assert!(budget.held() < 100_000);
        pieces.clear();
        assert_eq!(budget.held(), 0);
    }

    #[tokio::test]
    async fn a_known_size_is_declared_and_a_growing_answer_is_cut() {
        let budget = Arc::new(Budget::new(100_000));
        let made = ResponseInFlight::alone(&budget).carry(vec![7; 180_000].into());
        assert!(budget.is_spent() && made.collect().await.unwrap().to_bytes().len() == 180_000);
        assert!(!budget.is_spent());
        let parts = futures::stream::iter([60_000, 60_000].map(|n| Ok::<_, std::io::Error>(Bytes::from(vec![7; n]))));
        let mut body = ResponseInFlight::alone(&budget).carry(Body::from_stream(parts));
        let mut kept = Vec::new();
        let cut = loop {
            match body.frame().await.unwrap() {
                Ok(frame) => kept.push(frame),
                Err(cut) => break cut,
            }
        };
        assert!(cut.to_string().contains("was cut"), "{cut}");
        drop((body, kept));
        assert_eq!(budget.held(), 0);
    }

    /// Whether the connection would be closed at this time.
    fn is_stalled(responses: &ResponsesInFlight, now: Instant) -> bool {
        responses.under_way().iter().any(|response| response.is_stalled(now, AFTER))
    }

    #[tokio::test]
    async fn one_unread_answer_is_noticed_beside_others_that_are_read() {
        let (budget, responses) = (Arc::new(Budget::new(1 << 20)), ResponsesInFlight::default());
        let mut stuck = responses.begin(&budget).carry("stuck".into());
        let piece = stuck.frame().await;
        let taken = Instant::now();
        let mut read = responses.begin(&budget).carry("read".into());
        drop(read.frame().await);
        assert!(!is_stalled(&responses, taken + AFTER / 2));
        assert!(is_stalled(&responses, taken + AFTER));
        drop(piece);
        assert!(!is_stalled(&responses, taken + AFTER), "it was read in the end");
    }

    #[tokio::test]
    async fn an_answer_that_has_nothing_to_say_yet_is_not_stalled() {
        let (budget, responses) = (Arc::new(Budget::new(1 << 20)), ResponsesInFlight::default());
        let silent = Body::from_stream(futures::stream::pending::<Result<Bytes, std::io::Error>>());
        let body = responses.begin(&budget).carry(silent);
        assert!(!is_stalled(&responses, Instant::now() + AFTER * 10));
        assert_eq!(responses.busy.load(Ordering::Relaxed), 1);
        drop(body);
        assert_eq!(responses.busy.load(Ordering::Relaxed), 0);
    }
}
