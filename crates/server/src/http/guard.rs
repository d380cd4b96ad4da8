//! Protects against cross-site requests: refuses what a web page can make a browser send without consent.
//!
//! A server on loopback has no password, so this module alone protects it from the web pages that its user visits.
//! There are three attacks:
//!
//! - *CSRF without a preflight*: a form, an image, a `fetch` in mode `no-cors`. The browser sends the page's `Origin`,
//!   or at least `Sec-Fetch-Site`. Foreign ones are refused.
//! - *DNS rebinding*: the page's own name is made to resolve to 127.0.0.1, so that the browser takes the server for the
//!   page's. `Host` then has that public name. Only names that cannot be registered are accepted, and the configured
//!   ones.
//! - *A body of a CORS-safelisted type*: gRPC without its content type is refused, because that type requires a
//!   preflight.
//!
//! Over cleartext HTTP/2 the name does not matter: no browser speaks it. Requests without `Origin` and `Host` pass:
//! browsers always send `Host`, and probes of load balancers often do not.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use std::time::Instant;

use axum::extract::{Request, State};
use axum::http::uri::Authority;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, Version, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use wayleave_api::{Code, Problem};

use super::app::App;
use super::refused::Refused;
use crate::Config;

/// Suffixes of names that cannot be registered: multicast DNS, private zones, Kubernetes services.
const PRIVATE_ENDINGS: [&str; 4] = [".localhost", ".local", ".internal", ".svc"];
/// The methods allowed to pages of an allowed origin.
const METHODS: &str = "GET, POST, PUT, PATCH, DELETE";
const HEADERS: &str = "content-type, accept, authorization";
/// The lifetime of a cached preflight, in seconds.
const REMEMBERED: &str = "600";

/// The accepted host names and origins of a server.
#[derive(Debug, Default)]
pub struct Guard {
    hosts: Vec<String>,
    origins: Vec<String>,
}

impl Guard {
    /// The guard for this configuration.
    #[must_use]
    pub fn new(config: &Config) -> Self {
        let lower = |text: &String| text.trim().to_ascii_lowercase();
        let advertised = config.advertise.as_deref().and_then(|address| host_of(&address.to_ascii_lowercase()));
        let hosts = config.allow_hosts.iter().map(lower).chain(advertised).collect();
        let origins = config.allow_origins.iter().map(|origin| lower(origin).trim_end_matches('/').to_owned());
        Self { hosts, origins: origins.collect() }
    }

    /// Whether a request is allowed; with the origin to allow in the response, if it comes from another one.
    fn judge(&self, request: &Request) -> Result<Option<HeaderValue>, Box<Problem>> {
        let headers = request.headers();
        if request.version() <= Version::HTTP_11 {
            let in_line = request.uri().authority().map(Authority::as_str);
            let named = headers.get_all(header::HOST).iter().map(|host| host.to_str().unwrap_or("?"));
            let mut names = in_line.into_iter().chain(named).filter(|host| !host.is_empty());
            // Probes call by any name, and their responses are no secret.
            let is_probe = matches!(request.uri().path(), "/healthz" | "/readyz");
            if let Some(foreign) = names.find(|host| !is_probe && !self.takes_host(host)) {
                return Err(foreign_host(foreign).into());
            }
        }
        let Some(origin) = headers.get(header::ORIGIN) else {
            return if is_embedded(request.method(), headers) { Err(embedded().into()) } else { Ok(None) };
        };
        let text = origin.to_str().unwrap_or("?").to_ascii_lowercase();
        if self.origins.contains(&text) {
            return Ok(Some(origin.clone()));
        }
        let name = request.uri().authority().map(Authority::as_str);
        let name = name.or_else(|| headers.get(header::HOST)?.to_str().ok()).unwrap_or_default();
        // Check the name here too: over HTTP/2, which a proxy may speak on behalf of a browser, it was not checked yet.
        if is_own(&text, &name.to_ascii_lowercase()) && self.takes_host(name) {
            Ok(None)
        } else {
            Err(foreign_origin(&text).into())
        }
    }

    /// Whether a name of this server, with or without a port, is configured or cannot be registered.
    fn takes_host(&self, text: &str) -> bool {
        let Some(host) = host_of(&text.to_ascii_lowercase()) else { return false };
        if let Some(address) = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')) {
            return address.parse::<Ipv6Addr>().is_ok();
        }
        let allowed = |allowed: &String| *allowed == host || (allowed.starts_with('.') && host.ends_with(allowed));
        !host.contains('.')
            || host.parse::<Ipv4Addr>().is_ok()
            || PRIVATE_ENDINGS.iter().any(|ending| host.ends_with(ending))
            || self.hosts.iter().any(allowed)
    }
}

/// The host of `host:port`, without a trailing dot.
fn host_of(text: &str) -> Option<String> {
    let authority: Authority = text.parse().ok()?;
    let host = authority.host();
    let host = host.strip_suffix('.').unwrap_or(host);
    (!host.is_empty() && !text.contains('@')).then(|| host.to_owned())
}

/// Whether an origin is the server itself under the name it was called by. A proxy that terminates TLS changes the
/// scheme.
fn is_own(origin: &str, name: &str) -> bool {
    [("http://", ":80"), ("https://", ":443")].into_iter().any(|(scheme, port)| {
        let of = |text: &str| text.strip_suffix(port).unwrap_or(text).to_owned();
        origin.strip_prefix(scheme).is_some_and(|found| of(found) == of(name))
    })
}

