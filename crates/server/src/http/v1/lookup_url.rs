//! Looking up one URL.

use axum::Json;
use axum::extract::State;
use wayleave_api::urls::{LookupUrlQuery, Url, crawl_or_default};
use wayleave_api::{BadValue, Code, Problem};
use wayleave_core::asked::AskedHost;
use wayleave_core::names::BadName;
use wayleave_core::{page, redact};

use crate::http::app::App;
use crate::http::extract::QueryOf;
use crate::http::named;
use crate::http::refused::Refused;

/// One URL with all that is known of it.
#[utoipa::path(
    get, path = "/v1/urls/lookup", tag = "urls", params(LookupUrlQuery),
    responses((status = 200, description = "The URL.", body = Url))
)]
pub async fn lookup_url(State(app): State<App>, QueryOf(query): QueryOf<LookupUrlQuery>) -> Result<Json<Url>, Refused> {
    let crawl = crawl_or_default(query.crawl.as_deref())?;
    let key = match query.key.as_deref().filter(|key| !key.is_empty()) {
        Some(key) => {
            let bad = |error: BadName| Refused::from(BadValue::new("key", error));
            Some(named::stored(&app, &AskedHost::parse(key).map_err(bad)?, None, bad).await?)
        }
        None => None,
    };
    // URLFrontier stores URLs as they were sent, so the text itself comes first.
    if let Some(host) = key.clone().or_else(|| page::parse_loosely(&query.url, "").ok())
        && let Some(found) = app.frontier.lookup(crawl.clone(), host, &query.url).await?
    {
        return Ok(Json(Url::from(found).redacted()));
    }
    let page = page::parse(&query.url, key.as_deref()).map_err(|e| BadValue::new("url", e))?;
    let found = app.frontier.lookup(crawl.clone(), page.host, &page.url).await?;
    let unknown = || {
        let url = redact::url(&page.url);
        let detail = format!("'{url}' is not known in crawl '{crawl}'; add it first, or name its crawl");
        Problem::new(Code::UnknownUrl, detail).with("url", url).with("crawl", &*crawl)
    };
    Ok(Json(Url::from(found.ok_or_else(unknown)?).redacted()))
}
