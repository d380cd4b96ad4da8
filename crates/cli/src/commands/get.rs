//! `get`: reserves groups and prints what was handed out.

use wayleave_api::Timestamp;
use wayleave_api::reservations::{Outcome, ReleaseReservationRequest, Reservation, ReserveGroupsRequest, UrlResult};

use crate::exit::{Ended, NOT_FOUND};
use crate::output::{self, Table, relative, span};
use crate::remote::Remote;
use crate::values::{self, words};

const AFTER_HELP: &str = "\
Examples:
  wayleave get                                   one group, one URL, for a minute
  wayleave get --groups 10 --urls 5 --wait 30s   wait until something is ready
  wayleave get --release fetched                 reserve and release at once: a dry run of a crawler
  wayleave get --json | jq -r .token             a token for `wayleave release`

Ends with 3 if nothing was ready in time.";

words! {
    /// The outcome of a URL.
    pub OutcomeArg = Outcome {
        /// It was fetched.
        Fetched,
        /// It must be retried.
        Retry,
        /// It no longer exists.
        Gone,
        /// It cannot be fetched.
        Failed,
    }
}

/// Arguments of `get`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub struct Args {
    /// Name of the holder, for people
    #[arg(long, env = "WAYLEAVE_HOLDER", default_value = "wayleave-cli", value_name = "NAME")]
    holder: String,
    /// Maximum number of groups
    #[arg(long, default_value_t = 1, value_name = "NUMBER")]
    groups: u64,
    /// Maximum number of URLs per group; 0 reserves hosts alone
    #[arg(long, default_value_t = 1, value_name = "NUMBER")]
    urls: u64,
    /// Only URLs of this crawl
    #[arg(long, value_name = "CRAWL", value_parser = values::name)]
    crawl: Option<String>,
    /// Lease time of the reservations
    #[arg(long, default_value = "60s", value_name = "SPAN", value_parser = values::span, allow_hyphen_values = true)]
    lease: u64,
    /// How long to wait for something to become ready, at most 60s
    #[arg(long, default_value = "0", value_name = "SPAN", value_parser = values::span, allow_hyphen_values = true)]
    wait: u64,
    /// Release at once, with this outcome for every URL
    #[arg(long, value_enum, value_name = "OUTCOME")]
    release: Option<OutcomeArg>,
}

/// Reserves, prints and optionally releases. Fails if the server refuses or does not answer, or nothing was ready.
pub async fn run(remote: &Remote, args: Args) -> anyhow::Result<()> {
    let Args { holder, groups, urls, crawl, lease, wait, release } = args;
    let request =
        ReserveGroupsRequest { holder, groups, urls, crawl, lease_ms: lease, wait_ms: wait, request_id: None };
    let answer = remote.client.reserve(&request).await?;
    let (reservations, finished) = (answer.reservations, answer.finished);
    if let (true, Some(crawl)) = (reservations.is_empty(), &request.crawl) {
        // A crawl without URLs is no error of the server's, but its name may well be mistyped.
        remote.client.crawl(crawl).await?;
    }
    for reservation in &reservations {
        if remote.json { output::json(reservation)? } else { print(reservation, output::now())? }
    }
    if reservations.is_empty() {
        let message = match request.crawl.filter(|_| finished) {
            Some(crawl) => format!("crawl {crawl} is finished"),
            None => "nothing is ready; `wayleave stats` shows what there is".to_owned(),
        };
        return Err(Ended { code: NOT_FOUND, message }.into());
    }
    if let Some(outcome) = release {
        for reservation in &reservations {
            let result = |url: &wayleave_api::reservations::UrlToFetch| UrlResult::new(&url.url, outcome.into());
            let results = reservation.urls.iter().map(result).collect();
            let request = ReleaseReservationRequest { results, ready_at: None };
            let released = remote.client.release(&reservation.token, &request).await?;
            let ready = relative(released.ready_at, output::now());
            eprintln!("released {}, to be visited again {ready}", released.group);
        }
    }
    Ok(())
}

fn print(reservation: &Reservation, now: Timestamp) -> anyhow::Result<()> {
    let Reservation { token, group, host, expires_at, delay_ms, urls } = reservation;
    let of = if group == host { String::new() } else { format!(" of group {group}") };
    let (end, delay) = (relative(*expires_at, now), span(*delay_ms));
    output::line(format_args!("{host}{of}  token {token}  ends {end}  keep {delay} between requests"))?;
    let mut table = Table::new(["  url", "crawl", "priority", "depth", "attempts"]);
    for url in urls {
        let numbers = [url.priority.to_string(), url.depth.to_string(), url.attempts.to_string()];
        let [priority, depth, attempts] = numbers;
        table.row([format!("  {}", url.url), url.crawl.clone(), priority, depth, attempts]);
    }
    if urls.is_empty() { Ok(()) } else { table.print() }
}
