//! A call's share of the memory budget, and the timeout of its body.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use tokio::time::Instant;
use wayleave_api::{Code, Problem};
use wayleave_core::limits::BODY_RATE_MIN;

use super::app::App;
use super::guard::is_grpc;
use super::refused::Refused;
use crate::grpc::Messages;
use wayleave_listen::ResponseInFlight;
use wayleave_listen::Share;

/// The deadline of a body of which `received` bytes have arrived.
pub fn deadline(since: Instant, timeout: Duration, received: usize) -> Instant {
    since + timeout + Duration::from_millis(received as u64 * 1_000 / BODY_RATE_MIN)
}

/// When the wait for more of a body began. A look that comes after the end of that wait shows that the reader was busy,
/// while the store is slow: then flow control held the client back, and its time begins now.
pub fn waits_since(since: Instant, end: Instant, now: Instant) -> Instant {
    if now > end { now } else { since }
}

/// The share of a request, from its first byte to the response header.
#[derive(Clone)]
pub struct Held(Arc<Mutex<Share>>);

impl Held {
    fn new(app: &App) -> Self {
        Self(Arc::new(Mutex::new(app.budget.share(1))))
    }

    /// The share of a request; one that bypassed the middleware has an empty one.
    pub fn of(request: &Request, app: &App) -> Self {
        request.extensions().get::<Self>().cloned().unwrap_or_else(|| Self::new(app))
    }

    /// Takes bytes for a chunk of the body. Fails if the budget of all connections is exhausted.
    pub fn take(&self, bytes: usize) -> Result<(), Refused> {
        let taken = self.0.lock().unwrap_or_else(PoisonError::into_inner).take(bytes);
        if taken { Ok(()) } else { Err(full("bodies")) }
    }
}

fn full(what: &str) -> Refused {
    let detail = format!(
        "the {what} that the server holds for all its clients take as much memory as they may; try again, or let it have \
         more with --requests-mb"
    );
    Problem::new(Code::MemoryFull, detail).into()
}

/// Answered even when no memory is left: nobody should restart a server because its clients do not read.
const PROBES: [&str; 2] = ["/healthz", "/readyz"];

/// Middleware: counts a call's request and response against the budget.
pub async fn hold(State(app): State<App>, mut request: Request, next: Next) -> Response {
    let response = request
        .extensions_mut()
        .remove::<Arc<ResponseInFlight>>()
        .unwrap_or_else(|| ResponseInFlight::alone(&app.budget));
    if app.budget.is_spent() && !PROBES.contains(&request.uri().path()) {
        // Checked before anything is done: a response that does not fit could not be sent.
        return if is_grpc(request.headers()) {
            tonic::Status::unavailable("too many responses are unread; try again").into_http()
        } else {
            full("answers").into_response()
        };
    }
    let held = Held::new(&app);
    request.extensions_mut().insert(held.clone());
    let (head, body) = next.run(request).await.into_parts();
    drop(held);
    Response::from_parts(head, response.carry(body))
}

/// Middleware for gRPC: passes on complete messages only.
pub async fn whole_messages(State(app): State<App>, request: Request, next: Next) -> Response {
    let (head, body) = request.into_parts();
    let body = axum::body::Body::new(Messages::new(&app, head.uri.path(), &head.extensions, body));
    next.run(Request::from_parts(head, body)).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_that_was_not_watched_begins_anew() {
        let since = Instant::now();
        let after = |secs| since + Duration::from_secs(secs);
        assert_eq!(waits_since(since, after(30), after(29)), since);
        assert_eq!(waits_since(since, after(30), after(31)), after(31));
    }
}
