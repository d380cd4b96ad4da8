//! Adds any number of URLs as an NDJSON stream: results are read while lines are sent, and a broken connection is
//! resumed from the first line without a result. Resending a line is idempotent: a known URL stays as it was.

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

impl Payload for Bytes {
    fn size(&self) -> usize {
        self.len()
    }
}

/// The numbers of the lines of one connection, in the order sent.
type Order = Arc<Mutex<VecDeque<u64>>>;

fn lock(order: &Order) -> MutexGuard<'_, VecDeque<u64>> {
    order.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Client {
    /// Adds any number of URLs, to `crawl` unless they name their own. Each comes with a tag, which is returned with
    /// its result. URLs that the server cannot store at the moment are resent a few times.
    ///
    /// # Errors
    /// If the server refuses the upload, or cannot be reached within the retry policy. URLs with a result stay added.
    pub async fn add_lines<T>(
        &self,
        crawl: Option<&str>,
        urls: impl Stream<Item = (T, UrlToAdd)> + Unpin,
        mut on_result: impl FnMut(T, AddResult),
    ) -> Result<Uploaded, Error> {
        let window = Window::new();
        let mut counts = AddCounts::default();
        let source = urls.map(|(tag, url)| (tag, line(&url)));
        let sent = drive(&window, self.retry, source, async |receiver| {
            self.send_lines(crawl, receiver, |number, result| {
                let settled =
                    if result.status == AddStatus::Failed { window.fail(number) } else { window.settle(number) };
                if let Some(tag) = settled {
                    counts.count(result.status);
                    on_result(tag, result);
                }
            })
            .await
        });
        sent.await?;
        Ok(Uploaded { counts, resent: window.resent() })
    }

    async fn send_lines(
        &self,
        crawl: Option<&str>,
        receiver: mpsc::Receiver<(u64, Bytes)>,
        on_result: impl FnMut(u64, AddResult),
    ) -> Result<(), Broken> {
        let here = self.here();
        let sent = self.send_lines_to(&here, crawl, receiver, on_result).await;
        sent.map_err(|(error, retry_after)| (here.failed(error), retry_after))
    }

    async fn send_lines_to(
        &self,
        here: &Here,
        crawl: Option<&str>,
        receiver: mpsc::Receiver<(u64, Bytes)>,
        mut on_result: impl FnMut(u64, AddResult),
    ) -> Result<(), Broken> {
        let query = AddUrlsQuery { crawl: crawl.map(str::to_owned), results: None };
        let call =
            Call::new(Method::POST, self.url(&["urls"])).query(&self.http, &query).map_err(|error| (error, None))?;
        let order = Order::default();
        let request = self.http.post(here.place(call.url())).header(header::CONTENT_TYPE, "application/x-ndjson");
        let response = request.body(body(receiver, order.clone())).send().await;
        let response = here.accepted(response.map_err(|error| (here.not_answered(&error), None))?).await?;
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
                let missing = lock(&order).len();
                return if missing == 0 { Ok(()) } else { Err((too_few(here, missing), None)) };
            };
            let number = lock(&order).pop_front();
            let number = number.ok_or_else(|| (here.bad_answer(&"it has more results than lines were sent"), None))?;
            on_result(number, result);
        }
        // The end without a summary: the server stopped midway.
        Err((Error::Lost { server: here.name(), cause: "the results ended early".to_owned() }, None))
    }
}

fn too_few(here: &Here, missing: usize) -> Error {
    here.bad_answer(&format_args!("{missing} lines have no result"))
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

fn line(url: &UrlToAdd) -> Bytes {
    // Plain data always serialises; a line that did not would be refused by the server.
    let mut line = serde_json::to_vec(url).unwrap_or_default();
    line.push(b'\n');
    line.into()
}

fn body(receiver: mpsc::Receiver<(u64, Bytes)>, order: Order) -> Body {
    let pieces = futures::stream::unfold((receiver, order), |(mut receiver, order)| async move {
        let mut batch = Vec::new();
        if receiver.recv_many(&mut batch, PIECE_LINES).await == 0 {
            return None;
        }
        let mut piece = BytesMut::with_capacity(batch.iter().map(|(_, line)| line.len()).sum());
        {
            let mut order = lock(&order);
            for (number, line) in batch {
                order.push_back(number);
                piece.extend_from_slice(&line);
            }
        }
        Some((Ok::<_, Infallible>(piece.freeze()), (receiver, order)))
    });
    Body::wrap_stream(pieces)
}
