//! Shared by the tests of the URLFrontier API: a real server on a loopback port over an in-memory frontier, whose clock
//! stands still until a test advances it.

use tonic::transport::Server;
use tonic::transport::server::TcpIncoming;
use wayleave_api::urlfrontier::{DiscoveredUrlItem, KnownUrlItem, QueueWithinCrawlParams, Stats, url_item};
use wayleave_engine::clock::ManualClock;
use wayleave_server::grpc::{GrpcMetrics, Nodes, routes};
use wayleave_server::http::App;
use wayleave_shard::{Config, Frontier};

use crate::prelude::*;

/// The clock's time at the start, in seconds.
pub const START: u64 = 1_800_000_000;

/// A server with a client.
pub struct World {
    pub client: UrlFrontierClient<Channel>,
    pub channel: Channel,
    pub clock: ManualClock,
    pub frontier: Frontier,
    pub metrics: Arc<GrpcMetrics>,
}

/// A separate, empty server.
pub async fn world() -> World {
    world_with(wayleave_server::Config::default()).await
}

/// The same with other settings.
pub async fn world_with(settings: wayleave_server::Config) -> World {
    let clock = ManualClock::new(Time::from_secs(START));
    let engine = Arc::new(Memory::new(clock.clone()));
    // Clock steps are disabled.
    let config = Config { clock_step: Millis(0), ..Config::new(4) };
    let frontier = Frontier::open(engine, config, &tokio::runtime::Handle::current()).await.unwrap();
    let metrics: Arc<GrpcMetrics> = Arc::default();
    let nodes = Nodes { advertised: "localhost:7071".to_owned(), peers: None };
    let roles = wayleave_roles::Roles::new(Arc::new(Memory::new(clock.clone())));
    let services = Services { roles, ..crate::support::over(frontier.clone()) };
    let app = App::new(settings, services);
    let routes = routes(app, Arc::clone(&metrics), nodes);
    let incoming = TcpIncoming::bind("127.0.0.1:0".parse().unwrap()).unwrap().with_nodelay(Some(true));
    let address = incoming.local_addr().unwrap();
    tokio::spawn(Server::builder().add_routes(routes).serve_with_incoming(incoming));
    let channel = Channel::from_shared(format!("http://{address}")).unwrap().connect().await.unwrap();
    World { client: UrlFrontierClient::new(channel.clone()), channel, clock, frontier, metrics }
}

/// A URL of a queue of a crawl.
pub fn info(url: &str, key: &str, crawl: &str) -> UrlInfo {
    UrlInfo { url: url.into(), key: key.into(), crawl_id: crawl.into(), ..Default::default() }
}

/// A discovered URL, without an ID.
pub fn discovered(info: UrlInfo) -> UrlItem {
    let item = url_item::Item::Discovered(DiscoveredUrlItem { info: Some(info) });
    UrlItem { item: Some(item), ..Default::default() }
}

/// A known URL, without an ID.
pub fn known(info: UrlInfo, date: u64) -> UrlItem {
    let item = url_item::Item::Known(KnownUrlItem { info: Some(info), refetchable_from_date: date });
    UrlItem { item: Some(item), ..Default::default() }
}

/// The date and the URL of a known item.
pub fn told(item: &UrlItem) -> (u64, UrlInfo) {
    match &item.item {
        Some(url_item::Item::Known(known)) => (known.refetchable_from_date, known.info.clone().unwrap()),
        other => panic!("not a known item: {other:?}"),
    }
}

/// GetURLs of one crawl: `queues` queues, `urls` URLs of each.
pub fn ask(crawl: &str, queues: u32, urls: u32) -> GetParams {
    let item = Some(get_params::Item::CrawlId(crawl.into()));
    GetParams { max_queues: queues, max_urls_per_queue: urls, item, ..Default::default() }
}

/// A crawl, or one of its queues.
pub fn queue(key: &str, crawl: &str) -> QueueWithinCrawlParams {
    QueueWithinCrawlParams { key: key.into(), crawl_id: crawl.into(), local: false }
}

impl World {
    /// Puts items through a stream that is closed at once; returns acknowledgements by ID, in the order of IDs.
    pub async fn put(&mut self, items: Vec<UrlItem>) -> Vec<(String, Ack)> {
        let acks = self.client.put_urls(stream::iter(items)).await.unwrap().into_inner();
        let mut acks: Vec<_> = acks
            .map(|ack| {
                let ack = ack.unwrap();
                (ack.id.clone(), ack.status())
            })
            .collect()
            .await;
        acks.sort();
        acks
    }

    /// Puts one item; its status.
    pub async fn put_one(&mut self, item: UrlItem) -> Ack {
        let acks = self.put(vec![item]).await;
        assert_eq!(acks.len(), 1);
        acks[0].1
    }

    /// Puts discovered URLs of a crawl, keys from the URLs; none may be refused.
    pub async fn seed(&mut self, crawl: &str, urls: &[&str]) {
        let items = urls.iter().map(|url| discovered(info(url, "", crawl))).collect();
        let acks = self.put(items).await;
        assert_eq!(acks.len(), urls.len());
        assert!(acks.iter().all(|(_, ack)| *ack == Ack::Ok), "{acks:?}");
    }

    /// GetURLs, to the end.
    pub async fn get(&mut self, params: GetParams) -> Vec<UrlInfo> {
        let urls = self.client.get_urls(params).await.unwrap().into_inner();
        urls.map(|url| url.unwrap()).collect().await
    }

    /// GetURLs; only the URLs' texts, sorted.
    pub async fn get_texts(&mut self, params: GetParams) -> Vec<String> {
        let mut texts: Vec<String> = self.get(params).await.into_iter().map(|info| info.url).collect();
        texts.sort();
        texts
    }

    pub async fn stats(&mut self, key: &str, crawl: &str) -> Stats {
        self.client.get_stats(queue(key, crawl)).await.unwrap().into_inner()
    }

    /// Lets milliseconds pass.
    pub fn pass(&self, ms: u64) {
        self.clock.advance(Millis(ms));
    }
}
