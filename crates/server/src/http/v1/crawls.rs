//! Crawls: namespaces of URLs with their own weight, limits and pause switch.

use axum::Json;
use axum::extract::State;
use wayleave_api::BadValue;
use wayleave_api::crawls::{Crawl, GetCrawlQuery, ListCrawlsResponse, PurgeCrawlQuery, SetCrawlRequest};
use wayleave_api::hosts::DeleteUrlsResponse;
use wayleave_api::listing::{PageQuery, page_rows};
use wayleave_core::asked::AskedHost;
use wayleave_core::names::{BadName, CrawlName};
use wayleave_core::settings::CrawlChanges;

use crate::http::app::App;
use crate::http::extract::{CrawlInPath, JsonBody, QueryOf};
use crate::http::named;
use crate::http::refused::Refused;
use crate::http::waiting::Waiting;

/// Lists the crawls by name, page by page.
#[utoipa::path(
    get, path = "/v1/crawls", tag = "crawls", params(PageQuery),
    responses((status = 200, description = "One page.", body = ListCrawlsResponse))
)]
pub async fn list_crawls(
    State(app): State<App>,
    QueryOf(query): QueryOf<PageQuery>,
) -> Result<Json<ListCrawlsResponse>, Refused> {
    let page = app.frontier.crawls_page(query.after.as_deref(), page_rows(query.limit)?).await?;
    Ok(Json(ListCrawlsResponse { crawls: page.items.into_iter().map(Crawl::from).collect(), next: page.next }))
}

/// Returns one crawl: its settings and counts, and whether it is finished.
///
/// With `wait_ms` it is a long poll: the response waits until the crawl is finished or the time is up.
#[utoipa::path(
    get, path = "/v1/crawls/{crawl}", tag = "crawls",
    params(("crawl" = String, Path, description = "Name of the crawl."), GetCrawlQuery),
    responses((status = 200, description = "The crawl.", body = Crawl))
)]
pub async fn get_crawl(
    State(app): State<App>,
    mut waiting: Waiting,
    CrawlInPath(crawl): CrawlInPath,
    QueryOf(query): QueryOf<GetCrawlQuery>,
) -> Result<Json<Crawl>, Refused> {
    let wait = query.wait()?;
    if wait.0 == 0 {
        return Ok(Json(app.frontier.crawl(crawl).await?.into()));
    }
    let view = waiting.call(wait, |wait| app.frontier.crawl_when_finished(&crawl, wait)).await?;
    waiting.check(view.waits_for.is_none())?;
    Ok(Json(view.into()))
}

/// Creates or replaces the settings of a crawl. Settings not named are cleared.
#[utoipa::path(
    put, path = "/v1/crawls/{crawl}", tag = "crawls", params(("crawl" = String, Path, description = "Name of the crawl.")),
    request_body = SetCrawlRequest, responses((status = 200, description = "The crawl.", body = Crawl))
)]
pub async fn put_crawl(
    State(app): State<App>,
    CrawlInPath(crawl): CrawlInPath,
    JsonBody(body): JsonBody<SetCrawlRequest>,
) -> Result<Json<Crawl>, Refused> {
    set_crawl(&app, crawl, &body, true).await
}

/// Creates or changes the settings of a crawl. Settings not named are kept; `null` clears.
#[utoipa::path(
    patch, path = "/v1/crawls/{crawl}", tag = "crawls", params(("crawl" = String, Path, description = "Name of the crawl.")),
    request_body = SetCrawlRequest, responses((status = 200, description = "The crawl.", body = Crawl))
)]
pub async fn patch_crawl(
    State(app): State<App>,
    CrawlInPath(crawl): CrawlInPath,
    JsonBody(body): JsonBody<SetCrawlRequest>,
) -> Result<Json<Crawl>, Refused> {
    set_crawl(&app, crawl, &body, false).await
}

async fn set_crawl(app: &App, crawl: CrawlName, body: &SetCrawlRequest, replace: bool) -> Result<Json<Crawl>, Refused> {
    Ok(Json(app.frontier.set_crawl(crawl, CrawlChanges::try_from(body)?, replace).await?.into()))
}

/// Deletes a crawl: its URLs, its queues and its settings.
#[utoipa::path(
    delete, path = "/v1/crawls/{crawl}", tag = "crawls", params(("crawl" = String, Path, description = "Name of the crawl.")),
    responses((status = 200, description = "The number of deleted URLs.", body = DeleteUrlsResponse))
)]
pub async fn delete_crawl(
    State(app): State<App>,
    CrawlInPath(crawl): CrawlInPath,
) -> Result<Json<DeleteUrlsResponse>, Refused> {
    Ok(Json(DeleteUrlsResponse { deleted: app.frontier.delete_crawl(crawl).await? }))
}

/// Deletes URLs that were stored long ago.
#[utoipa::path(
    post, path = "/v1/crawls/{crawl}/purge", tag = "crawls",
    params(("crawl" = String, Path, description = "Name of the crawl."), PurgeCrawlQuery),
    responses((status = 200, description = "The number of deleted URLs.", body = DeleteUrlsResponse))
)]
pub async fn purge_crawl(
    State(app): State<App>,
    CrawlInPath(crawl): CrawlInPath,
    QueryOf(query): QueryOf<PurgeCrawlQuery>,
) -> Result<Json<DeleteUrlsResponse>, Refused> {
    let bad = |error: BadName| Refused::from(BadValue::new("host", error));
    let host = match &query.host {
        Some(text) => Some(named::stored(&app, &AskedHost::parse(text).map_err(bad)?, None, bad).await?),
        None => None,
    };
    let before = app.frontier.now().before(query.older_than()?);
    Ok(Json(DeleteUrlsResponse { deleted: app.frontier.purge(crawl, host, before).await? }))
}
