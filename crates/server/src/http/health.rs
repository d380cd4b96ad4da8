//! Liveness, readiness and metrics.

use axum::Json;
use axum::extract::State;
use axum::http::header;
use axum::response::IntoResponse;
use serde::Serialize;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use wayleave_api::{Code, Problem};
use wayleave_core::limits;

use super::app::App;
use super::refused::Refused;
use crate::{Health as StoreHealth, metrics};

pub(super) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new().routes(routes!(get_healthz)).routes(routes!(get_readyz)).routes(routes!(get_metrics))
}

/// The state of the server.
#[derive(Serialize, ToSchema)]
struct Health {
    /// `up` or `ready`.
    status: &'static str,
    /// What an operator should look at although requests are served, such as a damaged table.
    #[serde(skip_serializing_if = "Option::is_none")]
    warning: Option<String>,
    /// What cannot be read, if the store is damaged in some places. All else is served.
    #[serde(skip_serializing_if = "Option::is_none")]
    damage: Option<String>,
}

/// Liveness: whether the process can continue.
///
/// A store that has failed answers 503: restart the process. A store that waits for something, such as disk space, does
/// not.
#[utoipa::path(get, path = "/healthz", tag = "health", responses((status = 200, description = "The process is alive.", body = Health)))]
async fn get_healthz(State(app): State<App>) -> Result<Json<Health>, Refused> {
    match app.health() {
        StoreHealth::Failed(reason) => {
            Err(Problem::new(Code::NotReady, format!("the store has failed, start the server again: {reason}")).into())
        }
        StoreHealth::Ok | StoreHealth::Impaired(_) | StoreHealth::Degraded(_) => {
            Ok(Json(Health { status: "up", warning: None, damage: None }))
        }
    }
}

/// Readiness: whether requests will be served, that is, the store responds and the server is not stopping.
#[utoipa::path(get, path = "/readyz", tag = "health", responses((status = 200, description = "The server is ready.", body = Health)))]
async fn get_readyz(State(app): State<App>) -> Result<Json<Health>, Refused> {
    if app.stopping.is_cancelled() {
        return Err(Problem::new(Code::NotReady, "the server is stopping").into());
    }
    match app.trouble() {
        Some(reason) => Err(Problem::new(Code::NotReady, reason).into()),
        None => {
            let (warning, damage) = (app.health().warning(), app.frontier.damage().told());
            Ok(Json(Health { status: "ready", warning, damage }))
        }
    }
}

/// The metrics of this process and the totals of the frontier, in Prometheus text format.
#[utoipa::path(
    get, path = "/metrics", tag = "health",
    responses((status = 200, description = "The metrics.", body = String, content_type = "text/plain"))
)]
async fn get_metrics(State(app): State<App>) -> impl IntoResponse {
    let ready = app.trouble().is_none();
    // The metrics are worth reading without the totals, above all when the totals fail.
    let stats = app.frontier.stats().await.ok();
    let mut page = app.metrics.render(stats.as_ref(), ready);
    metrics::text::gauges(app.store_gauges(), &mut page);
    metrics::waits::render(&app.waits, &mut page);
    metrics::nodes::render(app.frontier.node_messages(), &mut page);
    metrics::damage::render(&app.frontier.damage(), &mut page);
    metrics::chunks::render(app.pipeline.counts().await.ok(), &mut page);
    metrics::roles::render(&app.roles, app.roles.totals().await.ok(), &mut page);
    // All shards at once, from memory. A cluster with more pools than a page shows the first ones.
    let pools = app.matches.pools(None, limits::PAGE_MAX).await.map(|(pools, _)| pools).unwrap_or_default();
    metrics::pools::render(&pools, &mut page);
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], page)
}
