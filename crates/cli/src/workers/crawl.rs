//! `crawl`: the reference crawler.

use std::time::Instant;

use serde_json::json;
use url::Url;
use wayleave_api::fleet::MachineType;
use wayleave_api::urls::{AddUrlsRequest, UrlToAdd};
use wayleave_core::plain;
use wayleave_workers::crawler::{Config, Counts, Crawler, Error, Until};
use wayleave_workers::fetch::{self, Contact, is_loopback};
use wayleave_workers::robots;
use wayleave_workers::scope::Reach;
use wayleave_workers::store::Store;

use super::progress::{Progress, rate};
use super::worker_args::{Opened, WorkerArgs, check_refused};
use super::{note_unknown, stopped};
use crate::exit::{self, Ended, Usage};
use crate::output::{self, counted, size, span};
use crate::remote::Remote;
use crate::serve::{LogForm, start_logging};
use crate::values;

const AFTER_HELP: &str = "\
Examples:
  wayleave crawl --contact you@example.org --seed https://example.com/ --until-idle
  wayleave crawl --contact https://example.org/bot --crawl news --store s3://bucket/pages
  wayleave crawl --store pages --listen 0.0.0.0:7081 --advertise crawler-1.example:7081 --contact you@example.org

Chunks go on to `wayleave build`: --store must be a place that builders can read. A folder is served over HTTP by the crawler
itself, at --advertise; file:///shared/folder is read by workers that have the same folder; s3://bucket/prefix takes its settings
from AWS_* variables; https://… is a WebDAV server. With --single URLs are reserved host by host, and nothing is stored unless
--store is given. docs/workers.md explains more.

The first Ctrl-C finishes what is being fetched and gives back the rest. Exits with 3 if --once found nothing to do, with 2 if a
host off loopback is to be fetched and there is no --contact.";

/// Arguments of `crawl`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub struct Args {
    #[command(flatten)]
    worker: WorkerArgs,
    /// A URL or a mail address for the User-Agent, under which owners of hosts reach you; needed off loopback
    #[arg(long, env = "WAYLEAVE_CONTACT", value_name = "CONTACT")]
    contact: Option<Contact>,
    /// Only URLs of this crawl; of any by default
    #[arg(long, value_name = "CRAWL", value_parser = values::name)]
    crawl: Option<String>,
    /// Add this URL first; may be repeated. One on loopback opens loopback for its crawl
    #[arg(long, value_name = "URL", value_parser = seed_url)]
    seed: Vec<Url>,
    /// How far to follow links: on the host of their page and of every --seed of this process, in their domains, or any
    #[arg(long, default_value = "host", value_name = "host|domain|any")]
    scope: Reach,
    /// Folder or URL to store pages in [default: wayleave-pages, none with --single]
    #[arg(long, value_name = "FOLDER|URL")]
    store: Option<String>,
    /// Reserve hosts one by one instead of claiming chunks
    #[arg(long)]
    single: bool,
    /// Chunks or visits to work on at once
    #[arg(long, default_value_t = 4, value_name = "NUMBER", value_parser = values::between::<u64>(1, 64))]
    tasks: u64,
    /// Links of a chunk, each of another group, or URLs of a visit
    #[arg(long, default_value_t = 5, value_name = "NUMBER", value_parser = values::between::<u64>(1, 1000))]
    links: u64,
    /// Time of a lease; it is renewed while the work goes on
    #[arg(long, default_value = "60s", value_name = "SPAN", value_parser = values::span)]
    lease: u64,
    /// How long to wait for a chunk to have all its links
    #[arg(long, default_value = "200ms", value_name = "SPAN", value_parser = values::span)]
    linger: u64,
    /// End after one chunk or visit
    #[arg(long, conflicts_with = "until_idle")]
    once: bool,
    /// End when the crawl is finished; without --crawl, when all are
    #[arg(long)]
    until_idle: bool,
}

