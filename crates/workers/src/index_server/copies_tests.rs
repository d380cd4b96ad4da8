//! An index server's rounds, against a control plane that says what the test wants.

use std::sync::Mutex;

use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::net::TcpListener;
use wayleave_client::Retry;

use super::*;
use crate::digest::sha256;
use crate::index::{Builder, Page, pack};

/// What the control plane lists, knows of the chunk, and received.
#[derive(Default)]
struct Plane {
    listed: Option<Value>,
    chunk: Option<Value>,
    reports: Vec<String>,
    /// Reports are not taken.
    deaf: bool,
}

type Shared = Arc<Mutex<Plane>>;

async fn list(State(plane): State<Shared>) -> Json<Value> {
    Json(json!({"placements": Vec::from_iter(plane.lock().unwrap().listed.clone()), "next": null}))
}

async fn report(State(plane): State<Shared>, Json(body): Json<Value>) -> Response {
    let mut plane = plane.lock().unwrap();
    if plane.deaf {
        return StatusCode::SERVICE_UNAVAILABLE.into_response();
    }
    plane.reports.push(body["state"].as_str().unwrap().to_owned());
    Json(json!({"chunk": "1", "server": "s0", "state": "gone", "reason": "so it is"})).into_response()
}

async fn show(State(plane): State<Shared>, Path(id): Path<String>) -> Response {
    assert_eq!(id, "1");
    match plane.lock().unwrap().chunk.clone() {
        Some(chunk) => Json(chunk).into_response(),
        None => {
            let problem = wayleave_api::Problem::new(wayleave_api::Code::UnknownChunk, "no such chunk");
            (StatusCode::NOT_FOUND, Json(problem)).into_response()
        }
    }
}

fn placement(server: &str, state: &str, checksum: &str) -> Value {
    let artifact = json!({"location": "http://127.0.0.1:1/1.tar", "bytes": 1, "checksum": checksum});
    json!({"chunk": "1", "server": server, "row": 0, "state": state, "artifact": artifact, "from": null, "sources": [],
        "reason": "so it is", "changes_at": null})
}

/// The chunk with its index, which another server has in this state.
fn chunk(checksum: &str, elsewhere: &str) -> Value {
    let artifact = json!({"location": "http://127.0.0.1:1/1.tar", "bytes": 1, "checksum": checksum});
    json!({"id": "1", "crawl": "c", "stage": "build", "state": "built", "reason": "so it is", "until": null, "worker": null,
        "attempts": 0, "created_at": "2026-01-01T00:00:00Z", "since": "2026-01-01T00:00:00Z",
        "links": {"crawling": 0, "crawled": 1, "error": 0}, "artifacts": {"build": artifact}, "last_error": null,
        "placements": [placement("s1", elsewhere, checksum)]})
}

/// A server with the sound file of chunk 1, which it serves.
struct Stage {
    _keep: TempDir,
    plane: Shared,
    copies: Copies,
    file: std::path::PathBuf,
    indexes: std::path::PathBuf,
    checksum: String,
}

impl Stage {
    async fn start() -> Self {
        let plane = Shared::default();
        let routes = Router::new()
            .route("/v1/placements", get(list))
            .route("/v1/placements/{chunk}/{server}", axum::routing::post(report))
            .route("/v1/chunks/{id}", get(show))
            .with_state(Arc::clone(&plane));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let client =
            Client::new(&format!("http://{}", listener.local_addr().unwrap())).unwrap().with_retry(Retry::NEVER);
        tokio::spawn(async move { axum::serve(listener, routes).await.unwrap() });
        let keep = TempDir::new().unwrap();
        let index = TempDir::new().unwrap();
        let mut builder = Builder::create(index.path()).unwrap();
        builder.add(&Page { url: "http://a.example/", title: "", body: "river", crawl: "c" }).unwrap();
        builder.finish().unwrap();
        let mut content = Vec::new();
        pack(index.path(), &mut content).unwrap();
        let checksum = sha256(&content);
        let chunk_files = Arc::new(ChunkFiles::open(keep.path()).unwrap());
        let file = chunk_files.place("1", &checksum);
        std::fs::write(&file, &content).unwrap();
        let config = Config {
            id: "s0".to_owned(),
            row: 0,
            poll: Duration::ZERO,
            grace: Duration::ZERO,
            policy: Policy::new(Vec::new(), false),
        };
        let store = Store::open(&format!("file://{}", keep.path().join("store").display()), None).unwrap();
        let copies = Copies::new(client, MachineToken(tokio::sync::watch::channel(None).1), chunk_files, store, config);
        let indexes = keep.path().join("indexes");
        Self { _keep: keep, plane, copies, file, indexes, checksum }
    }

    /// As where there is no memory map left: the file is sound, and the system does not let it be opened.
    fn break_system(&self) {
        std::fs::remove_dir_all(&self.indexes).unwrap();
        std::fs::write(&self.indexes, "in the way").unwrap();
    }

    /// One round of a chunk in this state here, or not placed here; what was reported.
    async fn round(&mut self, state: Option<&str>) -> Vec<String> {
        self.plane.lock().unwrap().listed = state.map(|state| placement("s0", state, &self.checksum));
        self.copies.round().await.unwrap();
        std::mem::take(&mut self.plane.lock().unwrap().reports)
    }

