//! A send window: the unacknowledged part of a long upload, which is resent after a broken connection.
//!
//! The window is bounded, so a sender never runs further ahead of the acknowledgements than its size.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::{Stream, StreamExt};
use tokio::sync::{Notify, mpsc};

use crate::servers::Here;
use crate::{Client, Error, Retry};

/// The maximum number of unacknowledged entries.
const ENTRIES_MAX: usize = 8_192;
/// Their maximum size in bytes.
const BYTES_MAX: usize = 8 << 20;
/// The number of entries that the server asked to resend after which a new round begins. Smaller than the window, or a
/// window full of them would wait for itself.
const AGAIN_MAX: usize = 1_024;
/// The number of rounds after which an entry that always fails is abandoned.
const TRIES_MAX: u32 = 5;
/// The capacity of the channel between the feeder and the connection.
const CHANNEL: usize = 512;
/// How long a connection waits for a source that has nothing to send. Then it ends, and the next entry opens another: a
/// source may be slow for days, and a server ends a body that pauses.
const IDLE: Duration = Duration::from_secs(10);
/// How long a server may leave everything unacknowledged: after a power loss no connection ever breaks.
const SILENCE: Duration = Duration::from_secs(60);

/// An entry that can be sent repeatedly.
pub(crate) trait Payload: Clone {
    /// Its approximate size in bytes.
    fn size(&self) -> usize;

    /// Whether it may be sent again although it may have been applied.
    fn is_idempotent(&self) -> bool {
        true
    }
}

struct Entry<T, P> {
    tag: T,
    payload: P,
    tries: u32,
}

/// See the module documentation.
pub(crate) struct Window<T, P> {
    state: Mutex<State<T, P>>,
    moved: Notify,
}

struct State<T, P> {
    entries: BTreeMap<u64, Entry<T, P>>,
    next: u64,
    bytes: usize,
    again: usize,
    /// Acknowledgements of every kind.
    answers: u64,
    settled: u64,
    resent: u64,
    exhausted: bool,
}

impl<T, P: Payload> Window<T, P> {
    pub fn new() -> Self {
        let entries = BTreeMap::new();
        let state = State { entries, next: 1, bytes: 0, again: 0, answers: 0, settled: 0, resent: 0, exhausted: false };
        Self { state: Mutex::new(state), moved: Notify::new() }
    }

    fn lock(&self) -> MutexGuard<'_, State<T, P>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A final acknowledgement: removes the entry.
    pub fn settle(&self, number: u64) -> Option<T> {
        let mut state = self.lock();
        let entry = state.entries.remove(&number)?;
        state.bytes = state.bytes.saturating_sub(entry.payload.size());
        state.answers += 1;
        state.settled += 1;
        self.moved.notify_one();
        Some(entry.tag)
    }

    /// A request to retry: keeps the entry for the next round, or removes it after its last attempt.
    pub fn fail(&self, number: u64) -> Option<T> {
        {
            let mut state = self.lock();
            let entry = state.entries.get_mut(&number)?;
            entry.tries += 1;
            if entry.tries < TRIES_MAX {
                state.answers += 1;
                state.again += 1;
                self.moved.notify_one();
                return None;
            }
        }
        self.settle(number)
    }

    /// An entry that was sent and will not be acknowledged over this connection: keeps it for the next round, or removes it
    /// if it must not be applied twice.
    pub fn miss(&self, number: u64) -> Option<T> {
        {
            let mut state = self.lock();
            if state.entries.get(&number)?.payload.is_idempotent() {
                state.answers += 1;
                state.again += 1;
                self.moved.notify_one();
                return None;
            }
        }
        self.settle(number)
    }

    /// The number of entries that were sent more than once.
    pub fn resent(&self) -> u64 {
        self.lock().resent
    }

    /// Starts a round: all unacknowledged entries, in order.
    fn begin(&self) -> Vec<(u64, P)> {
        let mut state = self.lock();
        state.again = 0;
        state.resent += state.entries.len() as u64;
        state.entries.iter().map(|(number, entry)| (*number, entry.payload.clone())).collect()
    }

    fn add(&self, tag: T, payload: P) -> u64 {
        let mut state = self.lock();
        let number = state.next;
        state.next += 1;
        state.bytes += payload.size();
        state.entries.insert(number, Entry { tag, payload, tries: 0 });
        number
    }

