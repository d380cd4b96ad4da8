//! Buffers results that the client has not read yet. A client that sends everything before it reads must neither block
//! the intake (a deadlock: it would wait for us while we wait for it) nor exhaust our memory. Unread results beyond the
//! limit, or beyond the memory budget, shrink from whole lines to eight bytes per line, and beyond a second limit to a
//! count.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use futures::Stream;
use tokio::sync::Notify;
use wayleave_api::Problem;
use wayleave_api::urls::{AddResult, AddStatus};

use wayleave_listen::Share;

/// The buffer limits.
#[derive(Clone, Copy)]
pub struct Bounds {
    /// Bytes of whole lines.
    pub whole_bytes: usize,
    /// Lines of which only number and status are kept.
    pub brief_lines: usize,
}

impl Default for Bounds {
    fn default() -> Self {
        Self { whole_bytes: 8 << 20, brief_lines: 4 << 20 }
    }
}

/// The memory of a brief line.
const BRIEF_BYTES: usize = size_of::<(u32, AddStatus)>();
/// The number of brief lines written at a time.
const BRIEF_AT_ONCE: usize = 4_096;

struct State {
    whole: VecDeque<Bytes>,
    whole_bytes: usize,
    /// Line number and status, in the order sent; line numbers are delta-encoded.
    brief: VecDeque<(u32, AddStatus)>,
    /// The line number before the first brief line, and that of the last.
    brief_from: u64,
    brief_to: u64,
    omitted: u64,
    ending: Option<Result<Bytes, Problem>>,
    ended: bool,
    closed: bool,
    share: Share,
}

struct Shared {
    state: Mutex<State>,
    changed: Notify,
    bounds: Bounds,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The producer side; it never waits.
pub struct Giver(Arc<Shared>);

/// The consumer side.
pub struct Reader(Arc<Shared>);

/// A buffer for results.
pub fn unread(bounds: Bounds, share: Share) -> (Giver, Reader) {
    let shared = Arc::new(Shared { state: Mutex::new(State::new(share)), changed: Notify::new(), bounds });
    (Giver(Arc::clone(&shared)), Reader(shared))
}

impl Giver {
    /// Adds results; false if the consumer is gone.
    pub fn give(&self, results: &[AddResult]) -> bool {
        let mut state = self.0.state();
        let mut lines = Vec::new();
        if state.brief.is_empty() && state.whole_bytes < self.0.bounds.whole_bytes {
            for result in results {
                write_line(&mut lines, result);
            }
        }
        if !lines.is_empty() && state.share.take(lines.len()) {
            state.whole_bytes += lines.len();
            state.whole.push_back(lines.into());
        } else {
            for result in results {
                state.shorten(result, self.0.bounds.brief_lines);
            }
        }
        self.0.changed.notify_one();
        !state.closed
    }

    /// The number of results that were omitted because too many were unread.
    pub fn omitted(&self) -> u64 {
        self.0.state().omitted
    }

    /// Ends the results with a last line, or with an error.
    pub fn end(self, last: Result<Bytes, Problem>) {
        self.0.state().ending = Some(last);
    }
}

impl Drop for Giver {
    fn drop(&mut self) {
        self.0.state().ended = true;
        self.0.changed.notify_one();
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.0.state().closed = true;
    }
}

impl State {
    fn new(share: Share) -> Self {
        Self {
            whole: VecDeque::new(),
            whole_bytes: 0,
            brief: VecDeque::new(),
            brief_from: 0,
            brief_to: 0,
            omitted: 0,
            ending: None,
            ended: false,
            closed: false,
            share,
        }
    }

    fn shorten(&mut self, result: &AddResult, most: usize) {
        if self.brief.len() >= most || !self.share.take(BRIEF_BYTES) {
            self.omitted += 1;
            return;
        }
        let line = result.line.unwrap_or_default();
        if self.brief.is_empty() {
            (self.brief_from, self.brief_to) = (line, line);
        }
        let distance = u32::try_from(line.saturating_sub(self.brief_to)).unwrap_or(u32::MAX);
        self.brief.push_back((distance, result.status));
        self.brief_to = line;
    }

