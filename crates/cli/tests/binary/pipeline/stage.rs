//! The site, one server or several nodes, and a fleet of workers.

use wayleave_api::Patch;
use wayleave_api::chunks::{ChunkState, ListChunksQuery};
use wayleave_api::crawls::{RetryPatch, SetCrawlRequest};
use wayleave_client::Retry;
use wayleave_testbed::Process;
use wayleave_workers::demo_site::{Config, Site};

use super::killer::Kind;
use crate::prelude::*;

pub const CRAWL: &str = "site";
pub const ROWS: usize = 2;
/// More than a restart of the server takes, or the takeover of a node's shards.
const PATIENT: Retry = Retry { attempts: 60, base: Duration::from_millis(50), max: Duration::from_millis(500) };

/// How much there is to do, and by whom.
#[derive(Clone, Copy)]
pub struct Size {
    pub hosts: usize,
    pub pages: usize,
    /// What the hosts' robots.txt asks for.
    pub delay: Duration,
    pub lease: &'static str,
    /// Links of a chunk.
    pub links: &'static str,
    pub crawlers: usize,
    pub builders: usize,
    pub servers_of_row: usize,
}

impl Size {
    /// The links of the whole site: the numbered pages of each host and fifteen special ones.
    pub fn links_of_all(&self) -> usize {
        self.hosts * (self.pages + 15)
    }
}

/// A server that is started again with the same address and data.
pub struct Node {
    pub name: String,
    words: Vec<String>,
    server: Option<Server>,
}

impl Node {
    fn start(name: &str, words: &[&str]) -> Self {
        let words = words.iter().map(|word| (*word).to_owned()).collect();
        let mut node = Self { name: name.to_owned(), words, server: None };
        node.run();
        node
    }

    /// Returns when it is ready.
    pub fn run(&mut self) {
        let words: Vec<&str> = self.words.iter().map(String::as_str).collect();
        self.server = Some(tokio::task::block_in_place(|| Server::spawn(wayleave(&words))));
    }

    pub fn kill(&mut self) {
        self.server.take().into_iter().for_each(Server::kill);
    }

    fn url(&self) -> &str {
        &self.server.as_ref().unwrap().url
    }
}

/// The exit code of a worker whose server does not answer when it starts.
const UNAVAILABLE: i32 = 5;

/// A worker as a process that is killed and started again with the same name, folder and port.
pub struct Worker {
    pub kind: Kind,
    pub name: String,
    /// Where it keeps its files.
    pub folder: PathBuf,
    pub process: Process,
}

impl Worker {
    /// Starts a worker with its folders below `place`.
    fn start(kind: Kind, name: &str, place: &Path, words: &[&str]) -> Self {
        let folder = place.join(name);
        let (listen, path) = (format!("127.0.0.1:{}", free_port()), folder.to_str().unwrap());
        let (command, store) = match kind {
            Kind::Crawler => ("crawl", "--store"),
            Kind::Builder => ("build", "--store"),
            Kind::Index => ("index", "--data"),
            Kind::Node => panic!("a node is no worker"),
        };
        let binary = std::fs::canonicalize(binary()).unwrap();
        // The site is on loopback, and so is each of several nodes.
        let allow = ["--allow-net", "127.0.0.0/8"];
        let own = [binary.to_str().unwrap(), command, "--id", name, "--listen", &listen, store, path];
        let all = own.iter().chain(&allow).chain(words).map(|word| (*word).to_owned()).collect();
        // What a killed process leaves in a folder for temporary files goes with the test.
        let mut process = Process::new(all, &place.join(format!("{name}.log"))).with("TMPDIR", place);
        process.start();
        Self { kind, name: name.to_owned(), folder, process }
    }

    /// It never ends by itself, unless its server was away when it started: then a service manager starts it again.
    fn check(&mut self) {
        if let Some(status) = self.process.ended() {
            let (name, log) = (&self.name, self.process.last_words());
            assert_eq!(status.code(), Some(UNAVAILABLE), "{name} ended by itself; its log: {log}");
            self.process.start();
        }
    }
}

pub struct Stage {
    pub size: Size,
    pub site: Site,
    pub client: Client,
    pub nodes: Vec<Node>,
    pub workers: Vec<Worker>,
    /// Names of machines that never come back.
    pub lost: Vec<String>,
    pub begun: Instant,
    /// The workers' `--server`, one for each node, which comes first.
    servers: Vec<String>,
    keep: tempfile::TempDir,
}

impl Stage {
    /// One server with the embedded store.
    pub async fn embedded(size: Size) -> Self {
        let keep = tempfile::tempdir().unwrap();
        let (data, listen) = (keep.path().join("data"), format!("127.0.0.1:{}", free_port()));
        let words = ["serve", "--data", data.to_str().unwrap(), "--listen", &listen, "--shards", "4"];
        let node = Node::start("server", &words);
        Self::with(size, vec![node], keep).await
    }

