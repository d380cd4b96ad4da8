//! Adding URLs: as one JSON body, or as lines of any number.

use std::time::Duration;

use axum::Json;
use axum::body::{Body, BodyDataStream};
use axum::extract::{Request, State};
use axum::http::header;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures::{FutureExt, Stream, StreamExt};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use wayleave_api::urls::{
    AddCounts, AddResult, AddUrlsQuery, AddUrlsRequest, AddUrlsResponse, AddUrlsSummary, UrlToAdd, crawl_or_default,
};
use wayleave_api::{Code, Problem};
use wayleave_core::limits;
use wayleave_core::names::CrawlName;

use super::add_batch::{AddBatch, count, sum};
use crate::http::accepts::{BodyKind, NDJSON, body_kind};
use crate::http::app::App;
use crate::http::extract::{QueryOf, read_body, read_json};
use crate::http::lines::{Line, Lines};
use crate::http::refused::Refused;

/// Lines that go to the frontier together.
const PART_LINES: usize = 1_000;
/// Bytes of lines that go to the frontier together.
const PART_BYTES: usize = 256 * 1024;
/// Parts of one stream that are with the frontier at once.
const PARTS_IN_FLIGHT: usize = 4;
/// Parts of results that wait for a client which sends before it reads.
const PARTS_UNREAD: usize = 32;
/// How long a client may leave its results unread before it is given up. A client that only sends would wait for us
/// while we wait for it.
const UNREAD_TIMEOUT: Duration = Duration::from_secs(60);

/// Adds URLs. As NDJSON, one URL object on each line, any number of them: results are streamed while lines arrive, so
/// read while you send, or ask for counts alone with `results=false`. The last line has the counts.
#[utoipa::path(
    post, path = "/v1/urls", tag = "urls", params(AddUrlsQuery),
    request_body(content((AddUrlsRequest = "application/json"), (UrlToAdd = "application/x-ndjson"))),
    responses((
        status = 200, description = "What became of each URL, in the order sent.",
        content((AddUrlsResponse = "application/json"), (AddResult = "application/x-ndjson"))
    ))
)]
pub async fn add_urls(
    State(app): State<App>,
    QueryOf(query): QueryOf<AddUrlsQuery>,
    request: Request,
) -> Result<Response, Refused> {
    let results = query.results.unwrap_or(true);
    match body_kind(request.headers())? {
        BodyKind::Json => {
            let body: AddUrlsRequest = read_json(&read_body(request, &app).await?)?;
            let crawl = crawl_or_default(body.crawl.as_deref().or(query.crawl.as_deref()))?;
            add_body(&app, body, &crawl, results).await
        }
        BodyKind::Lines => {
            let intake = Intake::new(app, crawl_or_default(query.crawl.as_deref())?, request.into_body());
            if results { Ok(stream_results(intake)) } else { count_only(intake).await }
        }
    }
}

async fn add_body(app: &App, body: AddUrlsRequest, crawl: &CrawlName, results: bool) -> Result<Response, Refused> {
    body.check_size()?;
    let mut batch = AddBatch::default();
    for url in body.urls {
        batch.push(None, url, crawl, 0);
    }
    let added = store(app.clone(), batch).await;
    let counts = count(&added);
    Ok(Json(AddUrlsResponse { counts, results: results.then_some(added) }).into_response())
}

async fn store(app: App, batch: AddBatch) -> Vec<AddResult> {
    let (puts, pending) = batch.into_parts();
    let outcomes = if puts.is_empty() { Vec::new() } else { app.frontier.put(puts).await };
    let results = pending.resolve(outcomes);
    app.metrics.urls.add(&count(&results));
    results
}

/// Lines on their way in, cut into parts for the frontier.
struct Intake {
    app: App,
    crawl: CrawlName,
    body: BodyDataStream,
    lines: Lines,
    ended: bool,
}

impl Intake {
    fn new(app: App, crawl: CrawlName, body: Body) -> Self {
        Self { app, crawl, body: body.into_data_stream(), lines: Lines::default(), ended: false }
    }

    /// Results part by part, in the order sent, with a few parts under way at once.
    fn results(self) -> impl Stream<Item = Result<Vec<AddResult>, Problem>> {
        let app = self.app.clone();
        futures::stream::unfold(self, |mut intake| async { intake.next_part().await.map(|part| (part, intake)) })
            .map(move |part| {
                let app = app.clone();
                async move { Ok(store(app, part?).await) }
            })
            .buffered(PARTS_IN_FLIGHT)
    }

