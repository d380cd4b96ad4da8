//! `pools`: pools of workers; list, show, set, pause, resume, remove, workers, logs.

use futures::TryStreamExt;
use wayleave_api::Code;
use wayleave_api::pools::{GetWorkerLogQuery, ListWorkersResponse, Pool};
use wayleave_client::Error;
use wayleave_core::plain::line;

use super::pool_args::SetPoolArgs;
use super::{ListArgs, or_list};
use crate::exit::Usage;
use crate::output::{self, Table, counted, or_dash, relative, size, span, word};
use crate::remote::Remote;
use crate::values;

/// Arguments of `pools`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = HELP)]
pub struct Args {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    list: ListArgs,
}

const HELP: &str = "\
A pool is a kind of worker: how one is started (a command, or an image), how many clients it serves at once (slots), and how many
may run (min, max). Workers are started when clients ask for them (`wayleave match`), and stopped when they were idle.

Examples:
  wayleave pools                                                 all pools, with what they are doing
  wayleave pools set render --slots 5 --max 4 -- ./worker        workers that are processes of the server's machine
  wayleave pools set browsers --image browser:3 --port 8080 --max 20 --buffer 2
                                                                 containers, with two slots always free
  wayleave pools show render                                     settings, and what it is doing
  wayleave pools workers render                                  its workers
  wayleave pools logs render                                     the end of their output, also of the last ones removed
  wayleave pools pause render                                    start nothing until `wayleave pools resume render`
  wayleave pools resume --all                                    resume all, as after `wayleave restore`
  wayleave pools remove render                                   take no more clients, and go once none are left
  wayleave why --pool render                                     why clients wait

A server that other machines can reach takes pools only from its settings file, unless it was started with
--allow-pool-commands. docs/matches.md says how to write a worker.";

#[derive(Clone, Debug, clap::Subcommand)]
enum Command {
    /// List pools with what they are doing
    List(ListArgs),
    /// Show one pool
    #[command(visible_alias = "get")]
    Show {
        /// The pool
        #[arg(value_parser = values::name)]
        pool: String,
    },
    /// Create a pool, or replace its settings
    #[command(after_help = SET_HELP)]
    Set(Box<SetPoolArgs>),
    /// Start, stop and remove nothing until the pool is resumed; matched clients keep their workers
    Pause(Which),
    /// Resume a paused pool. Pools of a store that was copied, restored or salvaged are paused
    Resume(Which),
    /// Take no more clients, and remove the pool and its workers once none are left
    #[command(visible_alias = "delete")]
    Remove {
        /// The pool
        #[arg(value_parser = values::name)]
        pool: String,
    },
    /// List the workers of a pool
    Workers {
        /// The pool
        #[arg(value_parser = values::name)]
        pool: String,
    },
    /// Print the end of the output of a pool's workers, and of those that were removed last
    Logs(LogsArgs),
}

const SET_HELP: &str = "\
All settings are replaced: those that are not given get their defaults. Workers that were started by another command or image, or
with another environment, are replaced as they become free; those with clients finish first.

A worker is told HOST, PORT, WAYLEAVE_WORKER (its name), WAYLEAVE_RUN and WAYLEAVE_SECRET in its environment.

Examples:
  wayleave pools set render --slots 5 --max 4 -- ./worker --fast
  wayleave pools set browsers --file browsers.toml --max 10
  API_KEY=... wayleave pools set gpu --env API_KEY --image gpu:1 --port 80";

#[derive(Clone, Debug, clap::Args)]
struct Which {
    /// The pool
    #[arg(value_parser = values::name, required_unless_present = "all", conflicts_with = "all")]
    pool: Option<String>,
    /// All pools
    #[arg(long)]
    all: bool,
}

#[derive(Clone, Debug, clap::Args)]
struct LogsArgs {
    /// The pool
    #[arg(value_parser = values::name)]
    pool: String,
    /// One worker; all of them if it is left out
    #[arg(value_parser = values::name)]
    worker: Option<String>,
    /// Print at most this many bytes of each [default: 65536]
    #[arg(long, value_name = "NUMBER")]
    bytes: Option<u64>,
}

