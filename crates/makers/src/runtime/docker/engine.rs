//! Calls of the Docker engine: each by a deadline, each failure with a reason.

use std::future::Future;

use bollard::errors::Error;
use tokio::time::{Instant, timeout_at};

use crate::runtime::Failure;

/// Runs a call by its deadline.
pub async fn by<T>(deadline: Instant, what: &str, call: impl Future<Output = T>) -> Result<T, Failure> {
    let late = |_| Failure::new(format!("Docker did not {what} in time"));
    timeout_at(deadline, call).await.map_err(late)
}

/// A call that failed.
pub fn told(what: &str, error: &Error) -> Failure {
    Failure::new(format!("Docker cannot {what}: {}", reason(error)))
}

/// What went wrong, without the words around it.
pub fn reason(error: &Error) -> String {
    match error {
        Error::DockerResponseServerError { message, .. } => message.trim().to_owned(),
        Error::DockerStreamError { error } => error.trim().to_owned(),
        other => {
            let mut cause: &dyn std::error::Error = other;
            while let Some(inner) = cause.source() {
                cause = inner;
            }
            cause.to_string()
        }
    }
}

fn status(error: &Error) -> Option<u16> {
    match error {
        Error::DockerResponseServerError { status_code, .. } => Some(*status_code),
        _ => None,
    }
}

/// There is no such thing.
pub fn is_missing(error: &Error) -> bool {
    status(error) == Some(404)
}

/// There is one already, or it is being removed.
pub fn is_conflict(error: &Error) -> bool {
    status(error) == Some(409)
}

/// It is so already.
pub fn is_unchanged(error: &Error) -> bool {
    status(error) == Some(304)
}
