//! Where the URLs found on a page belong: to the crawl of that page, one link deeper.

use wayleave_api::reservations::UrlResult;
use wayleave_core::frontier::view::{UrlState, UrlView};
use wayleave_core::names::{CrawlName, DEFAULT_CRAWL};
use wayleave_core::page;

use crate::http::app::App;
use crate::http::refused::Refused;

/// Crawls of one host that are searched for a page; a host is rarely in more than a few.
const CRAWLS_SEARCHED: usize = 64;

/// What found URLs inherit.
pub struct Inherited {
    /// The crawl.
    pub crawl: CrawlName,
    /// Links from the seed.
    pub depth: u32,
}

/// What the URLs found by `result` inherit. The frontier is asked only if one of them leaves something open.
///
/// # Errors
/// If the frontier cannot answer.
pub async fn inherited(app: &App, result: &UrlResult) -> Result<Inherited, Refused> {
    let open = result.found.iter().any(|url| url.crawl.is_none() || url.depth.is_none());
    let parent = if open { reserved_page(app, &result.url).await? } else { None };
    Ok(match parent {
        Some(page) => Inherited { crawl: page.crawl, depth: page.depth.unwrap_or(0).saturating_add(1) },
        None => Inherited { crawl: DEFAULT_CRAWL.into(), depth: 0 },
    })
}

async fn reserved_page(app: &App, url: &str) -> Result<Option<UrlView>, Refused> {
    let Ok(page) = page::parse(url, None) else { return Ok(None) };
    let Ok(host) = app.frontier.host(page.host.clone()).await else { return Ok(None) };
    for queue in host.queues.into_iter().take(CRAWLS_SEARCHED) {
        let known = app.frontier.lookup(queue.crawl, page.host.clone(), &page.url).await?;
        if known.as_ref().is_some_and(|view| view.state == UrlState::Reserved) {
            return Ok(known);
        }
    }
    Ok(None)
}
