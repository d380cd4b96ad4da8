//! `roles`: primary and standbys; list, show, set, step-down, release, delete.

use std::time::{Duration, Instant};

use wayleave_api::metadata::Metadata;
use wayleave_api::roles::{GetRoleQuery, Mode, Released, Role, SetRoleRequest, WaitFor};
use wayleave_core::limits;

use super::pace::patch;
use super::{ListArgs, or_list};
use crate::elect::NAME;
use crate::exit::{self, Ended};
use crate::output::{self, Table, or_dash, relative, span};
use crate::remote::Remote;
use crate::values::{self, words};

/// Arguments of `roles`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = HELP)]
pub struct Args {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    list: ListArgs,
}

const HELP: &str = "\
A role is a duty that one process at a time has. Candidates send heartbeats; one of them is primary, until it releases the
role or misses heartbeats for the length of a term. Every change of primary increments the epoch.

Examples:
  wayleave roles                                 all roles, with primary and standbys
  wayleave roles show indexer                    one role, and why it has no primary
  wayleave roles show indexer --wait 30s         wait for a primary; exit code 3 if there is none then
  wayleave roles set indexer --ttl 10s           how long a primary may miss heartbeats
  wayleave roles set indexer --mode continue --continue-for 10m    what a primary does while no server answers
  wayleave roles step-down indexer               ask the primary to step down, as before a deploy";

#[derive(Clone, Debug, clap::Subcommand)]
enum Command {
    /// List roles: primary, epoch, address, remaining term, standbys
    List(ListArgs),
    /// Show one role: its primary or why there is none, its standbys
    Show(ShowArgs),
    /// Create a role before its first heartbeat, or change its settings
    #[command(after_help = SET_HELP)]
    Set(SetArgs),
    /// Ask the primary to step down; it learns of it with its next heartbeat
    StepDown {
        /// The role
        #[arg(value_parser = values::name)]
        role: String,
    },
    /// Release a term on behalf of the primary, or withdraw a standby
    Release(ReleaseArgs),
    /// Delete a role that is not in use; a later role of that name continues its epochs
    Delete {
        /// The role
        #[arg(value_parser = values::name)]
        role: String,
    },
}

const SET_HELP: &str = "\
A term must outlast three missed heartbeats and two slow operations: the heartbeat interval of candidates may be at most a
quarter of the time to live. A current term keeps its length; a new time to live applies from its next renewal.

With --mode continue a primary that reaches no server continues after its term, for at most --continue-for, as long as every
standby has just promised not to take over; its candidates need `wayleave elect --peer` for that. If the primary dies while
no other candidate is registered, a new one must wait for that long.";

#[derive(Clone, Debug, clap::Args)]
struct ShowArgs {
    /// The role
    #[arg(value_parser = values::name)]
    role: String,
    /// Wait up to this long for a primary; exit code 3 if there is none then
    #[arg(long, value_name = "TIME", value_parser = values::span, allow_hyphen_values = true)]
    wait: Option<u64>,
    /// Require a primary of this epoch or later
    #[arg(long, value_name = "EPOCH")]
    min_epoch: Option<u64>,
    /// With --wait, wait for the end of the current term instead; exit code 3 if it has not ended
    #[arg(long, requires = "wait")]
    vacancy: bool,
}

#[derive(Clone, Debug, clap::Args)]
struct SetArgs {
    /// The role
    #[arg(value_parser = values::name)]
    role: String,
    /// How long a primary may miss heartbeats before another takes over: 500ms to 1h, 15s by default
    #[arg(long, value_name = "TIME", value_parser = values::span, allow_hyphen_values = true)]
    ttl: Option<u64>,
    /// What a primary does when it cannot reach the server
    #[arg(long, value_enum)]
    mode: Option<ModeArg>,
    /// With mode continue: how long a primary may continue after its term: 1s to 24h, 10m by default
    #[arg(long, value_name = "TIME", value_parser = values::span, allow_hyphen_values = true)]
    continue_for: Option<u64>,
}

