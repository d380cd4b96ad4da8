//! A crawl with a page limit, visited at all nodes: the limit must never be passed, and must be reached.

use wayleave_api::crawls::CrawlLimitsPatch;

use crate::load::clients::{self, pause, within};
use crate::load::history::{History, Id};
use crate::prelude::*;
use crate::three_nodes::stage::PATIENCE;

pub const CRAWL: &str = "limited";
const PAGES: u64 = 400;
const HOSTS: usize = 40;
const URLS_EACH: usize = 20;
const CALL: Duration = Duration::from_secs(4);

/// More URLs than the limit allows to visit.
pub async fn set_up(client: &Client) {
    let limits = CrawlLimitsPatch { pages: Patch::Set(PAGES), ..CrawlLimitsPatch::default() };
    let settings =
        SetCrawlRequest { delay_ms: Patch::Set(10), limits: Patch::Set(limits), ..SetCrawlRequest::default() };
    client.patch_crawl(CRAWL, &settings).await.unwrap();
    let url = |n: usize| UrlToAdd { url: format!("http://l{}.example/{n}", n % HOSTS), ..UrlToAdd::default() };
    let urls = (0..HOSTS * URLS_EACH).map(url).collect();
    client.add_urls(&AddUrlsRequest { crawl: Some(CRAWL.to_owned()), urls }).await.unwrap();
}

/// Starts one at every node. They take their time: the limit must outlast the faults.
pub fn start(nodes: &[Client], history: &Arc<History>) -> Vec<JoinHandle<()>> {
    let visitor = |(n, client): (usize, &Client)| tokio::spawn(visit(client.clone(), n, history.clone()));
    nodes.iter().enumerate().map(visitor).collect()
}

async fn visit(client: Client, n: usize, history: Arc<History>) {
    for round in 0.. {
        if history.is_over() {
            return;
        }
        pause(if history.is_draining() { 20 } else { 600 }).await;
        let request = ReserveGroupsRequest {
            groups: 3,
            urls: 2,
            crawl: Some(CRAWL.to_owned()),
            lease_ms: 1_000,
            ..ReserveGroupsRequest::new(format!("limited {n}"))
        };
        let Some(answer) = within(&history, CALL, client.reserve(&request)).await else { continue };
        for reservation in answer.reservations {
            // Some never report: their pages come back when the lease is over.
            if round % 5 == 4 {
                continue;
            }
            let ids: Vec<Id> = reservation.urls.iter().map(|url| (url.crawl.clone(), url.url.clone())).collect();
            _ = within(&history, CALL, client.release(&reservation.token, &clients::results(&ids))).await;
        }
    }
}

/// Waits until the limit is used up.
pub async fn used_up(client: &Client, history: &History) {
    let client = client.clone().with_retry(Retry::default());
    let start = Instant::now();
    loop {
        let counts = client.crawl(CRAWL).await.unwrap().counts;
        let visited = counts.fetched + counts.gone + counts.failed;
        assert!(visited + counts.reserved <= PAGES, "{counts:?}, the limit is {PAGES}");
        if visited == PAGES {
            return;
        }
        assert!(start.elapsed() < PATIENCE, "only {visited} of {PAGES} pages are visited, and no more is handed out");
        history.check();
        pause(100).await;
    }
}

/// The limit was not passed, by the final states of its URLs.
pub fn judge<'a>(known: impl Iterator<Item = (&'a Id, &'a UrlState)>) {
    let visited = known.filter(|((crawl, _), state)| crawl == CRAWL && **state != UrlState::Queued).count();
    assert_eq!(visited as u64, PAGES, "pages visited or out");
}
