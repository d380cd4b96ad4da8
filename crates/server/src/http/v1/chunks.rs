//! Chunks: claim, report links, renew, complete, fail; list, retry, skip.

use axum::extract::State;
use axum::{Extension, Json};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use wayleave_api::chunks::{
    Chunk, ChunkMoved, ClaimChunksRequest, ClaimChunksResponse, ClaimedChunk, CompleteChunkRequest, FailChunkRequest,
    Link, ListChunksQuery, ListChunksResponse, RenewChunkRequest, RenewChunkResponse, ReportLinksRequest,
    ReportLinksResponse, chunk_id,
};
use wayleave_api::listing::page_rows;
use wayleave_api::urls::AddUrlsResponse;
use wayleave_api::{BadValue, Problem, Timestamp};
use wayleave_core::frontier::refusal::Refusal;
use wayleave_core::ids::{ChunkId, Token};
use wayleave_core::names::BadName;
use wayleave_core::pipeline::refusal::ChunkRefusal;
use wayleave_core::pipeline::request::{EndChunk, LeaseEnded, OperatorAction, ReportLinks, Stage};
use wayleave_core::time::Millis;

use super::add_batch::{AddBatch, count};
use crate::http::app::App;
use crate::http::extract::{ChunkInPath, JsonBody, QueryOf, ReportedFrom};
use crate::http::held::Held;
use crate::http::named;
use crate::http::refused::Refused;
use crate::http::waiting::Waiting;

/// All calls under `/v1/chunks`.
pub(super) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(claim_chunks))
        .routes(routes!(list_chunks))
        .routes(routes!(get_chunk))
        .routes(routes!(report_links))
        .routes(routes!(renew_chunk))
        .routes(routes!(complete_chunk))
        .routes(routes!(fail_chunk))
        .routes(routes!(retry_chunk))
        .routes(routes!(skip_chunk))
}

/// Claims chunks: for a crawler links to fetch, for an index builder what was fetched.
///
/// If there is none it waits up to `wait_ms`. A crawler gets chunks that are offered again first, then new ones of links
/// whose groups are ready: each link's group is reserved for the chunk until the link is reported. With `host` the links
/// are of that host alone, of the crawl `DEFAULT` if none is named, and the crawler keeps their `delay_ms` itself. An
/// empty list says whether the crawl that was asked for is finished.
#[utoipa::path(
    post, path = "/v1/chunks/claim", tag = "chunks", request_body = ClaimChunksRequest,
    responses((status = 200, description = "The chunks; may be empty.", body = ClaimChunksResponse))
)]
pub async fn claim_chunks(
    State(app): State<App>,
    mut waiting: Waiting,
    JsonBody(body): JsonBody<ClaimChunksRequest>,
) -> Result<Json<ClaimChunksResponse>, Refused> {
    let (wait, linger) = body.waits()?;
    let asked = body.asked_host()?;
    // All other fields are checked before the host is looked up.
    let mut claim = body.claim(None)?;
    if let Some(asked) = asked {
        let bad = |error: BadName| Refused::from(BadValue::new("host", error));
        let host = named::stored(&app, &asked, None, bad).await?;
        app.frontier.host(host.clone()).await?;
        claim = body.claim(Some(host))?;
    }
    let crawl = claim.crawl.clone().filter(|_| claim.stage == Stage::Crawl);
    let claimed = app.pipeline.claim_while(claim, wait, linger, &mut waiting).await;
    let claimed = claimed.map_err(|refusal| waiting.explain(refusal))?;
    let finished = match crawl.filter(|_| claimed.is_empty()) {
        // On an error the worker asks again, as it would anyway.
        Some(crawl) => app.frontier.is_finished(&crawl).await.unwrap_or(false),
        None => false,
    };
    Ok(Json(ClaimChunksResponse { chunks: claimed.into_iter().map(ClaimedChunk::from).collect(), finished }))
}

/// Lists chunks by id, page by page, each with its state and why.
#[utoipa::path(
    get, path = "/v1/chunks", tag = "chunks", params(ListChunksQuery),
    responses((status = 200, description = "One page.", body = ListChunksResponse))
)]
pub async fn list_chunks(
    State(app): State<App>,
    QueryOf(query): QueryOf<ListChunksQuery>,
) -> Result<Json<ListChunksResponse>, Refused> {
    let after = query.after.as_deref().map(chunk_id).transpose().map_err(|_| Refusal::BadCursor)?;
    let (page, next, damaged) = app.pipeline.chunks(query.filter()?, after, page_rows(query.limit)?).await?;
    let credentials = query.credentials == Some(true);
    let shown = |chunk: Chunk| if credentials { chunk } else { chunk.redacted() };
    let chunks = page.into_iter().map(Chunk::from).map(shown).collect();
    let damaged = damaged.iter().map(ToString::to_string).collect();
    Ok(Json(ListChunksResponse { chunks, next: next.map(|id| id.to_string()), damaged }))
}

