//! `reservations`: lists and revokes current reservations.

use wayleave_api::jobs::RevokeRequest;

use super::{ListArgs, or_list};
use crate::output::{self, Table, counted, relative};
use crate::remote::Remote;
use crate::values;

/// Arguments of `reservations`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = HELP)]
pub struct Args {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    list: ListArgs,
}

const HELP: &str = "\
Examples:
  wayleave reservations                          the first hundred
  wayleave reservations revoke --holder worker-7
  wayleave reservations revoke --host example.com";

#[derive(Clone, Debug, clap::Subcommand)]
enum Command {
    /// List current reservations
    List(ListArgs),
    /// Revoke reservations before their deadline; their URLs return to the queue unchanged
    #[command(after_help = REVOKE_HELP)]
    Revoke(RevokeArgs),
}

const REVOKE_HELP: &str = "\
Examples:
  wayleave reservations revoke --holder worker-7       a worker that is known to be dead
  wayleave reservations revoke --host example.com      also what URLFrontier's GetURLs has handed out of it

To the holder it is as if its lease had expired: its token is no longer current. A live worker may still be fetching: the
host's delay begins now, and later calls of that worker are refused.";

/// What to revoke.
#[derive(Clone, Debug, clap::Args)]
#[group(required = true, multiple = false)]
struct RevokeArgs {
    /// All of this holder
    #[arg(long, value_name = "HOLDER")]
    holder: Option<String>,
    /// All of this host or queue key
    #[arg(long, value_name = "HOST", value_parser = values::name)]
    host: Option<String>,
    /// The one with this token
    #[arg(long, value_name = "TOKEN", allow_hyphen_values = true)]
    token: Option<String>,
}

/// Runs the command.
pub async fn run(remote: &Remote, args: Args) -> anyhow::Result<()> {
    match or_list(args.command, args.list, Command::List)? {
        Command::List(args) => list(remote, args).await,
        Command::Revoke(RevokeArgs { holder, host, token }) => {
            let told = remote.client.revoke(&RevokeRequest { token, holder, host }).await?;
            if remote.json {
                return output::json(&told);
            }
            let [reservations, holds] = [counted(told.reservations, "reservation"), counted(told.holds, "hold")];
            output::line(format_args!("revoked {reservations} and {holds}"))
        }
    }
}

async fn list(remote: &Remote, args: ListArgs) -> anyhow::Result<()> {
    let now = output::now();
    let mut table = Table::new(["group", "host", "holder", "granted", "ends", "urls"]);
    for live in args.collect(remote.client.all_reservations()).await? {
        if remote.json {
            output::json(&live)?;
            continue;
        }
        let (granted, ends) = (relative(live.granted_at, now), relative(live.expires_at, now));
        table.row([live.group, live.host, live.holder, granted, ends, live.urls.to_string()]);
    }
    if remote.json { Ok(()) } else { table.print() }
}
