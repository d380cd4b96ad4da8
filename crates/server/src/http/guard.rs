//! Refuses cross-site requests, as [`wayleave_listen::guard`] judges them, and answers preflights of allowed origins.

use std::sync::Arc;
use std::time::Instant;

use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use wayleave_api::{Code, Problem};
use wayleave_listen::{Foreign, Guard};

use super::app::App;
use super::refused::Refused;

/// The methods allowed to pages of an allowed origin.
const METHODS: &str = "GET, POST, PUT, PATCH, DELETE";
const HEADERS: &str = "content-type, accept, authorization";
/// The lifetime of a cached preflight, in seconds.
const REMEMBERED: &str = "600";

fn problem(foreign: &Foreign) -> Problem {
    let detail = foreign.to_string();
    match foreign {
        Foreign::Host(host) => Problem::new(Code::ForeignHost, detail).with("host", host.as_str()),
        Foreign::Origin(origin) => Problem::new(Code::ForeignOrigin, detail).with("origin", origin.as_str()),
        Foreign::Embedded => Problem::new(Code::ForeignOrigin, detail),
    }
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
        Err(foreign) => return refuse(&app, problem(&foreign), is_grpc(request.headers())),
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
