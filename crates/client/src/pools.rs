//! Pools and their workers.

use futures::Stream;
use reqwest::Method;
use wayleave_api::listing::PageQuery;
use wayleave_api::pools::{
    GetWorkerLogQuery, GetWorkerLogResponse, ListPoolsResponse, ListWorkersResponse, PausePoolRequest, Pool,
    PoolSummary, ReportWorkerRequest, SetPoolRequest,
};

use crate::call::{Call, Repeat};
use crate::pages::pages;
use crate::{Client, Error};

impl Client {
    /// Creates a pool or replaces its settings; settings not in the request get their defaults. Idempotent. Fails if a
    /// setting is refused, the server takes no commands by the API, or it cannot answer.
    pub async fn set_pool(&self, pool: &str, request: &SetPoolRequest) -> Result<Pool, Error> {
        self.call(Call::new(Method::PUT, self.url(&["pools", pool])).body(request)?).await
    }

    /// A pool.
    pub async fn pool(&self, pool: &str) -> Result<Pool, Error> {
        self.call(Call::new(Method::GET, self.url(&["pools", pool]))).await
    }

    /// Pauses a pool, so that it starts nothing, or resumes it. Idempotent.
    pub async fn pause_pool(&self, pool: &str, paused: bool) -> Result<Pool, Error> {
        let request = PausePoolRequest { paused };
        self.call(Call::new(Method::PUT, self.url(&["pools", pool, "paused"])).body(&request)?).await
    }

    /// Deletes a pool: it takes no more clients, and goes once its workers have none. The answer is the pool as it drains. Not
    /// repeated once it may have been applied: a second time could delete a pool that was set up anew since. Fails if
    /// it is not known, the server cannot answer, or it is not known whether it was applied.
    pub async fn delete_pool(&self, pool: &str) -> Result<Pool, Error> {
        let call = Call::new(Method::DELETE, self.url(&["pools", pool]));
        self.call(call.once("look whether the pool is still there")).await
    }

    /// One page of pools.
    pub async fn list_pools(&self, query: &PageQuery) -> Result<ListPoolsResponse, Error> {
        self.call(Call::new(Method::GET, self.url(&["pools"])).query(&self.http, query)?).await
    }

    /// All pools, page after page.
    pub fn all_pools(&self) -> impl Stream<Item = Result<PoolSummary, Error>> + '_ {
        pages(move |after| async move {
            let page = self.list_pools(&PageQuery { after, limit: None }).await?;
            Ok((page.pools, page.next))
        })
    }

    /// The workers of a pool, and those that were removed last. Fails if the pool is not known or the server cannot
    /// answer.
    pub async fn workers(&self, pool: &str) -> Result<ListWorkersResponse, Error> {
        self.call(Call::new(Method::GET, self.url(&["pools", pool, "workers"]))).await
    }

    /// Sends the report of a worker. It is not retried: what is free is true only now, and the next report supersedes it.
    /// Fails if the worker is not known, the secret is not its own, or the server cannot answer; then it may have been
    /// taken.
    pub async fn report_worker(&self, pool: &str, worker: &str, request: &ReportWorkerRequest) -> Result<(), Error> {
        let call = Call::new(Method::PUT, self.url(&["pools", pool, "workers", worker])).body(request)?;
        self.call(call.repeat(Repeat::Never)).await
    }

    /// The end of a worker's output. Fails if the worker is not known, runs at a site of another node, or the server
    /// cannot answer.
    pub async fn worker_log(
        &self,
        pool: &str,
        worker: &str,
        query: &GetWorkerLogQuery,
    ) -> Result<GetWorkerLogResponse, Error> {
        let call = Call::new(Method::GET, self.url(&["pools", pool, "workers", worker, "log"]));
        self.call(call.query(&self.http, query)?).await
    }
}
