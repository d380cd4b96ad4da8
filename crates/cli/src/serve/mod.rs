//! `serve`: opens the store, starts the frontier and the doors, and ends them in the opposite order.

mod environment;
mod logging;
mod node;
mod owners;
mod settings;

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use anyhow::Context;
use tokio::runtime::{Builder, Runtime};
use tokio::signal::unix::{Signal, SignalKind, signal};
use wayleave_engine::Engine;
use wayleave_engine::clock::SystemClock;
use wayleave_engine::memory::Memory;
use wayleave_engine_fjall::{Fjall, Options};
use wayleave_engine_postgres::Postgres;
use wayleave_roles::{Changed, Roles};
use wayleave_server::{Port, Server};
use wayleave_shard::{Frontier, Lanes};

pub use logging::start as start_logging;
use owners::Owners;
pub use settings::{Args, EngineKind, LogForm, Settings};

/// Runs a server until it is told to stop.
///
/// # Errors
/// If the settings are wrong, the data folder or the port cannot be had, or a shard cannot be opened.
pub fn run(args: Args) -> anyhow::Result<()> {
    let settings = Settings::from_args(args)?;
    logging::start(settings.log, &settings.log_level)?;
    environment::warn();
    let doors = runtime("http", cores())?;
    // Before anything is made on disk: an address that must not be used, or that another process has.
    let port = Port::take(settings.server())?;
    let store = doors.block_on(Store::open(&settings))?;
    // Twice as many as there are cores: some of them wait for the disk.
    let owners = Owners::start(usize::from(store.shards).min(cores() * 2))?;
    let served = doors.block_on(serve(&settings, port, store, owners.lanes()));
    owners.stop();
    served
}

fn runtime(name: &str, threads: usize) -> anyhow::Result<Runtime> {
    let runtime = Builder::new_multi_thread().worker_threads(threads.max(1)).thread_name(name).enable_all().build();
    runtime.context("cannot start threads")
}

fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// An engine and what it was made with.
struct Store {
    engine: Arc<dyn Engine>,
    shards: u16,
    /// Where it keeps its rows, for people to read.
    place: String,
    /// Whether several processes may share it.
    shared: bool,
}

impl Store {
    async fn open(settings: &Settings) -> anyhow::Result<Self> {
        match &settings.engine {
            EngineKind::Memory => {
                let (engine, place) = (Arc::new(Memory::new(SystemClock::new())), "memory, lost at the end".to_owned());
                Ok(Self { engine, shards: settings.shards, place, shared: false })
            }
            EngineKind::Fjall => Self::open_folder(&settings.data, settings),
            EngineKind::Postgres(url) => Self::open_database(url, settings).await,
        }
    }

    async fn open_database(url: &str, settings: &Settings) -> anyhow::Result<Self> {
        let options = wayleave_engine_postgres::Options {
            shards: settings.shards,
            ..wayleave_engine_postgres::Options::default()
        };
        let engine = Postgres::open(url, options).await?;
        engine.durability().warnings().into_iter().for_each(|warning| tracing::warn!("{warning}"));
        let shards = engine.shards();
        if settings.shards_asked && shards != settings.shards {
            tracing::warn!(
                shards.kept = shards,
                shards.asked = settings.shards,
                "the number of shards is fixed when a store is made; to change it, export and import into a new database"
            );
        }
        Ok(Self { engine: Arc::new(engine), shards, place: "PostgreSQL".to_owned(), shared: true })
    }

    fn open_folder(path: &Path, settings: &Settings) -> anyhow::Result<Self> {
        let memtable_bytes = usize::try_from(settings.memtable_mb << 20).unwrap_or(usize::MAX);
        let options = Options { shards: settings.shards, cache_bytes: settings.cache_mb << 20, memtable_bytes };
        let engine = Fjall::open(path, options)?;
        let shards = engine.shards();
        if settings.shards_asked && shards != settings.shards {
            tracing::warn!(
                data.path = %path.display(), shards.kept = shards, shards.asked = settings.shards,
                "the number of shards is fixed when a folder is made; to change it, export and import into a new folder"
            );
        }
        let place = std::path::absolute(path).unwrap_or_else(|_| path.to_owned()).display().to_string();
        Ok(Self { engine: Arc::new(engine), shards, place, shared: false })
    }
}

async fn serve(settings: &Settings, port: Port, store: Store, owners: &Lanes) -> anyhow::Result<()> {
    if store.shared {
        return node::serve(settings, port, store, owners).await;
    }
    let Store { engine, shards, place, .. } = store;
    let signals = Signals::listen()?;
    let roles = roles(engine.clone(), owners, None);
    let config = wayleave_shard::Config { hosts_max: settings.hosts_max, ..wayleave_shard::Config::new(shards) };
    let frontier = Frontier::open(engine, config, owners.clone())
        .await
        .with_context(|| format!("cannot open the shards of {place}"))?;
    let served = match Server::on(port, frontier.clone(), roles, None) {
        Ok(server) => {
            announce(settings, server.local_addr(), &place, shards);
            server.run(signals.first()).await;
            Ok(())
        }
        Err(error) => Err(error.into()),
    };
    frontier.stop().await;
    tracing::info!("stopped");
    served
}

fn roles(engine: Arc<dyn Engine>, owners: &Lanes, changed: Option<Changed>) -> Roles {
    // On the owners' threads: they are the ones that a store may hold up while it writes.
    let config = wayleave_roles::Config { runtime: owners.first(), changed, ..wayleave_roles::Config::default() };
    Roles::with(engine, config)
}

/// The one line that people and scripts wait for.
fn announce(settings: &Settings, address: SocketAddr, place: &str, shards: u16) {
    let version = env!("CARGO_PKG_VERSION");
    match settings.log {
        LogForm::Json => tracing::info!(listen.address = %address, data.place = place, shards, version, "ready"),
        LogForm::Text => eprintln!("wayleave {version} ready on http://{address} ({shards} shards, data: {place})"),
    }
}

/// The two ways in which a process is asked to stop.
struct Signals {
    interrupt: Signal,
    terminate: Signal,
}

impl Signals {
    fn listen() -> anyhow::Result<Self> {
        let listen = |kind| signal(kind).context("cannot listen for signals");
        Ok(Self { interrupt: listen(SignalKind::interrupt())?, terminate: listen(SignalKind::terminate())? })
    }

    /// Waits for the first of them. From then on a second one ends the process at once: everything that was answered is
    /// durable, so that impatience costs nothing.
    async fn first(mut self) {
        self.next().await;
        tokio::spawn(async move {
            self.next().await;
            eprintln!("stopped at once");
            std::process::exit(1);
        });
    }

    async fn next(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}
