//! Roles: heartbeats, the primary and its address, settings, release.

use axum::Json;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use wayleave_api::listing::{PageQuery, page_rows};
use wayleave_api::roles::{
    GetRoleQuery, HeartbeatRequest, HeartbeatResponse, ListRolesResponse, RaiseEpochRequest, ReleaseRoleQuery,
    ReleaseRoleResponse, Role, SetRoleRequest, WaitFor as WireWaitFor,
};
use wayleave_core::ids::Epoch;
use wayleave_core::roles::HeartbeatCall;
use wayleave_roles::{Wait, WaitFor};

use crate::http::app::App;
use crate::http::extract::{JsonBody, QueryOf, ReportedFrom, RoleInPath, UuidInPath};
use crate::http::refused::Refused;
use crate::http::waiting::Waiting;

/// All calls under `/v1/roles`.
pub(super) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(list_roles))
        .routes(routes!(get_role, put_role, patch_role, delete_role))
        .routes(routes!(heartbeat))
        .routes(routes!(step_down))
        .routes(routes!(raise_epoch))
        .routes(routes!(release_role))
}

/// A response that must not be cached.
fn fresh<T: serde::Serialize>(body: T) -> impl IntoResponse {
    ([(header::CACHE_CONTROL, "no-store")], Json(body))
}

/// Lists the roles by name, page by page, each with its primary and standbys.
#[utoipa::path(
    get, path = "/v1/roles", tag = "roles", params(PageQuery),
    responses((status = 200, description = "One page, of at most 100 roles.", body = ListRolesResponse))
)]
pub async fn list_roles(
    State(app): State<App>,
    QueryOf(query): QueryOf<PageQuery>,
) -> Result<impl IntoResponse, Refused> {
    let page = app.roles.list(query.after.as_deref(), page_rows(query.limit)?).await?;
    Ok(fresh(ListRolesResponse { roles: page.roles.into_iter().map(Role::from).collect(), next: page.next }))
}

/// Returns the primary of a role and its address, or none and why. Never one whose term has expired.
///
/// With `wait_ms` it is a long poll for a primary (of `min_epoch` or later) or, with `wait_for=vacancy`, for the end of
/// the current term. A role that nobody has requested yet is one without a primary.
#[utoipa::path(
    get, path = "/v1/roles/{utype}", tag = "roles",
    params(("utype" = String, Path, description = "The role's name."), GetRoleQuery),
    responses((status = 200, description = "The role.", body = Role))
)]
pub async fn get_role(
    State(app): State<App>,
    mut waiting: Waiting,
    RoleInPath(role): RoleInPath,
    QueryOf(query): QueryOf<GetRoleQuery>,
) -> Result<impl IntoResponse, Refused> {
    let least = query.min_epoch()?.map(Epoch);
    let what = match query.wait_for.unwrap_or_default() {
        WireWaitFor::Primary => WaitFor::Primary(least.unwrap_or_default()),
        WireWaitFor::Vacancy => WaitFor::Vacancy(least),
    };
    let view = waiting.call(query.wait()?, |time| app.roles.primary(&role, Wait { what, time })).await?;
    waiting.check(what.is_met_by(&view))?;
    Ok(fresh(Role::from(view)))
}

/// Creates or replaces the settings of a role; absent settings get their defaults.
#[utoipa::path(
    put, path = "/v1/roles/{utype}", tag = "roles", params(("utype" = String, Path, description = "The role's name.")),
    request_body = SetRoleRequest, responses((status = 200, description = "The role.", body = Role))
)]
pub async fn put_role(
    State(app): State<App>,
    RoleInPath(role): RoleInPath,
    JsonBody(body): JsonBody<SetRoleRequest>,
) -> Result<impl IntoResponse, Refused> {
    Ok(fresh(Role::from(app.roles.set(role, body.changes(true)?).await?)))
}

/// Changes the settings of a role; absent settings are kept, `null` restores the default.
#[utoipa::path(
    patch, path = "/v1/roles/{utype}", tag = "roles", params(("utype" = String, Path, description = "The role's name.")),
    request_body = SetRoleRequest, responses((status = 200, description = "The role.", body = Role))
)]
pub async fn patch_role(
    State(app): State<App>,
    RoleInPath(role): RoleInPath,
    JsonBody(body): JsonBody<SetRoleRequest>,
) -> Result<impl IntoResponse, Refused> {
    Ok(fresh(Role::from(app.roles.set(role, body.changes(false)?).await?)))
}