    /// Waits for room. False if a new round should begin instead.
    async fn room(&self) -> bool {
        loop {
            let moved = self.moved.notified();
            {
                let state = self.lock();
                if state.again >= AGAIN_MAX {
                    return false;
                }
                // One entry always fits, however large it is.
                if state.entries.is_empty() || (state.entries.len() < ENTRIES_MAX && state.bytes < BYTES_MAX) {
                    return true;
                }
                // What waits for the next round leaves no room in this one.
                if state.again >= state.entries.len() {
                    return false;
                }
            }
            moved.await;
        }
    }

    fn is_empty(&self) -> bool {
        self.lock().entries.is_empty()
    }

    fn is_done(&self) -> bool {
        self.is_empty() && self.lock().exhausted
    }

    /// Sends over one connection. It counts as lost if the server answers nothing for too long.
    pub async fn over(
        &self,
        client: &Client,
        send: impl AsyncFnOnce(&Here) -> Result<(), Broken>,
    ) -> Result<(), Broken> {
        let here = client.here();
        let sent = tokio::select! {
            sent = send(&here) => sent,
            () = self.silence() => {
                let cause = format!("nothing was acknowledged for {} s", SILENCE.as_secs());
                Err((Error::Lost { server: here.name(), cause }, None))
            }
        };
        sent.map_err(|(error, retry_after)| (here.failed(error), retry_after))
    }

    /// Resolves when entries wait and none of them was answered for too long.
    async fn silence(&self) {
        const LOOKS: u32 = 4;
        let (mut last, mut quiet) = (None, 0);
        while quiet < LOOKS {
            tokio::time::sleep(SILENCE / LOOKS).await;
            let answers = {
                let state = self.lock();
                (!state.entries.is_empty()).then_some(state.answers)
            };
            quiet = if answers.is_some() && answers == last { quiet + 1 } else { 0 };
            last = answers;
        }
    }

    async fn feed(&self, source: &mut (impl Stream<Item = (T, P)> + Unpin), sink: mpsc::Sender<(u64, P)>) {
        for entry in self.begin() {
            if sink.send(entry).await.is_err() {
                return;
            }
        }
        while self.room().await {
            let Ok(next) = tokio::time::timeout(IDLE, source.next()).await else { return };
            let Some((tag, payload)) = next else {
                self.lock().exhausted = true;
                return;
            };
            // Added to the window first: if the connection broke right here, the entry would still be sent.
            let number = self.add(tag, payload.clone());
            if sink.send((number, payload)).await.is_err() {
                return;
            }
        }
    }
}

/// How a connection failed, and the server's Retry-After.
pub(crate) type Broken = (Error, Option<Duration>);

/// Sends everything from `source`, over as many connections as needed. `connect` opens one, sends what it receives and
/// settles what is acknowledged; it succeeds only when everything it was given is acknowledged.
pub(crate) async fn drive<T, P: Payload>(
    window: &Window<T, P>,
    retry: Retry,
    source: impl Stream<Item = (T, P)> + Unpin,
    mut connect: impl AsyncFnMut(mpsc::Receiver<(u64, P)>) -> Result<(), Broken>,
) -> Result<(), Error> {
    // Every connection polls it, also after its end, which not every stream allows.
    let mut source = source.fuse().peekable();
    let mut fruitless = 0;
    loop {
        let before = window.lock().settled;
        let (sink, receiver) = mpsc::channel(CHANNEL);
        let feeding = async {
            window.feed(&mut source, sink).await;
            std::future::pending::<Infallible>().await
        };
        let ended = tokio::select! {
            ended = connect(receiver) => ended,
            never = feeding => match never {},
        };
        fruitless = if window.lock().settled > before { 1 } else { fruitless + 1 };
        let retry_after = match ended {
            Ok(()) if window.is_done() => return Ok(()),
            Ok(()) if window.is_empty() => {
                // The source pauses; its next entry opens a connection.
                if Pin::new(&mut source).peek().await.is_none() {
                    return Ok(());
                }
                fruitless = 0;
                continue;
            }
            Ok(()) => None,
            Err((error, _)) if error.is_transient() && window.is_done() => return Ok(()),
            Err((error, retry_after)) if error.is_transient() && fruitless < retry.attempts => {
                tracing::debug!(%error, fruitless, "resuming over a new connection");
                retry_after
            }
            Err((error, _)) => return Err(error),
        };
        tokio::time::sleep(retry.pause(fruitless, retry_after)).await;
    }
}

#[cfg(test)]
#[path = "window_tests.rs"]
mod tests;