/// Crawls.
pub async fn run(remote: Remote, args: Args) -> anyhow::Result<()> {
    start_logging(LogForm::Text, &args.worker.log_level)?;
    if let Some(seed) = args.seed.iter().find(|seed| args.contact.is_none() && !is_loopback(seed)) {
        return Err(Usage(format!(
            "{} is off loopback: give a --contact, a URL or a mail address of yours",
            output::shown(seed.as_str())
        ))
        .into());
    }
    let stop = stopped("finishing what is being fetched")?;
    let client = remote.patient().await?;
    let setting = args.store.clone().or_else(|| (!args.single).then(|| "wayleave-pages".to_owned()));
    let (store, address, _lock) = match &setting {
        Some(setting) => {
            let Opened { store, address, lock } = args.worker.open(setting).await?;
            (Some(store), address, lock)
        }
        None => (None, args.worker.open_without_store().await?, None),
    };
    seed(&remote, &args).await?;
    if !args.until_idle {
        note_unknown(&remote, args.crawl.as_deref()).await?;
    }
    let folder = store.as_ref().and_then(Store::folder);
    let (registration, pause) = args.worker.register(&client, MachineType::Crawler, address, folder, &stop).await?;
    let crawler = Crawler::new(client, args.config(&remote), store, stop, pause)?;
    let (tally, begun) = (crawler.tally(), Instant::now());
    let shown = tally.clone();
    let progress = Progress::start(move || {
        let waits = shown.waits_for().map(|why| format!("waiting: {}", plain::line(&why)));
        (line(&shown.counts(), begun), waits)
    });
    let ended = crawler.run().await;
    drop(progress);
    let counts = tally.counts();
    tell(&remote, &counts, begun)?;
    if let Some(folder) = setting.as_deref().filter(|setting| !setting.contains("://") && counts.pages > 0) {
        eprintln!(
            "The pages in {folder} can be read only while a crawler serves them: run `wayleave crawl --store {folder}` until they are \
             built, or give crawlers and builders of this machine a --store of file:///…"
        );
    }
    check_refused(&registration)?;
    registration.leave().await;
    match ended {
        Err(Error::SetUp(why)) => Err(Usage(format!("{why} (--contact)")).into()),
        // As itself: it has an exit code.
        Err(Error::Server(error)) => Err(error.into()),
        Err(error) => Err(error.into()),
        Ok(()) if args.once && counts == Counts::default() => {
            Err(Ended { code: exit::NOT_FOUND, message: "there was nothing to fetch".to_owned() }.into())
        }
        Ok(()) => Ok(()),
    }
}

impl Args {
    fn config(&self, remote: &Remote) -> Config {
        let until = match (self.once, self.until_idle) {
            (true, _) => Until::Once,
            (_, true) => Until::Idle,
            _ => Until::Stopped,
        };
        Config {
            id: self.worker.id(),
            crawl: self.crawl.clone(),
            single: self.single,
            tasks: usize::try_from(self.tasks).unwrap_or(1),
            links: self.links,
            fetches: usize::MAX,
            lease_ms: self.lease,
            linger_ms: self.linger,
            reach: self.scope,
            seeds: self.seed.clone(),
            until,
            fetch: fetch::Config {
                contact: self.contact.clone(),
                policy: self.worker.allow.policy(remote),
                ..fetch::Config::default()
            },
            robots: robots::Config::default(),
        }
    }
}

fn seed_url(text: &str) -> Result<Url, String> {
    let url = text.parse().ok().filter(|url: &Url| matches!(url.scheme(), "http" | "https"));
    url.ok_or_else(|| "a seed begins with http:// or https://".to_owned())
}

async fn seed(remote: &Remote, args: &Args) -> anyhow::Result<()> {
    if args.seed.is_empty() {
        return Ok(());
    }
    let urls = args.seed.iter().map(|url| UrlToAdd { url: url.to_string(), ..UrlToAdd::default() }).collect();
    let answer = remote.client.add_urls(&AddUrlsRequest { crawl: args.crawl.clone(), urls }).await?;
    let refused = answer.results.into_iter().flatten().find_map(|result| Some((result.url?, result.reason?)));
    match refused {
        Some((url, reason)) => Err(Usage(format!("cannot add {}: {reason}", output::shown(&url))).into()),
        None => Ok(()),
    }
}

fn line(counts: &Counts, begun: Instant) -> String {
    let Counts { pages, errors, hosts, bytes, .. } = counts;
    let rate = rate(*pages, begun.elapsed());
    let [pages, errors] = [counted(*pages, "page"), counted(*errors, "error")];
    format!("{pages}, {errors}, {}, {}, {rate}", counted(*hosts, "host"), size(*bytes))
}

/// The summary: for people on stderr, for programs on stdout.
fn tell(remote: &Remote, counts: &Counts, begun: Instant) -> anyhow::Result<()> {
    let Counts { pages, errors, hosts, bytes, out_of_scope, refused, done, lost } = counts;
    let ms = u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX);
    if remote.json {
        return output::json(&json!({
            "pages": pages, "errors": errors, "hosts": hosts, "bytes": bytes, "out_of_scope": out_of_scope,
            "refused": refused, "done": done, "lost": lost, "elapsed_ms": ms,
        }));
    }
    eprintln!("{} in {}", line(counts, begun), span(ms));
    if *out_of_scope > 0 {
        let links = counted(*out_of_scope, "link");
        eprintln!("not followed because they leave the scope: {links}, see --scope");
    }
    if *refused > 0 {
        let urls = counted(*refused, "URL");
        eprintln!(
            "not fetched because their hosts are not at public addresses: {urls}; give a --seed on loopback, or --allow-net"
        );
    }
    if *lost > 0 {
        eprintln!("chunks and visits lost or given back: {lost}; others go on with them");
    }
    Ok(())
}
