//! URLs: add a few, list a page, look one up.

use futures::Stream;
use reqwest::Method;
use wayleave_api::urls::{AddUrlsRequest, AddUrlsResponse, ListUrlsQuery, ListUrlsResponse, LookupUrlQuery, Url};
use wayleave_api::{Code, Problem};

use crate::call::Call;
use crate::pages::damaged_pages;
use crate::{Client, Error};

impl Client {
    /// Adds up to 10,000 URLs; use lines for more. Known URLs stay as they were, so it can be retried; but not with `again`: a
    /// URL that was requeued may have been fetched since, and would be fetched once more.
    pub async fn add_urls(&self, request: &AddUrlsRequest) -> Result<AddUrlsResponse, Error> {
        let call = Call::new(Method::POST, self.url(&["urls"])).body(request)?;
        let once = request.urls.iter().any(|url| url.again);
        self.call(if once { call.once("look whether the URLs are queued before you requeue them again") } else { call })
            .await
    }

    /// One page of URLs.
    pub async fn list_urls(&self, query: &ListUrlsQuery) -> Result<ListUrlsResponse, Error> {
        self.call(Call::new(Method::GET, self.url(&["urls"])).query(&self.http, query)?).await
    }

    /// All URLs of a query, page after page. It ends with an error if URLs are missing, because the store is damaged.
    pub fn all_urls(&self, query: ListUrlsQuery) -> impl Stream<Item = Result<Url, Error>> + '_ {
        let page = move |after: Option<String>| {
            let query = ListUrlsQuery { after: after.or_else(|| query.after.clone()), ..query.clone() };
            async move {
                let page = self.list_urls(&query).await?;
                Ok((page.urls, page.next, page.damaged))
            }
        };
        damaged_pages(page, |host| {
            let cause = format!("rows of host '{host}' cannot be read: all other URLs were listed");
            Problem::new(Code::Damaged, cause).with("host", host)
        })
    }

    /// One URL.
    pub async fn lookup_url(&self, query: &LookupUrlQuery) -> Result<Url, Error> {
        self.call(Call::new(Method::GET, self.url(&["urls", "lookup"])).query(&self.http, query)?).await
    }
}