words! {
    ModeArg = Mode {
        /// It stops
        Strict,
        /// It continues while every standby promises not to take over
        Continue,
    }
}

#[derive(Clone, Debug, clap::Args)]
struct ReleaseArgs {
    /// The role
    #[arg(value_parser = values::name)]
    role: String,
    /// The candidate's uuid
    uuid: String,
    /// The token of the primary's term; a standby has none
    #[arg(long)]
    token: Option<String>,
}

/// Runs the command.
pub async fn run(remote: &Remote, args: Args) -> anyhow::Result<()> {
    let client = &remote.client;
    match or_list(args.command, args.list, Command::List)? {
        Command::List(args) => list(remote, &args).await,
        Command::Show(args) => look(remote, &args).await,
        Command::Set(args) => show(remote, &client.patch_role(&args.role, &args.request()).await?),
        Command::StepDown { role } => show(remote, &client.step_down_role(&role).await?),
        Command::Release(args) => release(remote, &args).await,
        Command::Delete { role } => {
            client.delete_role(&role).await?;
            eprintln!("deleted role {role}; a later role of that name continues its epochs");
            Ok(())
        }
    }
}

/// Shows a role, at once or after a wait; the exit code says whether the awaited state was reached.
async fn look(remote: &Remote, args: &ShowArgs) -> anyhow::Result<()> {
    let until = args.wait.map(|wait| Instant::now().checked_add(Duration::from_millis(wait)));
    loop {
        let left = until.map(next_wait);
        let role = remote.client.role(&args.role, &args.query(left)).await?;
        let come = args.is_met(&role);
        if come || left.is_none_or(|left| left < limits::WAIT_MS_MAX) {
            show(remote, &role)?;
            return if come || left.is_none() { Ok(()) } else { Err(args.in_vain().into()) };
        }
    }
}

/// The server waits a minute at most, so longer waits take several calls. `None` is unlimited.
fn next_wait(until: Option<Instant>) -> u64 {
    let left = until.map(|until| until.saturating_duration_since(Instant::now()).as_millis());
    left.and_then(|left| u64::try_from(left).ok()).unwrap_or(u64::MAX).min(limits::WAIT_MS_MAX)
}

impl ShowArgs {
    fn query(&self, wait_ms: Option<u64>) -> GetRoleQuery {
        let wait_for = if self.vacancy { Some(WaitFor::Vacancy) } else { None };
        GetRoleQuery { wait_ms, min_epoch: self.min_epoch, wait_for }
    }

    fn is_met(&self, role: &Role) -> bool {
        if self.vacancy {
            return role.primary.is_none();
        }
        role.primary.is_some() && self.min_epoch.is_none_or(|least| role.epoch >= least)
    }

    fn in_vain(&self) -> Ended {
        let (role, waited) = (&self.role, span(self.wait.unwrap_or(0)));
        let message = match (self.vacancy, self.min_epoch) {
            (true, _) => format!("the term of {role} has not ended within {waited}"),
            (false, None) => format!("{role} has no primary after {waited}"),
            (false, Some(least)) => format!("{role} has no primary of epoch {least} or later after {waited}"),
        };
        Ended { code: exit::NOT_FOUND, message }
    }
}

impl SetArgs {
    fn request(&self) -> SetRoleRequest {
        SetRoleRequest {
            ttl_ms: patch(self.ttl, false),
            mode: self.mode.map(Mode::from).into(),
            continue_for_ms: patch(self.continue_for, false),
        }
    }
}