/// Returns a chunk: its state, why, and when that changes; without its token.
#[utoipa::path(
    get, path = "/v1/chunks/{chunk}", tag = "chunks", params(("chunk" = String, Path, description = "The chunk's id.")),
    responses((status = 200, description = "The chunk.", body = Chunk))
)]
pub async fn get_chunk(State(app): State<App>, ChunkInPath(chunk): ChunkInPath) -> Result<Json<Chunk>, Refused> {
    Ok(Json(Chunk::from(app.pipeline.chunk(chunk).await?).redacted()))
}

/// Reports links of a chunk that is being crawled, in any number of calls.
///
/// A report ends the visit of the link's group, so its delay starts. A link that was fetched counts when the chunk is
/// completed: until then its content may be lost. One that failed is settled at once and, with `replace`, another link
/// takes its place. Found links are stored first. Repeating a report is harmless.
#[utoipa::path(
    post, path = "/v1/chunks/{chunk}/links", tag = "chunks",
    params(("chunk" = String, Path, description = "The chunk's id.")), request_body = ReportLinksRequest,
    responses((status = 200, description = "Replacements, and what is left.", body = ReportLinksResponse))
)]
pub async fn report_links(
    State(app): State<App>,
    ChunkInPath(chunk): ChunkInPath,
    Extension(held): Extension<Held>,
    JsonBody(body): JsonBody<ReportLinksRequest>,
) -> Result<Json<ReportLinksResponse>, Refused> {
    body.check_size()?;
    let report = body.report(chunk)?;
    if body.results.iter().all(|result| result.found.is_empty()) {
        return carry_out(&app, report, AddBatch::default()).await;
    }
    // A report that has begun is completed even if the client disconnects, and it keeps its share of the memory budget
    // until then: the lease was extended for it.
    let reporting = tokio::spawn(async move {
        let reported = store_found(&app, report, body).await;
        drop(held);
        reported
    });
    reporting.await.unwrap_or_else(|error| {
        let why = format!("the report was interrupted ({error}); send it again");
        Err(Refusal::OutcomeUnknown(why).into())
    })
}

async fn store_found(
    app: &App,
    report: ReportLinks,
    body: ReportLinksRequest,
) -> Result<Json<ReportLinksResponse>, Refused> {
    let pages = report.results.iter().map(|result| result.url.clone()).collect();
    let parents = app.pipeline.begin_report(report.chunk, report.token, pages).await?;
    let batch = AddBatch::found(body.results, parents, "is no longer part of the chunk, or its crawl was deleted");
    carry_out(app, report, batch).await
}

async fn carry_out(app: &App, report: ReportLinks, found: AddBatch) -> Result<Json<ReportLinksResponse>, Refused> {
    let (puts, pending) = found.into_parts();
    let (reported, outcomes) = app.pipeline.report(report, puts).await?;
    let found = pending.resolve(outcomes);
    let counts = count(&found);
    app.metrics.urls.add(&counts);
    Ok(Json(ReportLinksResponse {
        replacements: reported.replacements.into_iter().map(Link::from).collect(),
        left: reported.left,
        ended: reported.ended.into_iter().map(Into::into).collect(),
        found: (!found.is_empty()).then_some(AddUrlsResponse { counts, results: Some(found) }),
    }))
}

/// Extends the lease of a chunk: `lease_ms` counts from now.
#[utoipa::path(
    post, path = "/v1/chunks/{chunk}/renew", tag = "chunks",
    params(("chunk" = String, Path, description = "The chunk's id.")), request_body = RenewChunkRequest,
    responses((status = 200, description = "The new deadline.", body = RenewChunkResponse))
)]
pub async fn renew_chunk(
    State(app): State<App>,
    ChunkInPath(chunk): ChunkInPath,
    JsonBody(body): JsonBody<RenewChunkRequest>,
) -> Result<Json<RenewChunkResponse>, Refused> {
    let (token, lease) = <(Token, Millis)>::try_from(&body)?;
    let (expires_at, ended) = app.pipeline.renew(chunk, token, lease).await?;
    let ended = ended.into_iter().map(Into::into).collect();
    Ok(Json(RenewChunkResponse { expires_at: Timestamp(expires_at), ended }))
}

