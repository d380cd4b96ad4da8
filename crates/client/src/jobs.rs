//! Known URLs: requeue and delete them, follow the jobs that do it, take back what is handed out.

use reqwest::Method;
use serde::{Deserialize, Serialize};
use wayleave_api::jobs::{
    Job, ListJobsResponse, RevokeRequest, RevokeResponse, ReworkUrlsRequest, ReworkUrlsResponse, StartedJob,
};

use crate::call::{Call, Repeat};
use crate::hosts::DELETION_TIME;
use crate::{Client, Error};

/// What a request to requeue or delete URLs has led to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum ReworkAnswer {
    /// The URLs were named, and this became of them.
    Urls(ReworkUrlsResponse),
    /// A job goes through them.
    Job(StartedJob),
}

impl Client {
    /// Queues known URLs anew: those that are named at once, those that a filter lets through by a job.
    ///
    /// # Errors
    /// If the request is refused or the server cannot answer.
    pub async fn requeue_urls(&self, request: &ReworkUrlsRequest) -> Result<ReworkAnswer, Error> {
        self.rework("requeue", request).await
    }

    /// Forgets URLs: those that are named at once, those that a filter lets through by a job.
    ///
    /// # Errors
    /// If the request is refused or the server cannot answer.
    pub async fn delete_urls(&self, request: &ReworkUrlsRequest) -> Result<ReworkAnswer, Error> {
        self.rework("delete", request).await
    }

    async fn rework(&self, what: &str, request: &ReworkUrlsRequest) -> Result<ReworkAnswer, Error> {
        let call = Call::new(Method::POST, self.url(&["urls", what])).body(request)?;
        // Twice is two jobs.
        self.call(call.repeat(Repeat::IfNotDone).longer(DELETION_TIME)).await
    }

    /// The jobs that run, and those that have ended lately.
    ///
    /// # Errors
    /// If the server cannot answer.
    pub async fn jobs(&self) -> Result<ListJobsResponse, Error> {
        self.call(Call::new(Method::GET, self.url(&["jobs"]))).await
    }

    /// One job.
    ///
    /// # Errors
    /// If it is not known or the server cannot answer.
    pub async fn job(&self, job: &str) -> Result<Job, Error> {
        self.call(Call::new(Method::GET, self.url(&["jobs", job]))).await
    }

    /// Stops a job; what it has done stays done.
    ///
    /// # Errors
    /// If it is not known or the server cannot answer.
    pub async fn cancel_job(&self, job: &str) -> Result<Job, Error> {
        self.call(Call::new(Method::DELETE, self.url(&["jobs", job]))).await
    }

    /// Ends reservations before their time.
    ///
    /// # Errors
    /// If the request is refused or the server cannot answer.
    pub async fn revoke(&self, request: &RevokeRequest) -> Result<RevokeResponse, Error> {
        self.call(Call::new(Method::POST, self.url(&["reservations", "revoke"])).body(request)?).await
    }
}
