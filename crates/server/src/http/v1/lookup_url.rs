//! Looking up one URL.

use axum::Json;
use axum::extract::State;
use wayleave_api::urls::{LookupUrlQuery, Url, crawl_or_default};
use wayleave_api::{BadValue, Code, Problem};
use wayleave_core::page;

use crate::http::app::App;
use crate::http::extract::QueryOf;
use crate::http::refused::Refused;

/// One URL with all that is known of it.
#[utoipa::path(
    get, path = "/v1/urls/lookup", tag = "urls", params(LookupUrlQuery),
    responses((status = 200, description = "The URL.", body = Url))
)]
pub async fn lookup_url(State(app): State<App>, QueryOf(query): QueryOf<LookupUrlQuery>) -> Result<Json<Url>, Refused> {
    let crawl = crawl_or_default(query.crawl.as_deref())?;
    let page = page::parse(&query.url, query.key.as_deref()).map_err(|e| BadValue::new("url", e))?;
    let found = app.frontier.lookup(crawl.clone(), page.host, &page.url).await?;
    let unknown = || {
        let detail = format!("'{}' is not known in crawl '{crawl}'; add it first, or name its crawl", page.url);
        Problem::new(Code::UnknownUrl, detail).with("url", page.url.as_str()).with("crawl", &*crawl)
    };
    Ok(Json(found.ok_or_else(unknown)?.into()))
}
