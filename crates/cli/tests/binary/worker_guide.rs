//! The worker of the guide, run as a reader would run it: two of them, with `python3`, against the built server and
//! three small sites. One is killed while it holds a reservation. What the sites saw is checked against the server's
//! final state.
//!
//! Interleavings that could break the guide's promises, all of which occur in this run: a worker dies in the middle of
//! a visit; a site asks for a back-off while URLs of it are handed out; a worker learns a Crawl-delay that the server
//! does not know yet; a worker asks for work while the last URLs are with the other, so that nothing is ready and
//! nothing is finished.

use std::net::TcpListener;
use std::sync::mpsc::{Receiver, Sender, channel};

use crate::prelude::*;

const CRAWL: &str = "guide";
const DELAY: Duration = Duration::from_millis(100);
const CRAWL_DELAY: Duration = Duration::from_secs(2);
const RETRY_AFTER: Duration = Duration::from_secs(2);
/// Far more than the run takes: only a worker that never ends reaches it.
const PATIENCE: Duration = Duration::from_secs(90);

/// The guide promises a worker that can be read in one sitting.
#[test]
fn the_worker_of_the_guide_has_at_most_80_lines() {
    let worker = std::fs::read_to_string(format!("{}/../../docs/worker.py", env!("CARGO_MANIFEST_DIR"))).unwrap();
    assert!(worker.lines().count() <= 80, "{} lines", worker.lines().count());
}

/// One request as a site saw it. `ended` is read before the response is written, so a worker can only see it end later.
#[derive(Clone, Debug)]
struct Hit {
    host: &'static str,
    path: String,
    holder: String,
    begun: Instant,
    ended: Instant,
}

/// Three sites and the requests that they received.
struct Sites {
    /// Host to its address with the port.
    at: BTreeMap<&'static str, String>,
    hits: Arc<Mutex<Vec<Hit>>>,
    /// Receives the holder of every request for the page that hangs.
    hanging: Receiver<String>,
}

const FIRST: &str = "127.0.0.1";
const BUSY: &str = "127.0.0.2";
const HANGING: &str = "127.0.0.3";

impl Sites {
    fn start() -> Self {
        let (tell, hanging) = channel();
        let hits = Arc::default();
        let listeners = [FIRST, BUSY, HANGING].map(|host| (host, TcpListener::bind((host, 0)).unwrap()));
        let at: BTreeMap<_, _> =
            listeners.iter().map(|(host, listener)| (*host, listener.local_addr().unwrap().to_string())).collect();
        for (host, listener) in listeners {
            let (at, hits, tell) = (at.clone(), Arc::clone(&hits), tell.clone());
            std::thread::spawn(move || {
                for stream in listener.incoming().map_while(Result::ok) {
                    let (at, hits, tell) = (at.clone(), Arc::clone(&hits), tell.clone());
                    std::thread::spawn(move || serve(host, stream, &at, &hits, &tell));
                }
            });
        }
        Self { at, hits, hanging }
    }

    fn url(&self, host: &str, path: &str) -> String {
        format!("http://{}{path}", self.at[host])
    }

    fn hits(&self, host: &str) -> Vec<Hit> {
        let mut hits: Vec<Hit> = self.hits.lock().unwrap().iter().filter(|hit| hit.host == host).cloned().collect();
        hits.sort_by_key(|hit| hit.begun);
        hits
    }
}

