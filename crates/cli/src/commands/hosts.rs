//! `hosts`: list, show, set.

use wayleave_api::hosts::{Host, ListHostsQuery, LiveVisit, SetHostRequest, State};
use wayleave_api::{Code, Timestamp};

use super::pace::{Clear, PaceArgs, patch};
use super::{ListArgs, or_list};
use crate::output::{self, Table, counted, or_dash, span, when, word};
use crate::remote::Remote;
use crate::values::{self, words};

/// Arguments of `hosts`.
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
  wayleave hosts                                 the first hundred, with state and reason
  wayleave hosts --state blocked --all
  wayleave hosts show example.com
  wayleave hosts set example.com --delay 5s";

#[derive(Clone, Debug, clap::Subcommand)]
enum Command {
    /// List hosts with their state and reason
    List(ListHostsArgs),
    /// Show one host
    Show {
        /// Host name, IP address or queue key
        #[arg(value_parser = values::name)]
        host: String,
    },
    /// Set how a host is visited; it is created if unknown
    #[command(after_help = SET_HELP, allow_negative_numbers = true)]
    Set(Box<SetArgs>),
    /// Delete one crawl's URLs of a host; with its last queue the host is forgotten, including its settings and last
    /// visit
    DeleteQueue {
        /// Host name, IP address or queue key
        #[arg(value_parser = values::name)]
        host: String,
        /// The crawl
        #[arg(long, default_value = "DEFAULT", value_parser = values::name)]
        crawl: String,
    },
}

const SET_HELP: &str = "\
Examples:
  wayleave hosts set example.com --delay 5s
  wayleave hosts set example.com --block 2h          no visits for two hours
  wayleave hosts set example.com --pause
  wayleave hosts set example.com --resume --clear delay,blocked
  wayleave hosts set example.com --ready-at now      queue the host itself, without URLs";

words! {
    /// The state of a host or group.
    pub StateArg = State {
        /// May be visited now.
        Ready,
        /// Waits for its delay or its next due URL.
        Waiting,
        /// Reserved.
        Busy,
        /// Blocked until a time.
        Blocked,
        /// Paused by an operator.
        Paused,
        /// Has no URL that will ever be due.
        Idle,
    }
}

/// Which hosts or groups to list.
#[derive(Clone, Debug, Default, PartialEq, Eq, clap::Args)]
pub struct ListHostsArgs {
    /// Only those in this state
    #[arg(long, value_enum)]
    state: Option<StateArg>,
    /// Only those with URLs of this crawl
    #[arg(long, value_name = "CRAWL", value_parser = values::name)]
    pub(super) crawl: Option<String>,
    #[command(flatten)]
    pub(super) page: ListArgs,
}

impl ListHostsArgs {
    pub(super) fn query(&self) -> ListHostsQuery {
        ListHostsQuery { state: self.state.map(State::from), crawl: self.crawl.clone(), after: None, limit: None }
    }
}

/// The settings to change.
#[derive(Clone, Debug, clap::Args)]
struct SetArgs {
    /// Host name, IP address or queue key
    #[arg(value_parser = values::name)]
    host: String,
    #[command(flatten)]
    pace: PaceArgs,
    /// Queue the host itself at this time, or after this span
    #[arg(long, value_name = "WHEN", value_parser = values::when, allow_hyphen_values = true)]
    ready_at: Option<Timestamp>,
    /// Do not normalise the name: it is a queue key
    #[arg(long)]
    exact: bool,
}

/// Runs the command.
pub async fn run(remote: &Remote, args: Args) -> anyhow::Result<()> {
    let client = &remote.client;
    match or_list(args.command, args.list, Command::List)? {
        Command::List(args) => list(remote, &args).await,
        Command::Show { host } => show(remote, &client.host(&host).await?),
        Command::Set(args) => set(remote, &args).await,
        Command::DeleteQueue { host, crawl } => {
            remote.check_host(Some(&host)).await?;
            remote.check_crawl(Some(&crawl)).await?;
            let deleted = client.delete_queue(&host, &crawl).await?;
            if remote.json {
                output::json(&deleted)
            } else {
                output::line(format_args!("{} of crawl {crawl} deleted", counted(deleted.deleted, "URL")))
            }
        }
    }
}