async fn list(remote: &Remote, args: &ListArgs) -> anyhow::Result<()> {
    let mut table = Table::new(["role", "primary", "epoch", "address", "name", "remaining", "standbys", "reason"]);
    for role in args.collect(remote.client.all_roles()).await? {
        if remote.json {
            output::json(&role)?;
            continue;
        }
        let primary = role.primary.as_ref();
        let standbys = standbys(&role);
        table.row([
            role.role.clone(),
            or_dash(primary.map(|primary| &primary.uuid)),
            role.epoch.to_string(),
            or_dash(primary.and_then(|primary| primary.address.as_ref())),
            or_dash(primary.and_then(|primary| name(&primary.metadata))),
            or_dash(primary.map(|primary| span(primary.remaining_ms))),
            standbys,
            if primary.is_some() { String::new() } else { role.reason },
        ]);
    }
    if remote.json { Ok(()) } else { table.print() }
}

fn standbys(role: &Role) -> String {
    match (role.standbys_ready, role.standbys.len() as u64 - role.standbys_ready) {
        (0, 0) => "none".to_owned(),
        (ready, 0) => format!("{ready} ready"),
        (ready, waiting) => format!("{ready} ready, {waiting} not ready"),
    }
}

async fn release(remote: &Remote, args: &ReleaseArgs) -> anyhow::Result<()> {
    let ReleaseArgs { role, uuid, token } = args;
    let answer = remote.client.release_role(role, uuid, token.as_deref()).await?;
    if remote.json {
        return output::json(&answer);
    }
    match answer.released {
        Released::Primary => eprintln!("{uuid} is no longer primary of {role}; epoch {} is over", answer.epoch),
        Released::Standby => eprintln!("{uuid} is no longer a standby of {role}"),
        Released::Nobody => eprintln!("{uuid} was neither primary of {role} nor a standby"),
    }
    Ok(())
}

fn show(remote: &Remote, role: &Role) -> anyhow::Result<()> {
    if remote.json {
        return output::json(role);
    }
    let now = output::now();
    let mut table = Table::about("role", &role.role);
    let primary = role.primary.as_ref();
    table.row(["primary".into(), or_dash(primary.map(|primary| &primary.uuid))]);
    table.row(["epoch".into(), role.epoch.to_string()]);
    table.row(["state".into(), role.reason.clone()]);
    if let Some(primary) = primary {
        table.row(["name".into(), or_dash(name(&primary.metadata))]);
        table.row(["address".into(), or_dash(primary.address.as_ref())]);
        table.row(["remaining".into(), span(primary.remaining_ms)]);
        table.row(["since".into(), relative(primary.granted_at, now)]);
        table.row(["heartbeat every".into(), span(primary.interval_ms)]);
    }
    table.row(["time to live".into(), span(role.ttl_ms)]);
    table.row(["mode".into(), mode(role)]);
    if let Some(run) = &role.last_run {
        let text = format!("{} in epoch {}, {}", run.slot, run.epoch, relative(run.at, now));
        table.row(["last slot run".into(), text]);
    }
    table.row(["standbys".into(), standbys(role)]);
    for standby in &role.standbys {
        let ready = if standby.ready { "ready" } else { "not ready" };
        let address = standby.address.as_deref().unwrap_or("no address");
        let seen = relative(standby.seen_at, now);
        let named = name(&standby.metadata).map_or_else(String::new, |name| format!(" ({name})"));
        let text = format!("{}{named}: {ready}, priority {}, {address}, seen {seen}", standby.uuid, standby.priority);
        table.row([String::new(), text]);
    }
    table.print()
}

/// What a candidate calls itself: `elect` names its machine and process.
fn name(metadata: &Metadata) -> Option<String> {
    metadata.0.iter().find(|(name, _)| name == NAME).map(|(_, values)| values.join(", "))
}

fn mode(role: &Role) -> String {
    match role.mode {
        Mode::Strict => "strict: a primary that cannot reach the server stops".into(),
        Mode::Continue => {
            let most = span(role.continue_for_ms);
            format!(
                "continue: a primary that cannot reach the server continues for at most {most} while every standby agrees"
            )
        }
    }
}
