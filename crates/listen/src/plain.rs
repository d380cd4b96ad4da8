//! A port without an API, such as a worker's: refusals are a line of text.

use std::sync::Arc;
use std::time::Instant;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};

use crate::guard::Guard;
use crate::responses::ResponseInFlight;
use crate::serve::Shared;

/// The router behind the guard, with its responses counted against the memory budget.
pub fn guarded(router: Router, guard: Guard, shared: Shared) -> Router {
    router.layer(middleware::from_fn_with_state((Arc::new(guard), shared), pass))
}

async fn pass(State((guard, shared)): State<(Arc<Guard>, Shared)>, mut request: Request, next: Next) -> Response {
    let counted = request.extensions_mut().remove::<Arc<ResponseInFlight>>();
    let counted = counted.unwrap_or_else(|| ResponseInFlight::alone(&shared.budget));
    let response = match guard.judge(&request) {
        // An allowed origin may read only what says so; nothing here does.
        Ok(_) if shared.budget.is_spent() => {
            (StatusCode::SERVICE_UNAVAILABLE, "too many responses are unread; try again\n").into_response()
        }
        Ok(_) => next.run(request).await,
        Err(foreign) => {
            let text = foreign.to_string();
            if let Some(left_out) = shared.repeated.due("foreign", Instant::now()) {
                tracing::warn!(log.left_out = left_out, "request refused: {text}");
            }
            (StatusCode::FORBIDDEN, text + "\n").into_response()
        }
    };
    let (head, body) = response.into_parts();
    Response::from_parts(head, counted.carry(body))
}
