//! Totals.

use axum::Json;
use axum::extract::State;
use wayleave_api::stats::Stats;

use crate::http::app::App;
use crate::http::refused::Refused;

/// Totals of the whole frontier, in constant time.
#[utoipa::path(get, path = "/v1/stats", tag = "stats", responses((status = 200, description = "The totals.", body = Stats)))]
pub async fn get_stats(State(app): State<App>) -> Result<Json<Stats>, Refused> {
    Ok(Json(app.frontier.stats().await?.into()))
}
