//! Looks up one URL.

use std::fmt::Display;

use axum::Json;
use axum::extract::State;
use wayleave_api::urls::{LookupUrlQuery, Url, crawl_or_default};
use wayleave_api::{BadValue, Code, Problem};
use wayleave_core::asked::AskedHost;
use wayleave_core::crawl_url::{self, BadUrl};
use wayleave_core::names::{BadName, CrawlName};
use wayleave_core::redact;

use crate::http::app::App;
use crate::http::extract::QueryOf;
use crate::http::named;
use crate::http::refused::Refused;

/// Returns one URL with everything known about it.
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
    // URLFrontier stores URLs as sent, so the exact text comes first.
    if let Some(host) = key.clone().or_else(|| crawl_url::parse_loosely(&query.url, "").ok())
        && let Some(found) = app.frontier.lookup(crawl.clone(), host, &query.url).await?
    {
        return Ok(Json(Url::from(found).redacted()));
    }
    let page = match crawl_url::parse(&query.url, key.as_deref()) {
        Ok(page) => page,
        Err(bad @ (BadUrl::Empty | BadUrl::TooLong { .. } | BadUrl::Control(_))) => {
            return Err(BadValue::new("url", bad).into());
        }
        // URLFrontier might have stored it, so it is unknown rather than invalid.
        Err(bad) => return Err(unknown(&query.url, &crawl, &bad).into()),
    };
    let found = app.frontier.lookup(crawl.clone(), page.host, &page.url).await?;
    let found = found.ok_or_else(|| unknown(&page.url, &crawl, &"add it first, or name its crawl"))?;
    Ok(Json(Url::from(found).redacted()))
}

fn unknown(url: &str, crawl: &CrawlName, hint: &dyn Display) -> Problem {
    let url = redact::url(url);
    let detail = format!("'{url}' is not known in crawl '{crawl}'; {hint}");
    Problem::new(Code::UnknownUrl, detail).with("url", url).with("crawl", &**crawl)
}
