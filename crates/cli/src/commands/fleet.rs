//! `fleet`: the machines; list, show, set, remove.

use wayleave_api::fleet::{Desired, Judged, ListMachinesQuery, Machine, MachineType, SetMachineRequest};

use super::{ListArgs, or_list};
use crate::output::{self, Table, or_dash, relative, when, word};
use crate::remote::Remote;
use crate::values::{self, words};

/// Arguments of `fleet`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = HELP)]
pub struct Args {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    list: ListMachinesArgs,
}

const HELP: &str = "\
A machine is a crawler, an index builder or an index server. It registers itself with its first report and reports every five
seconds. There are three columns, each with one writer:
  desired   what you want of it: online, paused (no new work), drain (its work moves elsewhere)
  state     what it says of itself: online, waiting, paused, error
  judged    what the server concludes: healthy, suspect (3 missed reports), failed (6), probation (back, not trusted yet)

Examples:
  wayleave fleet                                 all machines, with verdict and reason
  wayleave fleet --judged failed --type server   index servers that are taken for dead
  wayleave fleet show index-1                    one machine: why it is judged so, and when that changes
  wayleave fleet set index-1 --desired drain     move its chunks to other servers of its row
  wayleave placements --on index-1               what it still holds
  wayleave fleet remove index-1                  forget it, once it is drained

docs/fleet.md explains machines, rows and probes.";

#[derive(Clone, Debug, clap::Subcommand)]
enum Command {
    /// List machines with their verdict and reason
    List(ListMachinesArgs),
    /// Show one machine
    #[command(visible_alias = "get")]
    Show {
        /// Its name
        #[arg(value_parser = values::name)]
        id: String,
    },
    /// Say what a machine should do; it learns of it with its next report
    Set {
        /// Its name
        #[arg(value_parser = values::name)]
        id: String,
        /// What it should do
        #[arg(long, value_enum)]
        desired: DesiredArg,
    },
    /// Forget a machine: its token ends, and its name may register again. An index server must be drained first
    #[command(visible_alias = "delete")]
    Remove {
        /// Its name
        #[arg(value_parser = values::name)]
        id: String,
    },
}

words! {
    TypeArg = MachineType {
        /// Fetches pages
        Crawler,
        /// Builds index chunks
        Builder,
        /// Serves index chunks
        Server,
    }
}

words! {
    JudgedArg = Judged {
        /// It gets work
        Healthy,
        /// It gets no new work; what it has stays
        Suspect,
        /// It is taken for dead
        Failed,
        /// It is back after a failure; an index server gets no new chunks yet
        Probation,
    }
}

words! {
    DesiredArg = Desired {
        /// It should work
        Online,
        /// It should take no new work; what it has stays
        Paused,
        /// Its work should move elsewhere, so that it can be removed
        Drain,
    }
}

/// Which machines to list.
#[derive(Clone, Debug, Default, PartialEq, Eq, clap::Args)]
struct ListMachinesArgs {
    /// Only those of this type
    #[arg(long = "type", value_name = "TYPE", value_enum)]
    kind: Option<TypeArg>,
    /// Only those that are judged so
    #[arg(long, value_enum)]
    judged: Option<JudgedArg>,
    #[command(flatten)]
    page: ListArgs,
}

/// Runs the command.
pub async fn run(remote: &Remote, args: Args) -> anyhow::Result<()> {
    let client = &remote.client;
    match or_list(args.command, args.list, Command::List)? {
        Command::List(args) => list(remote, args).await,
        Command::Show { id } => show(remote, &client.machine(&id).await?),
        Command::Set { id, desired } => {
            let request = SetMachineRequest { desired: desired.into() };
            let machine = client.set_machine(&id, &request).await?;
            show(remote, &machine)?;
            if desired == DesiredArg::Drain {
                if machine.kind == MachineType::Server {
                    eprintln!(
                        "`wayleave placements --on {id}` lists what it still holds; when that is nothing, stop its process, then \
                         `wayleave fleet remove {id}`"
                    );
                } else {
                    eprintln!("it ends what it has, claims no more, and leaves the fleet when its process ends");
                }
            }
            Ok(())
        }
        Command::Remove { id } => {
            client.delete_machine(&id).await?;
            eprintln!("removed {id}; if it still runs, it registers again");
            Ok(())
        }
    }
}

async fn list(remote: &Remote, args: ListMachinesArgs) -> anyhow::Result<()> {
    let (kind, judged) = (args.kind.map(MachineType::from), args.judged.map(Judged::from));
    let query = ListMachinesQuery { kind, judged, ..ListMachinesQuery::default() };
    let machines = args.page.collect(remote.client.all_machines(query)).await?;
    let mut frozen: Vec<&str> = machines.iter().filter_map(|machine| machine.frozen.as_deref()).collect();
    frozen.sort_unstable();
    frozen.dedup();
    frozen.iter().for_each(|why| eprintln!("moves are frozen: {why}"));
    let (now, head) =
        (output::now(), ["machine", "type", "row", "address", "desired", "state", "judged", "last report", "reason"]);
    output::list(remote.json, head, &machines, |machine| {
        [
            machine.id.clone(),
            word(machine.kind),
            or_dash(machine.row),
            machine.address.clone(),
            word(machine.desired),
            word(machine.state),
            word(machine.judged),
            relative(machine.seen_at, now),
            machine.reason.clone(),
        ]
    })
}

fn show(remote: &Remote, machine: &Machine) -> anyhow::Result<()> {
    if remote.json {
        return output::json(machine);
    }
    let now = output::now();
    let mut table = Table::about("machine", &machine.id);
    table.row(["type".into(), word(machine.kind)]);
    table.row(["row".into(), or_dash(machine.row)]);
    table.row(["address".into(), machine.address.clone()]);
    table.row(["capacity".into(), machine.capacity.to_string()]);
    table.row(["version".into(), or_dash(machine.version.as_deref())]);
    table.row(["desired".into(), word(machine.desired)]);
    table.row(["state".into(), word(machine.state)]);
    table.row(["judged".into(), word(machine.judged)]);
    table.row(["reason".into(), machine.reason.clone()]);
    table.row(["since".into(), relative(machine.since, now)]);
    table.row(["changes".into(), when(machine.changes_at, now)]);
    table.row(["last report".into(), relative(machine.seen_at, now)]);
    table.row(["failures".into(), machine.failures.to_string()]);
    table.row(["registered".into(), relative(machine.registered_at, now)]);
    if let Some(why) = &machine.frozen {
        table.row(["frozen".into(), why.clone()]);
    }
    table.print()
}