    /// Three nodes over a database.
    pub async fn of_nodes(size: Size, engine: &str) -> Self {
        let keep = tempfile::tempdir().unwrap();
        let nodes = [1, 2, 3].map(|number| {
            let (name, listen) = (format!("node-{number}"), format!("127.0.0.1:{}", free_port()));
            let place = ["serve", "--insecure", "--engine", engine, "--listen", &listen, "--advertise", &listen];
            let more = ["--node", &name, "--shards", "12", "--node-ttl-ms", "2000", "--allow-net", "127.0.0.0/8"];
            let makers = keep.path().join(format!("makers of {name}"));
            Node::start(&name, &[&place[..], &more[..], &["--makers", makers.to_str().unwrap()]].concat())
        });
        Self::with(size, nodes.into(), keep).await
    }

    async fn with(size: Size, nodes: Vec<Node>, keep: tempfile::TempDir) -> Self {
        let slow = Duration::from_millis(400);
        let config =
            Config { hosts: size.hosts, pages: size.pages, slow, crawl_delay: Some(size.delay), ..Config::default() };
        let site = Site::start(config).await.unwrap();
        let mut urls: Vec<&str> = nodes.iter().map(Node::url).collect();
        let servers: Vec<String> = (0..urls.len())
            .map(|_| {
                urls.rotate_left(1);
                urls.join(",")
            })
            .collect();
        let client = Client::new(&servers[0]).unwrap().with_retry(PATIENT);
        let (workers, lost, begun) = (Vec::new(), Vec::new(), Instant::now());
        let mut stage = Self { size, site, client, nodes, workers, lost, begun, servers, keep };
        stage.seed().await;
        for (kind, count) in [(Kind::Crawler, size.crawlers), (Kind::Builder, size.builders)] {
            (1..=count).for_each(|number| stage.add(kind, number, 0));
        }
        for row in 0..ROWS {
            (1..=size.servers_of_row)
                .for_each(|number| stage.add(Kind::Index, row * size.servers_of_row + number, row));
        }
        stage
    }

    async fn seed(&self) {
        // The crawl's own delay is smaller than that of robots.txt: only a Crawl-delay that was reported keeps visits apart.
        // A page that is broken for good is given up soon.
        let retry = RetryPatch { first_ms: Patch::Set(50), max_ms: Patch::Set(100), attempts: Patch::Set(5) };
        let settings =
            SetCrawlRequest { delay_ms: Patch::Set(20), retry: Patch::Set(retry), ..SetCrawlRequest::default() };
        self.client.put_crawl(CRAWL, &settings).await.unwrap();
        let urls = self.site.seeds().into_iter().map(|url| UrlToAdd { url: url.into(), ..UrlToAdd::default() });
        let request = AddUrlsRequest { crawl: Some(CRAWL.to_owned()), urls: urls.collect() };
        self.client.add_urls(&request).await.unwrap();
    }

    /// Starts one more worker.
    pub fn add(&mut self, kind: Kind, number: usize, row: usize) {
        let (name, row) = (format!("{}-{number}", kind.name()), row.to_string());
        let Size { lease, links, .. } = self.size;
        let mut words = vec!["--server", &self.servers[number % self.servers.len()]];
        words.extend(match kind {
            Kind::Crawler => vec!["--crawl", CRAWL, "--lease", lease, "--links", links],
            Kind::Builder => vec!["--crawl", CRAWL, "--lease", lease, "--patience", "2s"],
            _ => vec!["--row", row.as_str(), "--poll", "200ms", "--grace", "0"],
        });
        let worker = Worker::start(kind, &name, self.place(), &words);
        self.workers.push(worker);
    }

    pub fn place(&self) -> &Path {
        self.keep.path()
    }

    /// Whether every link is settled, and no chunk is on its way to be built.
    pub async fn is_settled(&mut self) -> bool {
        self.workers.iter_mut().for_each(Worker::check);
        if !self.client.crawl(CRAWL).await.unwrap().finished {
            return false;
        }
        for state in [ChunkState::Crawling, ChunkState::Crawled, ChunkState::Building] {
            let query = ListChunksQuery { state: Some(state), limit: Some(1), ..ListChunksQuery::default() };
            if !self.client.list_chunks(&query).await.unwrap().chunks.is_empty() {
                return false;
            }
        }
        true
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        if std::thread::panicking() && std::env::var_os("WAYLEAVE_KEEP").is_some() {
            self.keep.disable_cleanup(true);
            println!("all is kept in {}", self.keep.path().display());
        }
    }
}
