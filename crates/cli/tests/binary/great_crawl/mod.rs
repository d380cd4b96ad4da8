//! A whole crawl through each API of the built binary, from one seed to `finished`: every page of a synthetic web is
//! found by its links, handed out and reported; none is stuck, none is in two live holds at once, and the crawl reports
//! that it is finished when it is and not before.
//!
//! Interleavings that could leave a URL behind, all of which happen here: a page outlasts its hold, and its report
//! arrives after the URL was offered again; a worker dies after a grant that it never read, in the middle of a page, or
//! while its report is in flight; links to a page arrive while it is queued, handed out, expired or done; the last
//! pages of the crawl are with a dead worker, so that nothing is ready and nothing is finished.
//!
//! An ordinary run is small. `WAYLEAVE_CRAWL_HOSTS=1000` and `WAYLEAVE_CRAWL_PAGES=100` set its size,
//! `WAYLEAVE_BIN=path` the binary; `cargo xtask prove crawl` does all of that.

mod fleet;
mod ledger;
mod native;
mod urlfrontier;
mod web;

use ledger::Ledger;
use wayleave_api::Patch;
use wayleave_api::crawls::{RetryPatch, SetCrawlRequest};
use web::Web;

use crate::prelude::*;

/// The crawl's name.
pub const CRAWL: &str = "great";
/// Long enough that groups wait for their time and are woken by it.
const DELAY_MS: u64 = 5;
/// One page in this many outlasts its first hold.
const SLOW_ONE_IN: u64 = 50;
/// One worker dies per this many pages that are handed out.
const KILL_EVERY: usize = 100;

fn size() -> Web {
    let number = |name: &str, otherwise| {
        std::env::var(name).map_or(otherwise, |text| text.parse().unwrap_or_else(|e| panic!("{name}: {e}")))
    };
    Web { hosts: number("WAYLEAVE_CRAWL_HOSTS", 100), pages: number("WAYLEAVE_CRAWL_PAGES", 20) }
}

/// A server with a crawl that holds the first page.
struct Stage {
    server: Server,
    client: Client,
    ledger: Arc<Ledger>,
    begun: Instant,
    _folder: tempfile::TempDir,
}

impl Stage {
    async fn new() -> Self {
        let (keep, server) = Server::fresh();
        let client = Client::new(&server.url).unwrap();
        let retry = RetryPatch { attempts: Patch::Set(1_000), first_ms: Patch::Set(1), max_ms: Patch::Set(1) };
        let settings =
            SetCrawlRequest { delay_ms: Patch::Set(DELAY_MS), retry: Patch::Set(retry), ..SetCrawlRequest::default() };
        client.put_crawl(CRAWL, &settings).await.unwrap();
        let web = size();
        let seed = AddUrlsRequest {
            crawl: Some(CRAWL.to_owned()),
            urls: vec![UrlToAdd { url: web.url(0), ..UrlToAdd::default() }],
        };
        assert_eq!(client.add_urls(&seed).await.unwrap().counts.added, 1);
        let ledger = Arc::new(Ledger::new(web, SLOW_ONE_IN));
        Self { server, client, ledger, begun: Instant::now(), _folder: keep }
    }

    /// Judges what the workers saw and what the server says.
    async fn judge(self, door: &str, killed: usize, once: bool) {
        let Web { hosts, pages } = self.ledger.web;
        let total = self.ledger.web.size();
        let took = self.begun.elapsed();
        let judged = self.ledger.judge(once);
        let crawl = self.client.crawl(CRAWL).await.unwrap();
        assert!(crawl.finished && crawl.finished_at.is_some() && crawl.waits_for.is_none(), "{crawl:?}");
        let counts = crawl.counts;
        assert_eq!((counts.fetched, counts.queued, counts.reserved), (total as u64, 0, 0), "{counts:?}");
        assert_eq!((counts.gone, counts.failed, crawl.hosts), (0, 0, hosts as u64), "{crawl:?}");
        let (late, refused) = (self.ledger.late.load(Ordering::Relaxed), self.ledger.refused.load(Ordering::Relaxed));
        assert!(late > 0 && killed > 0, "{late} late reports, {killed} killed workers");
        println!(
            "seen: {door}: {total} URLs of {hosts} hosts ({pages} each) in {:.1} s ({:.0}/s), 0 stuck, 0 in two holds; \
             {killed} workers killed, {late} pages outlasted their holds, {refused} reports refused; {} hand-outs, \
             at most {} of one URL, {} reports whose answer nobody read",
            took.as_secs_f64(),
            total as f64 / took.as_secs_f64(),
            judged.holds,
            judged.most_holds,
            judged.perhaps,
        );
        assert_eq!(self.server.stop(), 0);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crawl_over_the_native_api_comes_to_its_end_though_workers_die_and_pages_outlast_their_leases() {
    let stage = Stage::new().await;
    let client = stage.client.clone();
    let killed = fleet::run(&stage.ledger, KILL_EVERY, |post| native::work(client.clone(), post)).await;
    stage.judge("native API", killed, true).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crawl_over_urlfrontier_comes_to_its_end_though_workers_die_and_pages_outlast_their_holds() {
    let stage = Stage::new().await;
    let client = stage.client.clone();
    let frontier = urlfrontier::Frontier::connect(stage.server.url.clone()).await.unwrap();
    let work = |post| urlfrontier::work(frontier.clone(), client.clone(), post);
    let killed = fleet::run(&stage.ledger, KILL_EVERY, work).await;
    stage.judge("URLFrontier", killed, false).await;
}
