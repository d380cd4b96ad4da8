//! Lists URLs: page by page as JSON, or all matches as NDJSON.

use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures::Stream;
use wayleave_api::listing::page_rows;
use wayleave_api::urls::{ListUrlsQuery, ListUrlsResponse, Url};
use wayleave_api::{BadValue, Problem};
use wayleave_core::frontier::refusal::Refusal;
use wayleave_core::frontier::view::{UrlFilter, UrlView};
use wayleave_core::limits;
use wayleave_core::names::HostName;

use super::result_buffer::write_line;
use crate::http::accepts::{NDJSON, wants_lines};
use crate::http::app::App;
use crate::http::extract::QueryOf;
use crate::http::named;
use crate::http::refused::Refused;

/// Lists URLs with everything known about them.
///
/// With `Accept: application/x-ndjson` all matches are streamed as lines. If the listing fails half-way the connection
/// is closed, so that a truncated response never looks complete; and so it is at its end if URLs are missing, because the store is
/// damaged.
#[utoipa::path(
    get, path = "/v1/urls", tag = "urls", params(ListUrlsQuery),
    responses((
        status = 200, description = "One page, or all as lines.",
        content((ListUrlsResponse = "application/json"), (Url = "application/x-ndjson"))
    ))
)]
pub async fn list_urls(
    State(app): State<App>,
    QueryOf(query): QueryOf<ListUrlsQuery>,
    headers: HeaderMap,
) -> Result<Response, Refused> {
    let bad = |error| BadValue::new("host", error).into();
    let host = match query.host()? {
        Some(asked) => Some(named::stored(&app, &asked, None, bad).await?),
        None => None,
    };
    let filter = query.filter(host)?;
    if wants_lines(&headers) {
        return stream_urls(app, filter, query).await;
    }
    let page = app.frontier.urls(&filter, query.after.as_deref(), page_rows(query.limit)?).await?;
    let credentials = query.credentials == Some(true);
    let urls = page.items.into_iter().map(|view| shown(view, credentials)).collect();
    let damaged = page.damaged.iter().map(ToString::to_string).collect();
    Ok(Json(ListUrlsResponse { urls, next: page.next, damaged }).into_response())
}

fn shown(view: UrlView, credentials: bool) -> Url {
    let url = Url::from(view);
    if credentials { url } else { url.redacted() }
}

/// A listing in progress.
struct Listing {
    app: App,
    filter: UrlFilter,
    after: Option<String>,
    /// The number of lines that may still follow.
    left: u64,
    ended: bool,
    /// A host of which URLs are missing.
    damaged: Option<HostName>,
    credentials: bool,
}

async fn stream_urls(app: App, filter: UrlFilter, query: ListUrlsQuery) -> Result<Response, Refused> {
    let left = query.limit.unwrap_or(u64::MAX);
    let credentials = query.credentials == Some(true);
    let mut listing = Listing { app, filter, after: query.after, left, ended: left == 0, damaged: None, credentials };
    // The first page comes before the response header, so that an immediate refusal gets a proper status.
    let first = listing.next_page().await?;
    let first = futures::stream::iter(first.map(Ok::<_, Problem>));
    let body = Body::from_stream(futures::StreamExt::chain(first, listing.pages()));
    Ok(([(header::CONTENT_TYPE, NDJSON)], body).into_response())
}

impl Listing {
    fn pages(self) -> impl Stream<Item = Result<Bytes, Problem>> {
        futures::stream::try_unfold(self, |mut listing| async {
            Ok(listing.next_page().await?.map(|lines| (lines, listing)))
        })
    }

    /// The lines of the next page; `None` at the end. Pages without a match are skipped.
    async fn next_page(&mut self) -> Result<Option<Bytes>, Problem> {
        while !self.ended {
            let rows = self.left.min(limits::PAGE_MAX as u64) as usize;
            let page = self.app.frontier.urls(&self.filter, self.after.as_deref(), rows).await?;
            self.left = self.left.saturating_sub(page.items.len() as u64);
            self.ended = page.next.is_none() || self.left == 0;
            self.after = page.next;
            self.damaged = self.damaged.take().or_else(|| page.damaged.into_iter().next());
            if page.items.is_empty() {
                continue;
            }
            let mut lines = Vec::new();
            for view in page.items {
                write_line(&mut lines, &shown(view, self.credentials));
            }
            return Ok(Some(lines.into()));
        }
        let Some(host) = self.damaged.take().filter(|_| self.left > 0) else { return Ok(None) };
        // The connection writes out its last lines while the body is not ready. It is closed at once after the error.
        tokio::task::yield_now().await;
        Err(Refusal::Damaged { host: host.to_string(), cause: "all other rows were listed".to_owned() }.into())
    }
}
