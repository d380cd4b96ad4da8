//! Adds URLs: as one JSON body, or as an NDJSON stream of any length.

use axum::Json;
use axum::body::{Body, BodyDataStream};
use axum::extract::{Request, State};
use axum::http::header;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures::{FutureExt, Stream, StreamExt};
use tokio::time::Instant;
use wayleave_api::urls::{
    AddCounts, AddResult, AddUrlsQuery, AddUrlsRequest, AddUrlsResponse, AddUrlsSummary, UrlToAdd, crawl_or_default,
};
use wayleave_api::{Code, Problem};
use wayleave_core::frontier::refusal::Refusal;
use wayleave_core::frontier::request::PutOutcome;
use wayleave_core::limits;
use wayleave_core::names::CrawlName;

use super::add_batch::{AddBatch, count, sum};
use super::result_buffer::{Bounds, Giver, unread, write_line};
use crate::http::accepts::{BodyKind, NDJSON, body_kind};
use crate::http::app::App;
use crate::http::extract::{QueryOf, read_body, read_json, read_line};
use crate::http::held::{Held, waits_since};
use crate::http::lines::{Line, Lines};
use crate::http::refused::Refused;
use crate::http::waiting::{QUIET, Waiting};

/// Lines submitted to the frontier together.
const PART_LINES: usize = 1_000;
/// Bytes of lines submitted to the frontier together.
const PART_BYTES: usize = 256 * 1024;
/// The step in which unread results take bytes from the budget.
const RESULTS_STEP: usize = 16 << 10;
/// The maximum number of chunks of one stream in flight.
const PARTS_IN_FLIGHT: usize = 4;

