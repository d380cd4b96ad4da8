//! What an index server answers: health, searches, packed chunks.

use std::collections::HashSet;
use std::sync::Arc;

use axum::extract::{Path, Query, Request, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use tokio::sync::Semaphore;

use super::chunk_files::ChunkFiles;
use super::wire::{Hit, SearchQuery, SearchResponse};
use crate::index;
use crate::limits::{HITS_MAX, SEARCH_CHUNKS_MAX, SEARCHES_MAX};
use crate::store::serve;

const LIMIT: usize = 10;

#[derive(Clone)]
struct Serving {
    chunk_files: Arc<ChunkFiles>,
    searches: Arc<Semaphore>,
}

pub(super) fn router(chunk_files: Arc<ChunkFiles>) -> Router {
    let serving = Serving { chunk_files, searches: Arc::new(Semaphore::new(SEARCHES_MAX)) };
    Router::new()
        .route("/healthz", get(async || "ok\n"))
        .route("/search", get(search))
        .route("/chunks/{id}", get(chunk))
        .with_state(serving)
}

async fn search(State(serving): State<Serving>, Query(asked): Query<SearchQuery>) -> Response {
    let bad = |why: String| (StatusCode::BAD_REQUEST, why + "\n").into_response();
    let query = match asked.q.parse::<index::Query>() {
        Ok(query) => query,
        Err(error) => return bad(error.to_string()),
    };
    let query = match &asked.crawl {
        Some(crawl) => query.in_crawl(crawl),
        None => query,
    };
    let only: Option<HashSet<String>> =
        asked.chunks.as_ref().map(|chunks| chunks.split(',').map(str::to_owned).collect());
    if only.as_ref().is_some_and(|only| only.len() > SEARCH_CHUNKS_MAX) {
        return bad(format!("more than {SEARCH_CHUNKS_MAX} chunks"));
    }
    let limit = asked.limit.unwrap_or(LIMIT).min(HITS_MAX);
    let Ok(permit) = serving.searches.try_acquire_owned() else {
        return (StatusCode::SERVICE_UNAVAILABLE, [("retry-after", "1")], "too many searches\n").into_response();
    };
    let work = tokio::task::spawn_blocking(move || {
        let _permit = permit;
        serving.chunk_files.search(&query, only.as_ref(), limit)
    });
    match work.await {
        Ok((hits, missing)) => {
            Json(SearchResponse { hits: hits.into_iter().map(Hit::from).collect(), missing }).into_response()
        }
        Err(error) => {
            tracing::error!(error = %error, "a search failed");
            (StatusCode::INTERNAL_SERVER_ERROR, "the search failed\n").into_response()
        }
    }
}

async fn chunk(State(serving): State<Serving>, Path(id): Path<String>, request: Request) -> Response {
    match serving.chunk_files.packed(&id) {
        Some(file) => serve::file(file, request.headers()).await,
        None => StatusCode::NOT_FOUND.into_response(),
    }
}
