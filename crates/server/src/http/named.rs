//! Resolves the name under which a host is stored.
//!
//! A name that is stored as written takes precedence; otherwise its normal form counts. Only a text that could be both
//! costs a lookup in the frontier. If a queue is created or deleted between that lookup and the call itself, the result
//! is as if it had happened before: either name was correct at some moment during the call.

use wayleave_api::{Code, Problem};
use wayleave_core::asked::AskedHost;
use wayleave_core::frontier::refusal::Refusal;
use wayleave_core::names::{BadName, HostName};

use super::app::App;
use super::refused::Refused;

/// The name under which a host is stored, or would be. Fails with what `bad` makes of a name that no host can have; if
/// the store cannot be reached.
pub async fn stored(
    app: &App,
    asked: &AskedHost,
    exact: Option<bool>,
    bad: impl FnOnce(BadName) -> Refused,
) -> Result<HostName, Refused> {
    let written = asked.written();
    if exact == Some(true) {
        return Ok(written.clone());
    }
    let fresh = asked.fresh();
    if asked.normal().is_none() && fresh.is_ok() {
        return Ok(written.clone());
    }
    if is_known(app, written).await? {
        return Ok(written.clone());
    }
    match asked.normal() {
        Some(normal) if is_known(app, normal).await? => Ok(normal.clone()),
        _ => fresh.map_err(bad),
    }
}

/// The same for a name in a path. Fails if no host can have that name, or the store cannot be reached.
pub async fn in_path(app: &App, asked: &AskedHost, exact: Option<bool>) -> Result<HostName, Refused> {
    stored(app, asked, exact, |error| Problem::new(Code::BadHost, error).into()).await
}

async fn is_known(app: &App, name: &HostName) -> Result<bool, Refused> {
    match app.frontier.host(name.clone()).await {
        Ok(_) => Ok(true),
        Err(Refusal::UnknownHost(_)) => Ok(false),
        Err(refusal) => Err(refusal.into()),
    }
}