/// Completes the stage of a chunk, which moves it on exactly once.
///
/// A crawled chunk goes to an index builder; one without a fetched link is skipped. Links that were not reported return
/// to their queues. `ended` names links that had left the chunk before. Repeating the call is harmless. A token that is not
/// current is refused, and `garbage` names the artifact to delete.
#[utoipa::path(
    post, path = "/v1/chunks/{chunk}/complete", tag = "chunks",
    params(("chunk" = String, Path, description = "The chunk's id.")), request_body = CompleteChunkRequest,
    responses((status = 200, description = "The chunk's state now.", body = ChunkMoved))
)]
pub async fn complete_chunk(
    State(app): State<App>,
    ChunkInPath(chunk): ChunkInPath,
    from: ReportedFrom,
    JsonBody(body): JsonBody<CompleteChunkRequest>,
) -> Result<Json<ChunkMoved>, Refused> {
    let (token, mut end) = <(Token, EndChunk)>::try_from(&body)?;
    if let EndChunk::Complete(Some(artifact)) = &mut end {
        artifact.from = from.0.filter(|from| app.vouches_for(*from));
    }
    let LeaseEnded { state, ended } = app.pipeline.end_lease(chunk, token, end).await.map_err(|refusal| {
        let is_garbage =
            matches!(&refusal, Refusal::Chunk(ChunkRefusal::NotCurrent { garbage, .. }) if !garbage.is_empty());
        let problem = Problem::from(refusal);
        match body.artifact.filter(|_| is_garbage) {
            Some(artifact) => problem.with("garbage", artifact.location),
            None => problem,
        }
    })?;
    let ended = ended.into_iter().map(Into::into).collect();
    Ok(Json(ChunkMoved { ended, ..ChunkMoved::new(chunk, state) }))
}

/// Fails the attempt at a stage of a chunk: it is offered again, and set aside after 5 attempts.
///
/// With `input_lost` an index builder says that the crawled content is gone: the links are crawled again. Repeating the
/// call is harmless.
#[utoipa::path(
    post, path = "/v1/chunks/{chunk}/fail", tag = "chunks",
    params(("chunk" = String, Path, description = "The chunk's id.")), request_body = FailChunkRequest,
    responses((status = 200, description = "The chunk's state now.", body = ChunkMoved))
)]
pub async fn fail_chunk(
    State(app): State<App>,
    ChunkInPath(chunk): ChunkInPath,
    JsonBody(body): JsonBody<FailChunkRequest>,
) -> Result<Json<ChunkMoved>, Refused> {
    let (token, end) = <(Token, EndChunk)>::try_from(&body)?;
    Ok(Json(ChunkMoved::new(chunk, app.pipeline.end(chunk, token, end).await?)))
}

/// Offers a chunk again that was set aside or skipped, or has a placed one built anew. For operators.
#[utoipa::path(
    post, path = "/v1/chunks/{chunk}/retry", tag = "chunks",
    params(("chunk" = String, Path, description = "The chunk's id.")),
    responses((status = 200, description = "The chunk's state now.", body = ChunkMoved))
)]
pub async fn retry_chunk(State(app): State<App>, ChunkInPath(chunk): ChunkInPath) -> Result<Json<ChunkMoved>, Refused> {
    decide(&app, chunk, OperatorAction::Retry).await
}

/// Gives a chunk up: its token ends, and URLs that it has not fetched are marked as failed. One that is built leaves the
/// index servers and the map. For operators.
#[utoipa::path(
    post, path = "/v1/chunks/{chunk}/skip", tag = "chunks",
    params(("chunk" = String, Path, description = "The chunk's id.")),
    responses((status = 200, description = "The chunk's state now.", body = ChunkMoved))
)]
pub async fn skip_chunk(State(app): State<App>, ChunkInPath(chunk): ChunkInPath) -> Result<Json<ChunkMoved>, Refused> {
    decide(&app, chunk, OperatorAction::Skip).await
}

async fn decide(app: &App, chunk: ChunkId, decision: OperatorAction) -> Result<Json<ChunkMoved>, Refused> {
    Ok(Json(ChunkMoved::new(chunk, app.pipeline.decide(chunk, decision).await?)))
}
