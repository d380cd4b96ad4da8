//! A crawler against a control plane whose store takes no new URLs for a while.

use std::sync::Mutex;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::net::TcpListener;
use wayleave_api::{Code, Problem};
use wayleave_client::Retry;

use super::*;
use crate::demo_site::{self, Site};
use crate::pause;

const LEASE_MS: u64 = 300;

/// What the control plane was called, in order, and how many renewals after its first refusal its store takes URLs again.
#[derive(Default)]
struct Plane {
    calls: Vec<String>,
    refuses: usize,
    /// Renewals before the first refusal.
    before: Option<usize>,
    work: Value,
    /// Stops the crawler at the last of these renewals; the store stays full.
    stops: Option<CancellationToken>,
}

type Shared = Arc<Mutex<Plane>>;

impl Plane {
    fn count(&self, call: &str) -> usize {
        self.calls.iter().filter(|made| *made == call).count()
    }

    fn call(&mut self, call: &str, body: &Value) -> Response {
        self.calls.push(call.to_owned());
        let renewed = self.before.map(|before| self.count("renew") - before);
        let over = renewed.is_some_and(|renewed| renewed >= self.refuses);
        if let Some(stop) = self.stops.as_ref().filter(|_| over) {
            stop.cancel();
        }
        let full = !over || self.stops.is_some();
        let reports = body["results"].as_array().is_some_and(|results| !results.is_empty());
        if full && reports {
            self.calls.push("refused".to_owned());
            let renewals = self.count("renew");
            self.before.get_or_insert(renewals);
            return (StatusCode::INSUFFICIENT_STORAGE, Json(Problem::new(Code::StoreFull, "the disk is full")))
                .into_response();
        }
        let expires_at = "2030-01-01T00:00:00Z";
        let answer = match call {
            "claim" => std::mem::replace(&mut self.work, json!({"chunks": [], "reservations": [], "finished": true})),
            "renew" => json!({"expires_at": expires_at, "ended": []}),
            "links" => json!({"replacements": [], "left": 0, "ended": []}),
            "release" => json!({}),
            "complete" => json!({"id": "1", "state": if body["artifact"].is_null() { "skipped" } else { "crawled" }}),
            _ => json!({"id": "1", "state": "set_aside"}),
        };
        if call == "complete" {
            self.calls.push(answer["state"].as_str().unwrap().to_owned());
        }
        Json(answer).into_response()
    }
}

/// A site, and a control plane that hands out three of its pages once.
struct Stage {
    site: Site,
    plane: Shared,
    folder: TempDir,
    crawler: Arc<Crawler>,
}

impl Stage {
    async fn start(single: bool, refuses: usize, stops: bool) -> Self {
        let site = Site::start(demo_site::Config { hosts: 1, pages: 5, ..demo_site::Config::default() }).await.unwrap();
        let urls: Vec<Url> = (1..=3).map(|page| site.url(0, &format!("/page/{page}")).unwrap()).collect();
        let host = urls[0].authority();
        let link = |url: &Url| json!({"url": url.as_str(), "crawl": "c", "host": host, "depth": 0, "delay_ms": 1, "metadata": {}});
        let links: Vec<Value> = urls.iter().map(link).collect();
        let chunk = json!({"id": "1", "token": "t", "stage": "crawl", "expires_at": "2030-01-01T00:00:00Z", "attempts": 0,
            "links": links, "inputs": []});
        let visit = json!({"token": "t", "group": host, "host": host, "expires_at": "2030-01-01T00:00:00Z", "delay_ms": 1,
            "urls": links.iter().map(|link| json!({"url": link["url"], "crawl": "c", "depth": 0, "priority": 5, "attempts": 0,
                "metadata": {}})).collect::<Vec<_>>()});
        let work = if single { json!({"reservations": [visit]}) } else { json!({"chunks": [chunk]}) };
        let stop = CancellationToken::new();
        let plane =
            Arc::new(Mutex::new(Plane { refuses, work, stops: stops.then(|| stop.clone()), ..Plane::default() }));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let client =
            Client::new(&format!("http://{}", listener.local_addr().unwrap())).unwrap().with_retry(Retry::NEVER);
        let routes = serve(&plane);
        tokio::spawn(async move { axum::serve(listener, routes).await.unwrap() });
        let folder = TempDir::new().unwrap();
        let store = Store::open(&format!("file://{}", folder.path().display()), None).unwrap();
        let config = Config {
            id: "c0".to_owned(),
            crawl: Some("c".to_owned()),
            single,
            tasks: 1,
            links: 10,
            fetches: usize::MAX,
            lease_ms: LEASE_MS,
            linger_ms: 0,
            reach: Reach::Host,
            seeds: urls,
            until: Until::Idle,
            fetch: fetch::Config::default(),
            robots: robots::Config::default(),
        };
        let mut crawler = Crawler::new(client, config, Some(store), stop, pause::switch().1).unwrap();
        Arc::get_mut(&mut crawler).unwrap().full_pause = Duration::from_millis(LEASE_MS / 2);
        Self { site, plane, folder, crawler }
    }

