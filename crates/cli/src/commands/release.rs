//! `release` and `renew`: ends or extends a reservation.

use std::path::{Path, PathBuf};

use anyhow::Context;
use wayleave_api::Timestamp;
use wayleave_api::object;
use wayleave_api::reservations::{ReleaseReservationRequest, RenewReservationRequest};
use wayleave_api::urls::{AddCounts, AddStatus, AddUrlsResponse};
use wayleave_api::wording::TextError;

use super::outcomes::OutcomeArgs;
use crate::exit::{Ended, UNAVAILABLE, Usage};
use crate::output::{self, relative};
use crate::remote::Remote;
use crate::values;

/// A whole request, as the API takes it.
const BODY_EXAMPLE: &str = r#"{"results": [{"url": "https://example.com/", "outcome": "fetched", "status": 200, "found": [{"url": "https://example.com/a"}]}]}"#;

const RELEASE_HELP: &str = "\
Examples:
  wayleave release TOKEN --fetched https://example.com/ --gone https://example.com/old
  wayleave release TOKEN                        all URLs return to the queue unchanged
  wayleave release TOKEN --body results.json    everything the API takes: statuses, durations, found URLs

A body is one JSON object; `outcome` is fetched, retry, gone or failed, and all other fields are optional:
  {\"results\": [{\"url\": \"https://example.com/\", \"outcome\": \"fetched\", \"status\": 200,
                \"found\": [{\"url\": \"https://example.com/a\"}]}]}

Exits with 4 if the token is not current. Rejected found URLs are reported on stderr with their reasons; the exit code is then 6, or
4 if all of them were rejected, as for `put`. The reservation is released all the same.";

/// Arguments of `release`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = RELEASE_HELP)]
pub struct ReleaseArgs {
    /// The reservation's token
    token: String,
    #[command(flatten)]
    outcomes: OutcomeArgs,
    /// Requeue the host itself at this time, or after this span
    #[arg(long, value_name = "WHEN", value_parser = values::when, allow_hyphen_values = true)]
    ready_at: Option<Timestamp>,
    /// File with the whole request as JSON, - for stdin
    #[arg(long, value_name = "FILE", conflicts_with_all = ["fetched", "retry", "gone", "failed", "ready_at"])]
    body: Option<PathBuf>,
}

/// Ends a reservation. Fails if the token is not current, a result is refused, or the server does not answer.
pub async fn release(remote: &Remote, args: ReleaseArgs) -> anyhow::Result<()> {
    let request = match &args.body {
        Some(path) => {
            let text = crate::input::read_text(path)?;
            object::read(text.as_bytes()).map_err(|error| not_a_request(path, &error))?
        }
        None => ReleaseReservationRequest { results: args.outcomes.results(), ready_at: args.ready_at },
    };
    let released = remote.client.release(&args.token, &request).await?;
    if remote.json {
        output::json(&released)?;
    } else {
        let ready = relative(released.ready_at, output::now());
        output::line(format_args!("released {}, to be visited again {ready}", released.group))?;
    }
    released.found.map_or(Ok(()), |found| tell_found(&found))
}

/// The results of found URLs. The release itself is done: only rejected links are reported, and the exit code is that
/// of `put`.
fn tell_found(found: &AddUrlsResponse) -> anyhow::Result<()> {
    let AddCounts { added, known, requeued, rejected, failed } = found.counts;
    eprintln!("found URLs: {added} added, {known} known, {rejected} rejected, {failed} failed");
    for result in found.results.iter().flatten() {
        if matches!(result.status, AddStatus::Rejected | AddStatus::Failed) {
            let url = output::shown(result.url.as_deref().unwrap_or_default());
            eprintln!("  {url}: {}", result.reason.as_deref().unwrap_or("no reason was given"));
        }
    }
    if failed > 0 {
        let message = format!(
            "{failed} found URLs could not be stored; the reservation is released, so add them with `wayleave put`"
        );
        return Err(Ended { code: UNAVAILABLE, message }.into());
    }
    Ended::after("found URLs", added + known + requeued, rejected, "the reasons are above")
}

fn not_a_request(path: &Path, error: &TextError) -> Usage {
    let (said, TextError { line, column, .. }) = (error.sentence("the request"), error);
    Usage(format!(
        "{} is not a release request: line {line}, column {column}: {said}\nexample: {BODY_EXAMPLE}",
        path.display(),
    ))
}

/// Arguments of `renew`.
#[derive(Clone, Debug, clap::Args)]
pub struct RenewArgs {
    /// The reservation's token
    token: String,
    /// New lease time, from now
    #[arg(long, default_value = "60s", value_name = "SPAN", value_parser = values::span, allow_hyphen_values = true)]
    lease: u64,
}

/// Extends a reservation.
pub async fn renew(remote: &Remote, args: RenewArgs) -> anyhow::Result<()> {
    let renewed = remote.client.renew(&args.token, &RenewReservationRequest { lease_ms: args.lease }).await;
    let renewed = renewed.context("cannot renew")?;
    if remote.json {
        return output::json(&renewed);
    }
    output::line(format_args!("ends {} ({})", relative(renewed.expires_at, output::now()), renewed.expires_at))
}
