//! Known URLs: requeue and delete them, follow the jobs that do it, revoke reservations.

use reqwest::Method;
use serde::{Deserialize, Serialize};
use wayleave_api::jobs::{
    Job, ListJobsResponse, RevokeRequest, RevokeResponse, ReworkUrlsRequest, ReworkUrlsResponse, StartedJob,
};

use crate::call::Call;
use crate::hosts::DELETION_TIME;
use crate::{Client, Error};

/// The response to a request to requeue or delete URLs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum ReworkResponse {
    /// The results of the named URLs.
    Urls(ReworkUrlsResponse),
    /// The job that processes them.
    Job(StartedJob),
}

impl Client {
    /// Requeues known URLs: named ones directly, those that match a filter by a job.
    pub async fn requeue_urls(&self, request: &ReworkUrlsRequest) -> Result<ReworkResponse, Error> {
        self.rework("requeue", request).await
    }

    /// Deletes URLs: named ones directly, those that match a filter by a job.
    pub async fn delete_urls(&self, request: &ReworkUrlsRequest) -> Result<ReworkResponse, Error> {
        self.rework("delete", request).await
    }

    async fn rework(&self, what: &str, request: &ReworkUrlsRequest) -> Result<ReworkResponse, Error> {
        let call = Call::new(Method::POST, self.url(&["urls", what])).body(request)?;
        // A second one would start a second job.
        self.call(call.once("look at the jobs and the URLs before you ask again").longer(DELETION_TIME)).await
    }

    /// The running jobs, and those that ended recently.
    pub async fn jobs(&self) -> Result<ListJobsResponse, Error> {
        self.call(Call::new(Method::GET, self.url(&["jobs"]))).await
    }

    /// One job.
    pub async fn job(&self, job: &str) -> Result<Job, Error> {
        self.call(Call::new(Method::GET, self.url(&["jobs", job]))).await
    }

    /// Stops a job; what it has done stays done.
    pub async fn cancel_job(&self, job: &str) -> Result<Job, Error> {
        self.call(Call::new(Method::DELETE, self.url(&["jobs", job]))).await
    }

    /// Revokes reservations before their deadline.
    pub async fn revoke(&self, request: &RevokeRequest) -> Result<RevokeResponse, Error> {
        // A second one would end reservations that were made since.
        let call = Call::new(Method::POST, self.url(&["reservations", "revoke"])).body(request)?;
        self.call(call.once("look at the reservations before you revoke again")).await
    }
}