/// Runs the command.
pub async fn run(remote: &Remote, args: Args) -> anyhow::Result<()> {
    let client = &remote.client;
    match or_list(args.command, args.list, Command::List)? {
        Command::List(args) => list(remote, args).await,
        Command::Show { pool } => show(remote, &client.pool(&pool).await?),
        Command::Set(args) => {
            let pool = args.pool.clone();
            let set = client.set_pool(&pool, &args.request()?).await.map_err(usage)?;
            set.warning.iter().for_each(|warning| eprintln!("warning: {}", line(warning)));
            show(remote, &set)
        }
        Command::Pause(which) => pause(remote, which, true).await,
        Command::Resume(which) => pause(remote, which, false).await,
        Command::Remove { pool } => remove(remote, &pool).await,
        Command::Workers { pool } => workers(remote, &pool).await,
        Command::Logs(args) => logs(remote, args).await,
    }
}

/// Settings that contradict each other are arguments that are wrong, whoever notices it.
fn usage(error: Error) -> anyhow::Error {
    match error {
        Error::Refused(problem) if problem.code() == Some(Code::Contradiction) => Usage(problem.to_string()).into(),
        other => other.into(),
    }
}

async fn list(remote: &Remote, args: ListArgs) -> anyhow::Result<()> {
    let pools = args.collect(remote.client.all_pools()).await?;
    let head = ["pool", "runtime", "workers", "waiting", "matched", "free", "doing"];
    output::list(remote.json, head, &pools, |pool| {
        [
            pool.pool.clone(),
            word(pool.runtime),
            format!("{} ({}–{})", pool.workers, pool.min, pool.max),
            pool.waiting.to_string(),
            pool.matched.to_string(),
            pool.free.to_string(),
            pool.reason.clone(),
        ]
    })
}

async fn pause(remote: &Remote, which: Which, paused: bool) -> anyhow::Result<()> {
    let pools = match which.pool {
        Some(pool) => vec![pool],
        None => remote.client.all_pools().map_ok(|pool| pool.pool).try_collect().await?,
    };
    let mut warning = None;
    for pool in pools {
        let now = remote.client.pause_pool(&pool, paused).await?;
        match remote.json {
            true => output::json(&now)?,
            false => output::line(format!("{pool}: {}", now.reason))?,
        }
        warning = warning.or(now.warning);
    }
    warning.into_iter().for_each(|warning| eprintln!("warning: {}", line(&warning)));
    Ok(())
}

async fn remove(remote: &Remote, pool: &str) -> anyhow::Result<()> {
    let left = remote.client.delete_pool(pool).await?;
    if remote.json {
        return output::json(&left);
    }
    match left.workers {
        1.. => eprintln!(
            "pool {pool} takes no more clients, and goes once no client uses its {}; `wayleave pools show {pool}` tells",
            counted(left.workers, "worker")
        ),
        0 => eprintln!("pool {pool} has no workers, and goes"),
    }
    Ok(())
}

async fn workers(remote: &Remote, pool: &str) -> anyhow::Result<()> {
    let workers = remote.client.workers(pool).await?.workers;
    let head = ["worker", "state", "address", "used", "uses", "site", "reason"];
    output::list(remote.json, head, &workers, |worker| {
        [
            worker.worker.clone(),
            word(worker.state),
            or_dash(worker.address.as_deref()),
            format!("{} of {}", worker.used, worker.slots),
            worker.uses.to_string(),
            worker.site.clone(),
            worker.reason.clone(),
        ]
    })
}

