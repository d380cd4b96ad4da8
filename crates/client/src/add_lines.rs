//! Adds any number of URLs as an NDJSON stream: results are read while lines are sent, and a broken connection is
//! resumed from the first line without a result. Resending a line is idempotent: a known URL stays as it was. One with `again`
//! is not: if its outcome is unknown it fails instead.
//!
//! A result belongs to the line that it names. A server that runs short of memory omits results, so a line may be left
//! without one: it stays in the window and is sent again.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::{Bytes, BytesMut};
use futures::{Stream, StreamExt, TryStreamExt};
use reqwest::{Body, Method, header};
use tokio::sync::mpsc;
use wayleave_api::urls::{AddCounts, AddResult, AddStatus, AddUrlsQuery, AddUrlsSummary, UrlToAdd};

use crate::call::Call;
use crate::lines::{TooLong, lines};
use crate::servers::Here;
use crate::window::{Broken, Payload, Window, drive};
use crate::{Client, Error};

/// Lines per chunk of the body.
const PIECE_LINES: usize = 512;

/// The result of an upload.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Uploaded {
    /// The number of URLs by status.
    pub counts: AddCounts,
    /// Lines that were sent more than once. Some may have been added by an attempt whose response was lost, and were
    /// then counted as known.
    pub resent: u64,
}

/// Why a line failed whose outcome is unknown.
const PERHAPS: &str = "its answer was lost, so it may have been requeued; look at it before you requeue it again";

#[derive(Clone, Debug)]
struct Line {
    text: Bytes,
    again: bool,
}

impl Payload for Line {
    fn size(&self) -> usize {
        self.text.len()
    }

    fn is_idempotent(&self) -> bool {
        !self.again
    }
}

/// The lines of one connection that may still get a result: their numbers in the window, in the order sent.
#[derive(Default)]
struct Sent {
    /// How many lines came before them: the server counts lines from 1.
    passed: u64,
    numbers: VecDeque<u64>,
    /// How many of those before them have no result.
    omitted: usize,
}

impl Sent {
    /// The window's number of the line that a result names, and the numbers of the lines before it that have no result.
    /// `None` if the line was not sent, or has a result.
    fn take(&mut self, line: u64) -> Option<(u64, Vec<u64>)> {
        let before = usize::try_from(line.checked_sub(self.passed)?.checked_sub(1)?).ok()?;
        if before >= self.numbers.len() {
            return None;
        }
        let omitted: Vec<u64> = self.numbers.drain(..before).collect();
        self.omitted += omitted.len();
        self.passed = line;
        Some((self.numbers.pop_front()?, omitted))
    }

    /// How many lines have no result.
    fn missing(&self) -> usize {
        self.omitted + self.numbers.len()
    }
}

type Order = Arc<Mutex<Sent>>;

fn lock(order: &Order) -> MutexGuard<'_, Sent> {
    order.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What became of a line.
enum Told {
    Result(AddResult),
    /// The server omitted its result.
    Nothing,
}

impl Client {
    /// Adds any number of URLs, to `crawl` unless they name their own. Each comes with a tag, which is returned with
    /// its result. URLs that the server cannot store at the moment are resent a few times. Fails if the server refuses
    /// the upload, or cannot be reached within the retry policy. URLs with a result stay added.
    pub async fn add_lines<T>(
        &self,
        crawl: Option<&str>,
        urls: impl Stream<Item = (T, UrlToAdd)> + Unpin,
        mut on_result: impl FnMut(T, AddResult),
    ) -> Result<Uploaded, Error> {
        let window = Window::new();
        let mut counts = AddCounts::default();
        let source = urls.map(|(tag, url)| ((tag, url.again.then(|| url.url.clone())), line(&url)));
        let sent = drive(&window, self.retry, source, async |receiver| {
            let mut on_line = |number, told| {
                let (settled, result) = match told {
                    Told::Result(result) if result.status == AddStatus::Failed => (window.fail(number), result),
                    Told::Result(result) => (window.settle(number), result),
                    Told::Nothing => (window.miss(number), perhaps()),
                };
                if let Some((tag, url)) = settled {
                    counts.count(result.status);
                    on_result(tag, AddResult { url: result.url.or(url), ..result });
                }
            };
            let order = Order::default();
            let send = async |here: &Here| self.send_lines_to(here, crawl, (receiver, &order), &mut on_line).await;
            let sent = window.over(self, send).await;
            if sent.as_ref().is_err_and(|(error, _)| error.is_outcome_unknown()) {
                lock(&order).numbers.drain(..).for_each(|number| on_line(number, Told::Nothing));
            }
            sent
        });
        sent.await?;
        Ok(Uploaded { counts, resent: window.resent() })
    }

