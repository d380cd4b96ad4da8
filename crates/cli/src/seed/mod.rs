//! `seed`: files of URLs, sitemaps and standard input, streamed to the server.

mod rationed;
mod sitemap;
mod source;
mod summary;

use std::path::PathBuf;

use futures::StreamExt;
use tokio::sync::mpsc;
use wayleave_api::urls::UrlToAdd;

use crate::input::{Input, progress};
use crate::remote::Remote;
use crate::values;
use source::Source;
use summary::Summary;

const AFTER_HELP: &str = "\
Examples:
  wayleave seed urls.txt                        one URL per line; # comments and blank lines are skipped
  zcat urls.gz | wayleave seed                  standard input
  wayleave seed --crawl news sitemap.xml.gz     a sitemap, compressed or not
  wayleave seed sitemap-index.xml               an index: its sitemaps are read if they are in the same folder
  wayleave seed --local index.xml               an index of your own that names files by their paths

The type of a file is detected by its content. This command fetches nothing: sitemaps of an index that are not in the same folder
are listed, for you to download. Lines and locations of more than 16 KiB, and gzip that expands to more than 250 times its size,
are refused. A broken connection is resumed. Seeding is idempotent: a known URL is left unchanged, unless --again is given:
then a line whose answer was lost is reported as failed, and not sent again.
Exits with 6 if some URLs were rejected and the others accepted, with 4 if all were rejected; stderr has the reasons, with
file and line, of the first ten: --reasons shows more.";

/// The capacity of the channel between the reader thread and the connection.
const CHANNEL: usize = 4_096;

/// Arguments of `seed`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub struct Args {
    /// Files; - or none for standard input
    #[arg(value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Crawl of the URLs
    #[arg(long, value_name = "CRAWL", value_parser = values::name)]
    crawl: Option<String>,
    /// Priority from 0 to 9; 9 comes first among the URLs of a host
    #[arg(long, value_name = "0-9", value_parser = values::between::<u8>(0, 9))]
    priority: Option<u8>,
    /// Number of links from the seed
    #[arg(long, value_name = "NUMBER")]
    depth: Option<u32>,
    /// Requeue known URLs, unless they are handed out
    #[arg(long)]
    again: bool,
    /// Follow paths and file: URLs in the index files named here, but not in those that they lead to
    #[arg(long)]
    local: bool,
    /// How many reasons for rejected URLs to show
    #[arg(long, default_value_t = 10, value_name = "NUMBER")]
    reasons: usize,
}

/// Reads and sends everything. Fails if an input cannot be read, the server refuses or does not answer, or a URL was
/// rejected.
pub async fn run(remote: &Remote, args: Args) -> anyhow::Result<()> {
    let mut inputs: Vec<Input> = args.files.iter().map(|path| Input::new(path)).collect();
    if inputs.is_empty() {
        inputs.push(Input::Stdin);
    }
    let client = remote.patient().await?;
    let bar = progress(&inputs);
    let (sink, urls) = mpsc::channel(CHANNEL);
    let reader = Source::new(bar.clone(), sink, args.local);
    let reading = tokio::task::spawn_blocking(move || reader.read_all(&inputs));
    let mut summary = Summary::new(args.reasons);
    let urls = stream(urls).map(|(origin, url)| {
        (origin, UrlToAdd { url, priority: args.priority, depth: args.depth, again: args.again, ..UrlToAdd::default() })
    });
    let sent = client.add_lines(args.crawl.as_deref(), urls, |origin, result| summary.take(origin, result, &bar)).await;
    bar.finish_and_clear();
    match sent {
        Ok(uploaded) => summary.resent = uploaded.resent,
        Err(error) => {
            summary.tell(remote)?;
            return Err(error.into());
        }
    }
    let read = reading.await?;
    summary.unread = read.as_ref().map_or_else(|_| Vec::new(), Clone::clone);
    // The results of the others are reported even if a file could not be read completely.
    summary.tell(remote)?;
    read.and_then(|_| summary.end())
}

/// A channel as a stream.
pub fn stream<T: 'static>(receiver: mpsc::Receiver<T>) -> impl futures::Stream<Item = T> + Unpin {
    let next = |mut receiver: mpsc::Receiver<T>| async { receiver.recv().await.map(|item| (item, receiver)) };
    futures::stream::unfold(receiver, next).boxed_local()
}
