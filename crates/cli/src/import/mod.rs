//! `import`: restores an export of Wayleave or a dump of URLFrontier through the public API.

mod dump;
mod parse;
mod restore;
mod route;

use std::path::PathBuf;

use anyhow::Context;
use futures::StreamExt;
use tokio::sync::mpsc;
use wayleave_api::urls::{AddCounts, AddStatus};
use wayleave_client::{Client, ItemStatus, PutItems};

use crate::exit::{ERROR, Ended, UNAVAILABLE};
use crate::input::{Input, progress};
use crate::output::{self, counted};
use crate::patience::Upload;
use crate::remote::Remote;
use crate::seed::stream;
pub use restore::native_key;
use route::{Routed, route};

const AFTER_HELP: &str = "\
Examples:
  wayleave import backup.jsonl.gz
  wayleave import frontier-dump.txt --crawl old    a dump of URLFrontier; --crawl is for its bare URLs
  wayleave export --server http://old:7071 | wayleave import -

`wayleave copy FROM TO` moves a whole store; for a backup of everything use `wayleave snapshot` and `wayleave restore`.

Restored: URLs with state, due time, priority, depth, attempts, last result, creation date, metadata and crawl; settings, limits and
pauses of crawls, groups and hosts; roles with T, mode and --continue-for, with epochs that continue above those of the file.
Not restored: primaries and standbys of roles, the epochs of deleted roles; chunks and machines; current reservations and holds (their
URLs become queued), the time of each host's last visit, its back-off and the Crawl-delay of its robots.txt, and the server's default
delay; of a URL with an adaptive revisit interval, that interval. An export that would leave out any of the former refuses with the
list, unless --partial accepts it; the list is in the file and is repeated here. A URL that only URLFrontier's loose rules accept keeps
due time and creation date to the second, crawl and, while it is queued, metadata; once completed it counts as fetched.
Pools are restored with --pools: the values of their variables are those of this command's environment, and those that somebody has
written into the file (`settings.env`), which no export does.

Settings come first and limits last, so that they reject no URL of the file. Importing twice is harmless, also after an interruption:
URLs that are known here stay as they are.
Exits with 6 if some lines were rejected and the others restored, with 4 if all were rejected; stderr has the reasons of the
first ten: --reasons shows more.";

/// The capacity of the channel between the reader thread and the connections.
const CHANNEL: usize = 4_096;

/// Arguments of `import`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub struct Args {
    /// File to read, compressed or not; - for standard input
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Crawl of bare URLs
    #[arg(long, value_name = "CRAWL")]
    crawl: Option<String>,
    /// Accept pools: their commands run on the server, with variables of this command's environment
    #[arg(long)]
    pools: bool,
    /// How many reasons for rejected lines to show
    #[arg(long, default_value_t = 10, value_name = "NUMBER")]
    reasons: usize,
}

/// Reads and restores everything. Fails if the file cannot be read, the server refuses or does not answer, or lines
/// were rejected.
pub async fn run(remote: &Remote, args: Args) -> anyhow::Result<()> {
    let client = remote.patient().await?;
    let input = Input::new(&args.file);
    let bar = progress(std::slice::from_ref(&input));
    let (sink, mut lines) = mpsc::channel(CHANNEL);
    let (reading_bar, crawl) = (bar.clone(), args.crawl.clone());
    let reading = tokio::task::spawn_blocking(move || parse::read(&input, crawl.as_deref(), &reading_bar, &sink));
    let mut routed = Routed::new(args.pools);
    let (to_add, adds) = mpsc::channel(CHANNEL);
    let (to_put, puts) = mpsc::channel(CHANNEL);
    let upload = Upload::default();
    let sending = async {
        let routing = route(&mut routed, &client, &mut lines, to_add, to_put);
        tokio::join!(routing, add(&client, adds, &upload), put(&client, puts, &upload))
    };
    let (done, added, put) = tokio::select! {
        ended = sending => ended,
        never = upload.watch(!remote.json) => match never {},
    };
    // The error of a connection says more than that its channel was closed.
    let so_far = || {
        let urls = counted(upload.settled(), "URL");
        format!("the import ended after {urls}; run it again: URLs that are known by then stay as they are")
    };
    let sent = added.and_then(|added| Ok((added, put?))).and_then(|sent| done.map(|()| sent));
    let (added, put): (Sent<AddCounts>, Sent<PutItems>) = sent.with_context(so_far)?;
    bar.finish_and_clear();
    reading.await??;
    routed.set_limits(&client).await?;
    finish(remote, &args, routed, added, put)
}

