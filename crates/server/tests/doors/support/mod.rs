//! Shared by the tests of the HTTP API: a frontier, and a client without a network.

pub mod net;
pub mod schema;
pub mod site;

use std::sync::LazyLock;

use axum::Router;
use axum::http::{HeaderMap, StatusCode};
use tokio::runtime::Runtime;
use tower::ServiceExt;
use wayleave_roles::Roles;
use wayleave_server::http::{App, router};
use wayleave_shard::Frontier;
use wayleave_shard::fleet::Fleet;
use wayleave_shard::matches::Matches;
use wayleave_shard::pipeline::Pipeline;

use crate::prelude::*;

/// Owners outlive the short runtimes of single tests.
static OWNERS: LazyLock<Runtime> = LazyLock::new(|| Runtime::new().unwrap());

/// A separate, empty frontier.
pub fn frontier() -> Frontier {
    frontier_over(Arc::new(Memory::new(SystemClock::default())))
}

/// A frontier over this store.
pub fn frontier_over(engine: Arc<Memory>) -> Frontier {
    let opening = || OWNERS.block_on(Frontier::open(engine, wayleave_shard::Config::new(4), OWNERS.handle()));
    // A test's own runtime must not be blocked from within, so a separate thread waits.
    std::thread::scope(|scope| scope.spawn(opening).join().unwrap()).unwrap()
}

/// Separate, empty roles.
pub fn roles() -> Roles {
    Roles::new(Arc::new(Memory::new(SystemClock::default())))
}

/// A response, read to its end.
#[derive(Debug)]
pub struct Response {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub text: String,
}

impl Response {
    /// The body as JSON.
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|e| panic!("{e}: {}", self.text))
    }

    /// The body's lines as JSON.
    pub fn lines(&self) -> Vec<Value> {
        self.text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// The body of a 200.
    #[track_caller]
    pub fn ok(&self) -> Value {
        assert_eq!(self.status, StatusCode::OK, "{}", self.text);
        self.json()
    }

    /// The status and code of a problem, after checking that it is complete.
    #[track_caller]
    pub fn problem(&self) -> (u16, String) {
        assert_eq!(self.headers[header::CONTENT_TYPE], "application/problem+json", "{}", self.text);
        let body = self.json();
        let code = body["code"].as_str().unwrap().to_owned();
        assert_eq!(body["status"], self.status.as_u16());
        assert_eq!(body["type"], format!("/docs#{code}"));
        assert!(!body["title"].as_str().unwrap().is_empty() && !body["detail"].as_str().unwrap().is_empty());
        (self.status.as_u16(), code)
    }
}

/// A server without a network.
#[derive(Clone)]
pub struct Door {
    pub app: App,
    router: Router,
}

/// Services over a store in memory.
pub fn services() -> Services {
    over(frontier())
}

/// Services over this frontier.
pub fn over(frontier: Frontier) -> Services {
    let (pipeline, fleet) = (Pipeline::new(frontier.clone()), Fleet::new(frontier.clone()));
    let matches = Matches::new(frontier.clone());
    Services { frontier, pipeline, fleet, matches, logs: None, roles: roles(), peers: None, store: None }
}

impl Door {
    pub fn new() -> Self {
        Self::with(Config::default())
    }

    pub fn with(config: Config) -> Self {
        Self::over(config, roles())
    }

    /// A server over these roles.
    pub fn over(config: Config, roles: Roles) -> Self {
        Self::serving(config, Services { roles, ..services() })
    }

    /// A server over this frontier, beside other APIs.
    pub fn to(frontier: Frontier) -> Self {
        Self::serving(Config::default(), over(frontier))
    }

    /// A server over a separate frontier, with this as its store.
    pub fn with_store(config: Config, store: Arc<dyn wayleave_server::Store>) -> Self {
        Self::serving(config, Services { store: Some(store), ..services() })
    }

    /// A server over these services.
    pub fn serving(config: Config, services: Services) -> Self {
        let app = App::new(config, services);
        Self { router: router(&app), app }
    }

    pub async fn send(&self, request: Request<Body>) -> Response {
        let response = self.router.clone().oneshot(request).await.unwrap();
        let (parts, body) = response.into_parts();
        let bytes = body.collect().await.unwrap().to_bytes();
        Response { status: parts.status, headers: parts.headers, text: String::from_utf8(bytes.to_vec()).unwrap() }
    }

    /// Only the status, of a response that may not be text.
    pub async fn status(&self, request: Request<Body>) -> StatusCode {
        self.router.clone().oneshot(request).await.unwrap().status()
    }

    /// A request with a body of a content type; an empty type sends none.
    pub async fn send_as(&self, method: Method, path: &str, kind: &str, body: impl Into<Body>) -> Response {
        let request = Request::builder().method(method).uri(path);
        let request = if kind.is_empty() { request } else { request.header(header::CONTENT_TYPE, kind) };
        self.send(request.body(body.into()).unwrap()).await
    }

    pub async fn get(&self, path: &str) -> Response {
        self.send_as(Method::GET, path, "", Body::empty()).await
    }

    pub async fn delete(&self, path: &str) -> Response {
        self.send_as(Method::DELETE, path, "", Body::empty()).await
    }

    pub async fn post(&self, path: &str, body: Value) -> Response {
        self.send_as(Method::POST, path, "application/json", body.to_string()).await
    }

    pub async fn put(&self, path: &str, body: Value) -> Response {
        self.send_as(Method::PUT, path, "application/json", body.to_string()).await
    }

    pub async fn patch(&self, path: &str, body: Value) -> Response {
        self.send_as(Method::PATCH, path, "application/json", body.to_string()).await
    }

    pub async fn lines(&self, path: &str, lines: impl Into<Body>) -> Response {
        self.send_as(Method::POST, path, "application/x-ndjson", lines).await
    }

    /// Adds URLs to a crawl; none of them may be refused.
    pub async fn seed(&self, crawl: &str, urls: &[&str]) -> Value {
        let urls: Vec<Value> = urls.iter().map(|url| serde_json::json!({ "url": url })).collect();
        let told = self.post("/v1/urls", serde_json::json!({"crawl": crawl, "urls": urls})).await.ok();
        assert_eq!((&told["counts"]["rejected"], &told["counts"]["failed"]), (&0.into(), &0.into()), "{told}");
        told
    }

    /// Reserves one group, which must be ready.
    pub async fn reserve_one(&self, request: Value) -> Value {
        let told = self.post("/v1/reservations", request).await.ok();
        let list = told["reservations"].as_array().unwrap();
        assert_eq!(list.len(), 1, "{told}");
        list[0].clone()
    }

    /// A job, once it has ended.
    pub async fn job_ended(&self, id: &str) -> Value {
        loop {
            let job = self.get(&format!("/v1/jobs/{id}")).await.ok();
            if job["state"] != "running" {
                return job;
            }
            tokio::task::yield_now().await;
        }
    }

    /// Releases a reservation with the same outcome for all of its URLs.
    pub async fn release_all(&self, reservation: &Value, outcome: &str) -> Value {
        let result = |url: &Value| serde_json::json!({"url": url["url"], "outcome": outcome, "status": 200});
        let results: Vec<Value> = reservation["urls"].as_array().unwrap().iter().map(result).collect();
        let path = format!("/v1/reservations/{}/release", reservation["token"].as_str().unwrap());
        self.post(&path, serde_json::json!({ "results": results })).await.ok()
    }
}