/// Deletes a role that has neither a primary nor a standby. A later role of that name continues above its old epochs.
#[utoipa::path(
    delete, path = "/v1/roles/{utype}", tag = "roles", params(("utype" = String, Path, description = "The role's name.")),
    responses((status = 204, description = "It was deleted."))
)]
pub async fn delete_role(State(app): State<App>, RoleInPath(role): RoleInPath) -> Result<StatusCode, Refused> {
    app.roles.delete(role).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Heartbeat of a candidate: acquires the role if it is free, renews its term, or stands by.
///
/// A primary counts `remaining_ms` from the moment it *sent* the heartbeat and stops its work before that time is over,
/// unless a later heartbeat was answered.
#[utoipa::path(
    post, path = "/v1/roles/{utype}/heartbeat", tag = "roles",
    params(("utype" = String, Path, description = "The role's name.")), request_body = HeartbeatRequest,
    responses((status = 200, description = "The state of the role.", body = HeartbeatResponse))
)]
pub async fn heartbeat(
    State(app): State<App>,
    RoleInPath(role): RoleInPath,
    ReportedFrom(from): ReportedFrom,
    JsonBody(body): JsonBody<HeartbeatRequest>,
) -> Result<impl IntoResponse, Refused> {
    let call = HeartbeatCall { from, ..HeartbeatCall::try_from(&body)? };
    let mut reply = app.roles.heartbeat(role, call).await?;
    for member in reply.going_on.iter_mut().flat_map(|told| &mut told.members) {
        member.from = member.from.filter(|from| app.vouches_for(*from));
    }
    Ok(fresh(HeartbeatResponse::from(reply)))
}

/// Asks the primary to step down.
///
/// It learns of this with its next heartbeat, keeps its term until it releases it, and then ranks behind all other
/// candidates for a moment.
#[utoipa::path(
    post, path = "/v1/roles/{utype}/step_down", tag = "roles",
    params(("utype" = String, Path, description = "The role's name.")),
    responses((status = 200, description = "The role.", body = Role))
)]
pub async fn step_down(State(app): State<App>, RoleInPath(role): RoleInPath) -> Result<impl IntoResponse, Refused> {
    Ok(fresh(Role::from(app.roles.step_down(role).await?)))
}

/// Raises the epoch of a role above those that another store has granted.
///
/// For stores that were moved or restored from a backup. An epoch is never lowered; a current term keeps its own until
/// it ends.
#[utoipa::path(
    post, path = "/v1/roles/{utype}/raise_epoch", tag = "roles",
    params(("utype" = String, Path, description = "The role's name.")), request_body = RaiseEpochRequest,
    responses((status = 200, description = "The role.", body = Role))
)]
pub async fn raise_epoch(
    State(app): State<App>,
    RoleInPath(role): RoleInPath,
    JsonBody(body): JsonBody<RaiseEpochRequest>,
) -> Result<impl IntoResponse, Refused> {
    Ok(fresh(Role::from(app.roles.raise_epoch(role, body.least()?).await?)))
}

/// Releases a term, so that the role is free at once, or withdraws a standby. Stop the work first.
///
/// With `slot`, the primary reports that it has done the work of that slot. It is recorded in the same write: a
/// candidate that asks for the role with that slot later is told so, and does not become primary.
#[utoipa::path(
    delete, path = "/v1/roles/{utype}/{uuid}", tag = "roles",
    params(
        ("utype" = String, Path, description = "The role's name."),
        ("uuid" = String, Path, description = "The candidate's uuid."),
        ReleaseRoleQuery,
    ),
    responses((status = 200, description = "What was released.", body = ReleaseRoleResponse))
)]
pub async fn release_role(
    State(app): State<App>,
    RoleInPath(role): RoleInPath,
    UuidInPath(uuid): UuidInPath,
    QueryOf(query): QueryOf<ReleaseRoleQuery>,
) -> Result<impl IntoResponse, Refused> {
    let (token, slot) = (query.token()?, query.slot()?);
    Ok(fresh(ReleaseRoleResponse::from(app.roles.release_after(role, uuid, token, slot).await?)))
}
