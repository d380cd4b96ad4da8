//! `release` and `renew`: end a reservation, or give it more time.

use std::path::PathBuf;

use anyhow::Context;
use wayleave_api::Timestamp;
use wayleave_api::object::Object;
use wayleave_api::reservations::{Outcome, ReleaseReservationRequest, RenewReservationRequest};
use wayleave_api::wording::Said;

use super::get::result;
use crate::exit::Usage;
use crate::output::{self, relative};
use crate::remote::Remote;
use crate::values;

const RELEASE_HELP: &str = "\
Examples:
  wayleave release TOKEN --fetched https://example.com/ --gone https://example.com/old
  wayleave release TOKEN                        all URLs go back untouched
  wayleave release TOKEN --body results.json    everything the API takes: statuses, durations, found URLs

Ends with 4 if the token is not current.";

/// Arguments of `release`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = RELEASE_HELP)]
pub struct ReleaseArgs {
    /// The reservation's token
    token: String,
    /// A URL that was fetched; may be repeated
    #[arg(long, value_name = "URL")]
    fetched: Vec<String>,
    /// A URL to be tried again; may be repeated
    #[arg(long, value_name = "URL")]
    retry: Vec<String>,
    /// A URL that does not exist any more; may be repeated
    #[arg(long, value_name = "URL")]
    gone: Vec<String>,
    /// A URL that cannot be fetched; may be repeated
    #[arg(long, value_name = "URL")]
    failed: Vec<String>,
    /// Put the host itself back into the queue at this time, or after this span
    #[arg(long, value_name = "WHEN", value_parser = values::when, allow_hyphen_values = true)]
    ready_at: Option<Timestamp>,
    /// File with the whole request as JSON, - for stdin
    #[arg(long, value_name = "FILE", conflicts_with_all = ["fetched", "retry", "gone", "failed", "ready_at"])]
    body: Option<PathBuf>,
}

/// Ends a reservation.
///
/// # Errors
/// If the token is not current, a result is refused, or the server does not answer.
pub async fn release(remote: &Remote, args: ReleaseArgs) -> anyhow::Result<()> {
    let request = match &args.body {
        Some(path) => {
            let text = crate::input::read_text(path)?;
            let wrong = |error: serde_json::Error| {
                let (said, line) = (Said::of_json("the request", "", &error, text.as_bytes()), error.line());
                Usage(format!("{} is not a release request: line {line}: {}", path.display(), said.sentence))
            };
            let Object(request) = serde_json::from_str(&text).map_err(wrong)?;
            request
        }
        None => ReleaseReservationRequest { results: results(&args), ready_at: args.ready_at },
    };
    let released = remote.client.release(&args.token, &request).await?;
    if remote.json {
        return output::json(&released);
    }
    if let Some(found) = &released.found {
        let counts = &found.counts;
        output::line(format_args!(
            "found URLs: {} added, {} known, {} rejected, {} failed",
            counts.added, counts.known, counts.rejected, counts.failed
        ))?;
    }
    let ready = relative(released.ready_at, output::now());
    output::line(format_args!("released {}, to be visited again {ready}", released.group))
}

fn results(args: &ReleaseArgs) -> Vec<wayleave_api::reservations::UrlResult> {
    let kinds = [
        (&args.fetched, Outcome::Fetched),
        (&args.retry, Outcome::Retry),
        (&args.gone, Outcome::Gone),
        (&args.failed, Outcome::Failed),
    ];
    kinds.iter().flat_map(|(urls, outcome)| urls.iter().map(|url| result(url, *outcome))).collect()
}

/// Arguments of `renew`.
#[derive(Clone, Debug, clap::Args)]
pub struct RenewArgs {
    /// The reservation's token
    token: String,
    /// How long from now
    #[arg(long, default_value = "60s", value_name = "SPAN", value_parser = values::span, allow_hyphen_values = true)]
    lease: u64,
}

/// Gives a reservation more time.
///
/// # Errors
/// If the token is not current or the server does not answer.
pub async fn renew(remote: &Remote, args: RenewArgs) -> anyhow::Result<()> {
    let renewed = remote.client.renew(&args.token, &RenewReservationRequest { lease_ms: args.lease }).await;
    let renewed = renewed.context("cannot renew")?;
    if remote.json {
        return output::json(&renewed);
    }
    output::line(format_args!("ends {} ({})", relative(renewed.expires_at, output::now()), renewed.expires_at))
}