    fn next(&mut self) -> Option<Result<Bytes, Problem>> {
        if let Some(lines) = self.whole.pop_front() {
            self.whole_bytes -= lines.len();
            self.share.give(lines.len());
            return Some(Ok(lines));
        }
        if self.brief.is_empty() {
            return self.ending.take();
        }
        let mut lines = Vec::new();
        let count = self.brief.len().min(BRIEF_AT_ONCE);
        self.share.give(count * BRIEF_BYTES);
        for (distance, status) in self.brief.drain(..count) {
            self.brief_from += u64::from(distance);
            write_line(&mut lines, &AddResult { line: Some(self.brief_from), url: None, status, reason: None });
        }
        Some(Ok(lines.into()))
    }
}

impl Reader {
    /// The results as they arrive, then the last line.
    pub fn stream(self) -> impl Stream<Item = Result<Bytes, Problem>> {
        futures::stream::unfold(self, |reader| async {
            loop {
                let next = {
                    let mut state = reader.0.state();
                    let next = state.next();
                    if next.is_none() && state.ended {
                        return None;
                    }
                    next
                };
                match next {
                    Some(part) => return Some((part, reader)),
                    None => reader.0.changed.notified().await,
                }
            }
        })
    }
}

/// Writes a value as one line.
pub fn write_line<T: serde::Serialize>(out: &mut Vec<u8>, value: &T) {
    // Plain data always serialises; a line that did not would be empty.
    let _ = serde_json::to_writer(&mut *out, value);
    out.push(b'\n');
}

#[cfg(test)]
mod tests {
    use super::{unread as unread_in, *};
    use futures::StreamExt;

    /// A separate buffer, within a budget of `bytes` bytes.
    fn unread_within(bounds: Bounds, bytes: usize) -> (Giver, Reader) {
        unread_in(bounds, Arc::new(wayleave_listen::Budget::new(bytes)).share(1))
    }

    fn unread(bounds: Bounds) -> (Giver, Reader) {
        unread_within(bounds, 1 << 20)
    }

    #[tokio::test]
    async fn without_memory_results_shrink_at_once() {
        let (giver, reader) = unread_within(Bounds::default(), 3 * BRIEF_BYTES);
        assert!(giver.give(&results(1..=5)));
        assert_eq!(giver.omitted(), 2);
        drop(giver);
        assert_eq!(read(reader).await.len(), 3);
    }

    fn results(lines: std::ops::RangeInclusive<u64>) -> Vec<AddResult> {
        let status = |line: u64| if line.is_multiple_of(2) { AddStatus::Known } else { AddStatus::Added };
        let result = |line| AddResult { line: Some(line), url: Some("u".into()), status: status(line), reason: None };
        lines.map(result).collect()
    }

    async fn read(reader: Reader) -> Vec<String> {
        let parts: Vec<Bytes> = reader.stream().map(Result::unwrap).collect().await;
        String::from_utf8(parts.concat()).unwrap().lines().map(str::to_owned).collect()
    }

    #[tokio::test]
    async fn what_is_left_unread_shrinks_and_keeps_its_order() {
        let (giver, reader) = unread(Bounds { whole_bytes: 1, brief_lines: 3 });
        assert!(giver.give(&results(1..=2)));
        assert!(giver.give(&results(5..=9)));
        assert_eq!(giver.omitted(), 2);
        giver.end(Ok(Bytes::from_static(b"end\n")));
        let want = [
            r#"{"line":1,"url":"u","status":"added"}"#,
            r#"{"line":2,"url":"u","status":"known"}"#,
            r#"{"line":5,"status":"added"}"#,
            r#"{"line":6,"status":"known"}"#,
            r#"{"line":7,"status":"added"}"#,
            "end",
        ];
        assert_eq!(read(reader).await, want);
    }

    #[tokio::test]
    async fn a_reader_that_keeps_up_gets_whole_lines() {
        let (giver, reader) = unread(Bounds { whole_bytes: 1, brief_lines: 0 });
        let mut stream = std::pin::pin!(reader.stream());
        for line in 1..=3 {
            giver.give(&results(line..=line));
            let part = stream.next().await.unwrap().unwrap();
            assert!(part.starts_with(format!("{{\"line\":{line},\"url\"").as_bytes()), "{part:?}");
        }
        assert_eq!(giver.omitted(), 0);
        drop(giver);
        assert!(stream.next().await.is_none());
    }

    #[tokio::test]
    async fn a_waiting_reader_is_woken_by_results_and_by_the_end() {
        let (giver, reader) = unread(Bounds::default());
        let reading = tokio::spawn(read(reader));
        tokio::task::yield_now().await;
        giver.give(&results(1..=1));
        tokio::task::yield_now().await;
        giver.end(Ok(Bytes::from_static(b"end\n")));
        assert_eq!(reading.await.unwrap().len(), 2);
    }

    #[test]
    fn the_giver_learns_that_nobody_reads_any_more() {
        let (giver, reader) = unread(Bounds::default());
        drop(reader);
        assert!(!giver.give(&results(1..=1)));
    }
}
