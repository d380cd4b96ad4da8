//! Matches: a client asks for a worker of a pool.
//!
//! A call that waits ends when there is news of its client, when its time is over, when it is to answer early, or when
//! its caller hangs up, which drops the handler. One that may not wait is answered at once: its client is queued all the
//! same.

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderName, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::any;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use wayleave_api::listing::page_rows;
use wayleave_api::matches::{
    DeleteMatchQuery, GetMatchQuery, ListMatchesQuery, ListMatchesResponse, Match, MatchCursor, MatchState,
    PutMatchQuery,
};
use wayleave_api::{Code, Problem};
use wayleave_core::frontier::refusal::Refusal;
use wayleave_core::matches::{Asker, MatchStage, MatchView, Refusal as No};
use wayleave_core::names::{ClientName, PoolName};

use crate::http::app::App;
use crate::http::extract::{ClientInPath, QueryOf};
use crate::http::refused::Refused;
use crate::http::waiting::Waiting;

/// Pools that one page of a listing over all pools looks into.
const POOLS_PER_PAGE: usize = 100;

/// All calls under `/v1/matches`.
pub(super) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(list_matches))
        .routes(routes!(put_match, get_match, delete_match))
        .route("/v1/matches/", any(empty_client))
}

/// An empty segment matches no parameter, and would look like a wrong path.
async fn empty_client() -> Refused {
    Problem::new(Code::BadClient, "a client name must not be empty: write it after /v1/matches/").into()
}

/// A client as callers name it. Once callers are known by name, this binds the client to the one who asked first.
const fn asker(client: ClientName) -> Asker {
    Asker { client, principal: None }
}

/// Asks for a worker of a pool. Idempotent: the same client asked again has the same request, and its match is confirmed.
///
/// Before a match is answered, its worker is asked whether it still holds the reservation. If it plainly does not, the
/// client is queued again; if its answer is unclear, the match is answered with `verified: false`. A failed match is told
/// once, as a problem with the code `match_failed`; the next call queues it again, after the pool's back-off.
#[utoipa::path(
    put, path = "/v1/matches/{client}", tag = "matches",
    params(("client" = String, Path, description = "The client: 1 to 255 bytes, percent-encoded."), PutMatchQuery),
    responses(
        (status = 200, description = "It has a worker.", body = Match),
        (status = 202, description = "It waits; ask again after `Retry-After`.", body = Match),
    )
)]
pub async fn put_match(
    State(app): State<App>,
    mut waiting: Waiting,
    ClientInPath(client): ClientInPath,
    QueryOf(query): QueryOf<PutMatchQuery>,
) -> Result<Response, Refused> {
    let (pool, asker) = (query.pool()?, asker(client.clone()));
    let put = |wait| app.matches.put(pool.clone(), asker.clone(), wait);
    let end = || app.matches.end_put(pool.clone(), asker.clone());
    let found = waiting.call_and_end(query.wait()?, put, end).await?;
    answer(&pool, &client, found, "its request was cancelled while this call waited")
}

/// Returns the match of a client, and confirms it.
///
/// With `confirm=false` an operator sees it as it is, without its token: nothing is confirmed, and no worker is asked.
#[utoipa::path(
    get, path = "/v1/matches/{client}", tag = "matches",
    params(("client" = String, Path, description = "The client: 1 to 255 bytes, percent-encoded."), GetMatchQuery),
    responses(
        (status = 200, description = "It has a worker; with `confirm=false` in any state.", body = Match),
        (status = 202, description = "It waits, or has lost its worker; ask again with PUT after `Retry-After`.", body = Match),
    )
)]
pub async fn get_match(
    State(app): State<App>,
    mut waiting: Waiting,
    ClientInPath(client): ClientInPath,
    QueryOf(query): QueryOf<GetMatchQuery>,
) -> Result<Response, Refused> {
    let pool = query.pool()?;
    if query.confirm == Some(false) {
        query.wait()?;
        let view = app.matches.why(pool.clone(), client.clone()).await?;
        let view = view.ok_or_else(|| unknown(&pool, &client, "it has no request in this pool"))?;
        return Ok(fresh(StatusCode::OK, Match::new(&pool, &client, view).without_token()));
    }
    let asker = asker(client.clone());
    let look = |wait| app.matches.look(pool.clone(), asker.clone(), wait);
    let found = waiting.call(query.wait()?, look).await?;
    answer(&pool, &client, found, "it has no request in this pool")
}

/// Cancels the request of a client, or gives its worker back.
#[utoipa::path(
    delete, path = "/v1/matches/{client}", tag = "matches",
    params(("client" = String, Path, description = "The client: 1 to 255 bytes, percent-encoded."), DeleteMatchQuery),
    responses((status = 204, description = "It was ended."))
)]
pub async fn delete_match(
    State(app): State<App>,
    ClientInPath(client): ClientInPath,
    QueryOf(query): QueryOf<DeleteMatchQuery>,
) -> Result<StatusCode, Refused> {
    let (pool, token) = (query.pool()?, query.token()?);
    if app.matches.cancel(pool.clone(), asker(client.clone()), token).await? {
        Ok(StatusCode::NO_CONTENT)
    } else {
        Err(unknown(&pool, &client, "it has no request in this pool").into())
    }
}

