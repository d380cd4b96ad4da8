//! Reservations: reserve, renew, release, revoke, list.

use std::sync::atomic::Ordering;

use axum::extract::State;
use axum::{Extension, Json};
use wayleave_api::jobs::{RevokeRequest, RevokeResponse};
use wayleave_api::listing::{PageQuery, page_rows};
use wayleave_api::reservations::{
    ListReservationsResponse, LiveReservation, ReleaseReservationRequest, ReleaseReservationResponse,
    RenewReservationRequest, RenewReservationResponse, Reservation, ReserveGroupsRequest, ReserveGroupsResponse,
};
use wayleave_api::urls::AddUrlsResponse;
use wayleave_api::{BadValue, Timestamp};
use wayleave_core::asked::AskedHost;
use wayleave_core::frontier::refusal::Refusal;
use wayleave_core::frontier::request::{Release, Reserve};
use wayleave_core::ids::Token;
use wayleave_core::names::BadName;
use wayleave_core::time::{Millis, Time};
use wayleave_shard::Revoke;

use super::add_batch::{AddBatch, count};
use crate::http::app::App;
use crate::http::extract::{JsonBody, OptionalJsonBody, QueryOf, TokenInPath};
use crate::http::held::Held;
use crate::http::named;
use crate::http::refused::Refused;
use crate::http::waiting::Waiting;

/// Reserves groups that are ready, each with URLs to fetch.
///
/// If none is ready it waits up to `wait_ms`. An empty list says whether the crawl that was asked for is finished.
#[utoipa::path(
    post, path = "/v1/reservations", tag = "reservations", request_body = ReserveGroupsRequest,
    responses((status = 200, description = "The reservations; may be empty.", body = ReserveGroupsResponse))
)]
pub async fn reserve_groups(
    State(app): State<App>,
    mut waiting: Waiting,
    JsonBody(body): JsonBody<ReserveGroupsRequest>,
) -> Result<Json<ReserveGroupsResponse>, Refused> {
    let request = Reserve::try_from(&body)?;
    let crawl = request.crawl.clone();
    let granted = app.frontier.reserve_while(request, &mut waiting).await;
    let granted = granted.map_err(|refusal| waiting.explain(refusal))?;
    let urls: usize = granted.iter().map(|reservation| reservation.urls.len()).sum();
    app.metrics.reservations_granted.fetch_add(granted.len() as u64, Ordering::Relaxed);
    app.metrics.urls_reserved.fetch_add(urls as u64, Ordering::Relaxed);
    let finished = match crawl.filter(|_| granted.is_empty()) {
        // On an error the worker asks again, as it would anyway.
        Some(crawl) => app.frontier.is_finished(&crawl).await.unwrap_or(false),
        None => false,
    };
    let reservations = granted.into_iter().map(Reservation::from).collect();
    Ok(Json(ReserveGroupsResponse { reservations, finished }))
}

/// Extends a reservation: `lease_ms` counts from now.
#[utoipa::path(
    post, path = "/v1/reservations/{token}/renew", tag = "reservations",
    params(("token" = String, Path, description = "The reservation's token.")), request_body = RenewReservationRequest,
    responses((status = 200, description = "The new deadline.", body = RenewReservationResponse))
)]
pub async fn renew_reservation(
    State(app): State<App>,
    TokenInPath(token): TokenInPath,
    OptionalJsonBody(body): OptionalJsonBody<RenewReservationRequest>,
) -> Result<Json<RenewReservationResponse>, Refused> {
    let renewed = app.frontier.renew(token, Millis::try_from(&body)?).await;
    let expires_at = Timestamp(renewed.map_err(|refusal| noted(&app, refusal))?);
    Ok(Json(RenewReservationResponse { expires_at }))
}

