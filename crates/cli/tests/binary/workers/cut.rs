//! A proxy between a worker and its server that kills the worker at a chosen call: before the call reaches the server,
//! or after the server has answered and before the worker hears of it.

use axum::Router;
use axum::body::{Body, Bytes, to_bytes};
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};

use super::stage::Worker;
use crate::prelude::*;

/// When the worker dies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// The call never reaches the server.
    Before,
    /// The server has done what it was asked; the answer is lost.
    After,
}

/// A call at which the worker dies: a part of its path, and what its answer must contain.
#[derive(Clone, Copy, Debug)]
pub struct Cut {
    pub path: &'static str,
    pub moment: Moment,
    /// Calls with such a path and such content that pass unharmed first.
    pub spared: usize,
    /// For [`Moment::Before`] a part of the request, else of the answer: an empty claim is no claim.
    pub content: &'static str,
}

struct Between {
    server: String,
    http: reqwest::Client,
    cut: Mutex<Option<Cut>>,
    worker: Mutex<Option<Worker>>,
    killed: tokio::sync::Notify,
}

/// A running proxy.
pub struct Proxy {
    pub url: String,
    between: Arc<Between>,
}

impl Proxy {
    pub async fn start(server: &str, cut: Cut) -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let between = Arc::new(Between {
            server: server.to_owned(),
            http: reqwest::Client::builder().no_proxy().build().unwrap(),
            cut: Mutex::new(Some(cut)),
            worker: Mutex::default(),
            killed: tokio::sync::Notify::new(),
        });
        let router = Router::new().fallback(pass).with_state(between.clone());
        tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        Self { url, between }
    }

    /// Waits until the worker has been killed.
    pub async fn kills(&self, worker: Worker) {
        *self.between.worker.lock().unwrap() = Some(worker);
        let waited = tokio::time::timeout(std::time::Duration::from_secs(60), self.between.killed.notified()).await;
        waited.expect("the worker never made the call");
    }
}

impl Between {
    /// Whether this is the call, which happens once.
    fn is_it(&self, moment: Moment, path: &str, content: &[u8]) -> bool {
        let mut cut = self.cut.lock().unwrap();
        let found = cut.is_some_and(|cut| {
            let text = String::from_utf8_lossy(content);
            cut.moment == moment && path.contains(cut.path) && text.contains(cut.content)
        });
        match cut.as_mut() {
            Some(cut) if found && cut.spared > 0 => {
                cut.spared -= 1;
                false
            }
            Some(_) if found => {
                *cut = None;
                true
            }
            _ => false,
        }
    }

    fn kill(&self) -> Response {
        let worker = self.worker.lock().unwrap().take().expect("a call before its worker is known");
        worker.kill();
        self.killed.notify_one();
        StatusCode::BAD_GATEWAY.into_response()
    }
}

async fn pass(State(between): State<Arc<Between>>, request: Request) -> Response {
    let (head, body) = request.into_parts();
    let path = head.uri.path_and_query().map_or("/", |path| path.as_str()).to_owned();
    let body = to_bytes(body, 64 << 20).await.unwrap();
    if between.is_it(Moment::Before, &path, &body) {
        return between.kill();
    }
    let Some((status, kind, answer)) = forward(&between, head, &path, body).await else {
        return StatusCode::BAD_GATEWAY.into_response();
    };
    if between.is_it(Moment::After, &path, &answer) {
        return between.kill();
    }
    let mut response = Response::new(Body::from(answer));
    *response.status_mut() = status;
    if let Some(kind) = kind {
        response.headers_mut().insert("content-type", kind);
    }
    response
}

async fn forward(
    between: &Between,
    head: axum::http::request::Parts,
    path: &str,
    body: Bytes,
) -> Option<(StatusCode, Option<axum::http::HeaderValue>, Bytes)> {
    let mut request = between.http.request(head.method, format!("{}{path}", between.server)).body(body);
    if let Some(kind) = head.headers.get("content-type") {
        request = request.header("content-type", kind);
    }
    let answer = request.send().await.ok()?;
    let (status, kind) = (answer.status(), answer.headers().get("content-type").cloned());
    Some((status, kind, answer.bytes().await.ok()?))
}
