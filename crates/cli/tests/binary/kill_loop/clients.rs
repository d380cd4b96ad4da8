//! The clients: putters and workers over HTTP, and crawlers over gRPC. Each continues until it is stopped, whatever
//! happens to the server.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use tokio::task::JoinHandle;
use wayleave_api::reservations::{
    Outcome, ReleaseReservationRequest, RenewReservationRequest, Reservation, ReserveGroupsRequest, UrlResult,
};
use wayleave_api::urlfrontier::url_frontier_client::UrlFrontierClient;
use wayleave_api::urlfrontier::{
    DiscoveredUrlItem, GetParams, KnownUrlItem, UrlInfo, UrlItem, ack_message, get_params, url_item,
};
use wayleave_api::urls::{AddStatus, AddUrlsRequest, ListUrlsQuery, UrlState, UrlToAdd};
use wayleave_client::{Client, Retry};
use wayleave_core::invariants::Span;
use wayleave_core::time::Millis;

use crate::kill_loop::DELAY_MS;
use crate::kill_loop::history::{History, Id};

/// Hosts of the HTTP clients.
pub const HOSTS: usize = 10;
const LEASE_MS: u64 = 800;

pub fn host(n: usize) -> String {
    format!("h{n}.example")
}

/// Starts them all.
pub fn start(base: &str, history: &Arc<History>) -> Vec<JoinHandle<()>> {
    let mut clients = Vec::new();
    for n in 0..3 {
        let client = Client::new(base).unwrap().with_retry(Retry::NEVER);
        clients.push(tokio::spawn(put(client, n, history.clone())));
    }
    for n in 0..4 {
        let client = Client::new(base).unwrap().with_retry(Retry::NEVER);
        clients.push(tokio::spawn(work(client, n, history.clone())));
    }
    for n in 0..2 {
        clients.push(tokio::spawn(crawl(base.to_owned(), n, history.clone())));
    }
    clients
}

async fn pause(ms: u64) {
    tokio::time::sleep(Duration::from_millis(ms)).await;
}

async fn put(client: Client, n: usize, history: Arc<History>) {
    for round in 0.. {
        if history.is_over() {
            return;
        }
        pause(5).await;
        let text = |i: usize| format!("http://{}/{n}/{round}/{i}", host((round + i) % HOSTS));
        let url = |i| UrlToAdd { url: text(i), ..UrlToAdd::default() };
        let request = AddUrlsRequest { crawl: Some("http".to_owned()), urls: (0..6).map(url).collect() };
        let Ok(answer) = client.add_urls(&request).await else { continue };
        let results = answer.results.unwrap_or_default();
        let stored = |(url, status): &(&UrlToAdd, AddStatus)| {
            _ = url;
            matches!(status, AddStatus::Added | AddStatus::Known)
        };
        let pairs = request.urls.iter().zip(results.iter().map(|result| result.status)).filter(stored);
        history.added(pairs.map(|(url, _)| ("http".to_owned(), url.url.clone())));
    }
}

async fn work(client: Client, n: usize, history: Arc<History>) {
    for round in 0.. {
        if history.is_over() {
            return;
        }
        let request = ReserveGroupsRequest {
            groups: 2,
            urls: 3,
            crawl: Some("http".to_owned()),
            lease_ms: LEASE_MS,
            wait_ms: 50,
            ..ReserveGroupsRequest::new(format!("worker {n}"))
        };
        let Ok(answer) = client.reserve(&request).await else {
            pause(10).await;
            continue;
        };
        for (i, reservation) in answer.reservations.into_iter().enumerate() {
            visit(&client, round + i, reservation, &history).await;
        }
    }
}

async fn visit(client: &Client, round: usize, reservation: Reservation, history: &History) {
    let ids: Vec<Id> = reservation.urls.iter().map(|url| (url.crawl.clone(), url.url.clone())).collect();
    history.served(&ids);
    let start = reservation.expires_at.0.before(Millis(LEASE_MS));
    let span = Span { start, end: reservation.expires_at.0 };
    let visit = history.granted(&reservation.group, span, DELAY_MS, &ids);
    if round % 29 == 28 {
        return; // This worker dies; its reservation runs out by itself.
    }
    if round % 4 == 3 {
        history.ends(visit, start);
        let renew = RenewReservationRequest { lease_ms: LEASE_MS };
        let Ok(renewed) = client.renew(&reservation.token, &renew).await else { return };
        history.ends(visit, renewed.expires_at.0);
    }
    pause(2).await;
    let result =
        |url: &str| UrlResult { status: Some(200), duration_ms: Some(2), ..UrlResult::new(url, Outcome::Fetched) };
    let results = ids.iter().map(|(_, url)| result(url)).collect();
    // From here on the visit may be over, without any client learning of it.
    history.ends(visit, start);
    let released = client.release(&reservation.token, &ReleaseReservationRequest { results, ready_at: None }).await;
    if let Ok(released) = released {
        history.ends(visit, released.ready_at.0.before(Millis(DELAY_MS)).max(start));
        history.finished(ids);
    }
}