async fn logs(remote: &Remote, args: LogsArgs) -> anyhow::Result<()> {
    let query = GetWorkerLogQuery { bytes: args.bytes };
    if let Some(worker) = &args.worker {
        let found = remote.client.worker_log(&args.pool, worker, &query).await?;
        if found.log.is_empty() {
            let ListWorkersResponse { workers, removed } = remote.client.workers(&args.pool).await?;
            let known = workers.into_iter().map(|known| (known.worker, known.reason));
            let gone = removed.into_iter().map(|gone| (gone.worker, gone.reason));
            let why = known.chain(gone).find(|(name, _)| name == worker).map_or_else(String::new, |(_, why)| why);
            eprintln!("{worker} has written nothing: {why}");
        }
        return if remote.json { output::json(&found) } else { output::line(found.log.trim_end_matches('\n')) };
    }
    let ListWorkersResponse { workers, removed } = remote.client.workers(&args.pool).await?;
    if workers.is_empty() && removed.is_empty() {
        // Not on stdout, which is for logs alone.
        eprintln!(
            "pool '{0}' has no workers, and has removed none lately; `wayleave why --pool {0}` says why",
            args.pool
        );
    }
    let mut failed = None;
    // The last one that was removed comes last, where a reader looks first.
    let gone = removed.into_iter().rev().map(|gone| (gone.worker, format!(", removed: {}", gone.reason)));
    for (worker, note) in workers.into_iter().map(|worker| (worker.worker, String::new())).chain(gone) {
        match remote.client.worker_log(&args.pool, &worker, &query).await {
            Ok(found) if remote.json => output::json(&found)?,
            Ok(found) => output::line(format!("==> {worker}{note} <==\n{}", found.log.trim_end_matches('\n')))?,
            // One that is gone meanwhile, or runs elsewhere, does not hide the others.
            Err(error) => {
                eprintln!("{worker}: {error}");
                failed = Some(error);
            }
        }
    }
    failed.map_or(Ok(()), |error| Err(error.into()))
}

fn show(remote: &Remote, pool: &Pool) -> anyhow::Result<()> {
    if remote.json {
        return output::json(pool);
    }
    let any = |value: Option<String>| value.unwrap_or_else(|| "any".to_owned());
    let mut table = Table::about("pool", &pool.pool);
    table.row(["doing".into(), pool.reason.clone()]);
    table.row(["waiting".into(), pool.waiting.to_string()]);
    table.row(["matched".into(), pool.matched.to_string()]);
    let slots = format!("{} free, {} being started", pool.free, pool.coming);
    table.row(["slots".into(), format!("{} per worker; {slots}", pool.slots)]);
    let bounds = format!("{} to {}, and {}", pool.min, pool.max, counted(pool.buffer, "free slot"));
    table.row(["workers".into(), format!("{} now; {bounds} kept", pool.workers)]);
    table.row(["runtime".into(), word(pool.runtime)]);
    table.row(["image".into(), or_dash(pool.image.as_deref())]);
    table.row(["command".into(), or_dash((!pool.command.is_empty()).then(|| pool.command.join(" ")))]);
    table.row(["environment".into(), or_dash((!pool.env.is_empty()).then(|| pool.env.join(", ")))]);
    table.row(["port".into(), any(pool.port.map(|port| port.to_string()))]);
    table.row(["advertised at".into(), pool.advertise.clone().unwrap_or_else(|| "loopback".to_owned())]);
    table.row(["memory".into(), any(pool.memory_bytes.map(size))]);
    table.row(["CPU".into(), any(pool.cpu_millis.map(|millis| format!("{millis}/1000")))]);
    table.row(["pull".into(), or_dash(pool.pull.map(word))]);
    table.row(["stopped when idle for".into(), span(pool.idle_ms)]);
    table.row(["replaced at age".into(), any(pool.age_ms_max.map(span))]);
    table.row(["replaced after uses".into(), any(pool.uses_max.map(|uses| uses.to_string()))]);
    table.row(["start deadline".into(), span(pool.start_ms_max)]);
    table.row(["queue".into(), format!("at most {}", pool.queue_max)]);
    table.row(["match deadline".into(), span(pool.match_ms_max)]);
    table.row(["unconfirmed match ends".into(), format!("after {}", span(pool.reservation_ms))]);
    table.row(["worked on at once".into(), format!("at most {} clients and workers", pool.makers_max)]);
    table.row(["created".into(), relative(pool.created_at, output::now())]);
    table.print()
}