/// Lists matches by pool and client, page by page, each with its state and why. Tokens are not in it.
#[utoipa::path(
    get, path = "/v1/matches", tag = "matches", params(ListMatchesQuery),
    responses((status = 200, description = "One page.", body = ListMatchesResponse))
)]
pub async fn list_matches(
    State(app): State<App>,
    QueryOf(query): QueryOf<ListMatchesQuery>,
) -> Result<Json<ListMatchesResponse>, Refused> {
    let (pool, cursor, most) = (query.pool()?, query.cursor()?, page_rows(query.limit)?);
    let (matches, next) = match pool {
        Some(pool) => {
            let after = cursor.and_then(|cursor| cursor.client);
            let (matches, next) = page(&app, &pool, query.state, after, most).await?;
            (matches, next.map(|client| MatchCursor { pool, client: Some(client) }))
        }
        None => over_all_pools(&app, query.state, cursor, most).await?,
    };
    Ok(Json(ListMatchesResponse { matches, next: next.map(|cursor| cursor.to_string()) }))
}

/// One pool after the other, until the page is full or has looked into many: then it is returned short, with a cursor.
async fn over_all_pools(
    app: &App,
    state: Option<MatchState>,
    cursor: Option<MatchCursor>,
    most: usize,
) -> Result<(Vec<Match>, Option<MatchCursor>), Refused> {
    let mut found = Vec::new();
    let mut after_pool = None;
    if let Some(MatchCursor { pool, client }) = cursor {
        // The pool may be gone by now; those after it are not.
        match page(app, &pool, state, client, most).await {
            Ok((matches, Some(client))) => return Ok((matches, Some(MatchCursor { pool, client: Some(client) }))),
            Ok((matches, None)) => found = matches,
            Err(Refusal::Match(No::UnknownPool(_) | No::RemovedPool(_))) => {}
            Err(refusal) => return Err(refusal.into()),
        }
        after_pool = Some(pool);
    }
    let (pools, more) = app.matches.pools(after_pool, POOLS_PER_PAGE).await?;
    for pool in pools.into_iter().map(|pool| pool.name) {
        if found.len() == most {
            return Ok((found, Some(MatchCursor { pool, client: None })));
        }
        match page(app, &pool, state, None, most - found.len()).await {
            Ok((matches, next)) => {
                found.extend(matches);
                if next.is_some() {
                    return Ok((found, Some(MatchCursor { pool, client: next })));
                }
            }
            Err(Refusal::Match(No::UnknownPool(_) | No::RemovedPool(_))) => {}
            Err(refusal) => return Err(refusal.into()),
        }
        if more.as_ref() == Some(&pool) {
            let (next, _) = app.matches.pools(Some(pool), 1).await?;
            return Ok((found, next.into_iter().next().map(|next| MatchCursor { pool: next.name, client: None })));
        }
    }
    Ok((found, None))
}

async fn page(
    app: &App,
    pool: &PoolName,
    state: Option<MatchState>,
    after: Option<ClientName>,
    most: usize,
) -> Result<(Vec<Match>, Option<ClientName>), Refusal> {
    let stage = state.map(|state| match state {
        MatchState::Queued => MatchStage::Queued,
        MatchState::Making => MatchStage::Making,
        MatchState::Matched => MatchStage::Matched,
        MatchState::Vacant => MatchStage::Vacant,
        MatchState::Failed => MatchStage::Failed,
    });
    let (found, next) = app.matches.matches(pool, stage, after, most).await?;
    let listed = |(client, view): (ClientName, MatchView)| Match::new(pool, &client, view).without_token();
    Ok((found.into_iter().map(listed).collect(), next))
}

fn answer(pool: &PoolName, client: &ClientName, found: Option<MatchView>, none: &str) -> Result<Response, Refused> {
    let view = found.ok_or_else(|| unknown(pool, client, none))?;
    let found = Match::new(pool, client, view);
    match found.state {
        MatchState::Matched => Ok(fresh(StatusCode::OK, found)),
        MatchState::Failed => Err(found.failure().into()),
        MatchState::Queued | MatchState::Making | MatchState::Vacant => {
            let after = [(header::RETRY_AFTER, found.retry_after_secs().to_string())];
            Ok((after, fresh(StatusCode::ACCEPTED, found)).into_response())
        }
    }
}

/// A response that has a token, or is out of date at once: it must not be cached.
fn fresh(status: StatusCode, found: Match) -> Response {
    const NO_STORE: [(HeaderName, &str); 1] = [(header::CACHE_CONTROL, "no-store")];
    (status, NO_STORE, Json(found)).into_response()
}

fn unknown(pool: &PoolName, client: &ClientName, why: &str) -> Problem {
    let problem = Problem::new(Code::UnknownMatch, format!("client '{client}' of pool '{pool}': {why}"));
    problem.with("pool", &**pool).with("client", &**client)
}
