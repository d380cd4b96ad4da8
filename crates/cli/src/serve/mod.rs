//! `serve`: opens the store, starts the frontier and the API servers, and stops them in the opposite order.

mod beside;
mod environment;
mod failing;
mod files;
mod logging;
mod makers;
mod node;
mod owners;
mod probes;
mod settings;
mod store;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::task::JoinSet;
use wayleave_engine::Engine;
use wayleave_makers::Calls;
use wayleave_registry::Hints;
use wayleave_roles::Roles;
use wayleave_server::{Port, Server, Services};
use wayleave_shard::fleet::Fleet;
use wayleave_shard::matches::Matches;
use wayleave_shard::pipeline::Pipeline;
use wayleave_shard::{Frontier, OwnerThreads};

use beside::Beside;
pub use logging::start as start_logging;
use makers::{Makers, Sites};
use owners::Owners;
use probes::{Prober, Probing};
pub use settings::{Args, EngineKind, LogForm, Settings};
use store::Store;

use crate::signals::Signals;

/// How long tasks and blocking work may take to end after the server has stopped.
const ENDING: Duration = Duration::from_secs(5);
/// How often a server that is not ready looks whether it is by now.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Runs a server until it is stopped. Fails if the settings are invalid, the data folder or the port is unavailable, or
/// a shard cannot be opened.
pub fn run(args: Args) -> anyhow::Result<()> {
    let settings = Settings::from_args(args)?;
    logging::start(settings.log, &settings.log_level)?;
    environment::warn();
    let doors = runtime("http", cores())?;
    // From here on a signal is heard, whatever the server is waiting for.
    let signals = {
        let _entered = doors.enter();
        Signals::listen()?
    };
    // Twice as many owners as cores: some of them wait for the disk.
    let owners_max = cores() * 2;
    let mut server = settings.server();
    let shares = files::share(files::raise(), owners_max + 2, server.bounds.connections_max);
    server.bounds.connections_max = shares.connections;
    // Before anything is created on disk: the address may be forbidden or taken.
    let port = Port::take(server)?;
    let Some(store) = doors.block_on(signals.unless_told(Store::open(&settings, shares.tables))) else {
        doors.shutdown_background();
        return stopped_at_start();
    };
    let store = store?;
    let owners = Owners::start(usize::from(store.shards).min(owners_max))?;
    // A separate thread: a heartbeat must not queue behind owners or the readers that they serve.
    let roles = Owners::start(1)?;
    let threads = Threads { owners: owners.lanes(), roles: roles.first() };
    let served = doors.block_on(serve(&settings, port, store, threads, signals));
    if let Ok(None) = served {
        doors.shutdown_background();
        return stopped_at_start();
    }
    owners.stop();
    roles.stop();
    doors.shutdown_timeout(ENDING);
    served.map(|_| ())
}

/// Nothing was answered yet, and what is stored is durable: the process may end as it is, without waiting for threads that
/// still load the store.
#[expect(clippy::unnecessary_wraps, reason = "an outcome of `run`")]
fn stopped_at_start() -> anyhow::Result<()> {
    tracing::info!("stopped while it was starting");
    Ok(())
}

/// A server that has run and stopped, or none if it was told to stop before it was ready.
type Served = anyhow::Result<Option<()>>;

/// The threads for work that a store may block.
#[derive(Clone, Copy)]
struct Threads<'a> {
    owners: &'a OwnerThreads,
    roles: &'a Handle,
}

fn runtime(name: &str, threads: usize) -> anyhow::Result<Runtime> {
    let runtime = Builder::new_multi_thread().worker_threads(threads.max(1)).thread_name(name).enable_all().build();
    runtime.context("cannot start threads")
}

fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

