//! Requeues and deletes known URLs, directly or by a job, and the jobs themselves.

use axum::Json;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use wayleave_api::jobs::{Job, ListJobsResponse, ReworkUrlsRequest, ReworkUrlsResponse, StartedJob, Wanted};
use wayleave_api::{BadValue, Code, Problem};
use wayleave_core::frontier::requeue::BulkAction;
use wayleave_core::ids::Token;
use wayleave_core::time::Millis;

use crate::http::app::App;
use crate::http::extract::{JobInPath, JsonBody};
use crate::http::named;
use crate::http::refused::Refused;

/// Requeues known URLs: named ones directly, those that match a filter by a job.
///
/// Their attempts are reset; priority, depth and metadata stay. URLs that are handed out are left alone.
#[utoipa::path(
    post, path = "/v1/urls/requeue", tag = "urls", request_body = ReworkUrlsRequest,
    responses(
        (status = 200, description = "The results of the named URLs.", body = ReworkUrlsResponse),
        (status = 202, description = "The job that processes the URLs.", body = StartedJob)
    )
)]
pub async fn requeue_urls(
    State(app): State<App>,
    JsonBody(body): JsonBody<ReworkUrlsRequest>,
) -> Result<Response, Refused> {
    rework(&app, &body, BulkAction::Requeue).await
}

/// Deletes URLs: named ones directly, those that match a filter by a job. URLs that are handed out are left alone.
#[utoipa::path(
    post, path = "/v1/urls/delete", tag = "urls", request_body = ReworkUrlsRequest,
    responses(
        (status = 200, description = "The results of the named URLs.", body = ReworkUrlsResponse),
        (status = 202, description = "The job that processes the URLs.", body = StartedJob)
    )
)]
pub async fn delete_urls(
    State(app): State<App>,
    JsonBody(body): JsonBody<ReworkUrlsRequest>,
) -> Result<Response, Refused> {
    rework(&app, &body, BulkAction::Delete).await
}

async fn rework(app: &App, body: &ReworkUrlsRequest, what: BulkAction) -> Result<Response, Refused> {
    body.check_size()?;
    let bad = |error| BadValue::new("host", error).into();
    let host = match body.asked_host()? {
        Some(asked) => Some(named::stored(app, &asked, None, bad).await?),
        None => None,
    };
    match body.wanted(host)? {
        Wanted::Urls(crawl, urls) => {
            let told = app.frontier.rework(what, crawl, urls).await?;
            Ok(Json(ReworkUrlsResponse::from(told)).into_response())
        }
        Wanted::All(filter, age) => {
            let before = age.map(|age| app.frontier.now().before(Millis(age)));
            let job = app.frontier.start_job(what, filter, before).await?.id.to_string();
            let location = [(header::LOCATION, format!("/v1/jobs/{job}"))];
            Ok((StatusCode::ACCEPTED, location, Json(StartedJob { job })).into_response())
        }
    }
}

/// Lists the running jobs, and those that ended recently.
#[utoipa::path(
    get, path = "/v1/jobs", tag = "jobs",
    responses((status = 200, description = "The jobs, the latest first.", body = ListJobsResponse))
)]
pub async fn list_jobs(State(app): State<App>) -> Result<Json<ListJobsResponse>, Refused> {
    Ok(Json(ListJobsResponse { jobs: app.frontier.jobs().await?.into_iter().map(Job::from).collect() }))
}

/// Returns one job: what it does and its progress.
#[utoipa::path(
    get, path = "/v1/jobs/{job}", tag = "jobs", params(("job" = String, Path, description = "The id of the job.")),
    responses((status = 200, description = "The job.", body = Job))
)]
pub async fn get_job(State(app): State<App>, JobInPath(job): JobInPath) -> Result<Json<Job>, Refused> {
    Ok(Json(app.frontier.job(job).await?.ok_or_else(|| unknown(job))?.into()))
}

/// Stops a job. What it has done stays done; a job that has ended stays as it is.
#[utoipa::path(
    delete, path = "/v1/jobs/{job}", tag = "jobs", params(("job" = String, Path, description = "The id of the job.")),
    responses((status = 200, description = "The current state of the job.", body = Job))
)]
pub async fn cancel_job(State(app): State<App>, JobInPath(job): JobInPath) -> Result<Json<Job>, Refused> {
    Ok(Json(app.frontier.cancel_job(job).await?.ok_or_else(|| unknown(job))?.into()))
}

fn unknown(job: Token) -> Problem {
    let detail = format!("job '{job}' is not known: it never began, or it ended long ago; GET /v1/jobs lists all");
    Problem::new(Code::UnknownJob, detail).with("job", job.to_string())
}