    /// The lines that are there, up to the size of a part; waits only while there are none, so that a slow sender gets
    /// its results at once.
    async fn next_part(&mut self) -> Option<Result<AddBatch, Problem>> {
        let mut part = AddBatch::default();
        let mut bytes = 0;
        loop {
            while part.len() < PART_LINES && bytes < PART_BYTES {
                let Some((number, line)) = self.lines.next_line() else { break };
                bytes += self.take(&mut part, number, line);
            }
            if self.ended || part.len() >= PART_LINES || bytes >= PART_BYTES {
                break;
            }
            let arrived = if part.is_empty() { Some(self.body.next().await) } else { self.body.next().now_or_never() };
            match arrived {
                None => break,
                Some(Some(Ok(data))) => self.lines.push(&data),
                Some(Some(Err(cause))) => {
                    self.ended = true;
                    return Some(Err(Problem::new(Code::BadJson, format!("the body was cut off: {cause}"))));
                }
                Some(None) => {
                    self.ended = true;
                    if let Some((number, line)) = self.lines.finish() {
                        self.take(&mut part, number, line);
                    }
                }
            }
        }
        (!part.is_empty()).then_some(Ok(part))
    }

    fn take(&self, part: &mut AddBatch, number: u64, line: Line) -> usize {
        match line {
            Line::TooLong => part.reject(number, format!("the line is over {} bytes", limits::LINE_BYTES_MAX)),
            Line::Text(text) => {
                match serde_json::from_slice::<UrlToAdd>(&text) {
                    Ok(url) => part.push(Some(number), url, &self.crawl, 0),
                    Err(error) => part.reject(number, format!("not a URL object: {error}")),
                }
                return text.len();
            }
        }
        0
    }
}

async fn count_only(intake: Intake) -> Result<Response, Refused> {
    let mut total = AddCounts::default();
    let mut results = std::pin::pin!(intake.results());
    while let Some(part) = results.next().await {
        sum(&mut total, &count(&part?));
    }
    let mut line = Vec::new();
    write_line(&mut line, &AddUrlsSummary { counts: total });
    Ok(([(header::CONTENT_TYPE, NDJSON)], line).into_response())
}

/// The answer begins at once and grows with the results. A task of its own reads on while the client is busy sending.
fn stream_results(intake: Intake) -> Response {
    let (sink, parts) = mpsc::channel::<Result<Bytes, Problem>>(PARTS_UNREAD);
    tokio::spawn(run_intake(intake, sink));
    ([(header::CONTENT_TYPE, NDJSON)], Body::from_stream(ReceiverStream::new(parts))).into_response()
}

async fn run_intake(intake: Intake, sink: mpsc::Sender<Result<Bytes, Problem>>) {
    let mut total = AddCounts::default();
    let mut results = std::pin::pin!(intake.results());
    while let Some(part) = results.next().await {
        let lines = part.map(|part| {
            sum(&mut total, &count(&part));
            let mut lines = Vec::new();
            for result in &part {
                write_line(&mut lines, result);
            }
            Bytes::from(lines)
        });
        let cut_off = lines.is_err();
        if !deliver(&sink, lines).await || cut_off {
            return;
        }
    }
    let mut line = Vec::new();
    write_line(&mut line, &AddUrlsSummary { counts: total });
    deliver(&sink, Ok(line.into())).await;
}

/// Whether the client still takes results.
async fn deliver(sink: &mpsc::Sender<Result<Bytes, Problem>>, part: Result<Bytes, Problem>) -> bool {
    match sink.send_timeout(part, UNREAD_TIMEOUT).await {
        Ok(()) => true,
        Err(mpsc::error::SendTimeoutError::Closed(_)) => false,
        Err(mpsc::error::SendTimeoutError::Timeout(_)) => {
            tracing::warn!("gave up a stream of URLs whose client sends but does not read; use results=false there");
            false
        }
    }
}

fn write_line<T: serde::Serialize>(out: &mut Vec<u8>, value: &T) {
    // Plain data always serialises; a line that did not would be an empty one.
    let _ = serde_json::to_writer(&mut *out, value);
    out.push(b'\n');
}
