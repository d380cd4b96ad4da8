//! Chunks and machines that are carried from one store to another.

use axum::Json;
use axum::extract::State;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use wayleave_api::carry::{
    ChunkNumbers, ExportChunksQuery, ExportChunksResponse, ExportedChunk, ImportChunksRequest, ImportChunksResponse,
    ImportedChunk, MapVersion, RaiseChunkNumbersRequest, RaiseMapVersionRequest, RestoreMachineRequest,
};
use wayleave_api::chunks::chunk_id;
use wayleave_api::fleet::Machine;
use wayleave_core::frontier::refusal::Refusal;

use crate::http::app::App;
use crate::http::extract::{JsonBody, MachineInPath, QueryOf};
use crate::http::refused::Refused;

/// The calls of `export` and `import`.
pub(super) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(export_chunks))
        .routes(routes!(import_chunks))
        .routes(routes!(next_chunk_number))
        .routes(routes!(raise_chunk_numbers))
        .routes(routes!(restore_machine))
        .routes(routes!(raise_map_version))
}

/// Lists chunks with all that another store needs of them: links, artifacts, copies. For `wayleave export`.
///
/// URLs and locations are shown with user names and passwords. Pages are as long as the server likes.
#[utoipa::path(
    get, path = "/v1/chunks/export", tag = "chunks", params(ExportChunksQuery),
    responses((status = 200, description = "One page.", body = ExportChunksResponse))
)]
pub async fn export_chunks(
    State(app): State<App>,
    QueryOf(query): QueryOf<ExportChunksQuery>,
) -> Result<Json<ExportChunksResponse>, Refused> {
    let after = query.after.as_deref().map(chunk_id).transpose().map_err(|_| Refusal::BadCursor)?;
    let (chunks, next) = app.pipeline.carry(query.crawl()?, after).await?;
    let chunks = chunks.into_iter().map(ExportedChunk::from).collect();
    Ok(Json(ExportChunksResponse { chunks, next: next.map(|id| id.to_string()) }))
}

/// Restores exported chunks: id, stage, attempts, links, artifacts, copies. For `wayleave import`.
///
/// Import machines and URLs first. Leases end: a chunk that someone worked on is offered again. A link to be crawled is
/// taken out of its queue; one that is with another worker, or whose host lives in another shard than the chunk, is left
/// there (queued again, if the URL is finished), and a chunk without links left is skipped. Chunks that are here already are not changed, so the call may be
/// repeated. Each chunk is restored as a whole or rejected.
#[utoipa::path(
    post, path = "/v1/chunks/import", tag = "chunks", request_body = ImportChunksRequest,
    responses((status = 200, description = "What became of each.", body = ImportChunksResponse))
)]
pub async fn import_chunks(
    State(app): State<App>,
    JsonBody(body): JsonBody<ImportChunksRequest>,
) -> Result<Json<ImportChunksResponse>, Refused> {
    body.check_size()?;
    let restored = app.pipeline.restore(body.carried()?).await?;
    let results = body.chunks.into_iter().zip(restored).map(|(chunk, restored)| ImportedChunk::new(chunk.id, restored));
    Ok(Json(ImportChunksResponse { results: results.collect() }))
}

/// Tells the number of the next chunk. For `wayleave export`.
#[utoipa::path(
    get, path = "/v1/chunks/next_number", tag = "chunks",
    responses((status = 200, description = "The greatest of all shards.", body = ChunkNumbers))
)]
pub async fn next_chunk_number(State(app): State<App>) -> Result<Json<ChunkNumbers>, Refused> {
    Ok(Json(ChunkNumbers { next: app.pipeline.next_number().await? }))
}

/// Raises the numbers of new chunks above those of another store, whose chunks are about to be imported.
///
/// Numbers are never lowered. Those that are skipped are lost, so a raise by 2^40 or more is refused (422), and a chunk
/// whose number is 2^36 or more above the next one is rejected by the import: raise the numbers first.
#[utoipa::path(
    post, path = "/v1/chunks/raise_numbers", tag = "chunks", request_body = RaiseChunkNumbersRequest,
    responses((status = 200, description = "The number of the next chunk now.", body = ChunkNumbers))
)]
pub async fn raise_chunk_numbers(
    State(app): State<App>,
    JsonBody(body): JsonBody<RaiseChunkNumbersRequest>,
) -> Result<Json<ChunkNumbers>, Refused> {
    Ok(Json(ChunkNumbers { next: app.pipeline.raise_numbers(body.least()?).await? }))
}

/// Restores an exported machine: what it registered, and what the operator wants of it. For `wayleave import`.
///
/// It is suspect until its first report, which needs no token and registers it again, and has failed if there is none
/// within 10 minutes. Of a machine that has registered here before, only `desired` is set.
#[utoipa::path(
    post, path = "/v1/fleet/{id}/restore", tag = "fleet",
    params(("id" = String, Path, description = "The machine's name.")),
    request_body = RestoreMachineRequest, responses((status = 200, description = "The machine.", body = Machine))
)]
pub async fn restore_machine(
    State(app): State<App>,
    MachineInPath(id): MachineInPath,
    JsonBody(body): JsonBody<RestoreMachineRequest>,
) -> Result<Json<Machine>, Refused> {
    Ok(Json(app.fleet.restore_machine(id, body.machine()?).await?.into()))
}

/// Raises the version of the map above those that another store has published, so that no reader sees it go back.
///
/// For stores that were moved. A version is never lowered.
#[utoipa::path(
    post, path = "/v1/map/raise_version", tag = "placements", request_body = RaiseMapVersionRequest,
    responses((status = 200, description = "The version now.", body = MapVersion))
)]
pub async fn raise_map_version(
    State(app): State<App>,
    JsonBody(body): JsonBody<RaiseMapVersionRequest>,
) -> Result<Json<MapVersion>, Refused> {
    Ok(Json(MapVersion { version: app.fleet.raise_map_version(body.least()?).await? }))
}
