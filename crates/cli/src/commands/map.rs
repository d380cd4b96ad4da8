//! `map`: where readers find each built chunk.

use std::time::{Duration, Instant};

use wayleave_api::map::{GetMapQuery, Map};
use wayleave_core::limits::WAIT_MS_MAX;

use crate::exit::{self, Ended};
use crate::output::{self, Table, span};
use crate::remote::Remote;
use crate::values;

/// The number of missing chunks that people are shown.
const MISSING_SHOWN: usize = 10;

/// Arguments of `map`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = HELP)]
pub struct Args {
    /// Print only a map of another version than this one; exit code 3 if there is none
    #[arg(long, value_name = "VERSION", conflicts_with = "watch")]
    since: Option<u64>,
    /// With --since, wait up to this long for another version
    #[arg(long, value_name = "TIME", value_parser = values::span, requires = "since", allow_hyphen_values = true)]
    wait: Option<u64>,
    /// Print the map now and after every change, until interrupted
    #[arg(long)]
    watch: bool,
}

const HELP: &str = "\
The map says which index server of each row serves which built chunk. Its version grows with every change that readers can see.
A row should be used while it is serving: it has at least 97 % of the chunks that the best row has.

Examples:
  wayleave map                                   rows and servers, and what is missing
  wayleave map --json | jq '.rows[0].servers'    with the ids of all chunks, for programs
  wayleave map --watch                           after every change
  wayleave map --since 42 --wait 30s             the next version after 42; exit code 3 if there is none in time";

/// Prints the map. Fails if the server refuses or does not answer, or there is no other version in time.
pub async fn run(remote: &Remote, args: Args) -> anyhow::Result<()> {
    if !args.watch {
        let wait = args.wait.unwrap_or(0);
        return match next(remote, args.since, wait).await? {
            Some(map) => print(remote, &map),
            None => {
                let (since, waited) = (args.since.unwrap_or(0), span(wait));
                let message = format!("the map still has version {since} after {waited}");
                Err(Ended { code: exit::NOT_FOUND, message }.into())
            }
        };
    }
    let mut since = None;
    loop {
        if let Some(map) = next(remote, since, WAIT_MS_MAX).await? {
            print(remote, &map)?;
            since = Some(map.version);
        }
    }
}

/// A map of another version, if there is one in time. The server waits a minute at most, so a longer wait takes several
/// calls.
async fn next(remote: &Remote, since: Option<u64>, wait: u64) -> anyhow::Result<Option<Map>> {
    let until = Instant::now().checked_add(Duration::from_millis(wait));
    loop {
        let left = until.map(|until| until.saturating_duration_since(Instant::now()).as_millis());
        let left = left.and_then(|left| u64::try_from(left).ok()).unwrap_or(u64::MAX);
        let query = GetMapQuery { since, wait_ms: Some(left.min(WAIT_MS_MAX)) };
        let map = remote.client.map(&query).await?;
        if map.is_some() || left <= WAIT_MS_MAX {
            return Ok(map);
        }
    }
}

fn print(remote: &Remote, map: &Map) -> anyhow::Result<()> {
    if remote.json {
        return output::json(map);
    }
    let copies = if map.missing_count == 1 { "copy" } else { "copies" };
    output::line(format_args!("version {}, {} {copies} missing", map.version, map.missing_count))?;
    let mut rows = Table::new(["row", "serving", "complete", "servers", "reason"]);
    let mut servers = Table::new(["row", "server", "address", "chunks"]);
    for row in &map.rows {
        // Rounded down: only a complete row has 100 %.
        let complete = format!("{:.1} %", (row.complete * 1_000.0).floor() / 10.0);
        let serving = if row.serving { "yes" } else { "no" };
        rows.row([row.row.to_string(), serving.into(), complete, row.servers.len().to_string(), row.reason.clone()]);
        for server in &row.servers {
            let chunks = server.chunks.len().to_string();
            servers.row([row.row.to_string(), server.server.clone(), server.address.clone(), chunks]);
        }
    }
    rows.print()?;
    output::line("")?;
    servers.print()?;
    if map.missing.is_empty() {
        return Ok(());
    }
    let mut missing = Table::new(["missing chunk", "in row", "found in rows"]);
    for chunk in map.missing.iter().take(MISSING_SHOWN) {
        let others: Vec<String> = chunk.also_in.iter().map(ToString::to_string).collect();
        let others = if others.is_empty() { "none".to_owned() } else { others.join(", ") };
        missing.row([chunk.chunk.clone(), chunk.row.to_string(), others]);
    }
    output::line("")?;
    missing.print()?;
    let more = map.missing_count.saturating_sub(MISSING_SHOWN as u64);
    if more > 0 {
        eprintln!("{more} more are missing: `wayleave map --json` lists up to 10,000, `wayleave placements` says why");
    }
    Ok(())
}
