//! `match`: asks for a worker of a pool and prints its address, for scripts.

use std::time::{Duration, Instant};

use tokio::time::{sleep, timeout};
use wayleave_api::matches::{Match, MatchState, PutMatchQuery};
use wayleave_api::{Code, Problem};
use wayleave_client::{Client, Error};
use wayleave_core::limits::{ASK_TIME, WAIT_MS_MAX};

use super::match_run;
use crate::exit::{Ended, NOT_FOUND};
use crate::output::{self, span};
use crate::remote::Remote;
use crate::values;

/// A server that has not answered this long after the end of a wait is not waited for: another one is asked, if there is one.
/// It may have to ask a worker first.
const ANSWER_TIME: Duration = Duration::from_millis(ASK_TIME.0 + 2_000);
/// How long one request waits: a server that hangs is noticed after this and [`ANSWER_TIME`].
const REQUEST_WAIT_MS_MAX: u64 = 10_000;
const _: () = assert!(REQUEST_WAIT_MS_MAX <= WAIT_MS_MAX);
/// Pauses between two requests; they grow while the server does not answer.
const PAUSE_MIN: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(2);

const AFTER_HELP: &str = "\
Asking is idempotent: the same client asked again has the same worker, or keeps its place in the queue. Ask again before the
match expires (the pool's reservation time, one minute by default): that confirms it. A match that nobody confirms ends.
With --wait it goes on asking until the time is over, also while the server restarts or the pool's queue is full.

Examples:
  address=$(wayleave match user-7 --pool browsers --wait 30s) && curl http://$address/
  wayleave match user-7 --pool browsers --wait 30s -- sh -c 'curl http://$WAYLEAVE_ADDRESS/'
                                                                 renewed while it runs, given back at its end
  wayleave match user-7 --pool browsers --json | jq -r .token    the token that the worker knows too
  wayleave matches cancel user-7 --pool browsers                 give the worker back

Exit codes: 0 matched, and only the address is on stdout; 3 no worker yet (the request stays in the queue: ask again), or no
such pool; 4 the match failed (stderr says why; asking again queues it anew) or was refused; 5 the pool's queue is full, or the
server cannot be reached. With a command: the command's own (128 and the signal's number for one that a signal ended), 127 if it cannot be run, 4 if
the match ended before it and it was stopped.";

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
    /// Run this command while the match is held: WAYLEAVE_ADDRESS in its environment is the worker's address, and
    /// WAYLEAVE_TOKEN the match's token. When the command ends, what it has started gets TERM, and KILL after 5 s; then the
    /// worker is given back
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<String>,
}

/// Asks until there is a worker, or the time is over. Fails if there is no worker in time, the match failed, or the
/// server does not answer.
pub async fn run(remote: &Remote, args: Args) -> anyhow::Result<()> {
    if args.wait == 0 {
        let query = PutMatchQuery { pool: args.pool.clone(), wait_ms: Some(0) };
        return match remote.client.put_match(&args.client, &query).await {
            Err(error) => failed(remote, error),
            Ok(found) if found.state == MatchState::Matched => use_it(remote, &args, &found).await,
            Ok(found) => none_yet(remote, &args, &found),
        };
    }
    let deadline = Instant::now() + Duration::from_millis(args.wait);
    let (mut obstacle, mut lost) = (Obstacle::default(), false);
    loop {
        let begun = Instant::now();
        let asked = ask(&remote.client, &args, deadline, lost).await;
        lost = asked.as_ref().is_err_and(Error::is_outcome_unknown);
        let pause = match asked {
            Ok(found) if found.state == MatchState::Matched => return use_it(remote, &args, &found).await,
            Ok(found) if Instant::now() >= deadline => return none_yet(remote, &args, &found),
            Ok(found) => {
                obstacle = Obstacle::default();
                // A server that stops, or has too many waiting, answers at once.
                let pause = Duration::from_millis(found.retry_after_ms.unwrap_or(0)).clamp(PAUSE_MIN, PAUSE_MAX);
                if begun.elapsed() < pause { pause } else { Duration::ZERO }
            }
            Err(error) if may_pass(&error) && Instant::now() < deadline => obstacle.meet(&error, !remote.json),
            Err(error) => return failed(remote, error),
        };
        sleep(pause.min(deadline.saturating_duration_since(Instant::now()))).await;
    }
}

/// Whether asking again may help. A proxy answers 502 or 504 while the server restarts; asking is idempotent.
pub fn may_pass(error: &Error) -> bool {
    let by_proxy = |problem: &Problem| matches!(problem.status, 502 | 504) && problem.code() != Some(Code::MatchFailed);
    error.is_transient() || error.problem().is_some_and(by_proxy)
}

