//! Calls of the Docker engine: each by a deadline, each failure with a reason.

use std::future::Future;
use std::sync::Arc;

use bollard::Docker;
use bollard::errors::Error;
use tokio::time::{Instant, timeout_at};

use crate::runtime::Failure;

/// Runs a call by its deadline. After it nothing is sent.
pub async fn by<T>(deadline: Instant, what: &str, call: impl Future<Output = T>) -> Result<T, Failure> {
    let late = |()| Failure::new(format!("Docker did not {what} in time"));
    if Instant::now() >= deadline {
        return Err(late(()));
    }
    timeout_at(deadline, call).await.map_err(|_| late(()))
}

/// An engine, and how its operator knows it.
#[derive(Clone, Debug)]
pub struct Engine {
    /// Its client.
    pub docker: Docker,
    /// Its socket, or another address.
    pub address: Arc<str>,
}

impl Engine {
    /// A call that failed: because the engine refused it or did not answer.
    pub fn failure(&self, what: &str, error: &Error) -> Failure {
        if is_silence(error) {
            return silent(&self.address, &reason(error));
        }
        Failure::new(format!("Docker cannot {what}: {}", reason(error)))
    }
}

/// An engine that does not answer.
pub fn silent(address: &str, why: &str) -> Failure {
    let remedy = "start it, or name the socket of another one with `serve --docker`";
    Failure::new(format!("the Docker engine at {address} does not answer: {why}; {remedy}"))
}

/// An address as it may be shown: `DOCKER_HOST` may hold a name and a password.
pub fn without_credentials(address: &str) -> String {
    let Some((scheme, rest)) = address.split_once("://") else { return address.to_owned() };
    let (authority, path) = rest.find('/').map_or((rest, ""), |at| rest.split_at(at));
    // The path of a socket may hold anything, and an authority ends at the last @.
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    format!("{scheme}://{host}{path}")
}

/// No answer came, so that the call failed on its way.
const fn is_silence(error: &Error) -> bool {
    matches!(
        error,
        Error::IOError { .. }
            | Error::HyperResponseError { .. }
            | Error::HyperLegacyError { .. }
            | Error::SocketNotFoundError(_)
            | Error::RequestTimeoutError
    )
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_shown_without_credentials() {
        for (address, shown) in [
            ("tcp://anna:s3cret@engine:2375", "tcp://engine:2375"),
            ("https://a:b@c@engine/path@x", "https://engine/path@x"),
            ("tcp://[::1]:2375", "tcp://[::1]:2375"),
            ("unix:///run/d@cker.sock", "unix:///run/d@cker.sock"),
            ("/run/d@cker.sock", "/run/d@cker.sock"),
        ] {
            assert_eq!(without_credentials(address), shown);
        }
    }
}
