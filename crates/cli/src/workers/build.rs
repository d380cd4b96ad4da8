//! `build`: the reference index builder.

use std::time::{Duration, Instant};

use serde_json::json;
use wayleave_api::fleet::MachineType;
use wayleave_workers::builder::{Builder, Config, Counts, Error};
use wayleave_workers::crawler::Until;

use super::progress::Progress;
use super::worker_args::{Opened, WorkerArgs, check_refused};
use super::{note_unknown, stopped};
use crate::exit::{self, Ended};
use crate::output::{self, counted, size, span};
use crate::remote::Remote;
use crate::serve::{LogForm, start_logging};
use crate::values;

const AFTER_HELP: &str = "\
Examples:
  wayleave build                                   indexes in ./wayleave-indexes, served over HTTP
  wayleave build --crawl news --until-idle
  wayleave build --store s3://bucket/indexes --chunks 20

Takes what `wayleave crawl` has left behind, one WARC file per chunk, and leaves one index per chunk behind, which
`wayleave index` serves. --store is as for `wayleave crawl`: index servers must be able to read it. A WARC file that is gone sends
its chunk back to be crawled again. docs/workers.md explains more.

The first Ctrl-C finishes the chunks in hand. Exits with 3 if --once found nothing to do.";

/// Arguments of `build`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub struct Args {
    #[command(flatten)]
    worker: WorkerArgs,
    /// Only chunks of this crawl; of any by default
    #[arg(long, value_name = "CRAWL", value_parser = values::name)]
    crawl: Option<String>,
    /// Folder or URL to store indexes in
    #[arg(long, default_value = "wayleave-indexes", value_name = "FOLDER|URL")]
    store: String,
    /// Chunks to claim at once
    #[arg(long, default_value_t = 5, value_name = "NUMBER", value_parser = values::between::<u64>(1, 100))]
    chunks: u64,
    /// Time of a lease; it is renewed while the work goes on
    #[arg(long, default_value = "60s", value_name = "SPAN", value_parser = values::span)]
    lease: u64,
    /// How long a machine with a WARC file may be out of reach before the attempt fails; three such attempts lose the file
    #[arg(long, default_value = "30s", value_name = "SPAN", value_parser = values::span)]
    patience: u64,
    /// End after one chunk
    #[arg(long, conflicts_with = "until_idle")]
    once: bool,
    /// End when the crawl is finished and all its chunks are built; without --crawl, when all are
    #[arg(long)]
    until_idle: bool,
}

/// Builds.
pub async fn run(remote: Remote, args: Args) -> anyhow::Result<()> {
    start_logging(LogForm::Text, &args.worker.log_level)?;
    let stop = stopped("finishing the chunks in hand")?;
    let client = remote.patient().await?;
    let Opened { store, address, lock: _lock } = args.worker.open(&args.store).await?;
    if !args.until_idle {
        note_unknown(&remote, args.crawl.as_deref()).await?;
    }
    let (registration, pause) =
        args.worker.register(&client, MachineType::Builder, address, store.folder(), &stop).await?;
    let until = match (args.once, args.until_idle) {
        (true, _) => Until::Once,
        (_, true) => Until::Idle,
        _ => Until::Stopped,
    };
    let config = Config {
        id: args.worker.id(),
        crawl: args.crawl.clone(),
        chunks: args.chunks,
        lease_ms: args.lease,
        patience: Duration::from_millis(args.patience),
        until,
        policy: args.worker.allow.policy(&remote),
    };
    let builder = Builder::new(client, config, store, stop, pause);
    let (counts, shown, begun) = (builder.counts(), builder.counts(), Instant::now());
    let progress = Progress::start(move || (line(&shown()), None));
    let ended = builder.run().await;
    drop(progress);
    tell(&remote, &counts(), begun)?;
    check_refused(&registration)?;
    registration.leave().await;
    match ended {
        // As itself: it has an exit code.
        Err(Error::Server(error)) => return Err(error.into()),
        ended => ended?,
    }
    if args.once && counts() == Counts::default() {
        return Err(Ended { code: exit::NOT_FOUND, message: "there was nothing to build".to_owned() }.into());
    }
    Ok(())
}

fn line(counts: &Counts) -> String {
    let Counts { chunks, pages, bytes, .. } = counts;
    format!("{} built, {}, {}", counted(*chunks, "chunk"), counted(*pages, "page"), size(*bytes))
}

fn tell(remote: &Remote, counts: &Counts, begun: Instant) -> anyhow::Result<()> {
    let Counts { chunks, pages, bytes, inputs_lost, lost } = counts;
    let ms = u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX);
    if remote.json {
        return output::json(&json!({
            "chunks": chunks, "pages": pages, "bytes": bytes, "inputs_lost": inputs_lost, "lost": lost, "elapsed_ms": ms,
        }));
    }
    eprintln!("{} in {}", line(counts), span(ms));
    if *inputs_lost > 0 {
        eprintln!("crawled again, because the WARC file is gone: {}", counted(*inputs_lost, "chunk"));
    }
    if *lost > 0 {
        let lost = counted(*lost, "chunk");
        eprintln!("lost or given back: {lost}; `wayleave chunks --state set-aside` shows those that need you");
    }
    Ok(())
}
