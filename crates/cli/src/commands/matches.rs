//! `matches`: clients that have a worker or wait for one; list, show, cancel.

use wayleave_api::matches::{DeleteMatchQuery, GetMatchQuery, ListMatchesQuery, Match, MatchState};

use super::{ListArgs, or_list};
use crate::output::{self, Table, or_dash, span, when, word};
use crate::remote::Remote;
use crate::values::{self, words};

/// Arguments of `matches`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = HELP)]
pub struct Args {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    list: ListMatchesArgs,
}

const HELP: &str = "\
A match is a client's request for a worker of a pool. Its states:
  queued    it waits for a slot of a worker
  making    a worker is asked to reserve a slot
  matched   it has a worker, until it gives it back or does not confirm it in time
  vacant    its worker is gone; the client's next request queues it again
  failed    it got none before its deadline; the client's next request queues it again

Examples:
  wayleave matches                                   all clients, with state and reason
  wayleave matches --pool browsers --state queued    who waits
  wayleave matches show user-7 --pool browsers       one client; looking confirms nothing
  wayleave matches cancel user-7 --pool browsers     end its request, or give its worker back
  wayleave match user-7 --pool browsers --wait 30s   ask for a worker

docs/matches.md explains pools, workers and reservations.";

#[derive(Clone, Debug, clap::Subcommand)]
enum Command {
    /// List clients with their state and reason
    List(ListMatchesArgs),
    /// Show the match of one client
    #[command(visible_alias = "get")]
    Show(ClientArgs),
    /// End a client's request, or give its worker back
    #[command(visible_alias = "delete")]
    Cancel {
        #[command(flatten)]
        of: ClientArgs,
        /// Only if the match still has this token
        #[arg(long)]
        token: Option<String>,
    },
}

#[derive(Clone, Debug, clap::Args)]
struct ClientArgs {
    /// The client
    #[arg(value_parser = values::client)]
    client: String,
    /// The pool
    #[arg(long, value_name = "POOL", value_parser = values::name)]
    pool: String,
}

/// What `cancel` prints as JSON.
#[derive(serde::Serialize)]
struct Cancelled {
    client: String,
    pool: String,
    cancelled: bool,
}

words! {
    StateArg = MatchState {
        /// It waits for a slot
        Queued,
        /// A worker is asked
        Making,
        /// It has a worker
        Matched,
        /// Its worker is gone
        Vacant,
        /// It got none
        Failed,
    }
}

/// Which matches to list.
#[derive(Clone, Debug, Default, PartialEq, Eq, clap::Args)]
struct ListMatchesArgs {
    /// Only those of this pool
    #[arg(long, value_name = "POOL", value_parser = values::name)]
    pool: Option<String>,
    /// Only those in this state
    #[arg(long, value_enum)]
    state: Option<StateArg>,
    #[command(flatten)]
    page: ListArgs,
}

/// Runs the command.
pub async fn run(remote: &Remote, args: Args) -> anyhow::Result<()> {
    let client = &remote.client;
    match or_list(args.command, args.list, Command::List)? {
        Command::List(args) => list(remote, args).await,
        Command::Show(of) => {
            let query = GetMatchQuery { pool: of.pool, wait_ms: None, confirm: Some(false) };
            show(remote, &client.get_match(&of.client, &query).await?)
        }
        Command::Cancel { of, token } => {
            client.delete_match(&of.client, &DeleteMatchQuery { pool: of.pool.clone(), token }).await?;
            if remote.json {
                return output::json(&Cancelled { client: of.client, pool: of.pool, cancelled: true });
            }
            eprintln!("ended the match of {}", of.client);
            Ok(())
        }
    }
}

async fn list(remote: &Remote, args: ListMatchesArgs) -> anyhow::Result<()> {
    let state = args.state.map(MatchState::from);
    let query = ListMatchesQuery { pool: args.pool, state, ..ListMatchesQuery::default() };
    let matches = args.page.collect(remote.client.all_matches(query)).await?;
    let (now, head) = (output::now(), ["client", "pool", "state", "place", "worker", "address", "expires", "reason"]);
    output::list(remote.json, head, &matches, |found| {
        [
            found.client.clone(),
            found.pool.clone(),
            word(found.state),
            or_dash(found.position),
            or_dash(found.worker.as_deref()),
            or_dash(found.address.as_deref()),
            when(found.expires_at, now),
            found.reason.clone(),
        ]
    })
}

fn show(remote: &Remote, found: &Match) -> anyhow::Result<()> {
    if remote.json {
        return output::json(found);
    }
    let now = output::now();
    let mut table = Table::about("client", &found.client);
    table.row(["pool".into(), found.pool.clone()]);
    table.row(["state".into(), word(found.state)]);
    table.row(["reason".into(), found.reason.clone()]);
    table.row(["place".into(), or_dash(found.position)]);
    table.row(["estimate".into(), or_dash(found.estimate_ms.map(span))]);
    table.row(["worker".into(), or_dash(found.worker.as_deref())]);
    table.row(["address".into(), or_dash(found.address.as_deref())]);
    table.row(["expires".into(), when(found.expires_at, now)]);
    table.row(["verified".into(), if found.verified { "yes" } else { "no" }.into()]);
    table.print()
}