    async fn send_lines_to(
        &self,
        here: &Here,
        crawl: Option<&str>,
        (receiver, order): (mpsc::Receiver<(u64, Line)>, &Order),
        on_line: &mut impl FnMut(u64, Told),
    ) -> Result<(), Broken> {
        let query = AddUrlsQuery { crawl: crawl.map(str::to_owned), results: None };
        let call =
            Call::new(Method::POST, self.url(&["urls"])).query(&self.http, &query).map_err(|error| (error, None))?;
        let request = self.http.post(here.place(call.url())).header(header::CONTENT_TYPE, "application/x-ndjson");
        let response = request.body(body(receiver, order.clone())).send().await;
        let response = here.accepted(response.map_err(|error| (here.not_answered(&error), None))?).await?;
        let lost = |cause: String| Error::Lost { server: here.name(), cause };
        let cut = |error: Cut| match error {
            Cut::Body(error) => (here.not_answered(&error), None),
            Cut::Line(error) => (here.bad_answer(&error), None),
        };
        let mut results = std::pin::pin!(lines(response.bytes_stream().map_err(Cut::Body).boxed()));
        while let Some(line) = results.next().await {
            let line = line.map_err(cut)?;
            let Ok(result) = serde_json::from_slice::<AddResult>(&line) else {
                let summary = serde_json::from_slice::<AddUrlsSummary>(&line);
                summary.map_err(|error| (here.bad_answer(&error), None))?;
                return match lock(order).missing() {
                    0 => Ok(()),
                    missing => Err((lost(format!("{missing} lines have no result")), None)),
                };
            };
            let taken = result.line.and_then(|line| lock(order).take(line));
            let (number, omitted) = taken.ok_or_else(|| (here.bad_answer(&"it has a result of no line"), None))?;
            omitted.into_iter().for_each(|number| on_line(number, Told::Nothing));
            on_line(number, Told::Result(result));
        }
        // The end without a summary: the server stopped midway.
        Err((lost("the results ended early".to_owned()), None))
    }
}

/// What can go wrong with the results.
enum Cut {
    Body(reqwest::Error),
    Line(TooLong),
}

impl From<TooLong> for Cut {
    fn from(too_long: TooLong) -> Self {
        Self::Line(too_long)
    }
}

fn perhaps() -> AddResult {
    AddResult { line: None, url: None, status: AddStatus::Failed, reason: Some(PERHAPS.to_owned()) }
}

fn line(url: &UrlToAdd) -> Line {
    // Plain data always serialises; a line that did not would be refused by the server.
    let mut text = serde_json::to_vec(url).unwrap_or_default();
    text.push(b'\n');
    Line { text: text.into(), again: url.again }
}

fn body(receiver: mpsc::Receiver<(u64, Line)>, order: Order) -> Body {
    let pieces = futures::stream::unfold((receiver, order), |(mut receiver, order)| async move {
        let mut batch = Vec::new();
        if receiver.recv_many(&mut batch, PIECE_LINES).await == 0 {
            return None;
        }
        let mut piece = BytesMut::with_capacity(batch.iter().map(|(_, line)| line.text.len()).sum());
        {
            let mut order = lock(&order);
            for (number, line) in batch {
                order.numbers.push_back(number);
                piece.extend_from_slice(&line.text);
            }
        }
        Some((Ok::<_, Infallible>(piece.freeze()), (receiver, order)))
    });
    Body::wrap_stream(pieces)
}
