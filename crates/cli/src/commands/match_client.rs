//! `match`: asks for a worker of a pool and prints its address, for scripts.

use std::time::{Duration, Instant};

use wayleave_api::Code;
use wayleave_api::matches::{Match, MatchState, PutMatchQuery};
use wayleave_client::Error;
use wayleave_core::limits::WAIT_MS_MAX;

use crate::exit::{Ended, NOT_FOUND};
use crate::output::{self, span};
use crate::remote::Remote;
use crate::values;

const AFTER_HELP: &str = "\
Asking is idempotent: the same client asked again has the same worker, or keeps its place in the queue. Ask again before the
match expires (the pool's reservation time, one minute by default): that confirms it. A match that nobody confirms ends.

Examples:
  address=$(wayleave match user-7 --pool browsers --wait 30s) && curl http://$address/
  wayleave match user-7 --pool browsers --json | jq -r .token    the token that the worker knows too
  wayleave matches cancel user-7 --pool browsers                 give the worker back

Exit codes: 0 matched, and only the address is on stdout; 3 no worker yet (the request stays in the queue: ask again), or no
such pool; 4 the match failed (stderr says why; asking again queues it anew) or was refused; 5 the pool's queue is full, or the
server cannot be reached.";

/// Arguments of `match`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub struct Args {
    /// Who the worker is for: 1 to 255 bytes without control characters, not . or ..; one match per client and pool
    #[arg(value_parser = values::client)]
    client: String,
    /// The pool
    #[arg(long, value_name = "POOL", value_parser = values::name)]
    pool: String,
    /// Wait up to this long for a worker; without it, ask once
    #[arg(long, value_name = "TIME", value_parser = values::span, allow_hyphen_values = true, default_value = "0")]
    wait: u64,
}

/// Asks until there is a worker, or the time is over.
///
/// # Errors
/// If there is no worker in time, the match failed, or the server does not answer.
pub async fn run(remote: &Remote, args: Args) -> anyhow::Result<()> {
    let deadline = Instant::now() + Duration::from_millis(args.wait);
    loop {
        let begun = Instant::now();
        let left = deadline.saturating_duration_since(begun);
        let wait_ms = Some(u64::try_from(left.as_millis()).unwrap_or(u64::MAX).min(WAIT_MS_MAX));
        let query = PutMatchQuery { pool: args.pool.clone(), wait_ms };
        let found = match remote.client.put_match(&args.client, &query).await {
            Err(error) => return failed(remote, error),
            Ok(found) => found,
        };
        match found.state {
            MatchState::Matched => return tell(remote, &found),
            _ if Instant::now() >= deadline => return none_yet(remote, &found),
            _ => {}
        }
        // A server that stops, or has too many waiting, answers at once.
        let pause = Duration::from_millis(found.retry_after_ms.unwrap_or(0).clamp(100, 2_000));
        if begun.elapsed() < pause {
            tokio::time::sleep(pause.min(deadline.saturating_duration_since(Instant::now()))).await;
        }
    }
}

/// A match that failed is an answer too: a script that reads JSON gets it as a match, with its reason.
fn failed(remote: &Remote, error: Error) -> anyhow::Result<()> {
    if let Error::Refused(problem) = &error
        && remote.json
        && problem.code() == Some(Code::MatchFailed)
    {
        output::json(&Match::of_failure(problem))?;
    }
    Err(error.into())
}

fn tell(remote: &Remote, found: &Match) -> anyhow::Result<()> {
    if !found.verified {
        eprintln!("the worker gave no clear answer whether it still holds the reservation; it may be slow");
    }
    if remote.json {
        return output::json(found);
    }
    output::line(found.address.as_deref().unwrap_or_default())
}

fn none_yet(remote: &Remote, found: &Match) -> anyhow::Result<()> {
    if remote.json {
        output::json(found)?;
    }
    let place = found.position.map_or_else(String::new, |position| format!(" (number {position} in the queue)"));
    let soon = found.estimate_ms.map_or_else(String::new, |ms| format!("; a worker may be there in {}", span(ms)));
    let message = format!("no worker yet{place}: {}{soon}; it stays queued, ask again", found.reason);
    Err(Ended { code: NOT_FOUND, message }.into())
}
