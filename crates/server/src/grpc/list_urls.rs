//! ListURLs and CountURLs: the records of a crawl or a queue, page by page, as fast as the client reads them.

use std::sync::Arc;

use futures::{Stream, StreamExt, TryStreamExt, stream};
use tonic::Status;
use wayleave_api::urlfrontier::{CountUrlParams, ListUrlParams, UrlItem};
use wayleave_core::frontier::refusal::Refusal;
use wayleave_core::frontier::view::{UrlFilter, UrlView};
use wayleave_core::limits;
use wayleave_core::names::HostName;
use wayleave_shard::Frontier;

use super::put_stream::URL_EXTRA_BYTES;
use super::{convert, refused};
use wayleave_listen::Share;

/// Answers a ListURLs call. The next page is read when the client has consumed the last.
pub fn list_urls(
    frontier: &Frontier,
    share: Share,
    params: &ListUrlParams,
) -> impl Stream<Item = Result<UrlItem, Status>> + Send + use<> {
    let filter = filter(&params.crawl_id, &params.key, params.filter.as_deref(), params.ignore_case());
    let start = usize::try_from(params.start).unwrap_or(usize::MAX);
    let size = match usize::try_from(params.size) {
        Ok(0) => limits::PAGE_DEFAULT,
        size => size.unwrap_or(usize::MAX),
    };
    let pages = pages(frontier.clone(), filter).map(within(share));
    let rows = pages.map_ok(|page| stream::iter(page.into_iter().map(Ok))).try_flatten();
    rows.skip(start).take(size).map_ok(convert::stored)
}

/// Answers a CountURLs call.
pub async fn count_urls(frontier: &Frontier, params: &CountUrlParams) -> Result<u64, Status> {
    let filter = filter(&params.crawl_id, &params.key, params.filter.as_deref(), params.ignore_case());
    let counts = pages(frontier.clone(), filter).map_ok(|page| page.len() as u64);
    counts.try_fold(0, |sum, count| async move { Ok(sum + count) }).await
}

/// Counts each page against the budget until the next one is read.
fn within(mut share: Share) -> impl FnMut(Result<Vec<UrlView>, Status>) -> Result<Vec<UrlView>, Status> {
    let mut last = 0;
    move |page| {
        let page = page?;
        share.give(std::mem::take(&mut last));
        let metadata = |view: &UrlView| view.metadata.as_bytes().len();
        let bytes = page.iter().map(|view| view.url.len() + metadata(view) + URL_EXTRA_BYTES).sum();
        if !share.take(bytes) {
            return Err(refused::memory_full());
        }
        last = bytes;
        Ok(page)
    }
}

/// Parses the filter; `None` for a crawl or a key that cannot exist.
fn filter(crawl: &str, key: &str, contains: Option<&str>, ignore_case: bool) -> Option<UrlFilter> {
    let crawl = Some(convert::crawl(crawl)?);
    let host = if key.is_empty() { None } else { Some(convert::key(key)?) };
    let contains = contains.filter(|text| !text.trim().is_empty()).map(Into::into);
    Some(UrlFilter { crawl, host, state: None, contains, ignore_case })
}

/// All pages of a listing. It ends with an error if rows are missing, because the store is damaged.
fn pages(frontier: Frontier, filter: Option<UrlFilter>) -> impl Stream<Item = Result<Vec<UrlView>, Status>> + Send {
    let first = filter.map(|filter| (Some(Arc::new(filter)), None::<String>, None::<HostName>));
    stream::try_unfold(first, move |place| {
        let frontier = frontier.clone();
        async move {
            let Some((filter, after, damaged)) = place else { return Ok(None) };
            let Some(filter) = filter else {
                return damaged.map_or(Ok(None), |host| {
                    Err(refused::status(&Refusal::Damaged {
                        host: host.to_string(),
                        cause: "all other rows were listed".to_owned(),
                    }))
                });
            };
            match frontier.urls(&filter, after.as_deref(), limits::PAGE_MAX).await {
                Ok(page) => {
                    let damaged = damaged.or_else(|| page.damaged.into_iter().next());
                    let filter = page.next.is_some().then_some(filter);
                    Ok(Some((page.items, Some((filter, page.next, damaged)))))
                }
                Err(refusal) if refused::is_unknown(&refusal) => Ok(None),
                Err(refusal) => Err(refused::status(&refusal)),
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_blank_filter_selects_everything() {
        let made = |text| filter("", "", text, true).unwrap();
        assert_eq!(made(Some("  ")).contains, None);
        assert_eq!(made(None).contains, None);
        assert_eq!(made(Some("x ")).contains.as_deref(), Some("x "));
        assert_eq!(made(None).crawl.as_deref(), Some("DEFAULT"));
        assert_eq!(made(None).host, None);
    }

    #[test]
    fn an_impossible_key_or_crawl_selects_nothing() {
        assert_eq!(filter("", &"k".repeat(256), None, false), None);
        assert_eq!(filter(&"c".repeat(256), "", None, false), None);
    }
}