/// Answers one request. Workers that disconnect are ignored.
fn serve(
    host: &'static str,
    mut stream: TcpStream,
    at: &BTreeMap<&'static str, String>,
    hits: &Mutex<Vec<Hit>>,
    tell: &Sender<String>,
) {
    let begun = Instant::now();
    let lines = BufReader::new(stream.try_clone().unwrap()).lines().map_while(Result::ok);
    let head: Vec<String> = lines.take_while(|line| !line.is_empty()).collect();
    let Some(path) = head.first().and_then(|line| line.split(' ').nth(1)).map(str::to_owned) else { return };
    let agent = head.iter().find_map(|line| line.strip_prefix("User-Agent: ")).unwrap();
    let holder = agent.split(['(', ')']).nth(1).unwrap().to_owned();
    let again = {
        let mut hits = hits.lock().unwrap();
        let again = hits.iter().any(|hit| hit.host == host && hit.path == path);
        hits.push(Hit { host, path: path.clone(), holder: holder.clone(), begun, ended: Instant::now() });
        again
    };
    let page = |body: &str| answer("200 OK", "Content-Type: text/html\r\n", body);
    let text = match (host, path.as_str()) {
        (FIRST, "/robots.txt") => answer("200 OK", "", "User-agent: *\nDisallow: /private/\nCrawl-delay: 2\n"),
        (FIRST, "/") => page(&format!(
            "<a href=/a>a</a> <a href=/b>b</a> <a href=/moved>1</a> <A class='x' HREF=\"/missing#top\">2</A> <a href='/private/x?a=1&amp;b=2'>3</a> \
             <a href=http://{}/>4</a> <a href=http://{}/>5</a> <a href=mailto:me@site.example>6</a> <a href='http://[bad'>7</a>",
            at[BUSY], at[HANGING]
        )),
        (FIRST, "/moved") => answer("301 Moved Permanently", "Location: /target\r\n", ""),
        (FIRST, "/a" | "/b") => page("done"),
        (FIRST, "/target") => page("<a href=/deep>as deep as the limit allows, if a redirect is no link</a>"),
        (FIRST, "/deep") => page("<a href=/deeper>over the limit of depth</a>"),
        (BUSY, "/") => page("<a href=/busy>1</a> <a href=/other>2</a>"),
        (BUSY, "/busy") if !again => answer("503 Service Unavailable", "Retry-After: 2\r\n", ""),
        (BUSY, "/busy" | "/other") => page("done"),
        (HANGING, "/") => page("<a href=/hang>1</a> <a href=/calm>2</a>"),
        (HANGING, "/calm") => page("done"),
        (HANGING, "/hang") => {
            _ = tell.send(holder);
            // Until the worker disconnects.
            _ = stream.read(&mut [0]);
            return;
        }
        _ => answer("404 Not Found", "", ""),
    };
    _ = stream.write_all(text.as_bytes());
}

fn answer(status: &str, headers: &str, body: &str) -> String {
    format!("HTTP/1.1 {status}\r\n{headers}Content-Length: {}\r\nConnection: close\r\n\r\n{body}", body.len())
}

/// A worker of the guide, killed on drop.
struct Worker(Child);

impl Worker {
    fn start(server: &Server, holder: &str) -> Self {
        let mut command = Command::new("python3");
        command.arg(format!("{}/../../docs/worker.py", env!("CARGO_MANIFEST_DIR")));
        command.args(["--holder", holder, "--server", &server.url, "--crawl", CRAWL]);
        command.args(["--lease", "3", "--timeout", "2", "--wait", "1"]).env("no_proxy", "*").stdin(Stdio::null());
        Self(command.spawn().unwrap())
    }

