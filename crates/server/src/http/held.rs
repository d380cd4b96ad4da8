//! What a call holds of the memory budget, and how long its body may take.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use tokio::time::Instant;
use wayleave_api::{Code, Problem};

use super::app::App;
use super::guard::is_grpc;
use super::refused::Refused;
use crate::answers::Answer;
use crate::budget::Share;
use crate::grpc::Messages;

/// The slowest rate at which a body may arrive, in bytes a second, once its first time is over.
const RATE_MIN: u64 = 8 << 10;

/// When a body must have ended of which so many bytes have arrived.
pub fn deadline(since: Instant, timeout: Duration, received: usize) -> Instant {
    since + timeout + Duration::from_millis(received as u64 * 1_000 / RATE_MIN)
}

/// What the request of a call holds, from its first byte to the head of the answer.
#[derive(Clone)]
pub struct Held(Arc<Mutex<Share>>);

impl Held {
    fn new(app: &App) -> Self {
        Self(Arc::new(Mutex::new(app.budget.share(1))))
    }

    /// What a request holds; one that came past the middleware holds nothing yet.
    pub fn of(request: &Request, app: &App) -> Self {
        request.extensions().get::<Self>().cloned().unwrap_or_else(|| Self::new(app))
    }

    /// Takes bytes for a part of the body.
    ///
    /// # Errors
    /// If all connections together hold as much as they may.
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

/// Around every call: its request and its answer count against the budget.
pub async fn hold(State(app): State<App>, mut request: Request, next: Next) -> Response {
    let answer = request.extensions_mut().remove::<Arc<Answer>>().unwrap_or_else(|| Answer::alone(&app.budget));
    if app.budget.is_spent() {
        // Before anything is done: an answer that does not fit could not be told any more.
        return if is_grpc(request.headers()) {
            tonic::Status::unavailable("too many answers are unread; try again").into_http()
        } else {
            full("answers").into_response()
        };
    }
    let held = Held::new(&app);
    request.extensions_mut().insert(held.clone());
    let (head, body) = next.run(request).await.into_parts();
    drop(held);
    Response::from_parts(head, answer.carry(body))
}

/// Before the methods of gRPC: their messages are passed on whole.
pub async fn whole_messages(State(app): State<App>, request: Request, next: Next) -> Response {
    let (head, body) = request.into_parts();
    let body = axum::body::Body::new(Messages::new(&app, head.uri.path(), body));
    next.run(Request::from_parts(head, body)).await
}