async fn crawl(base: String, n: usize, history: Arc<History>) {
    for round in 0.. {
        if history.is_over() {
            return;
        }
        pause(5).await;
        let Ok(mut client) = UrlFrontierClient::connect(base.clone()).await else { continue };
        // One connection serves until the server dies.
        for step in 0.. {
            if history.is_over() || crawl_once(&mut client, (n, round, step), &history).await.is_none() {
                break;
            }
        }
    }
}

fn info(url: &str, key: &str) -> UrlInfo {
    UrlInfo { url: url.to_owned(), key: key.to_owned(), crawl_id: "grpc".to_owned(), ..UrlInfo::default() }
}

async fn crawl_once(
    client: &mut UrlFrontierClient<tonic::transport::Channel>,
    (n, round, step): (usize, usize, usize),
    history: &History,
) -> Option<()> {
    let key = |i: usize| format!("g{}.example", (step + i) % 5);
    let found: Vec<(String, String)> =
        (0..4).map(|i| (format!("http://{}/{n}/{round}/{step}/{i}", key(i)), key(i))).collect();
    let items = found.iter().map(|(url, key)| {
        let item = url_item::Item::Discovered(DiscoveredUrlItem { info: Some(info(url, key)) });
        UrlItem { id: url.clone(), item: Some(item), ..UrlItem::default() }
    });
    put_items(client, items.collect(), |id| history.added([id])).await?;
    let asked = std::time::Instant::now();
    let params = GetParams {
        max_urls_per_queue: 3,
        max_queues: 3,
        delay_requestable: 2,
        item: Some(get_params::Item::CrawlId("grpc".to_owned())),
        ..GetParams::default()
    };
    let mut stream = client.get_urls(params).await.ok()?.into_inner();
    let mut out = Vec::new();
    while let Some(url) = stream.next().await {
        out.push(url.ok()?);
    }
    history.served(&out.iter().map(|url| ("grpc".to_owned(), url.url.clone())).collect::<Vec<_>>());
    pause(5).await;
    // After its hold a URL may have been handed out again.
    if asked.elapsed() > Duration::from_millis(1_500) || step % 7 == 6 {
        return Some(());
    }
    let items = out.iter().map(|url| {
        let known = KnownUrlItem { info: Some(info(&url.url, &url.key)), refetchable_from_date: 0 };
        UrlItem { id: url.url.clone(), item: Some(url_item::Item::Known(known)), ..UrlItem::default() }
    });
    put_items(client, items.collect(), |id| history.finished([id])).await?;
    Some(())
}

/// Puts items and passes each acknowledged one to `note`, even if the connection breaks midway. `None` if it did.
async fn put_items(
    client: &mut UrlFrontierClient<tonic::transport::Channel>,
    items: Vec<UrlItem>,
    note: impl Fn(Id),
) -> Option<()> {
    let mut acks = client.put_urls(futures::stream::iter(items)).await.ok()?.into_inner();
    while let Some(ack) = acks.next().await {
        let ack = ack.ok()?;
        if ack.status() != ack_message::Status::Fail {
            note(("grpc".to_owned(), ack.id));
        }
    }
    Some(())
}

/// All URLs, each with whether it is finished.
pub async fn known(client: &Client) -> BTreeMap<Id, bool> {
    let mut known = BTreeMap::new();
    let mut urls = std::pin::pin!(client.all_urls(ListUrlsQuery { limit: Some(1_000), ..ListUrlsQuery::default() }));
    while let Some(url) = urls.next().await {
        let url = url.unwrap();
        let done = matches!(url.state, UrlState::Fetched | UrlState::Gone | UrlState::Failed);
        assert_eq!(known.insert((url.crawl, url.url.clone()), done), None, "{} is listed twice", url.url);
    }
    known
}