/// A rejected line, and why.
type Reason = (u64, String);

/// The results of the lines of one kind.
#[derive(Default)]
struct Sent<C> {
    counts: C,
    reasons: Vec<Reason>,
}

async fn add(
    client: &Client,
    urls: mpsc::Receiver<(u64, wayleave_api::urls::UrlToAdd)>,
    upload: &Upload,
) -> anyhow::Result<Sent<AddCounts>> {
    let mut urls = stream(urls).inspect(|_| upload.take()).peekable();
    let mut sent = Sent::default();
    if std::pin::Pin::new(&mut urls).peek().await.is_none() {
        return Ok(sent);
    }
    let uploaded = client.add_lines(None, urls, |line, result| {
        upload.settle();
        if matches!(result.status, AddStatus::Rejected | AddStatus::Failed) {
            sent.reasons.push((line, result.reason.unwrap_or_default()));
        }
    });
    sent.counts = uploaded.await?.counts;
    Ok(sent)
}

async fn put(
    client: &Client,
    items: mpsc::Receiver<(u64, wayleave_api::urlfrontier::UrlItem)>,
    upload: &Upload,
) -> anyhow::Result<Sent<PutItems>> {
    let mut items = stream(items).inspect(|_| upload.take()).peekable();
    let mut sent = Sent::default();
    if std::pin::Pin::new(&mut items).peek().await.is_none() {
        return Ok(sent);
    }
    let counts = client.restore_items(items, |line, status| {
        upload.settle();
        if status == ItemStatus::Failed {
            sent.reasons.push((line, "could not be stored".to_owned()));
        }
    });
    sent.counts = counts.await?;
    Ok(sent)
}

fn finish(
    remote: &Remote,
    args: &Args,
    mut routed: Routed,
    added: Sent<AddCounts>,
    put: Sent<PutItems>,
) -> anyhow::Result<()> {
    let stored = added.counts.added + put.counts.stored;
    let known = added.counts.known + put.counts.skipped;
    let failed = added.counts.failed + put.counts.failed;
    let (rejected, reasons) = routed.rejected();
    let rejected = added.counts.rejected + rejected;
    let settings = routed.settings;
    if remote.json {
        output::json(&serde_json::json!({
            "stored": stored, "known": known, "rejected": rejected, "failed": failed, "settings": settings,
        }))?;
    } else {
        let urls = counted(stored, "URL");
        let urls = format!("{urls} stored, {known} known or skipped, {rejected} rejected, {failed} failed");
        output::line(format_args!("{urls}; {} restored", counted(settings, "setting")))?;
    }
    let mut reasons: Vec<Reason> = [reasons, added.reasons, put.reasons].concat();
    reasons.sort_unstable();
    for (line, reason) in reasons.iter().take(args.reasons) {
        eprintln!("line {line}: {reason}");
    }
    if !routed.left_out.is_empty() {
        eprintln!("note: the export left out {}", routed.left_out.join("; "));
    }
    let ended = |code, message: String| Err(Ended { code, message }.into());
    if routed.cut {
        return ended(ERROR, "the file is truncated: it has no end line; its content was restored".to_owned());
    }
    if failed > 0 {
        return ended(
            UNAVAILABLE,
            format!("{} could not be stored; run the same command again", counted(failed, "URL")),
        );
    }
    let look = if reasons.len() > args.reasons {
        format!("run it again with --reasons {} to see the reason of each", reasons.len())
    } else {
        "their reasons are above".to_owned()
    };
    Ended::after("lines", stored + known + settings, rejected, &look)
}
