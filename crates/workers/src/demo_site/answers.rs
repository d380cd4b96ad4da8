//! Serves a host of the site and logs each request.

use std::io::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};

use super::{Access, AccessLog, Config, address, pages};

/// The Retry-After of `/busy`, in seconds.
const BUSY_SECONDS: &str = "1";

struct Host {
    config: Config,
    number: usize,
    port: u16,
    log: Arc<AccessLog>,
    /// How often `/busy` was asked for.
    busy: AtomicUsize,
}

pub(super) fn router(config: &Config, number: usize, port: u16, log: Arc<AccessLog>) -> Router {
    let host = Host { config: config.clone(), number, port, log, busy: AtomicUsize::new(0) };
    Router::new().fallback(answer).with_state(Arc::new(host))
}

/// Logs a request when it is over, also when its client has gone and the answer is dropped half-way.
struct Visit {
    host: Arc<Host>,
    path: String,
    start: Instant,
    status: Option<u16>,
}

impl Drop for Visit {
    fn drop(&mut self) {
        self.host.log.push(Access {
            host: address(self.host.number).to_string(),
            path: std::mem::take(&mut self.path),
            start: self.start,
            end: Instant::now(),
            status: self.status,
        });
    }
}

async fn answer(State(host): State<Arc<Host>>, request: Request) -> Response {
    let path = request.uri().path_and_query().map_or("/", |path| path.as_str()).to_owned();
    let mut visit = Visit { host: Arc::clone(&host), path, start: Instant::now(), status: None };
    let response = host.answer(&visit.path).await;
    visit.status = Some(response.status().as_u16());
    response
}

impl Host {
    async fn answer(&self, path: &str) -> Response {
        let found = |target: String| (StatusCode::FOUND, [(header::LOCATION, target)]).into_response();
        match path {
            "/robots.txt" => return pages::robots_txt(&self.config).into_response(),
            "/moved" => return (StatusCode::MOVED_PERMANENTLY, [(header::LOCATION, "/page/0")]).into_response(),
            "/moved-away" => {
                let next = pages::base((self.number + 1) % self.config.hosts, self.port);
                return found(next.map(String::from).unwrap_or_default());
            }
            "/loop" => return found("/loop".to_owned()),
            "/broken" => return (StatusCode::INTERNAL_SERVER_ERROR, "broken").into_response(),
            "/busy" if self.busy.fetch_add(1, Ordering::SeqCst) < self.config.busy_times => {
                return (StatusCode::TOO_MANY_REQUESTS, [(header::RETRY_AFTER, BUSY_SECONDS)]).into_response();
            }
            "/slow" => tokio::time::sleep(self.config.slow).await,
            _ => {}
        }
        let Some(page) = pages::page(&self.config, self.number, self.port, path) else {
            return (StatusCode::NOT_FOUND, "not found").into_response();
        };
        let html = page.html();
        match path {
            "/latin" => send(html.chars().map(|c| u8::try_from(c).unwrap_or(b'?')).collect(), "iso-8859-1", None),
            "/compressed" => send(gzip(html.as_bytes()), "utf-8", Some("gzip")),
            _ => send(html.into_bytes(), "utf-8", None),
        }
    }
}

fn send(bytes: Vec<u8>, charset: &str, coding: Option<&'static str>) -> Response {
    let mut response = Response::new(Body::from(bytes));
    let headers = response.headers_mut();
    if let Ok(kind) = format!("text/html; charset={charset}").parse() {
        headers.insert(header::CONTENT_TYPE, kind);
    }
    if let Some(coding) = coding {
        headers.insert(header::CONTENT_ENCODING, header::HeaderValue::from_static(coding));
    }
    response
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    // A vector takes everything.
    let _ = encoder.write_all(bytes);
    encoder.finish().unwrap_or_default()
}