/// Ends a reservation and reports the results of its URLs. URLs not named return to the queue unchanged.
#[utoipa::path(
    post, path = "/v1/reservations/{token}/release", tag = "reservations",
    params(("token" = String, Path, description = "The reservation's token.")), request_body = ReleaseReservationRequest,
    responses((status = 200, description = "When the group may be visited again.", body = ReleaseReservationResponse))
)]
pub async fn release_reservation(
    State(app): State<App>,
    TokenInPath(token): TokenInPath,
    Extension(held): Extension<Held>,
    OptionalJsonBody(body): OptionalJsonBody<ReleaseReservationRequest>,
) -> Result<Json<ReleaseReservationResponse>, Refused> {
    body.check_size()?;
    let release = Release { token, results: body.core_results()?, ready_at: body.ready_at.map(Time::from) };
    if body.results.iter().all(|result| result.found.is_empty()) {
        return carry_out(&app, release, body).await;
    }
    // The group stays reserved until its found links are stored, even past its lease. So a release that has begun is
    // completed even if the client disconnects, and it keeps its share of the memory budget until then.
    let releasing = tokio::spawn(async move {
        let released = carry_out(&app, release, body).await;
        drop(held);
        released
    });
    releasing.await.unwrap_or_else(|error| {
        let why = format!("the release was interrupted ({error}); look the URLs up, or send it again");
        Err(Refusal::OutcomeUnknown(why).into())
    })
}

async fn carry_out(
    app: &App,
    release: Release,
    body: ReleaseReservationRequest,
) -> Result<Json<ReleaseReservationResponse>, Refused> {
    let (puts, pending) = found_batch(app, &release, body).await?.into_parts();
    let released = app.frontier.release(release, puts).await;
    let (released, outcomes) = released.map_err(|refusal| noted(app, refusal))?;
    app.metrics.reservations_released.fetch_add(1, Ordering::Relaxed);
    let found = pending.resolve(outcomes);
    let counts = count(&found);
    app.metrics.urls.add(&counts);
    let found = (!found.is_empty()).then_some(AddUrlsResponse { counts, results: Some(found) });
    let (group, ready_at) = (released.group.to_string(), Timestamp(released.ready_at));
    Ok(Json(ReleaseReservationResponse { group, ready_at, found }))
}

/// The found links, which default to the crawl of their page and one level deeper.
async fn found_batch(app: &App, release: &Release, body: ReleaseReservationRequest) -> Result<AddBatch, Refused> {
    if body.results.iter().all(|result| result.found.is_empty()) {
        return Ok(AddBatch::default());
    }
    let pages = release.results.iter().map(|result| result.url.clone()).collect();
    let parents = app.frontier.begin_release(release.token, pages).await.map_err(|refusal| noted(app, refusal))?;
    Ok(AddBatch::found(body.results, parents, "or its crawl was deleted meanwhile"))
}

/// Revokes reservations before their deadline: one by its token, all of a holder, or all of a host.
///
/// Their URLs return to the queue unchanged, and the group's delay begins now. To the holder it is as if its lease had
/// expired.
#[utoipa::path(
    post, path = "/v1/reservations/revoke", tag = "reservations", request_body = RevokeRequest,
    responses((status = 200, description = "How many were revoked.", body = RevokeResponse))
)]
pub async fn revoke_reservations(
    State(app): State<App>,
    JsonBody(body): JsonBody<RevokeRequest>,
) -> Result<Json<RevokeResponse>, Refused> {
    let which = match (body.token, body.holder, body.host) {
        (Some(token), None, None) => Revoke::Token(Token::parse(&token).map_err(|e| BadValue::new("token", e))?),
        (None, Some(holder), None) => Revoke::Holder(holder.into()),
        (None, None, Some(host)) => {
            let bad = |error: BadName| Refused::from(BadValue::new("host", error));
            Revoke::Host(named::stored(&app, &AskedHost::parse(&host).map_err(bad)?, None, bad).await?)
        }
        _ => return Err(BadValue::new("host", "name exactly one of 'token', 'holder' and 'host'").into()),
    };
    let (reservations, holds) = app.frontier.revoke(which).await?;
    Ok(Json(RevokeResponse { reservations, holds }))
}

fn noted(app: &App, refusal: Refusal) -> Refused {
    if refusal == Refusal::NotCurrent {
        app.metrics.reservations_stale.fetch_add(1, Ordering::Relaxed);
    }
    refusal.into()
}

/// Lists the current reservations, page by page, without their tokens.
#[utoipa::path(
    get, path = "/v1/reservations", tag = "reservations", params(PageQuery),
    responses((status = 200, description = "One page.", body = ListReservationsResponse))
)]
pub async fn list_reservations(
    State(app): State<App>,
    QueryOf(query): QueryOf<PageQuery>,
) -> Result<Json<ListReservationsResponse>, Refused> {
    let page = app.frontier.reservations(query.after.as_deref(), page_rows(query.limit)?).await?;
    let reservations = page.items.into_iter().map(LiveReservation::from).collect();
    Ok(Json(ListReservationsResponse { reservations, next: page.next }))
}
