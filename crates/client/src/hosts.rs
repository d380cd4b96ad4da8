//! Hosts: list, get, set.

use std::time::Duration;

use futures::Stream;
use reqwest::Method;
use wayleave_api::hosts::{DeleteUrlsResponse, Host, ListHostsQuery, ListHostsResponse, NamesQuery, SetHostRequest};

use crate::call::Call;
use crate::pages::pages;
use crate::{Client, Error};

/// The timeout of deletions, which may concern many URLs.
pub(crate) const DELETION_TIME: Duration = Duration::from_secs(600);

impl Client {
    /// One page of hosts.
    pub async fn list_hosts(&self, query: &ListHostsQuery) -> Result<ListHostsResponse, Error> {
        self.call(Call::new(Method::GET, self.url(&["hosts"])).query(&self.http, query)?).await
    }

    /// All hosts of a query, page after page.
    pub fn all_hosts(&self, query: ListHostsQuery) -> impl Stream<Item = Result<Host, Error>> + '_ {
        pages(move |after| {
            let query = ListHostsQuery { after: after.or_else(|| query.after.clone()), ..query.clone() };
            async move { self.list_hosts(&query).await.map(|page| (page.hosts, page.next)) }
        })
    }

    /// One host.
    pub async fn host(&self, host: &str) -> Result<Host, Error> {
        self.call(Call::new(Method::GET, self.url(&["hosts", host]))).await
    }

    /// Sets up a host; settings not in the request are cleared.
    pub async fn put_host(&self, host: &str, request: &SetHostRequest) -> Result<Host, Error> {
        self.call(Call::new(Method::PUT, self.url(&["hosts", host])).body(request)?).await
    }

    /// Changes a host; settings not in the request are kept.
    pub async fn patch_host(&self, host: &str, request: &SetHostRequest) -> Result<Host, Error> {
        self.call(Call::new(Method::PATCH, self.url(&["hosts", host])).body(request)?).await
    }

    /// Sets up the queue of a key without normalising it, even if the text is a spelling of a host name.
    pub async fn put_host_exactly(&self, key: &str, request: &SetHostRequest) -> Result<Host, Error> {
        let call = Call::new(Method::PUT, self.url(&["hosts", key])).query(&self.http, &NamesQuery::EXACT)?;
        self.call(call.body(request)?).await
    }

    /// The same, but settings not in the request are kept.
    pub async fn patch_host_exactly(&self, key: &str, request: &SetHostRequest) -> Result<Host, Error> {
        let call = Call::new(Method::PATCH, self.url(&["hosts", key])).query(&self.http, &NamesQuery::EXACT)?;
        self.call(call.body(request)?).await
    }

    /// Deletes one crawl's URLs of a host. Fails if there is no such queue or the server cannot answer.
    pub async fn delete_queue(&self, host: &str, crawl: &str) -> Result<DeleteUrlsResponse, Error> {
        let url = self.url(&["hosts", host, "queues", crawl]);
        let call = Call::new(Method::DELETE, url).once("look whether the queue is still there");
        self.call(call.longer(DELETION_TIME)).await
    }
}
