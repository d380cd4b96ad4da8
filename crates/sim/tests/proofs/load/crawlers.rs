//! Crawlers over gRPC: the paced form, in which the server spaces the hand-outs of a queue and holds what it has handed
//! out.

use tonic::transport::Channel;
use wayleave_api::urlfrontier::url_frontier_client::UrlFrontierClient;
use wayleave_api::urlfrontier::{
    DiscoveredUrlItem, GetParams, KnownUrlItem, UrlInfo, UrlItem, ack_message, get_params, url_item,
};

use crate::load::clients::{pause, within};
use crate::load::history::{History, Id};
use crate::prelude::*;

/// Queues of the crawlers, the delay of each, and the hold time of a URL.
pub const QUEUES: usize = 6;
pub const DELAY_MS: u64 = 60;
pub const HOLD_MS: u64 = 2_000;
/// Those of the queues that move in and out of aliases.
pub const MOVING: Range<usize> = 3..QUEUES;
const PATIENCE: Duration = Duration::from_secs(4);
pub const CRAWL: &str = "grpc";

pub fn queue(n: usize) -> String {
    format!("g{}.example", n % QUEUES)
}

/// Starts one at every node.
pub fn start(nodes: &[Client], history: &Arc<History>) -> Vec<JoinHandle<()>> {
    let crawler = |(n, client): (usize, &Client)| tokio::spawn(crawl(client.server().to_owned(), n, history.clone()));
    nodes.iter().enumerate().map(crawler).collect()
}

async fn crawl(base: String, n: usize, history: Arc<History>) {
    for round in 0.. {
        if history.is_over() {
            return;
        }
        pause(history.rest_ms).await;
        let connecting = UrlFrontierClient::connect(base.clone());
        let Some(mut client) = within(&history, Duration::from_secs(1), connecting).await else { continue };
        // One connection serves until it breaks.
        for step in 0.. {
            let once = crawl_once(&mut client, (n, round, step), &history);
            let went_well = matches!(tokio::time::timeout(PATIENCE, once).await, Ok(Some(())));
            if history.is_over() || !went_well {
                break;
            }
        }
    }
}

fn info(url: &str, key: &str) -> UrlInfo {
    UrlInfo { url: url.to_owned(), key: key.to_owned(), crawl_id: CRAWL.to_owned(), ..UrlInfo::default() }
}

async fn crawl_once(
    client: &mut UrlFrontierClient<Channel>,
    (n, round, step): (usize, usize, usize),
    history: &History,
) -> Option<()> {
    pause(history.rest_ms / 3).await;
    if !history.is_draining() && step % 3 == 0 {
        let items = (0..4).map(|i| {
            let (url, key) = (format!("http://{}/{n}/{round}/{step}/{i}", queue(step + i)), queue(step + i));
            let item = url_item::Item::Discovered(DiscoveredUrlItem { info: Some(info(&url, &key)) });
            UrlItem { id: url, item: Some(item), ..UrlItem::default() }
        });
        put_items(client, items.collect(), |id| history.added([id])).await?;
    }
    let asked = Instant::now();
    let params = GetParams {
        max_urls_per_queue: 3,
        max_queues: 3,
        delay_requestable: u32::try_from(HOLD_MS / 1_000).unwrap(),
        item: Some(get_params::Item::CrawlId(CRAWL.to_owned())),
        ..GetParams::default()
    };
    let mut stream = client.get_urls(params).await.ok()?.into_inner();
    let mut out: Vec<UrlInfo> = Vec::new();
    while let Some(url) = stream.next().await {
        out.push(url.ok()?);
    }
    history.served(&out.iter().map(|url| (CRAWL.to_owned(), url.url.clone())).collect::<Vec<Id>>(), asked);
    for queue in (0..QUEUES).map(queue) {
        let urls: Vec<String> = out.iter().filter(|url| url.key == queue).map(|url| url.url.clone()).collect();
        if !urls.is_empty() {
            history.handed_out(&queue, urls, asked);
        }
    }
    // Occasionally one forgets what it was given: it is handed out again after its hold.
    if step % 7 == 6 {
        return Some(());
    }
    pause(5).await;
    history.ending(&out.iter().map(|url| url.url.clone()).collect::<Vec<_>>());
    let items = out.iter().map(|url| {
        let known = KnownUrlItem { info: Some(info(&url.url, &url.key)), refetchable_from_date: 0 };
        UrlItem { id: url.url.clone(), item: Some(url_item::Item::Known(known)), ..UrlItem::default() }
    });
    put_items(client, items.collect(), |id| history.finished([id], |_| UrlState::Fetched)).await
}

/// Puts items and passes each acknowledged one to `note`, even if the connection breaks midway. `None` if it did.
async fn put_items(client: &mut UrlFrontierClient<Channel>, items: Vec<UrlItem>, note: impl Fn(Id)) -> Option<()> {
    let mut acks = client.put_urls(futures::stream::iter(items)).await.ok()?.into_inner();
    while let Some(ack) = acks.next().await {
        let ack = ack.ok()?;
        if ack.status() != ack_message::Status::Fail {
            note((CRAWL.to_owned(), ack.id));
        }
    }
    Some(())
}
