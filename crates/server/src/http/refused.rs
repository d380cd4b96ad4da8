//! A problem as an HTTP response.

use std::sync::Arc;

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use wayleave_api::bad_value::TooMany;
use wayleave_api::{BadValue, Problem, problem};
use wayleave_core::frontier::refusal::Refusal;
use wayleave_core::roles;

/// The response to a request that is refused or failed.
#[derive(Debug)]
pub struct Refused(Box<Problem>);

impl From<Problem> for Refused {
    fn from(problem: Problem) -> Self {
        Self(Box::new(problem))
    }
}

impl From<Box<Problem>> for Refused {
    fn from(problem: Box<Problem>) -> Self {
        Self(problem)
    }
}

impl From<Refusal> for Refused {
    fn from(refusal: Refusal) -> Self {
        Problem::from(refusal).into()
    }
}

impl From<roles::Refusal> for Refused {
    fn from(refusal: roles::Refusal) -> Self {
        Problem::from(refusal).into()
    }
}

impl From<BadValue> for Refused {
    fn from(bad: BadValue) -> Self {
        Problem::from(bad).into()
    }
}

impl From<TooMany> for Refused {
    fn from(many: TooMany) -> Self {
        Problem::from(many).into()
    }
}

/// Attached to the response so that the log can name the cause.
#[derive(Clone)]
pub struct Cause(pub Arc<Problem>);

impl IntoResponse for Refused {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.0.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let body = serde_json::to_vec(&self.0).unwrap_or_default();
        let mut response = (status, [(header::CONTENT_TYPE, problem::CONTENT_TYPE)], body).into_response();
        // What the problem itself says is more precise than its code.
        let told = self.0.fields.get("retry_after_ms").and_then(serde_json::Value::as_u64);
        let told = told.map(|ms| ms.div_ceil(1_000).max(1));
        if let Some(secs) = self.0.code().and_then(|code| code.retry_after_secs()) {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(told.unwrap_or(u64::from(secs))));
        }
        response.extensions_mut().insert(Cause(Arc::new(*self.0)));
        response
    }
}
