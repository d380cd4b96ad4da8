//! `demo`: everything at once on one machine, from an empty queue to the answer of a search.
//!
//! The site is in this process, because its access log is the witness; all else are processes of their own.

mod children;
mod figures;
mod folder;

use std::cell::Cell;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::Context;
use wayleave_api::Patch;
use wayleave_api::crawls::{RetryPatch, SetCrawlRequest};
use wayleave_api::map::GetMapQuery;
use wayleave_api::urls::{AddUrlsRequest, UrlToAdd};
use wayleave_client::Client;
use wayleave_outgoing::Policy;
use wayleave_workers::demo_site::{Config, Site};
use wayleave_workers::search::{self, Search, SearchResults};

use crate::exit::{ERROR, Ended};
use crate::output::{self, span};
use crate::signals::Signals;
use crate::values;
use children::Children;
use figures::{Figures, Host, ms};
use folder::Folder;

const AFTER_HELP: &str = "\
A small web of several hosts, with redirects, loops, errors, slow pages and a robots.txt, is served on 127.0.0.2, 127.0.0.3 and so on.
A server, two crawlers, an index builder and two rows of index servers crawl and index it, until a search finds its pages.
Nothing leaves this machine, and nothing stays on it unless --data is given. With --json the figures are one object on stdout.";

const CRAWL: &str = "demo";
/// The longest time until the end, for a web without pages. Only a demonstration that hangs meets it.
const PATIENCE: Duration = Duration::from_secs(180);
/// What each page adds to it.
const PATIENCE_PER_PAGE: Duration = Duration::from_millis(100);
/// How often the state is looked at.
const LOOK: Duration = Duration::from_millis(100);

/// Arguments of `demo`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub struct Args {
    /// Hosts of the web
    #[arg(long, default_value_t = 4, value_name = "NUMBER", value_parser = values::between::<u64>(1, 50))]
    hosts: u64,
    /// Pages of each host, besides a dozen special ones
    #[arg(long, default_value_t = 12, value_name = "NUMBER", value_parser = values::between::<u64>(1, 1000))]
    pages: u64,
    /// Keep all running until Ctrl-C
    #[arg(long)]
    keep: bool,
    /// Keep data and logs in this folder, which must be empty
    #[arg(long, value_name = "FOLDER")]
    data: Option<PathBuf>,
}

/// The parts while they run.
struct Demo {
    site: Site,
    children: Children,
    client: Client,
    server: String,
    begun: Instant,
}

/// Runs the demonstration. Fails if a part of it fails, or the site was not treated politely.
pub async fn run(json: bool, args: Args) -> anyhow::Result<()> {
    let signals = Signals::listen()?;
    let folder = Folder::make(args.data.as_deref())?;
    let shown_all = Cell::new(false);
    let shown = tokio::select! {
        shown = show(json, &args, &folder, &shown_all) => shown,
        () = signals.first() => match shown_all.get() {
            true => Ok(()),
            false => Err(Ended { code: ERROR, message: "stopped before its end".to_owned() }.into()),
        }
    };
    if let Folder::Kept(folder) = &folder {
        eprintln!("data and logs are in {}", folder.display());
    }
    shown
}

async fn show(json: bool, args: &Args, folder: &Folder, shown_all: &Cell<bool>) -> anyhow::Result<()> {
    let delay = Duration::from_millis(250);
    eprintln!(
        "A small web, a server, two crawlers, an index builder and two rows of index servers, all on this machine.\n"
    );
    let mut demo = Demo::start(args, delay, folder).await?;
    let ended = demo.tell(json, delay).await;
    if ended.is_ok() && args.keep {
        shown_all.set(true);
        let Demo { server, .. } = &demo;
        eprintln!("\nAll keeps running: {server}/ shows the server's state. In another terminal:\n");
        eprintln!("  export WAYLEAVE_SERVER={server}");
        eprintln!("  wayleave search river stone\n  wayleave chunks\n  wayleave fleet\n  wayleave map\n");
        eprintln!("Ctrl-C ends it.");
        loop {
            demo.children.check()?;
            tokio::time::sleep(LOOK).await;
        }
    }
    if matches!(folder, Folder::Kept(_)) {
        demo.children.stop().await;
    }
    ended
}