/// Asks once, and waits for the answer as long as there is time. Errors that may pass are handled by the caller, until the
/// time is over: the client would give up after a few attempts.
async fn ask(client: &Client, args: &Args, deadline: Instant, lost: bool) -> Result<Match, Error> {
    if lost && let Ok(failed) = timeout(ANSWER_TIME, client.check_match(&args.client, &args.pool)).await {
        failed?;
    }
    let left = deadline.saturating_duration_since(Instant::now());
    let wait_ms = u64::try_from(left.as_millis()).unwrap_or(u64::MAX).min(REQUEST_WAIT_MS_MAX);
    let query = PutMatchQuery { pool: args.pool.clone(), wait_ms: Some(wait_ms) };
    client.put_match_once(&args.client, &query, ANSWER_TIME).await
}

/// What is in the way of a request that waits, and how often in a row it was met.
#[derive(Debug, Default)]
struct Obstacle {
    times: u32,
    said: Option<&'static str>,
}

impl Obstacle {
    /// Says once what is waited for, and returns how long to wait before the next request.
    fn meet(&mut self, error: &Error, tells: bool) -> Duration {
        let is_full = error.code() == Some(Code::QueueFull);
        let what = if is_full { "a place in the queue" } else { "the server" };
        self.times += 1;
        // One of several servers may be away: the next request goes to another.
        if tells && self.said != Some(what) && (is_full || self.times > 1) {
            eprintln!("waiting for {what}: {error}");
            self.said = Some(what);
        }
        let asked_for = error.code().and_then(Code::retry_after_secs).map_or(0, u64::from);
        let grown = PAUSE_MIN.saturating_mul(1 << self.times.min(5)).min(PAUSE_MAX);
        Duration::from_secs(asked_for).max(if is_full { PAUSE_MIN } else { grown })
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

/// Prints the worker's address, or runs the command with it.
async fn use_it(remote: &Remote, args: &Args, found: &Match) -> anyhow::Result<()> {
    if args.command.is_empty() {
        return tell(remote, found);
    }
    match_run::run(&remote.client, found, &args.command).await
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

fn none_yet(remote: &Remote, Args { client, pool, .. }: &Args, found: &Match) -> anyhow::Result<()> {
    if remote.json {
        output::json(found)?;
    }
    let place = found.position.map_or_else(String::new, |position| format!(" (number {position} in the queue)"));
    let soon = found.estimate_ms.map_or_else(String::new, |ms| format!("; a worker may be there in {}", span(ms)));
    let why = &found.reason;
    // In quotes: a client may have any name.
    let client = client.replace('\'', r"'\''");
    let message = format!(
        "no worker yet{place}: {why}{soon}; it stays queued: ask again, or end the request with \
         `wayleave matches cancel '{client}' --pool {pool}`"
    );
    Err(Ended { code: NOT_FOUND, message }.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_proxy_says_while_the_server_restarts_may_pass_and_a_failed_match_does_not() {
        let refused = |code, status| Error::Refused(Box::new(Problem { status, ..Problem::new(code, "no") }));
        for status in [502, 503, 504] {
            assert!(may_pass(&refused(Code::Internal, status)), "{status}");
            assert!(!may_pass(&refused(Code::MatchFailed, status)), "{status}");
        }
        assert!(!may_pass(&refused(Code::Internal, 500)) && !may_pass(&refused(Code::UnknownPool, 404)));
    }

    #[test]
    fn a_worker_that_answers_slowly_is_waited_for() {
        assert!(ANSWER_TIME > Duration::from_millis(ASK_TIME.0) + Duration::from_secs(1));
    }

    #[test]
    fn a_full_queue_is_asked_again_as_it_says_and_a_server_that_is_away_ever_less_often() {
        let full = Error::Refused(Box::new(Problem::new(Code::QueueFull, "full")));
        let mut obstacle = Obstacle::default();
        for _ in 0..20 {
            assert_eq!(obstacle.meet(&full, false), Duration::from_secs(1), "its Retry-After");
        }
        let away = Error::Unreachable { server: "http://a:1".into(), cause: "refused".into() };
        let mut obstacle = Obstacle::default();
        let pauses: Vec<u128> = (0..7).map(|_| obstacle.meet(&away, false).as_millis()).collect();
        assert_eq!(pauses, [200, 400, 800, 1_600, 2_000, 2_000, 2_000]);
        assert_eq!((obstacle.said, obstacle.times), (None, 7), "JSON is for programs");
    }
}
