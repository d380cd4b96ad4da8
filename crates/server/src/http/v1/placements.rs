//! Built chunks on index servers, and the map that readers use.

use axum::Json;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use wayleave_api::listing::page_rows;
use wayleave_api::map::{GetMapQuery, Map};
use wayleave_api::placements::{
    ListPlacementsQuery, ListPlacementsResponse, Placement, ReportPlacementRequest, ReportPlacementResponse,
};

use crate::http::app::App;
use crate::http::extract::{ChunkInPath, JsonBody, QueryOf, ServerInPath};
use crate::http::refused::Refused;
use crate::http::waiting::Waiting;

/// The calls under `/v1/placements`, and `/v1/map`.
pub(super) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new().routes(routes!(list_placements)).routes(routes!(report_placement)).routes(routes!(get_map))
}

/// Lists copies of built chunks by server and chunk, page by page, each with its state and why.
///
/// An index server learns from it what to fetch (`assigned`, `fetching`) and what to delete (`draining`).
#[utoipa::path(
    get, path = "/v1/placements", tag = "placements", params(ListPlacementsQuery),
    responses((status = 200, description = "One page.", body = ListPlacementsResponse))
)]
pub async fn list_placements(
    State(app): State<App>,
    QueryOf(query): QueryOf<ListPlacementsQuery>,
) -> Result<Json<ListPlacementsResponse>, Refused> {
    let (filter, after, most) = (query.filter()?, query.cursor()?, page_rows(query.limit)?);
    let mut page = ListPlacementsResponse::from(app.fleet.placements(filter, after, most).await?);
    if query.credentials != Some(true) {
        page.placements = page.placements.into_iter().map(Placement::redacted).collect();
    }
    Ok(Json(page))
}

/// Takes what an index server says of its copy of a chunk: it fetches it, has it ready, does not have it, or is unable to keep it.
///
/// A copy may go from assigned to fetching or ready, from fetching to ready, and from any state to gone. The map shows the
/// change when the answer arrives. Repeating the call is harmless, but for `gone`: if the chunk was placed on the server again
/// meanwhile, the repetition counts as another attempt that failed. The server presents its token, as in its reports.
#[utoipa::path(
    post, path = "/v1/placements/{chunk}/{server}", tag = "placements",
    params(
        ("chunk" = String, Path, description = "The chunk's id."),
        ("server" = String, Path, description = "The index server's name."),
    ),
    request_body = ReportPlacementRequest,
    responses((status = 200, description = "The copy now.", body = ReportPlacementResponse))
)]
pub async fn report_placement(
    State(app): State<App>,
    ChunkInPath(chunk): ChunkInPath,
    ServerInPath(server): ServerInPath,
    JsonBody(body): JsonBody<ReportPlacementRequest>,
) -> Result<Json<ReportPlacementResponse>, Refused> {
    let said = (body.state.into(), body.checksum()?);
    let state = app.fleet.report_copy(chunk, server.clone(), said, body.token()?).await?;
    Ok(Json(ReportPlacementResponse::new(chunk, &server, state)))
}

/// Returns the map: where readers find each built chunk, in every row.
///
/// With `since` and `wait_ms` it is a long poll for another version.
#[utoipa::path(
    get, path = "/v1/map", tag = "placements", params(GetMapQuery),
    responses(
        (status = 200, description = "The map.", body = Map),
        (status = 204, description = "The map still has the version `since`."),
    )
)]
pub async fn get_map(
    State(app): State<App>,
    mut waiting: Waiting,
    QueryOf(query): QueryOf<GetMapQuery>,
) -> Result<Response, Refused> {
    let (since, wait) = (query.since()?, query.wait()?);
    let map = waiting.call(wait, |wait| app.fleet.map(since, wait)).await?;
    waiting.check(map.is_some())?;
    // The place is for waiting: the map is the response's.
    drop(waiting);
    Ok(match map {
        Some(map) => ([(header::CONTENT_TYPE, "application/json")], app.map_body.of(map).await?).into_response(),
        None => StatusCode::NO_CONTENT.into_response(),
    })
}
