//! Crawls: list, get, set, delete.

use std::time::Duration;

use futures::Stream;
use reqwest::Method;
use wayleave_api::crawls::{Crawl, GetCrawlQuery, ListCrawlsResponse, PurgeCrawlQuery, SetCrawlRequest};
use wayleave_api::hosts::DeleteUrlsResponse;
use wayleave_api::listing::PageQuery;

use crate::call::Call;
use crate::hosts::DELETION_TIME;
use crate::pages::pages;
use crate::{Client, Error};

impl Client {
    /// One page of crawls.
    pub async fn list_crawls(&self, query: &PageQuery) -> Result<ListCrawlsResponse, Error> {
        self.call(Call::new(Method::GET, self.url(&["crawls"])).query(&self.http, query)?).await
    }

    /// All crawls, page after page.
    pub fn all_crawls(&self) -> impl Stream<Item = Result<Crawl, Error>> + '_ {
        pages(move |after| async move {
            self.list_crawls(&PageQuery { after, limit: None }).await.map(|page| (page.crawls, page.next))
        })
    }

    /// One crawl.
    pub async fn crawl(&self, crawl: &str) -> Result<Crawl, Error> {
        self.call(Call::new(Method::GET, self.url(&["crawls", crawl]))).await
    }

    /// Long-polls a crawl until it is finished or the time is up; at most 60 s.
    pub async fn crawl_when_finished(&self, crawl: &str, wait_ms: u64) -> Result<Crawl, Error> {
        let query = GetCrawlQuery::finished(wait_ms);
        let call = Call::new(Method::GET, self.url(&["crawls", crawl])).query(&self.http, &query)?;
        self.call(call.longer(Duration::from_millis(wait_ms))).await
    }

    /// Sets up a crawl; settings not in the request are cleared.
    pub async fn put_crawl(&self, crawl: &str, request: &SetCrawlRequest) -> Result<Crawl, Error> {
        self.call(Call::new(Method::PUT, self.url(&["crawls", crawl])).body(request)?).await
    }

    /// Changes a crawl; settings not in the request are kept.
    pub async fn patch_crawl(&self, crawl: &str, request: &SetCrawlRequest) -> Result<Crawl, Error> {
        self.call(Call::new(Method::PATCH, self.url(&["crawls", crawl])).body(request)?).await
    }

    /// Deletes a crawl with its URLs, queues and settings.
    pub async fn delete_crawl(&self, crawl: &str) -> Result<DeleteUrlsResponse, Error> {
        let call = Call::new(Method::DELETE, self.url(&["crawls", crawl]));
        self.call(call.once("look whether the crawl is still there").longer(DELETION_TIME)).await
    }

    /// Deletes URLs of a crawl that were stored long ago.
    pub async fn purge_crawl(&self, crawl: &str, query: &PurgeCrawlQuery) -> Result<DeleteUrlsResponse, Error> {
        let call = Call::new(Method::POST, self.url(&["crawls", crawl, "purge"])).query(&self.http, query)?;
        self.call(call.once("purging again is harmless, only the number is lost").longer(DELETION_TIME)).await
    }
}