    /// Runs the crawler to its end; how often each of the pages was fetched, and how many artifacts there are.
    async fn run(&self) -> ([usize; 3], usize) {
        self.crawler.run().await.unwrap();
        let accesses = self.site.log().entries();
        let fetched = |page: usize| accesses.iter().filter(|access| access.path == format!("/page/{page}")).count();
        ([1, 2, 3].map(fetched), std::fs::read_dir(self.folder.path()).unwrap().count())
    }

    fn counts<const N: usize>(&self, calls: [&str; N]) -> [usize; N] {
        let plane = self.plane.lock().unwrap();
        calls.map(|call| plane.count(call))
    }
}

fn serve(plane: &Shared) -> Router {
    let called = |name: &'static str| {
        post(move |State(plane): State<Shared>, Json(body): Json<Value>| async move {
            plane.lock().unwrap().call(name, &body)
        })
    };
    let finished = async || Json(json!({"finished": true}));
    Router::new()
        .route("/v1/chunks/claim", called("claim"))
        .route("/v1/chunks/1/links", called("links"))
        .route("/v1/chunks/1/renew", called("renew"))
        .route("/v1/chunks/1/complete", called("complete"))
        .route("/v1/chunks/1/fail", called("fail"))
        .route("/v1/reservations", called("claim"))
        .route("/v1/reservations/t/renew", called("renew"))
        .route("/v1/reservations/t/release", called("release"))
        .route("/v1/crawls/c", get(finished))
        .with_state(Arc::clone(plane))
}

/// A regression: the chunk was lost at the first refusal and claimed again at once, so its pages were fetched again and again, and it
/// was set aside after a few attempts.
#[tokio::test]
async fn a_chunk_is_kept_while_the_store_is_full_and_every_page_is_fetched_once() {
    let stage = Stage::start(false, 6, false).await;
    assert_eq!(stage.run().await, ([1; 3], 1));
    assert_eq!(stage.counts(["crawled", "fail", "claim"]), [1, 0, 2], "{:?}", stage.plane.lock().unwrap().calls);
    let [refused, links] = stage.counts(["refused", "links"]);
    assert!(refused >= 6 && links == refused + 3, "{refused} of {links} reports were refused");
}

#[tokio::test]
async fn a_visit_is_kept_while_the_store_is_full_and_every_page_is_fetched_once() {
    let stage = Stage::start(true, 6, false).await;
    assert_eq!(stage.run().await, ([1; 3], 1));
    let [refused, releases, claims] = stage.counts(["refused", "release", "claim"]);
    assert!(refused >= 2 && releases == refused + 1 && claims == 2, "{:?}", stage.plane.lock().unwrap().calls);
}

#[tokio::test]
async fn a_crawler_stopped_while_the_store_is_full_returns_its_links_untried() {
    let stage = Stage::start(false, 3, true).await;
    assert_eq!(stage.run().await, ([1; 3], 0), "nothing was reported as fetched, so there is no artifact");
    assert_eq!(stage.counts(["skipped", "crawled", "fail", "claim"]), [1, 0, 0, 1]);
}
