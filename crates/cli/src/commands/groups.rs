//! `groups`: list, show, set, delete.

use wayleave_api::Code;
use wayleave_api::groups::{Group, SetGroupRequest};

use super::hosts::{ListHostsArgs, live};
use super::or_list;
use super::pace::{Clear, PaceArgs, patch};
use crate::output::{self, Table, or_dash, span, when, word};
use crate::remote::Remote;
use crate::values;

/// Arguments of `groups`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = HELP)]
pub struct Args {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    list: ListHostsArgs,
}

const HELP: &str = "\
Examples:
  wayleave groups                                the first hundred: aliases, and hosts that are groups of their own
  wayleave groups --state busy
  wayleave groups show bigsite
  wayleave groups set bigsite --host a.example.com --host b.example.com";

#[derive(Clone, Debug, clap::Subcommand)]
enum Command {
    /// List groups: aliases, and hosts that are groups of their own
    List(ListHostsArgs),
    /// Show one group
    Show {
        /// Alias or host name
        #[arg(value_parser = values::name)]
        group: String,
    },
    /// Create an alias, or change its hosts and settings
    #[command(after_help = SET_HELP, allow_negative_numbers = true)]
    Set(Box<SetArgs>),
    /// Delete an alias; its hosts become groups of their own
    Delete {
        /// The alias
        #[arg(value_parser = values::name)]
        alias: String,
    },
}

const SET_HELP: &str = "\
Examples:
  wayleave groups set bigsite --host a.example.com --host b.example.com --delay 2s
  wayleave groups set bigsite --parallel 4           settings alone; the hosts stay

--host names all hosts of the group; one that is not named leaves it.";

/// The settings to change.
#[derive(Clone, Debug, clap::Args)]
struct SetArgs {
    /// Alias: letters, digits, _ and -
    #[arg(value_parser = values::name)]
    alias: String,
    /// A host of the group; repeat for each
    #[arg(long = "host", value_name = "HOST")]
    hosts: Vec<String>,
    #[command(flatten)]
    pace: PaceArgs,
    /// Maximum number of concurrent visits
    #[arg(long, value_name = "NUMBER")]
    parallel: Option<u32>,
    /// Do not normalise host names: they are queue keys
    #[arg(long)]
    exact: bool,
}

/// Runs the command.
pub async fn run(remote: &Remote, args: Args) -> anyhow::Result<()> {
    let client = &remote.client;
    match or_list(args.command, args.list, Command::List)? {
        Command::List(args) => list(remote, &args).await,
        Command::Show { group } => show(remote, &client.group(&group).await?),
        Command::Set(args) => set(remote, &args).await,
        Command::Delete { alias } => {
            client.delete_group(&alias).await?;
            eprintln!("deleted group {alias}; its hosts are groups of their own again");
            Ok(())
        }
    }
}

/// Changes a group, and reports which hosts have left it: a user who wanted to add one may not have meant that.
async fn set(remote: &Remote, args: &SetArgs) -> anyhow::Result<()> {
    let before = remote.client.group(&args.alias).await;
    let (client, request) = (&remote.client, request(args));
    let set = if args.exact {
        client.patch_group_exactly(&args.alias, &request).await
    } else {
        client.patch_group(&args.alias, &request).await
    };
    let group = set?;
    show(remote, &group)?;
    match &before {
        Ok(_) => eprintln!("changed group {}", group.group),
        Err(error) if error.code() == Some(Code::UnknownGroup) && group.hosts.is_empty() => {
            eprintln!("created group {} without hosts; add them with --host", group.group);
        }
        Err(error) if error.code() == Some(Code::UnknownGroup) => eprintln!("created group {}", group.group),
        Err(_) => {}
    }
    let before = before.map(|before| before.hosts).unwrap_or_default();
    let left: Vec<String> = before.into_iter().filter(|host| !group.hosts.contains(host)).collect();
    if !left.is_empty() {
        eprintln!("no longer in {}: {}; --host names all hosts of a group", args.alias, left.join(" "));
    }
    Ok(())
}

fn request(args: &SetArgs) -> SetGroupRequest {
    let pace = &args.pace;
    SetGroupRequest {
        hosts: (!args.hosts.is_empty()).then(|| args.hosts.clone()),
        delay_ms: patch(pace.delay, pace.clears(Clear::Delay)),
        delay_factor: patch(pace.delay_factor, pace.clears(Clear::DelayFactor)),
        delay_ms_min: patch(pace.delay_min, pace.clears(Clear::DelayMin)),
        delay_ms_max: patch(pace.delay_max, pace.clears(Clear::DelayMax)),
        blocked_until: patch(pace.block, pace.clears(Clear::Blocked)),
        paused: pace.paused(),
        limit: patch(pace.limit, pace.clears(Clear::Limit)),
        parallel: args.parallel.into(),
    }
}

async fn list(remote: &Remote, args: &ListHostsArgs) -> anyhow::Result<()> {
    remote.check_crawl(args.crawl.as_deref()).await?;
    let groups = args.page.collect(remote.client.all_groups(args.query())).await?;
    let now = output::now();
    let mut table = Table::new(["group", "hosts", "state", "ready", "queued", "reserved", "fetched", "reason"]);
    for group in groups {
        if remote.json {
            output::json(&group)?;
            continue;
        }
        let [queued, reserved, fetched] =
            [group.counts.queued, group.counts.reserved, group.counts.fetched].map(|n| n.to_string());
        let (hosts, ready) = (group.hosts.len().to_string(), when(group.ready_at, now));
        table.row([group.group, hosts, word(group.state), ready, queued, reserved, fetched, group.reason]);
    }
    if remote.json { Ok(()) } else { table.print() }
}

fn show(remote: &Remote, group: &Group) -> anyhow::Result<()> {
    if remote.json {
        return output::json(group);
    }
    let now = output::now();
    let mut table = Table::about("group", &group.group);
    table.row(["hosts".into(), group.hosts.join(" ")]);
    table.row(["state".into(), format!("{}: {}", word(group.state), group.reason)]);
    table.row(["ready".into(), when(group.ready_at, now)]);
    group.visits.iter().for_each(|visit| table.row(live(visit, now)));
    table.row(["urls".into(), output::counts(&group.counts)]);
    table.row(["delay in force".into(), span(group.delay_in_force_ms)]);
    table.row(["delay set".into(), or_dash(group.delay_ms.map(span))]);
    table.row(["visits at once".into(), group.parallel.to_string()]);
    table.row(["blocked until".into(), when(group.blocked_until, now)]);
    table.row(["paused".into(), group.paused.to_string()]);
    table.row(["page limit".into(), or_dash(group.limit)]);
    table.row(["last visit".into(), when(group.last_visit_at, now)]);
    table.print()
}
