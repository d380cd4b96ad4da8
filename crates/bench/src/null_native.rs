//! The null server's native API: bodies are parsed and responses written in full, but nothing is stored.

use axum::extract::Path;
use axum::http::StatusCode;
use axum::routing::{post, put};
use axum::{Json, Router};
use serde_json::{Value, json};
use wayleave_api::Timestamp;
use wayleave_api::reservations::{
    ReleaseReservationRequest, Reservation, ReserveGroupsRequest, ReserveGroupsResponse, UrlToFetch,
};
use wayleave_api::urls::{AddCounts, AddResult, AddStatus, AddUrlsRequest, AddUrlsResponse};

/// A time that is always in the future.
const LATER: &str = "2100-01-01T00:00:00.000Z";

/// The native calls that the load makes.
pub fn routes() -> Router {
    Router::new()
        .route("/v1/urls", post(add))
        .route("/v1/crawls/{crawl}", put(async |_: Json<Value>| Json(json!({}))))
        .route("/v1/reservations", post(reserve))
        .route("/v1/reservations/{token}/release", post(release))
        .route("/v1/chunks/claim", post(claim))
        .route("/v1/pools/{pool}", put(async |_: Json<Value>| Json(json!({}))).get(pool))
        .route("/v1/matches/{client}", put(matched).delete(async || StatusCode::NO_CONTENT))
        .route("/v1/chunks/{id}/links", post(async |_: Json<Value>| Json(json!({"replacements": [], "left": 0}))))
        .route("/v1/chunks/{id}/complete", post(async |_: Json<Value>| Json(json!({"state": "crawled"}))))
}

async fn add(Json(request): Json<AddUrlsRequest>) -> Json<AddUrlsResponse> {
    let counts = AddCounts { added: request.urls.len() as u64, ..Default::default() };
    let result = |url: String| AddResult { line: None, url: Some(url), status: AddStatus::Added, reason: None };
    let results = request.urls.into_iter().map(|to_add| result(to_add.url)).collect();
    Json(AddUrlsResponse { counts, results: Some(results) })
}

async fn reserve(Json(request): Json<ReserveGroupsRequest>) -> Json<ReserveGroupsResponse> {
    let crawl = request.crawl.unwrap_or_default();
    let Ok(expires_at) = LATER.parse::<Timestamp>() else { return Json(ReserveGroupsResponse::default()) };
    let page = |no: u64| UrlToFetch {
        url: format!("https://h{no}.example/0/0/page.html"),
        crawl: crawl.clone(),
        priority: 5,
        depth: 0,
        attempts: 0,
        metadata: Default::default(),
    };
    let one = |no: u64| Reservation {
        token: format!("null{no}"),
        group: format!("h{no}.example"),
        host: format!("h{no}.example"),
        expires_at,
        delay_ms: 0,
        urls: (0..request.urls.min(1_000)).map(|_| page(no)).collect(),
    };
    let reservations = (0..request.groups.min(1_000)).map(one).collect();
    Json(ReserveGroupsResponse { reservations, finished: false })
}

async fn pool() -> Json<Value> {
    Json(json!({"pool": "bench", "free": 1_000, "reason": "100 workers are running"}))
}

async fn matched(Path(client): Path<String>) -> Json<Value> {
    Json(json!({
        "client": client, "pool": "bench", "state": "matched", "reason": "worker bench-1 has reserved a slot",
        "position": null, "estimate_ms": null, "retry_after_ms": null, "address": "127.0.0.1:1", "worker": "bench-1",
        "token": "AA4zlDAQYJmA4WcQ6TgVjA", "expires_at": LATER, "verified": true, "version": 1,
    }))
}

async fn claim(Json(request): Json<Value>) -> Json<Value> {
    let number = |name: &str| request.get(name).and_then(Value::as_u64).unwrap_or(1).min(1_000);
    let link = |no: u64| {
        let (host, url) = (format!("h{no}.example"), format!("https://h{no}.example/0/0/page.html"));
        json!({"url": url, "crawl": request.get("crawl"), "host": host, "depth": 0, "delay_ms": 0, "metadata": {}})
    };
    let links: Vec<Value> = (0..number("links")).map(link).collect();
    let chunk = |no: u64| {
        json!({
            "id": no.to_string(), "token": format!("null{no}"), "stage": "crawl", "expires_at": LATER, "attempts": 0,
            "links": links,
        })
    };
    Json(json!({"chunks": (0..number("max")).map(chunk).collect::<Vec<_>>()}))
}

async fn release(Json(_): Json<ReleaseReservationRequest>) -> Json<Value> {
    Json(json!({"group": "null", "ready_at": LATER}))
}