impl Demo {
    async fn start(args: &Args, delay: Duration, folder: &Folder) -> anyhow::Result<Self> {
        let begun = Instant::now();
        let (hosts, pages) = (usize::try_from(args.hosts)?, usize::try_from(args.pages)?);
        let slow = Duration::from_secs(1);
        let config = Config { hosts, pages, slow, crawl_delay: Some(delay), ..Config::default() };
        let site = Site::start(config).await.context("cannot serve a web on loopback")?;
        let mut children = Children::new(folder.path());
        note(
            begun,
            "web",
            &format!("{hosts} hosts, {} pages with text, and others that redirect or fail", site.indexable().count()),
        );
        // The links of a chunk are of one shard: with more of them, chunks of so small a web would be shorter still.
        let serve = ["serve", "--listen", "127.0.0.1:0", "--data", "server", "--shards", "1"];
        let log = children.start("server", &serve)?;
        let server = loop {
            children.check()?;
            let text = std::fs::read_to_string(&log).unwrap_or_default();
            let ready = text.lines().find_map(|line| line.split_once(" ready on ")?.1.split(' ').next());
            if let Some(url) = ready {
                break url.to_owned();
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        };
        note(begun, "server", &server);
        let client = Client::new(&server)?;
        let mut demo = Self { site, children, client, server, begun };
        demo.workers()?;
        demo.seed().await?;
        Ok(demo)
    }

    fn workers(&mut self) -> anyhow::Result<()> {
        let server = self.server.clone();
        let mut start = |name: &str, args: &[&str]| {
            let common = ["--id", name, "--server", &server];
            self.children.start(name, &[args, &common].concat())
        };
        for (name, row) in [("index-1", "0"), ("index-2", "0"), ("index-3", "1"), ("index-4", "1")] {
            start(name, &["index", "--row", row, "--data", name, "--poll", "200ms"])?;
        }
        for name in ["crawler-1", "crawler-2"] {
            // The web is on loopback.
            start(name, &["crawl", "--crawl", CRAWL, "--store", name, "--allow-net", "127.0.0.0/8"])?;
        }
        start("builder-1", &["build", "--crawl", CRAWL, "--store", "builder-1"])?;
        note(self.begun, "workers", "2 crawlers, 1 index builder, 2 rows of 2 index servers");
        Ok(())
    }

    async fn seed(&self) -> anyhow::Result<()> {
        // A page that is broken for good is given up soon: nobody wants to wait for that here.
        let retry = RetryPatch { first_ms: Patch::Set(200), max_ms: Patch::Set(400), attempts: Patch::Set(3) };
        let settings =
            SetCrawlRequest { delay_ms: Patch::Set(0), retry: Patch::Set(retry), ..SetCrawlRequest::default() };
        self.client.put_crawl(CRAWL, &settings).await?;
        let urls = self.site.seeds().into_iter().map(|url| UrlToAdd { url: url.into(), ..UrlToAdd::default() });
        let request = AddUrlsRequest { crawl: Some(CRAWL.to_owned()), urls: urls.collect() };
        self.client.add_urls(&request).await?;
        Ok(())
    }

    /// Waits for each step and tells of it.
    async fn tell(&mut self, json: bool, delay: Duration) -> anyhow::Result<()> {
        let front = self.site.page(0, "/").context("the web has no front page")?;
        let word = front.words.get(1).cloned().unwrap_or_default();
        let mut figures = Figures { pages: self.site.indexable().count(), ..Figures::default() };
        let patience = PATIENCE + PATIENCE_PER_PAGE.saturating_mul(u32::try_from(figures.pages).unwrap_or(u32::MAX));
        let found = loop {
            self.children.check()?;
            if self.begun.elapsed() > patience {
                anyhow::bail!("not at its end after {patience:?}; run it again with --data to see its logs");
            }
            let now = ms(self.begun.elapsed()).max(1);
            if figures.first_hit_ms == 0 {
                let found = self.search(&word).await?;
                if let Some(hit) = found.hits.first() {
                    figures.first_hit_ms = now;
                    let text = format!("'{word}' on {}, after {}", output::shown(&hit.url), span(now));
                    note(self.begun, "first hit", &text);
                }
            } else if figures.crawled_ms == 0 {
                let crawl = self.client.crawl(CRAWL).await?;
                if crawl.finished {
                    figures.crawled_ms = now;
                    note(self.begun, "crawled", &output::counts(&crawl.counts));
                }
            } else if let Some(chunks) = self.served().await? {
                (figures.served_ms, figures.chunks) = (now, chunks);
                note(self.begun, "served", &format!("{}, in both rows", output::counted(chunks as u64, "chunk")));
                break self.search(&word).await?;
            }
            tokio::time::sleep(LOOK).await;
        };
        let treated = self.site.log().politeness();
        figures.hits = found.hits.len();
        figures.hosts = treated.iter().map(|(host, seen)| Host::new(host, seen)).collect();
        figures.print(json, &word, &found, delay)?;
        // What the site's own log says about its visitors.
        if treated.values().any(|host| host.overlaps > 0 || host.smallest_gap.is_some_and(|gap| gap < delay)) {
            let message = "a host was visited too early, or by two at once".to_owned();
            return Err(Ended { code: ERROR, message }.into());
        }
        eprintln!("\nNo host had two visitors at once, and none came back too early.");
        Ok(())
    }

    async fn search(&self, word: &str) -> anyhow::Result<SearchResults> {
        let search = Search {
            words: word.to_owned(),
            crawl: None,
            limit: 3,
            first_row: 0,
            policy: Policy::new(Vec::new(), true),
        };
        Ok(search::run(&self.client, &search).await?)
    }

    /// The number of chunks, once all are built and ready in both rows.
    async fn served(&self) -> anyhow::Result<Option<usize>> {
        use wayleave_api::chunks::{ChunkState, ListChunksQuery};
        for state in [ChunkState::Crawling, ChunkState::Crawled, ChunkState::Building] {
            let query = ListChunksQuery { state: Some(state), limit: Some(1), ..ListChunksQuery::default() };
            if !self.client.list_chunks(&query).await?.chunks.is_empty() {
                return Ok(None);
            }
        }
        let Some(map) = self.client.map(&GetMapQuery::default()).await? else { return Ok(None) };
        let in_row =
            |row: &wayleave_api::map::MapRow| row.servers.iter().map(|server| server.chunks.len()).sum::<usize>();
        let chunks = map.rows.first().map_or(0, in_row);
        let all = map.rows.len() == 2 && map.missing_count == 0 && chunks > 0;
        Ok((all && map.rows.iter().all(|row| in_row(row) == chunks)).then_some(chunks))
    }
}

fn note(begun: Instant, what: &str, text: &str) {
    let tenths = begun.elapsed().as_millis() / 100;
    eprintln!("{:>4}.{} s  {what:<10} {text}", tenths / 10, tenths % 10);
}
