//! Groups: list, get, create, change, delete.

use futures::Stream;
use reqwest::Method;
use wayleave_api::groups::{Group, ListGroupsResponse, SetGroupRequest};
use wayleave_api::hosts::{ListHostsQuery, NamesQuery};

use crate::call::Call;
use crate::pages::pages;
use crate::{Client, Error};

impl Client {
    /// One page of groups.
    pub async fn list_groups(&self, query: &ListHostsQuery) -> Result<ListGroupsResponse, Error> {
        self.call(Call::new(Method::GET, self.url(&["groups"])).query(&self.http, query)?).await
    }

    /// All groups of a query, page after page.
    pub fn all_groups(&self, query: ListHostsQuery) -> impl Stream<Item = Result<Group, Error>> + '_ {
        pages(move |after| {
            let query = ListHostsQuery { after: after.or_else(|| query.after.clone()), ..query.clone() };
            async move { self.list_groups(&query).await.map(|page| (page.groups, page.next)) }
        })
    }

    /// One group, by its alias or by the name of its only host.
    pub async fn group(&self, group: &str) -> Result<Group, Error> {
        self.call(Call::new(Method::GET, self.url(&["groups", group]))).await
    }

    /// Creates an alias with these hosts; settings not in the request are cleared. Fails if a host belongs to another
    /// alias, a setting is refused, or the server cannot answer.
    pub async fn put_group(&self, alias: &str, request: &SetGroupRequest) -> Result<Group, Error> {
        self.call(Call::new(Method::PUT, self.url(&["groups", alias])).body(request)?).await
    }

    /// Changes an alias; settings not in the request are kept. Fails if it is not known, a setting is refused, or the
    /// server cannot answer.
    pub async fn patch_group(&self, alias: &str, request: &SetGroupRequest) -> Result<Group, Error> {
        self.call(Call::new(Method::PATCH, self.url(&["groups", alias])).body(request)?).await
    }

    /// Creates an alias of hosts whose names are not normalised. Fails if a host belongs to another alias, a setting is
    /// refused, or the server cannot answer.
    pub async fn put_group_exactly(&self, alias: &str, request: &SetGroupRequest) -> Result<Group, Error> {
        let call = Call::new(Method::PUT, self.url(&["groups", alias])).query(&self.http, &NamesQuery::EXACT)?;
        self.call(call.body(request)?).await
    }

    /// The same, but settings not in the request are kept. Fails if it is not known, a setting is refused, or the
    /// server cannot answer.
    pub async fn patch_group_exactly(&self, alias: &str, request: &SetGroupRequest) -> Result<Group, Error> {
        let call = Call::new(Method::PATCH, self.url(&["groups", alias])).query(&self.http, &NamesQuery::EXACT)?;
        self.call(call.body(request)?).await
    }

    /// Deletes an alias; its hosts become groups of their own.
    pub async fn delete_group(&self, alias: &str) -> Result<(), Error> {
        let call = Call::new(Method::DELETE, self.url(&["groups", alias]));
        self.call(call.once("look whether the alias is still there, and which hosts it has")).await
    }
}
