//! `jobs`: list, show, cancel.

use wayleave_api::jobs::Job;

use crate::output::{self, Table, or_dash, relative, when, word};
use crate::remote::Remote;

/// Arguments of `jobs`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = HELP)]
pub struct Args {
    #[command(subcommand)]
    command: Option<Command>,
}

const HELP: &str = "\
Examples:
  wayleave jobs                                  running jobs, and those that ended recently
  wayleave jobs show ID
  wayleave jobs cancel ID

Jobs are begun by `wayleave urls requeue` and `wayleave urls delete` with a filter.";

#[derive(Clone, Debug, clap::Subcommand)]
enum Command {
    /// List jobs
    List,
    /// Show one job
    Show {
        /// Its id
        #[arg(allow_hyphen_values = true)]
        id: String,
    },
    /// Stop a job; what it has done stays done
    Cancel {
        /// Its id
        #[arg(allow_hyphen_values = true)]
        id: String,
    },
}

/// Runs the command.
pub async fn run(remote: &Remote, args: Args) -> anyhow::Result<()> {
    match args.command.unwrap_or(Command::List) {
        Command::List => list(remote).await,
        Command::Show { id } => show(remote, &remote.client.job(&id).await?),
        Command::Cancel { id } => show(remote, &remote.client.cancel_job(&id).await?),
    }
}

async fn list(remote: &Remote) -> anyhow::Result<()> {
    let now = output::now();
    let mut table = Table::new(["job", "kind", "state", "begun", "what became of it"]);
    for job in remote.client.jobs().await?.jobs {
        if remote.json {
            output::json(&job)?;
            continue;
        }
        let (kind, state) = (word(job.kind), word(job.state));
        table.row([job.id, kind, state, relative(job.started_at, now), job.reason]);
    }
    if remote.json { Ok(()) } else { table.print() }
}

fn show(remote: &Remote, job: &Job) -> anyhow::Result<()> {
    if remote.json {
        return output::json(job);
    }
    let now = output::now();
    let mut table = Table::about("job", &job.id);
    table.row(["kind".into(), word(job.kind)]);
    table.row(["state".into(), word(job.state)]);
    table.row(["reason".into(), job.reason.clone()]);
    table.row(["crawl".into(), or_dash(job.crawl.as_deref())]);
    table.row(["host".into(), or_dash(job.host.as_deref())]);
    table.row(["only in state".into(), or_dash(job.only_state.map(word))]);
    table.row(["contains".into(), or_dash(job.contains.as_deref())]);
    table.row(["before".into(), when(job.before, now)]);
    table.row(["begun".into(), relative(job.started_at, now)]);
    table.row(["ended".into(), when(job.ended_at, now)]);
    table.row(["done".into(), job.done.to_string()]);
    table.row(["handed out, left alone".into(), job.reserved.to_string()]);
    table.row(["looked at".into(), job.looked_at.to_string()]);
    table.print()
}
