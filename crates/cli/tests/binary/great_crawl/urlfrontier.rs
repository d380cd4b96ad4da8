//! A worker over URLFrontier's protocol: GetURLs, then PutURLs with found links, then PutURLs with the page itself as
//! completed. The protocol accepts a report from any client, so one that arrives after its hold counts too; but it must
//! not keep a URL from being offered again meanwhile, or hand it out twice at once.

use futures::future::join_all;
use futures::{StreamExt, TryStreamExt, stream};
use tonic::transport::Channel;
use wayleave_api::urlfrontier::ack_message::Status as Ack;
use wayleave_api::urlfrontier::url_frontier_client::UrlFrontierClient;
use wayleave_api::urlfrontier::{DiscoveredUrlItem, GetParams, KnownUrlItem, UrlInfo, UrlItem, get_params, url_item};

use crate::great_crawl::CRAWL;
use crate::great_crawl::fleet::Post;
use crate::great_crawl::ledger::Held;
use crate::prelude::*;

/// The shortest hold of the protocol.
const HOLD: Duration = Duration::from_secs(1);
const QUEUES: u32 = 3;
const URLS: u32 = 5;

pub type Frontier = UrlFrontierClient<Channel>;

pub async fn work(mut frontier: Frontier, client: Client, post: Post) {
    let ask = GetParams {
        max_queues: QUEUES,
        max_urls_per_queue: URLS,
        delay_requestable: HOLD.as_secs() as u32,
        item: Some(get_params::Item::CrawlId(CRAWL.to_owned())),
        ..GetParams::default()
    };
    loop {
        let asked = Instant::now();
        let mut urls = frontier.get_urls(ask.clone()).await.unwrap().into_inner();
        let mut held = Vec::new();
        while let Some(info) = urls.next().await {
            held.push(post.ledger.handed_out(&info.unwrap().url, asked, HOLD));
        }
        if held.is_empty() {
            let crawl = client.crawl(CRAWL).await.unwrap();
            if crawl.finished {
                return post.ledger.finished();
            }
            post.ledger.be_patient(crawl.waits_for.as_deref());
            // The protocol has no long poll, so crawlers poll.
            tokio::time::sleep(Duration::from_millis(20)).await;
            continue;
        }
        post.visits(held.len());
        let (slow, quick): (Vec<Held>, Vec<Held>) = held.into_iter().partition(|held| held.outlasts);
        let slow = slow.iter().map(|held| {
            let (frontier, post) = (frontier.clone(), post.clone());
            async move {
                tokio::time::sleep_until(held.over.into()).await;
                post.ledger.late.fetch_add(1, Ordering::Relaxed);
                report(frontier, &post, std::slice::from_ref(held)).await;
            }
        });
        tokio::join!(report(frontier.clone(), &post, &quick), join_all(slow));
    }
}

/// Found links are sent first: once a page is completed, its links would not be looked for again.
async fn report(frontier: Frontier, post: &Post, held: &[Held]) {
    let web = post.ledger.web;
    let found = held.iter().flat_map(|held| web.links(held.page)).map(|to| {
        let info = Some(info(web.url(to)));
        UrlItem { item: Some(url_item::Item::Discovered(DiscoveredUrlItem { info })), ..UrlItem::default() }
    });
    put(frontier.clone(), found.collect()).await;
    let done = held.iter().map(|held| {
        let info = Some(info(web.url(held.page)));
        let item = url_item::Item::Known(KnownUrlItem { info, refetchable_from_date: 0 });
        UrlItem { item: Some(item), ..UrlItem::default() }
    });
    held.iter().for_each(|held| post.ledger.reports(held));
    let taken = put(frontier, done.collect()).await;
    assert_eq!(taken, held.len(), "a report is never skipped");
    held.iter().for_each(|held| post.ledger.reported(held));
}

/// Puts items and waits for their acknowledgements; returns how many were accepted and not skipped.
async fn put(mut frontier: Frontier, items: Vec<UrlItem>) -> usize {
    let sent = items.len();
    let acks = frontier.put_urls(stream::iter(items)).await.unwrap().into_inner();
    let acks: Vec<_> = acks.try_collect().await.unwrap();
    assert_eq!(acks.len(), sent);
    assert!(acks.iter().all(|ack| ack.status() != Ack::Fail), "{acks:?}");
    acks.iter().filter(|ack| ack.status() == Ack::Ok).count()
}

fn info(url: String) -> UrlInfo {
    UrlInfo { url, crawl_id: CRAWL.to_owned(), ..UrlInfo::default() }
}