async fn serve(settings: &Settings, port: Port, store: Store, threads: Threads<'_>, signals: Signals) -> Served {
    if store.shared {
        return node::serve(settings, port, store, threads, signals).await;
    }
    let Store { engine, shards, place, outside, copied, .. } = store;
    let policy = settings.policy(true);
    let prober = Prober::new(policy.clone());
    let roles = roles(engine.clone(), threads, Hints::default());
    let opening = Frontier::open(engine, settings.frontier(shards), threads.owners.clone());
    let Some(frontier) = signals.unless_told(opening).await else { return Ok(None) };
    let frontier = frontier.with_context(|| format!("cannot open the shards of {place}"))?;
    let (pipeline, fleet) = (Pipeline::new(frontier.clone()), Fleet::new(frontier.clone()));
    let (matches, sites) = (Matches::new(frontier.clone()), Sites::default());
    let services = Services {
        frontier: frontier.clone(),
        pipeline,
        fleet,
        matches: matches.clone(),
        logs: Some(Arc::new(sites.clone())),
        roles,
        peers: None,
        store: Some(outside.clone()),
    };
    let mut announcing = JoinSet::new();
    let served = match Server::on(port, services) {
        Ok(server) => {
            let fleet = Fleet::new(frontier.clone());
            // Nobody else uses this store, so no role decides who probes.
            let probing = Probing::start(|stop| async move { prober.run(&fleet, stop).await });
            // The pools of a copy are paused, and tried again for half a minute.
            let beside = signals.unless_told(Beside::start(&matches)).await;
            let makers = match beside.as_ref().is_some_and(Beside::may_start) {
                true => Some(Makers::start(settings, matches.clone(), sites, Calls::new(policy)).await),
                false => None,
            };
            let is_copy = beside.as_ref().is_some_and(Beside::is_copy);
            let pools = makers::set_pools(settings, &matches, is_copy, copied);
            if signals.unless_told(pools).await.is_some() {
                let (settings, frontier) = (settings.clone(), frontier.clone());
                let address = server.local_addr();
                announcing
                    .spawn(async move { announce_when_ready(&settings, address, &place, shards, &frontier).await });
            }
            let served = run_until_told(server, signals, outside).await;
            announcing.shutdown().await;
            if let Some(makers) = makers {
                makers.stop().await;
            }
            if let Some(beside) = beside {
                beside.end();
            }
            probing.end().await;
            served
        }
        Err(error) => Err(error.into()),
    };
    frontier.stop().await;
    tracing::info!("stopped");
    served.map(Some)
}

/// Runs a server until it is stopped, or its store has failed.
async fn run_until_told(
    server: Server,
    signals: Signals,
    store: Arc<dyn wayleave_server::Store>,
) -> anyhow::Result<()> {
    let mut failed = None;
    let end = async {
        tokio::select! {
            () = signals.first() => {}
            reason = failing::failed(store.clone()) => failed = Some(reason),
        }
    };
    server.run(end).await;
    failed.map_or(Ok(()), |reason| Err(failing::ended(&reason).into()))
}

fn roles(engine: Arc<dyn Engine>, threads: Threads<'_>, hints: Hints) -> Roles {
    // Not on the threads of the API servers: a store may block its writers.
    let runtime = Some(threads.roles.clone());
    let registry = wayleave_registry::Config { runtime, hints, ..wayleave_registry::Config::default() };
    Roles::with(engine, wayleave_roles::Config { registry })
}

/// Says that the server is ready; before that why not, if rows of the store cannot be read.
async fn announce_when_ready(settings: &Settings, address: SocketAddr, place: &str, shards: u16, frontier: &Frontier) {
    if let Err(reason) = frontier.readiness() {
        tracing::error!(
            listen.address = %address, data.place = place, reason,
            "not ready: what needs a closed shard fails until it can be opened; all else is served"
        );
        while frontier.readiness().is_err() {
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }
    announce(settings, address, place, shards);
}

/// The one line that people and scripts wait for.
fn announce(settings: &Settings, address: SocketAddr, place: &str, shards: u16) {
    let version = env!("CARGO_PKG_VERSION");
    match settings.log {
        LogForm::Json => tracing::info!(listen.address = %address, data.place = place, shards, version, "ready"),
        LogForm::Text => eprintln!("wayleave {version} ready on http://{address} ({shards} shards, data: {place})"),
    }
}
