//! Middleware for every request: its log line, its metrics, and a response even if the handler panics.

use std::panic::AssertUnwindSafe;
use std::time::{Duration, Instant};

use axum::extract::{MatchedPath, Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use futures::FutureExt;
use wayleave_api::{Code, Problem};
use wayleave_core::redact;

use super::app::App;
use super::refused::{Cause, Refused};

/// Counts and logs a request. The log contains the route template, never the path: paths carry tokens.
pub async fn observe(State(app): State<App>, request: Request, next: Next) -> Response {
    let started = Instant::now();
    let method = request.method().clone();
    let route = request.extensions().get::<MatchedPath>().cloned();
    let answered = AssertUnwindSafe(next.run(request)).catch_unwind().await;
    let response = answered.unwrap_or_else(|_| {
        let problem = Problem::new(Code::Internal, "internal error; see the server log for details");
        Refused::from(problem).into_response()
    });
    let route = route.as_ref().map_or("-", MatchedPath::as_str);
    let took = started.elapsed();
    app.metrics.on_request(&method, route, response.status(), took);
    log(&app, &method, route, &response, took);
    response
}

fn log(app: &App, method: &axum::http::Method, route: &str, response: &Response, took: Duration) {
    let (status, ms) = (response.status().as_u16(), took.as_secs_f64() * 1e3);
    let Some(Cause(problem)) = response.extensions().get::<Cause>() else {
        tracing::debug!(http.method = %method, http.route = route, http.status = status, duration.ms = ms, "answered");
        return;
    };
    let (code, detail) = (problem.code.as_str(), redact::sentence(&problem.detail));
    if status >= 500 {
        // A failing store fails every request for the same reason.
        let Some(left_out) = app.repeated.due(&format!("{code} {detail}"), Instant::now()) else { return };
        tracing::warn!(
            http.method = %method, http.route = route, http.status = status, duration.ms = ms,
            problem.code = code, problem.detail = detail, log.left_out = left_out, "request failed"
        );
    } else {
        tracing::debug!(
            http.method = %method, http.route = route, http.status = status, duration.ms = ms,
            problem.code = code, problem.detail = detail, "request refused"
        );
    }
}
