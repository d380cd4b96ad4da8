//! A builder and a server that has one chunk, whose input the builder cannot read.

use axum::extract::{Path, State};
use axum::routing::{get, post};
use axum::{Json, Router};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::net::TcpListener;
use wayleave_api::chunks::ClaimedChunk;

use super::*;

/// The server: what it answers a claim with, whether it stops the builder first, and what it received.
#[derive(Clone, Default)]
struct Fake {
    chunks: Arc<Mutex<Vec<Value>>>,
    stop: Option<CancellationToken>,
    calls: Arc<Mutex<Vec<String>>>,
}

impl Fake {
    fn note(&self, call: String) {
        self.calls.lock().unwrap().push(call);
    }

    fn calls(&self) -> Vec<String> {
        std::mem::take(&mut self.calls.lock().unwrap())
    }

    async fn start(&self) -> Client {
        let claim = post(async |State(fake): State<Self>| {
            if let Some(stop) = &fake.stop {
                stop.cancel();
            }
            Json(json!({ "chunks": *fake.chunks.lock().unwrap() }))
        });
        let view = get(async |State(fake): State<Self>, Path(id): Path<String>| {
            fake.note(format!("view {id}"));
            Json(json!({
                "id": id, "crawl": "news", "stage": "build", "state": "building", "reason": "it is being built", "until": null,
                "worker": "b", "attempts": 0, "created_at": AT, "since": AT,
                "links": { "crawling": 0, "crawled": 1, "error": 0 }, "artifacts": { "crawl": null, "build": null }, "last_error": null,
            }))
        });
        let fail = post(async |State(fake): State<Self>, Path(id): Path<String>, Json(body): Json<Value>| {
            fake.note(format!("fail {id}: {} {}", body["reason"].as_str().unwrap(), body["input_lost"]));
            Json(json!({ "id": id, "state": "crawled" }))
        });
        let router = Router::new()
            .route("/v1/chunks/claim", claim)
            .route("/v1/chunks/{id}", view)
            .route("/v1/chunks/{id}/fail", fail)
            .with_state(self.clone());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let client = Client::new(&format!("http://{}", listener.local_addr().unwrap())).unwrap();
        tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        client
    }
}

const AT: &str = "2026-01-01T00:00:00Z";

fn chunk(id: &str, location: &str) -> Value {
    let artifact = json!({ "location": location, "bytes": 3, "checksum": crate::digest::sha256(b"abc") });
    json!({
        "id": id, "token": format!("token-{id}"), "stage": "build", "expires_at": AT, "attempts": 0, "links": [],
        "inputs": [{ "chunk": id, "artifact": artifact }],
    })
}

async fn builder(fake: &Fake, folder: &TempDir) -> Builder {
    let config = Config {
        id: "b".to_owned(),
        crawl: None,
        chunks: 5,
        lease_ms: 60_000,
        patience: Duration::from_secs(1),
        until: Until::Stopped,
        policy: Policy::new(Vec::new(), true),
    };
    let store = Store::open(&format!("file://{}/indexes", folder.path().display()), None).unwrap();
    let stop = fake.stop.clone().unwrap_or_default();
    Builder::new(fake.start().await, config, store, stop, crate::pause::switch().1)
}

/// A regression: three such chunks ended the builder, which reported that it could not store anything.
#[tokio::test]
async fn an_input_that_cannot_be_read_fails_its_chunk_and_not_the_builder() {
    let (fake, folder) = (Fake::default(), TempDir::new().unwrap());
    let builder = builder(&fake, &folder).await;
    let mut not_stored = 2;
    for location in ["file:///elsewhere/chunk-1.warc.gz", "s3://elsewhere/chunk-1.warc.gz"] {
        let claimed: ClaimedChunk = serde_json::from_value(chunk("1", location)).unwrap();
        let held = builder.hold(claimed, Instant::now());
        let ended = builder.build(&held, false).await;
        assert!(matches!(ended, Ended::Unreadable), "{location}");
        builder.settle(ended, &mut not_stored).await.unwrap();
        assert_eq!(not_stored, 2);
        let failed = format!("fail 1: {location} is neither http(s) nor in this worker's own store false");
        assert_eq!(fake.calls(), ["view 1".to_owned(), failed]);
    }
    assert_eq!(builder.counts()().lost, 2);
}

#[tokio::test]
async fn a_stretch_without_work_ends_a_row_of_failures() {
    let (fake, folder) = (Fake::default(), TempDir::new().unwrap());
    let mut not_stored = 2;
    builder(&fake, &folder).await.step(&mut not_stored).await.unwrap();
    assert_eq!(not_stored, 0);
}

/// A regression: a builder that found nothing was silent for as long as it ran.
#[test]
fn each_idle_stretch_is_logged_once() {
    let begun = Instant::now();
    let mut stretch = Stretch { since: begun, is_logged: false };
    let mut at = |secs, worked| stretch.goes_on(worked, begun + Duration::from_secs(secs));
    assert_eq!([at(2, false), at(5, false), at(9, false)], [false, true, false]);
    assert_eq!([at(20, true), at(22, false), at(26, false), at(40, false)], [false, false, true, false]);
}

/// A regression: chunks of a claim that was open when the builder was stopped were built.
#[tokio::test]
async fn chunks_that_come_after_the_signal_are_given_back_at_once() {
    let folder = TempDir::new().unwrap();
    let fake = Fake { stop: Some(CancellationToken::new()), ..Fake::default() };
    fake.chunks.lock().unwrap().extend(["1", "2"].map(|id| chunk(id, "http://127.0.0.1:1/a.warc.gz")));
    let builder = builder(&fake, &folder).await;
    builder.run().await.unwrap();
    let want = ["1", "2"].map(|id| format!("fail {id}: its builder stopped before it began false"));
    assert_eq!(fake.calls(), want);
}