/// Whether a page of another site has embedded this request. Following a link is not embedding, unless the request
/// changes something.
fn is_embedded(method: &Method, headers: &HeaderMap) -> bool {
    let is = |name: &str, words: &[&str]| {
        headers.get(name).and_then(|value| value.to_str().ok()).is_some_and(|value| words.contains(&value))
    };
    let followed = is("sec-fetch-mode", &["navigate"]) && matches!(*method, Method::GET | Method::HEAD);
    is("sec-fetch-site", &["cross-site", "same-site"]) && !followed
}

fn foreign_host(host: &str) -> Problem {
    let detail = format!(
        "the request is for host '{host}', which is not a name of this server; call it by its address, or start it with \
         --allow-host NAME"
    );
    Problem::new(Code::ForeignHost, detail).with("host", host)
}

fn foreign_origin(origin: &str) -> Problem {
    let detail = format!(
        "the request comes from a web page of '{origin}'; if pages from there may steer the crawl, start the server with \
         --allow-origin {origin}"
    );
    Problem::new(Code::ForeignOrigin, detail).with("origin", origin)
}

fn embedded() -> Problem {
    let detail = "the request comes from a web page of another site (Sec-Fetch-Site); open the address itself, or start the \
                  server with --allow-origin ORIGIN and call it with fetch in mode 'cors'";
    Problem::new(Code::ForeignOrigin, detail)
}

/// Whether a request is gRPC by its content type.
pub fn is_grpc(headers: &HeaderMap) -> bool {
    let kind = headers.get(header::CONTENT_TYPE).map(HeaderValue::as_bytes).unwrap_or_default();
    kind.strip_prefix(b"application/grpc").is_some_and(|rest| matches!(rest.first(), None | Some(b'+' | b';' | b'-')))
}

/// Middleware for every route.
pub async fn guard(State((app, guard)): State<(App, Arc<Guard>)>, request: Request, next: Next) -> Response {
    let origin = match guard.judge(&request) {
        Ok(origin) => origin,
        Err(problem) => return refuse(&app, *problem, is_grpc(request.headers())),
    };
    let Some(origin) = origin else { return next.run(request).await };
    let is_preflight =
        request.method() == Method::OPTIONS && request.headers().contains_key(header::ACCESS_CONTROL_REQUEST_METHOD);
    let mut response = if is_preflight { preflight() } else { next.run(request).await };
    response.headers_mut().insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
    response.headers_mut().append(header::VARY, HeaderValue::from_static("origin"));
    response
}

fn preflight() -> Response {
    let headers = [
        (header::ACCESS_CONTROL_ALLOW_METHODS, METHODS),
        (header::ACCESS_CONTROL_ALLOW_HEADERS, HEADERS),
        (header::ACCESS_CONTROL_MAX_AGE, REMEMBERED),
    ];
    (StatusCode::NO_CONTENT, headers).into_response()
}

fn refuse(app: &App, problem: Problem, grpc: bool) -> Response {
    // An operator whose proxy forwards another name must find the reason; a page may send any number of these.
    if let Some(left_out) = app.repeated.due(&problem.code, Instant::now()) {
        tracing::warn!(problem.code = problem.code, log.left_out = left_out, "request refused: {}", problem.detail);
    }
    if grpc {
        return tonic::Status::permission_denied(problem.detail).into_http::<axum::body::Body>();
    }
    Refused::from(problem).into_response()
}

/// Middleware for the gRPC routes.
pub async fn grpc_only(request: Request, next: Next) -> Response {
    if is_grpc(request.headers()) {
        return next.run(request).await;
    }
    let detail = format!("'{}' is a gRPC method; call it with 'Content-Type: application/grpc'", request.uri().path());
    Refused::from(Problem::new(Code::UnsupportedContentType, detail)).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_origin_is_own_whatever_stands_for_the_usual_port() {
        for (origin, name) in [
            ("http://localhost:7071", "localhost:7071"),
            ("http://localhost", "localhost:80"),
            ("https://crawl.example", "crawl.example"),
            ("https://crawl.example", "crawl.example:443"),
        ] {
            assert!(is_own(origin, name), "{origin} {name}");
        }
        for (origin, name) in [
            ("null", "localhost"),
            ("http://localhost:1", "localhost:2"),
            ("http://localhost", "localhost:443"),
            ("http://localhost.evil.example", "localhost"),
            ("ftp://localhost", "localhost"),
        ] {
            assert!(!is_own(origin, name), "{origin} {name}");
        }
    }

    #[test]
    fn what_is_no_name_at_all_is_not_taken() {
        let guard = Guard::default();
        for text in ["", "?", "a b", "user@localhost", "localhost:x:y", "[::1", "1.2.3.4.example", "."] {
            assert!(!guard.takes_host(text), "{text}");
        }
    }

    #[test]
    fn grpc_is_known_by_its_content_type() {
        let headers =
            |kind: &'static str| HeaderMap::from_iter([(header::CONTENT_TYPE, HeaderValue::from_static(kind))]);
        for kind in ["application/grpc", "application/grpc+proto", "application/grpc;x=1"] {
            assert!(is_grpc(&headers(kind)), "{kind}");
        }
        for kind in ["text/plain", "application/grpcx", "application/x-www-form-urlencoded"] {
            assert!(!is_grpc(&headers(kind)), "{kind}");
        }
        assert!(!is_grpc(&HeaderMap::new()));
    }
}
