//! What was sent and not yet answered: the part of a long upload that is sent again after a broken connection.
//!
//! A window is bounded, so that a sender never runs further ahead of the answers than the window is wide.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::{Stream, StreamExt};
use tokio::sync::{Notify, mpsc};

use crate::{Error, Retry};

/// Entries without an answer.
const ENTRIES_MAX: usize = 8_192;
/// Their bytes.
const BYTES_MAX: usize = 8 << 20;
/// Entries that the server asked to send again, after which a new round begins. Less than the window is wide, else a
/// window full of them would wait for itself.
const AGAIN_MAX: usize = 1_024;
/// Rounds after which an entry that always fails is given up.
const TRIES_MAX: u32 = 5;
/// Entries between the feeder and the connection.
const CHANNEL: usize = 512;

/// Something that can be sent, more than once if need be.
pub(crate) trait Payload: Clone {
    /// Its size in bytes, roughly.
    fn size(&self) -> usize;
}

struct Entry<T, P> {
    tag: T,
    payload: P,
    tries: u32,
}

/// See the head of this file.
pub(crate) struct Window<T, P> {
    state: Mutex<State<T, P>>,
    moved: Notify,
}

struct State<T, P> {
    entries: BTreeMap<u64, Entry<T, P>>,
    next: u64,
    bytes: usize,
    again: usize,
    settled: u64,
    resent: u64,
    exhausted: bool,
}

impl<T, P: Payload> Window<T, P> {
    pub fn new() -> Self {
        let entries = BTreeMap::new();
        let state = State { entries, next: 1, bytes: 0, again: 0, settled: 0, resent: 0, exhausted: false };
        Self { state: Mutex::new(state), moved: Notify::new() }
    }

    fn lock(&self) -> MutexGuard<'_, State<T, P>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An answer for good: the entry leaves.
    pub fn settle(&self, number: u64) -> Option<T> {
        let mut state = self.lock();
        let entry = state.entries.remove(&number)?;
        state.bytes = state.bytes.saturating_sub(entry.payload.size());
        state.settled += 1;
        self.moved.notify_one();
        Some(entry.tag)
    }

    /// An answer that asks to try again: the entry stays for the next round, or leaves if it had its chances.
    pub fn fail(&self, number: u64) -> Option<T> {
        {
            let mut state = self.lock();
            let entry = state.entries.get_mut(&number)?;
            entry.tries += 1;
            if entry.tries < TRIES_MAX {
                state.again += 1;
                self.moved.notify_one();
                return None;
            }
        }
        self.settle(number)
    }

    /// How many entries were sent more than once.
    pub fn resent(&self) -> u64 {
        self.lock().resent
    }

    /// Starts a round: everything without an answer, in order.
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
            }
            moved.await;
        }
    }

    fn is_done(&self) -> bool {
        let state = self.lock();
        state.exhausted && state.entries.is_empty()
    }

    async fn feed(&self, source: &mut (impl Stream<Item = (T, P)> + Unpin), sink: mpsc::Sender<(u64, P)>) {
        for entry in self.begin() {
            if sink.send(entry).await.is_err() {
                return;
            }
        }
        while self.room().await {
            let Some((tag, payload)) = source.next().await else {
                self.lock().exhausted = true;
                return;
            };
            // In the window first: were the connection to break right here, the entry would still be sent.
            let number = self.add(tag, payload.clone());
            if sink.send((number, payload)).await.is_err() {
                return;
            }
        }
    }
}

/// How a connection failed, and how long the server wants to be left alone.
pub(crate) type Broken = (Error, Option<Duration>);

/// Sends everything that `source` gives, over as many connections as it takes. `connect` opens one, sends what it
/// receives and settles what is answered; it ends well only when everything it was given has an answer.
pub(crate) async fn drive<T, P: Payload>(
    window: &Window<T, P>,
    retry: Retry,
    source: impl Stream<Item = (T, P)> + Unpin,
    mut connect: impl AsyncFnMut(mpsc::Receiver<(u64, P)>) -> Result<(), Broken>,
) -> Result<(), Error> {
    // Every connection asks it for more, also after its end; not every stream bears that.
    let mut source = source.fuse();
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
            Ok(()) => None,
            Err((error, retry_after)) if error.is_transient() && fruitless < retry.attempts => {
                tracing::debug!(%error, fruitless, "going on over a new connection");
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