/// Adds URLs.
///
/// As NDJSON, one URL object per line, any number of them; results are streamed while lines arrive. Read while you
/// send: of results that stay unread too long only line and status are kept, and in the end only their number.
/// `results=false` asks for the counts alone. The last line has the counts.
///
/// If nothing was stored because the store refused it, the whole request is refused (507 `store_full` if its disk fills up), except
/// as NDJSON with results: there every line says so.
#[utoipa::path(
    post, path = "/v1/urls", tag = "urls", params(AddUrlsQuery),
    request_body(content((AddUrlsRequest = "application/json"), (UrlToAdd = "application/x-ndjson"))),
    responses((
        status = 200, description = "The result of each URL, in the order sent.",
        content((AddUrlsResponse = "application/json"), (AddResult = "application/x-ndjson"))
    ))
)]
pub async fn add_urls(
    State(app): State<App>,
    QueryOf(query): QueryOf<AddUrlsQuery>,
    request: Request,
) -> Result<Response, Refused> {
    let results = query.results.unwrap_or(true);
    let named = crawl_or_default(query.crawl.as_deref())?;
    match body_kind(request.headers())? {
        BodyKind::Json => {
            let body: AddUrlsRequest = read_json(&read_body(request, &app).await?)?;
            let crawl = if body.crawl.is_some() { crawl_or_default(body.crawl.as_deref())? } else { named };
            add_body(&app, body, &crawl, results).await
        }
        BodyKind::Lines => {
            let intake = Intake::new(app, named, request)?;
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
    let (added, refusal) = store(app.clone(), batch).await;
    let counts = count(&added);
    refuse_if_nothing_was_stored(&counts, refusal)?;
    Ok(Json(AddUrlsResponse { counts, results: results.then_some(added) }).into_response())
}

/// The results of a batch, and the worst refusal among those that failed.
async fn store(app: App, batch: AddBatch) -> (Vec<AddResult>, Option<Refusal>) {
    let (puts, pending) = batch.into_parts();
    let outcomes = if puts.is_empty() { Vec::new() } else { app.frontier.put(puts).await };
    let failed = outcomes.iter().filter_map(|outcome| match outcome {
        PutOutcome::Failed(refusal) => Some((**refusal).clone()),
        PutOutcome::Moved => Some(Refusal::Moved),
        _ => None,
    });
    let refusal = failed.reduce(Refusal::or_worse);
    let results = pending.resolve(outcomes);
    app.metrics.urls.add(&count(&results));
    (results, refusal)
}

/// A request of which nothing was stored or known, because the store refused it, is refused as a whole: a client that looks at
/// the status alone must not take it for done.
fn refuse_if_nothing_was_stored(counts: &AddCounts, refusal: Option<Refusal>) -> Result<(), Refused> {
    let none = counts.added == 0 && counts.known == 0 && counts.requeued == 0;
    refusal.filter(|_| none).map_or(Ok(()), |refusal| Err(refusal.into()))
}

/// The input stream, split into chunks for the frontier.
struct Intake {
    app: App,
    crawl: CrawlName,
    body: BodyDataStream,
    lines: Lines,
    /// When the last line ended, or the current one began.
    since: Instant,
    ended: bool,
    /// Until a line is whole.
    waiting: Waiting,
    /// The budget of the lines and chunks that this stream may have in flight.
    _held: Held,
}

impl Intake {
    fn new(app: App, crawl: CrawlName, request: Request) -> Result<Self, Refused> {
        let held = Held::of(&request, &app);
        held.take(limits::LINE_BYTES_MAX + PART_BYTES * (PARTS_IN_FLIGHT + 1))?;
        let waiting = Waiting::of(request.extensions(), &app);
        let (body, lines) = (request.into_body().into_data_stream(), Lines::default());
        Ok(Self { app, crawl, body, lines, since: Instant::now(), ended: false, waiting, _held: held })
    }

    /// Results chunk by chunk, in the order sent, with a few chunks in flight.
    fn results(self) -> impl Stream<Item = Result<(Vec<AddResult>, Option<Refusal>), Problem>> {
        let app = self.app.clone();
        futures::stream::unfold(self, |mut intake| async { intake.next_part().await.map(|part| (part, intake)) })
            .map(move |part| {
                let app = app.clone();
                async move { Ok(store(app, part?).await) }
            })
            .buffered(PARTS_IN_FLIGHT)
    }

    /// The available lines, up to the size of a chunk. Waits only if there are none, so that a slow sender gets its
    /// results at once.
    async fn next_part(&mut self) -> Option<Result<AddBatch, Problem>> {
        let mut part = AddBatch::default();
        let mut bytes = 0;
        loop {
            while part.len() < PART_LINES && bytes < PART_BYTES {
                let Some((number, line)) = self.lines.next_line() else { break };
                self.since = Instant::now();
                self.waiting.end();
                bytes += self.take(&mut part, number, line);
            }
            if self.ended || part.len() >= PART_LINES || bytes >= PART_BYTES {
                break;
            }
            let arrived = if part.is_empty() {
                Some(self.arrived().await)
            } else {
                self.body.next().now_or_never().map(|now| now.map(|data| data.map_err(cut_off)))
            };
            match arrived {
                None => break,
                Some(Some(Ok(data))) => {
                    if !self.lines.is_within_line() {
                        self.since = Instant::now();
                    }
                    self.lines.push(&data);
                }
                Some(Some(Err(cause))) => {
                    self.ended = true;
                    return Some(Err(*cause));
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

    /// The next bytes. Neither a pause nor a line may take longer than the body timeout. Without a whole line for a moment, this
    /// request waits as a long poll does, and ends when its place is needed.
    async fn arrived(&mut self) -> Option<Result<Bytes, Box<Problem>>> {
        let timeout = self.app.config.body_timeout;
        self.since = waits_since(self.since, self.since + timeout, Instant::now());
        let (until, quiet) = (self.since + timeout, self.since + QUIET);
        if let Ok(arrived) = tokio::time::timeout_at(quiet.min(until), self.body.next()).await {
            return Some(arrived?.map_err(cut_off));
        }
        let hurry = self.waiting.begin();
        let hurried = async {
            match &hurry {
                Some(hurry) => hurry.cancelled().await,
                None => std::future::pending().await,
            }
        };
        let detail = tokio::select! {
            biased;
            arrived = self.body.next() => return Some(arrived?.map_err(cut_off)),
            () = hurried => "the server needs the place of this request; what was answered is stored, send the rest again",
            () = tokio::time::sleep_until(until) => "no further line arrived in time; what was answered is stored, send the rest again",
        };
        Some(Err(Box::new(Problem::new(Code::BodyTimeout, detail))))
    }

    fn take(&self, part: &mut AddBatch, number: u64, line: Line) -> usize {
        match line {
            Line::TooLong => part.reject(number, format!("the line is over {} bytes", limits::LINE_BYTES_MAX)),
            Line::Text(text) => {
                match read_line::<UrlToAdd>(&text) {
                    Ok(url) => part.push(Some(number), url, &self.crawl, 0),
                    Err(reason) => part.reject(number, reason),
                }
                return text.len();
            }
        }
        0
    }
}

async fn count_only(intake: Intake) -> Result<Response, Refused> {
    let mut total = AddCounts::default();
    let mut worst = None::<Refusal>;
    let mut results = std::pin::pin!(intake.results());
    while let Some(part) = results.next().await {
        let (part, refusal) = part?;
        sum(&mut total, &count(&part));
        worst = worst.into_iter().chain(refusal).reduce(Refusal::or_worse);
    }
    refuse_if_nothing_was_stored(&total, worst)?;
    Ok(([(header::CONTENT_TYPE, NDJSON)], summary(total, 0)).into_response())
}

/// The response begins at once and grows with the results. A separate task keeps reading while the client is busy
/// sending.
fn stream_results(intake: Intake) -> Response {
    let (giver, reader) = unread(Bounds::default(), intake.app.budget.share(RESULTS_STEP));
    tokio::spawn(run_intake(intake, giver));
    ([(header::CONTENT_TYPE, NDJSON)], Body::from_stream(reader.stream())).into_response()
}

async fn run_intake(intake: Intake, giver: Giver) {
    let mut total = AddCounts::default();
    let mut results = std::pin::pin!(intake.results());
    while let Some(part) = results.next().await {
        match part {
            Ok((part, _)) => {
                sum(&mut total, &count(&part));
                if !giver.give(&part) {
                    return;
                }
            }
            Err(problem) => return giver.end(Err(problem)),
        }
    }
    let last = summary(total, giver.omitted());
    giver.end(Ok(last));
}

fn cut_off(cause: axum::Error) -> Box<Problem> {
    Box::new(Problem::new(Code::BadJson, format!("the body was cut off: {cause}")))
}

fn summary(counts: AddCounts, omitted: u64) -> Bytes {
    let mut line = Vec::new();
    write_line(&mut line, &AddUrlsSummary { counts, omitted });
    line.into()
}
