//! Hosts: their state and its reason, and how they are visited.

use axum::Json;
use axum::extract::State;
use wayleave_api::hosts::{
    DeleteUrlsResponse, Host, InHand, ListHostsQuery, ListHostsResponse, NamesQuery, SetHostRequest,
};
use wayleave_api::listing::page_rows;
use wayleave_core::asked::AskedHost;
use wayleave_core::frontier::view::HostFilter;
use wayleave_core::settings::PaceChanges;
use wayleave_core::time::Time;

use crate::http::app::App;
use crate::http::extract::{CrawlInPath, HostInPath, JsonBody, QueryOf};
use crate::http::named;
use crate::http::refused::Refused;

/// Lists the hosts, page by page.
#[utoipa::path(
    get, path = "/v1/hosts", tag = "hosts", params(ListHostsQuery),
    responses((status = 200, description = "One page.", body = ListHostsResponse))
)]
pub async fn list_hosts(
    State(app): State<App>,
    QueryOf(query): QueryOf<ListHostsQuery>,
) -> Result<Json<ListHostsResponse>, Refused> {
    let filter = HostFilter::try_from(&query)?;
    let page = app.frontier.hosts(&filter, query.after.as_deref(), page_rows(query.limit)?).await?;
    Ok(Json(ListHostsResponse { hosts: page.items.into_iter().map(Host::from).collect(), next: page.next }))
}

/// Returns one host: its state, why, when that will change, its queues and settings.
#[utoipa::path(
    get, path = "/v1/hosts/{host}", tag = "hosts", params(("host" = String, Path, description = "Host name, IP address or queue key."), NamesQuery),
    responses((status = 200, description = "The host.", body = Host))
)]
pub async fn get_host(
    State(app): State<App>,
    HostInPath(host): HostInPath,
    QueryOf(names): QueryOf<NamesQuery>,
) -> Result<Json<Host>, Refused> {
    let host = named::in_path(&app, &host, names.exact).await?;
    let view = app.frontier.host(host.clone()).await?;
    let in_hand = if view.counts.reserved > 0 { app.frontier.in_hand(&host).await? } else { Vec::new() };
    Ok(Json(Host { in_hand: in_hand.into_iter().map(InHand::from).collect(), ..view.into() }))
}

/// Creates or replaces the settings of a host. Settings not named are cleared. With `ready_at` the host itself is
/// queued.
#[utoipa::path(
    put, path = "/v1/hosts/{host}", tag = "hosts", params(("host" = String, Path, description = "Host name, IP address or queue key."), NamesQuery),
    request_body = SetHostRequest, responses((status = 200, description = "The host.", body = Host))
)]
pub async fn put_host(
    State(app): State<App>,
    HostInPath(host): HostInPath,
    QueryOf(names): QueryOf<NamesQuery>,
    JsonBody(body): JsonBody<SetHostRequest>,
) -> Result<Json<Host>, Refused> {
    set_host(&app, (&host, names), &body, true).await
}

/// Creates or changes the settings of a host. Settings not named are kept; `null` clears.
#[utoipa::path(
    patch, path = "/v1/hosts/{host}", tag = "hosts", params(("host" = String, Path, description = "Host name, IP address or queue key."), NamesQuery),
    request_body = SetHostRequest, responses((status = 200, description = "The host.", body = Host))
)]
pub async fn patch_host(
    State(app): State<App>,
    HostInPath(host): HostInPath,
    QueryOf(names): QueryOf<NamesQuery>,
    JsonBody(body): JsonBody<SetHostRequest>,
) -> Result<Json<Host>, Refused> {
    set_host(&app, (&host, names), &body, false).await
}

async fn set_host(
    app: &App,
    (host, names): (&AskedHost, NamesQuery),
    body: &SetHostRequest,
    replace: bool,
) -> Result<Json<Host>, Refused> {
    let changes = PaceChanges::try_from(body)?;
    let host = named::in_path(app, host, names.exact).await?;
    Ok(Json(app.frontier.set_host(host, changes, replace, body.ready_at.map(Time::from)).await?.into()))
}

/// Deletes one crawl's URLs of a host. With its last crawl the host is forgotten, including its last visit.
#[utoipa::path(
    delete, path = "/v1/hosts/{host}/queues/{crawl}", tag = "hosts",
    params(
        ("host" = String, Path, description = "Host name, IP address or queue key."),
        ("crawl" = String, Path, description = "Name of the crawl."),
        NamesQuery,
    ),
    responses((status = 200, description = "The number of deleted URLs.", body = DeleteUrlsResponse))
)]
pub async fn delete_queue(
    State(app): State<App>,
    HostInPath(host): HostInPath,
    CrawlInPath(crawl): CrawlInPath,
    QueryOf(names): QueryOf<NamesQuery>,
) -> Result<Json<DeleteUrlsResponse>, Refused> {
    let host = named::in_path(&app, &host, names.exact).await?;
    Ok(Json(DeleteUrlsResponse { deleted: app.frontier.delete_queue(crawl, host).await? }))
}