async fn set(remote: &Remote, args: &SetArgs) -> anyhow::Result<()> {
    let (client, request) = (&remote.client, request(args));
    let known = client.host(&args.host).await;
    let set = if args.exact {
        client.patch_host_exactly(&args.host, &request).await
    } else {
        client.patch_host(&args.host, &request).await
    };
    let set = set?;
    show(remote, &set)?;
    // A mistyped name creates a host from which nothing is ever fetched.
    match known {
        Ok(known) if known.host == set.host => eprintln!("changed host {}", set.host),
        Ok(_) => eprintln!("created host {}", set.host),
        Err(error) if error.code() == Some(Code::UnknownHost) => {
            eprintln!(
                "created host {}, which was unknown; if that is a typo, `wayleave hosts` lists the known ones",
                set.host
            );
        }
        Err(_) => {}
    }
    Ok(())
}

fn request(args: &SetArgs) -> SetHostRequest {
    let pace = &args.pace;
    SetHostRequest {
        delay_ms: patch(pace.delay, pace.clears(Clear::Delay)),
        delay_factor: patch(pace.delay_factor, pace.clears(Clear::DelayFactor)),
        delay_ms_min: patch(pace.delay_min, pace.clears(Clear::DelayMin)),
        delay_ms_max: patch(pace.delay_max, pace.clears(Clear::DelayMax)),
        blocked_until: patch(pace.block, pace.clears(Clear::Blocked)),
        paused: pace.paused(),
        limit: patch(pace.limit, pace.clears(Clear::Limit)),
        crawl_delay_ms: patch(None, pace.clears(Clear::CrawlDelay)),
        ready_at: args.ready_at,
    }
}

/// A current visit, as a table row.
pub(super) fn live(visit: &LiveVisit, now: Timestamp) -> [String; 2] {
    let LiveVisit { host, holder, expires_at, ended_chunk } = visit;
    let ended = |chunk: &String| format!(" for chunk {chunk}, whose lease was ended by an operator or a deletion");
    let chunk = ended_chunk.as_ref().map(ended).unwrap_or_default();
    ["visited now".into(), format!("{host} by {holder}{chunk}, ends {} at the latest", when(Some(*expires_at), now))]
}

async fn list(remote: &Remote, args: &ListHostsArgs) -> anyhow::Result<()> {
    remote.check_crawl(args.crawl.as_deref()).await?;
    let hosts = args.page.collect(remote.client.all_hosts(args.query())).await?;
    let now = output::now();
    let head = ["host", "state", "ready", "queued", "reserved", "fetched", "group", "reason"];
    output::list(remote.json, head, &hosts, |host| {
        let [queued, reserved, fetched] =
            [host.counts.queued, host.counts.reserved, host.counts.fetched].map(|n| n.to_string());
        let group = if host.group == host.host { "-".to_owned() } else { host.group.clone() };
        let (state, ready) = (word(host.state), when(host.ready_at, now));
        [host.host.clone(), state, ready, queued, reserved, fetched, group, host.reason.clone()]
    })
}

fn show(remote: &Remote, host: &Host) -> anyhow::Result<()> {
    if remote.json {
        return output::json(host);
    }
    let now = output::now();
    let mut table = Table::about("host", &host.host);
    table.row(["group".into(), host.group.clone()]);
    table.row(["state".into(), format!("{}: {}", word(host.state), host.reason)]);
    table.row(["ready".into(), when(host.ready_at, now)]);
    host.visits.iter().for_each(|visit| table.row(live(visit, now)));
    table.row(["urls".into(), output::counts(&host.counts)]);
    table.row(["robots.txt Crawl-delay".into(), or_dash(host.crawl_delay_ms.map(span))]);
    table.row(["delay in force".into(), span(host.delay_in_force_ms)]);
    table.row(["delay set".into(), or_dash(host.delay_ms.map(span))]);
    table.row(["factor set".into(), or_dash(host.delay_factor)]);
    table.row(["blocked until".into(), when(host.blocked_until, now)]);
    table.row(["paused".into(), host.paused.to_string()]);
    table.row(["page limit".into(), or_dash(host.limit)]);
    table.row(["last visit".into(), when(host.last_visit_at, now)]);
    for queue in &host.crawls {
        table.row([format!("crawl {}", queue.crawl), output::counts(&queue.counts)]);
    }
    table.print()
}
