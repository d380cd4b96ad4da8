//! `index`: the reference index server.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use tokio_util::sync::CancellationToken;
use wayleave_api::fleet::MachineType;
use wayleave_workers::fleet::{self, Orders, Registration};
use wayleave_workers::folder_lock::FolderLock;
use wayleave_workers::index_server::{self, ChunkFiles, Config};
use wayleave_workers::pause;
use wayleave_workers::store::Store;

use super::progress::Progress;
use super::stopped;
use super::worker_args::{WorkerArgs, check_refused, token_file};
use crate::output::counted;
use crate::remote::Remote;
use crate::serve::{LogForm, start_logging};
use crate::values;

const AFTER_HELP: &str = "\
Examples:
  wayleave index                                   row 0, chunks in ./wayleave-index
  wayleave index --row 1 --data /data/index --listen 0.0.0.0:7091 --advertise index-1.example:7091
  curl 'http://index-1.example:7091/search?q=river'

The servers of a row together hold one copy of every built chunk; each further row is another copy. A row is made by its first
server. A server with twice the --capacity of another gets twice as much. Chunks outlast a restart: they are checked, and served
again under the same name. `wayleave fleet set NAME --desired drain` moves the chunks of a server elsewhere. `wayleave search` asks a whole row.
docs/workers.md explains more.";

/// Arguments of `index`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub struct Args {
    #[command(flatten)]
    worker: WorkerArgs,
    /// Folder for the chunks
    #[arg(long, default_value = "wayleave-index", value_name = "FOLDER")]
    data: PathBuf,
    /// Row of this server
    #[arg(long, default_value_t = 0, value_name = "0-63", value_parser = values::between::<u8>(0, 63))]
    row: u8,
    /// Share of the chunks of its row, relative to other servers
    #[arg(long, default_value_t = 1, value_name = "NUMBER", value_parser = values::between::<u64>(1, 1_000_000))]
    capacity: u64,
    /// How often to look for chunks to fetch or to drop
    #[arg(long, default_value = "1s", value_name = "SPAN", value_parser = values::span)]
    poll: u64,
    /// How long to serve a chunk that has moved elsewhere: readers may have an older map
    #[arg(long, default_value = "10s", value_name = "SPAN", value_parser = values::span)]
    grace: u64,
    /// A shared folder (file:///…) or store (s3://…) that builders write to; not needed for what they serve over HTTP
    #[arg(long, value_name = "URL")]
    store: Option<String>,
}

/// Serves chunks until it is stopped.
pub async fn run(remote: Remote, args: Args) -> anyhow::Result<()> {
    start_logging(LogForm::Text, &args.worker.log_level)?;
    let stop = stopped("stopping")?;
    let client = remote.patient().await?;
    // First of all: the folder of another server must not be changed.
    let mut lock = FolderLock::of_folder(&args.data)?;
    let id = args.worker.id_of(&args.data)?;
    lock.note(&id);
    let listening = args.worker.listen(Some(&args.data)).await?;
    let address = listening.address();
    let cannot_use = || format!("cannot use {}", args.data.display());
    let chunk_files = Arc::new(ChunkFiles::create(&args.data).with_context(cannot_use)?);
    let (ending, tried) = (stop.clone(), Arc::clone(&chunk_files));
    tokio::spawn(async move {
        ending.cancelled().await;
        tried.end_trials();
    });
    let opened = Arc::clone(&chunk_files);
    let opening = tokio::task::spawn_blocking(move || opened.open_all());
    match stop.run_until_cancelled(opening).await {
        Some(opened) => opened?.with_context(cannot_use)?,
        // What is not open yet is abandoned with its thread.
        None => {
            chunk_files.end_trials();
            return Ok(());
        }
    }
    let setting = args.store.clone().unwrap_or_else(|| args.data.join("store").to_string_lossy().into_owned());
    let store = Store::open(&setting, Some(listening.base())).context("cannot open the store")?;
    listening.serve(index_server::router(&chunk_files));
    // An operator who drains it waits until its chunks are elsewhere: it goes on.
    let (switch, _) = pause::switch();
    let orders = Orders { pause: switch, drain: CancellationToken::new(), stop: stop.clone() };
    let registered = fleet::Config {
        id: id.clone(),
        kind: MachineType::Server,
        address: address.clone(),
        capacity: args.capacity,
        row: Some(args.row.into()),
        token_file: Some(token_file(&args.data, &id)),
    };
    let registration = Registration::start(client.clone(), registered, orders).await?;
    eprintln!("index server {id} of row {} ready on http://{address}/, {}", args.row, line(&chunk_files));
    let shown = Arc::clone(&chunk_files);
    let progress = Progress::start(move || (line(&shown), None));
    let config = Config {
        id,
        row: args.row,
        poll: Duration::from_millis(args.poll.max(1)),
        grace: Duration::from_millis(args.grace),
        policy: args.worker.allow.policy(&remote),
    };
    let ended = index_server::run(client, config, registration.token(), Arc::clone(&chunk_files), store, stop).await;
    chunk_files.end_trials();
    drop(progress);
    check_refused(&registration)?;
    Ok(ended?)
}

fn line(chunk_files: &ChunkFiles) -> String {
    let (chunks, pages) = chunk_files.served();
    format!("{}, {}", counted(chunks, "chunk"), counted(pages, "page"))
}
