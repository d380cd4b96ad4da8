//! Pools and their workers.

use futures::Stream;
use reqwest::Method;
use wayleave_api::Code;
use wayleave_api::listing::PageQuery;
use wayleave_api::pools::{
    GetWorkerLogQuery, GetWorkerLogResponse, ListPoolsResponse, ListWorkersResponse, PausePoolRequest, Pool,
    PoolSummary, ReportWorkerRequest, SetPoolRequest,
};

use crate::call::{Call, Ended};
use crate::pages::pages;
use crate::{Client, Error};

impl Client {
    /// Creates a pool or replaces its settings; settings not in the request get their defaults. Idempotent.
    ///
    /// # Errors
    /// If a setting is refused, the server takes no commands by the API, or it cannot answer.
    pub async fn set_pool(&self, pool: &str, request: &SetPoolRequest) -> Result<Pool, Error> {
        self.call(Call::new(Method::PUT, self.url(&["pools", pool])).body(request)?).await
    }

    /// A pool.
    ///
    /// # Errors
    /// If it is not known or the server cannot answer.
    pub async fn pool(&self, pool: &str) -> Result<Pool, Error> {
        self.call(Call::new(Method::GET, self.url(&["pools", pool]))).await
    }

    /// Pauses a pool, so that it starts nothing, or resumes it. Idempotent.
    ///
    /// # Errors
    /// If it is not known or the server cannot answer.
    pub async fn pause_pool(&self, pool: &str, paused: bool) -> Result<Pool, Error> {
        let request = PausePoolRequest { paused };
        self.call(Call::new(Method::PUT, self.url(&["pools", pool, "paused"])).body(&request)?).await
    }

    /// Deletes a pool: it takes no more clients, and goes once its workers have none. The answer is the pool as it drains;
    /// none if it was gone already by an earlier attempt whose answer was lost.
    ///
    /// # Errors
    /// If it is not known or the server cannot answer.
    pub async fn delete_pool(&self, pool: &str) -> Result<Option<Pool>, Error> {
        let Ended { answer, earlier_unknown } =
            self.call_out(&Call::new(Method::DELETE, self.url(&["pools", pool]))).await;
        match answer {
            Err(error) if earlier_unknown && error.code() == Some(Code::UnknownPool) => Ok(None),
            answer => answer.map(Some),
        }
    }

    /// One page of pools.
    ///
    /// # Errors
    /// If the query is refused or the server cannot answer.
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

    /// The workers of a pool, and those that were removed last.
    ///
    /// # Errors
    /// If the pool is not known or the server cannot answer.
    pub async fn workers(&self, pool: &str) -> Result<ListWorkersResponse, Error> {
        self.call(Call::new(Method::GET, self.url(&["pools", pool, "workers"]))).await
    }

    /// Sends the report of a worker. A report may be repeated.
    ///
    /// # Errors
    /// If the worker is not known, the secret is not its own, or the server cannot answer.
    pub async fn report_worker(&self, pool: &str, worker: &str, request: &ReportWorkerRequest) -> Result<(), Error> {
        self.call(Call::new(Method::PUT, self.url(&["pools", pool, "workers", worker])).body(request)?).await
    }

    /// The end of a worker's output.
    ///
    /// # Errors
    /// If the worker is not known, runs at a site of another node, or the server cannot answer.
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