    fn elsewhere(&self, state: &str) {
        self.plane.lock().unwrap().chunk = Some(chunk(&self.checksum, state));
    }

    /// Half a minute of failures passes.
    fn wait_long(&mut self) {
        self.copies.failed.insert("1".to_owned(), (Instant::now(), COPY_PAUSE_GONE));
    }
}

/// A regression: the chunk was reported gone as if its artifact was lost, and built anew; and its sound file was removed.
#[tokio::test]
async fn a_server_that_cannot_open_a_sound_file_reports_unable_and_keeps_it() {
    let mut stage = Stage::start().await;
    stage.break_system();
    stage.elsewhere("assigned");
    assert_eq!(stage.round(Some("ready")).await, [""; 0], "it may pass");
    stage.wait_long();
    assert_eq!(stage.round(Some("ready")).await, ["unable"]);
    for _ in 0..3 {
        stage.wait_long();
        assert_eq!(stage.round(Some("assigned")).await, ["fetching", "unable"]);
    }
    for _ in 0..3 {
        assert_eq!(stage.round(None).await, [""; 0]);
        assert!(stage.file.exists(), "no other server has it");
    }
    // The system works again.
    std::fs::remove_file(&stage.indexes).unwrap();
    std::fs::create_dir(&stage.indexes).unwrap();
    assert_eq!(stage.round(Some("assigned")).await, ["fetching", "ready"]);
    assert_eq!(stage.copies.chunk_files.served(), (1, 1));
}

/// A regression: a report that was not taken dropped the pauses of all chunks that came after it in the round.
#[tokio::test]
async fn a_report_that_is_not_taken_leaves_every_chunk_its_pause() {
    let mut stage = Stage::start().await;
    stage.plane.lock().unwrap().deaf = true;
    stage.plane.lock().unwrap().listed = Some(placement("s0", "assigned", &stage.checksum));
    assert!(stage.copies.round().await.is_err() && stage.copies.failed.contains_key("1"));
}

#[tokio::test]
async fn a_misplaced_file_stays_until_another_server_of_the_row_has_it() {
    let mut stage = Stage::start().await;
    assert_eq!(stage.round(Some("assigned")).await, ["fetching", "ready"]);
    stage.elsewhere("fetching");
    assert_eq!(stage.round(Some("draining")).await, ["gone"], "the control plane may place it again");
    assert_eq!(stage.round(None).await, [""; 0]);
    assert!(stage.file.exists());
    stage.elsewhere("ready");
    assert_eq!(stage.round(None).await, [""; 0]);
    assert!(!stage.file.exists());
}

#[tokio::test]
async fn a_file_of_a_chunk_that_left_or_has_another_index_is_removed() {
    for chunk in [None, Some(chunk(&sha256(b"another"), "fetching"))] {
        let mut stage = Stage::start().await;
        assert_eq!(stage.round(Some("assigned")).await, ["fetching", "ready"]);
        stage.plane.lock().unwrap().chunk = chunk;
        assert_eq!(stage.round(None).await, [""; 0]);
        assert!(!stage.file.exists());
    }
}

#[test]
fn a_location_in_a_store_that_is_not_given_is_explained() {
    let of = |location: &str| needs_store(&store::Error::Location(location.parse().unwrap())).unwrap();
    let advice = of("file:///data/indexes/chunk-1.index.tar");
    assert!(advice.starts_with("its location is file:///data/indexes/chunk-1.index.tar, which"), "{advice}");
    assert!(advice.contains("only with the --store of the builders"), "{advice}");
    let gone = store::Error::Gone { location: "file:///a".parse().unwrap() };
    assert_eq!(needs_store(&gone), None);
}

/// A regression: it was built anew without end, because the next index was at such a location too.
#[test]
fn a_chunk_at_a_location_that_this_server_cannot_read_is_never_gone() {
    let location = || "file:///data/indexes/chunk-1.index.tar".parse().unwrap();
    let own = Loss::by(&store::Error::Location(location()));
    let gone = Loss::by(&store::Error::Gone { location: location() });
    let away = Loss::by(&store::Error::Transfer { location: location(), cause: "refused".into() });
    let full = Loss::by(&store::Error::File { path: "chunks".into(), cause: rustix::io::Errno::NOSPC.into() });
    let worn = Loss::by(&store::Error::File { path: "chunks".into(), cause: rustix::io::Errno::IO.into() });
    let reports = |loss: Loss| [false, true].map(|lasts| loss.report(lasts));
    let (lasting, unable) = ([None, Some(SaidOfCopy::Gone)], [None, Some(SaidOfCopy::Unable)]);
    assert_eq!(
        [own, own.max(away), away.max(gone), gone, worn].map(reports),
        [[None; 2], [None; 2], lasting, [Some(SaidOfCopy::Gone); 2], lasting]
    );
    // A full disk here says nothing of the index, wherever else it was not found.
    assert_eq!([full, full.max(own), full.max(away), full.max(gone)].map(reports), [unable; 4]);
}