    /// Waits until it ends by itself.
    fn ended(&mut self) -> bool {
        let since = Instant::now();
        loop {
            if let Some(status) = self.0.try_wait().unwrap() {
                return status.success();
            }
            assert!(since.elapsed() < PATIENCE, "the worker does not end");
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        _ = self.0.kill();
        _ = self.0.wait();
    }
}

#[test]
fn two_workers_of_the_guide_finish_a_crawl_though_one_is_killed() {
    let (_keep, server) = Server::fresh();
    let sites = Sites::start();
    server.run(&["crawls", "set", CRAWL, "--delay", "100ms", "--max-depth", "2", "--max-attempts", "3"]).ok();
    server.run(&["crawls", "set", CRAWL, "--retry-first", "100ms", "--retry-max", "1s"]).ok();
    server.run_with(&["seed", "--crawl", CRAWL, "-"], &sites.url(FIRST, "/")).ok();
    let crawl = || server.run(&["crawls", "show", CRAWL, "--json"]).json().remove(0);
    assert_eq!(crawl()["finished"], false);
    assert!(crawl()["waits_for"].is_string(), "{}", crawl());

    let mut workers: BTreeMap<_, _> = ["one", "two"].map(|name| (name.to_owned(), Worker::start(&server, name))).into();
    let killed = sites.hanging.recv_timeout(PATIENCE).unwrap();
    drop(workers.remove(&killed).unwrap());
    let (survivor, worker) = workers.iter_mut().next().unwrap();
    assert!(worker.ended(), "the worker that is left ends well");

    let crawl = crawl();
    assert_eq!((&crawl["finished"], &crawl["waits_for"]), (&true.into(), &serde_json::Value::Null), "{crawl}");
    assert!(crawl["finished_at"].is_string(), "{crawl}");
    check_urls(&server, &sites);
    check_visits(&sites, &killed, survivor);
}

/// Every reachable page was reported, with the expected outcome.
fn check_urls(server: &Server, sites: &Sites) {
    let listed = server.run(&["urls", "--crawl", CRAWL, "--json"]).json();
    let seen: BTreeMap<String, (String, Option<u64>)> = listed
        .iter()
        .map(|url| {
            let state = url["state"].as_str().unwrap().to_owned();
            (url["url"].as_str().unwrap().to_owned(), (state, url["last"]["status"].as_u64()))
        })
        .collect();
    let expected = [
        (FIRST, "/", "fetched", Some(200)),
        (FIRST, "/a", "fetched", Some(200)),
        (FIRST, "/b", "fetched", Some(200)),
        (FIRST, "/moved", "fetched", Some(301)),
        (FIRST, "/target", "fetched", Some(200)),
        (FIRST, "/deep", "fetched", Some(200)),
        (FIRST, "/missing", "gone", Some(404)),
        (FIRST, "/private/x?a=1&b=2", "failed", None),
        (BUSY, "/", "fetched", Some(200)),
        (BUSY, "/busy", "fetched", Some(200)),
        (BUSY, "/other", "fetched", Some(200)),
        (HANGING, "/", "fetched", Some(200)),
        (HANGING, "/calm", "fetched", Some(200)),
        (HANGING, "/hang", "failed", None),
    ];
    let expected: BTreeMap<_, _> = expected
        .into_iter()
        .map(|(host, path, state, status)| (sites.url(host, path), (state.to_owned(), status)))
        .collect();
    assert_eq!(seen, expected);
}

/// What the sites saw: nothing that robots.txt disallows, nothing too soon, nothing needlessly twice.
fn check_visits(sites: &Sites, killed: &str, survivor: &str) {
    let count = |host, path: &str| sites.hits(host).iter().filter(|hit| hit.path == path).count();
    // The visit to most of these takes longer than the requested lease: it was renewed.
    for path in ["/", "/a", "/b", "/moved", "/target", "/deep", "/missing"] {
        assert_eq!(count(FIRST, path), 1, "{path}");
    }
    assert!(sites.hits(FIRST).iter().all(|hit| !hit.path.starts_with("/private")), "robots.txt forbids it");
    assert_eq!((count(BUSY, "/busy"), count(BUSY, "/other")), (2, 1));
    for (host, delay) in [(FIRST, CRAWL_DELAY), (BUSY, DELAY), (HANGING, DELAY)] {
        let hits = sites.hits(host);
        assert_eq!(hits[0].path, "/robots.txt", "it is read first");
        for pair in hits.windows(2) {
            let rests = host == BUSY && pair[0].path == "/busy" && count_until(&hits, &pair[0]) == 1;
            let (gap, least) = (pair[1].begun - pair[0].ended, if rests { RETRY_AFTER } else { delay });
            assert!(gap >= least, "{gap:?} instead of {least:?} between {pair:#?}");
            // Without a Retry-After the server would leave the site alone for a minute.
            assert!(!rests || gap < Duration::from_secs(60), "Retry-After was not reported: {pair:#?}");
        }
    }
    let hung: Vec<Hit> = sites.hits(HANGING).into_iter().filter(|hit| hit.path == "/hang").collect();
    assert_eq!(hung[0].holder, killed);
    assert!(hung.len() > 1 && hung[1..].iter().all(|hit| hit.holder == survivor), "what it held came back: {hung:#?}");
}

/// How often the page of a hit was requested until then.
fn count_until(hits: &[Hit], until: &Hit) -> usize {
    hits.iter().filter(|hit| hit.path == until.path && hit.begun <= until.begun).count()
}
