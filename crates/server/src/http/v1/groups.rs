//! Groups: hosts that are visited as one.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use wayleave_api::BadValue;
use wayleave_api::groups::{Group, ListGroupsResponse, SetGroupRequest};
use wayleave_api::hosts::{ListHostsQuery, NamesQuery};
use wayleave_api::listing::page_rows;
use wayleave_core::frontier::refusal::Refusal;
use wayleave_core::frontier::view::HostFilter;
use wayleave_core::names::HostName;
use wayleave_core::settings::PaceChanges;

use crate::http::app::App;
use crate::http::extract::{AliasInPath, GroupInPath, JsonBody, QueryOf};
use crate::http::named;
use crate::http::refused::Refused;

/// Lists the groups, page by page: aliases, and hosts that are groups of their own.
#[utoipa::path(
    get, path = "/v1/groups", tag = "groups", params(ListHostsQuery),
    responses((status = 200, description = "One page.", body = ListGroupsResponse))
)]
pub async fn list_groups(
    State(app): State<App>,
    QueryOf(query): QueryOf<ListHostsQuery>,
) -> Result<Json<ListGroupsResponse>, Refused> {
    let filter = HostFilter::try_from(&query)?;
    let page = app.frontier.groups(&filter, query.after.as_deref(), page_rows(query.limit)?).await?;
    Ok(Json(ListGroupsResponse { groups: page.items.into_iter().map(Group::from).collect(), next: page.next }))
}

/// Returns one group: an alias, or a host that is a group of its own.
#[utoipa::path(
    get, path = "/v1/groups/{group}", tag = "groups", params(("group" = String, Path, description = "Alias or host name.")),
    responses((status = 200, description = "The group.", body = Group))
)]
pub async fn get_group(State(app): State<App>, GroupInPath(group): GroupInPath) -> Result<Json<Group>, Refused> {
    let view = match (app.frontier.group(group.written()).await, group.normal()) {
        (Err(Refusal::UnknownGroup(_)), Some(normal)) => app.frontier.group(normal).await?,
        (found, _) => found?,
    };
    Ok(Json(view.into()))
}

/// Creates or replaces an alias. `hosts` is its whole membership; settings not named are cleared.
#[utoipa::path(
    put, path = "/v1/groups/{group}", tag = "groups", params(("group" = String, Path, description = "Alias."), NamesQuery),
    request_body = SetGroupRequest, responses((status = 200, description = "The group.", body = Group))
)]
pub async fn put_group(
    State(app): State<App>,
    AliasInPath(alias): AliasInPath,
    QueryOf(names): QueryOf<NamesQuery>,
    JsonBody(body): JsonBody<SetGroupRequest>,
) -> Result<Json<Group>, Refused> {
    let changes = PaceChanges::try_from(&body)?;
    let hosts = stored_hosts(&app, &body, names).await?;
    let missing = || BadValue::new("hosts", "is missing; PUT takes the whole group, PATCH takes settings alone");
    let hosts = hosts.ok_or_else(missing)?;
    Ok(Json(app.frontier.set_group(alias, Some(hosts), changes, true).await?.into()))
}

/// Changes hosts or settings of an alias. What is not named is kept; `null` clears.
#[utoipa::path(
    patch, path = "/v1/groups/{group}", tag = "groups", params(("group" = String, Path, description = "Alias."), NamesQuery),
    request_body = SetGroupRequest, responses((status = 200, description = "The group.", body = Group))
)]
pub async fn patch_group(
    State(app): State<App>,
    AliasInPath(alias): AliasInPath,
    QueryOf(names): QueryOf<NamesQuery>,
    JsonBody(body): JsonBody<SetGroupRequest>,
) -> Result<Json<Group>, Refused> {
    let changes = PaceChanges::try_from(&body)?;
    let hosts = stored_hosts(&app, &body, names).await?;
    Ok(Json(app.frontier.set_group(alias, hosts, changes, false).await?.into()))
}

/// The hosts that a body names, by their stored names, deduplicated.
async fn stored_hosts(app: &App, body: &SetGroupRequest, names: NamesQuery) -> Result<Option<Vec<HostName>>, Refused> {
    let Some(asked) = body.asked_hosts()? else { return Ok(None) };
    let mut hosts = Vec::with_capacity(asked.len());
    for (i, host) in asked.iter().enumerate() {
        let bad = |error| BadValue::new(format!("hosts[{i}]"), error).into();
        hosts.push(named::stored(app, host, names.exact, bad).await?);
    }
    hosts.sort_unstable();
    hosts.dedup();
    Ok(Some(hosts))
}

/// Deletes an alias; its hosts become groups of their own again.
#[utoipa::path(
    delete, path = "/v1/groups/{group}", tag = "groups", params(("group" = String, Path, description = "Alias.")),
    responses((status = 204, description = "It was deleted."))
)]
pub async fn delete_group(State(app): State<App>, AliasInPath(alias): AliasInPath) -> Result<StatusCode, Refused> {
    app.frontier.delete_group(alias).await?;
    Ok(StatusCode::NO_CONTENT)
}
