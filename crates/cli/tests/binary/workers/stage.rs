//! A server, a site, and commands for both.

use wayleave_workers::demo_site::{Config, Site};

use crate::prelude::*;

/// The delay that the robots.txt of the site asks for. The crawl's own setting is smaller: only a Crawl-delay that was
/// reported keeps visits apart.
pub const DELAY: Duration = Duration::from_millis(150);

/// A worker in a process of its own; killed on drop, also by a test that fails.
pub struct Worker(pub Child);

impl Worker {
    pub fn start(mut command: Command) -> Self {
        command.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::inherit());
        Self(command.spawn().unwrap())
    }

    /// As a power cut would.
    pub fn kill(self) {
        drop(self);
    }

    /// Waits for its end by itself.
    pub async fn wait(mut self) -> Option<i32> {
        let status = tokio::task::spawn_blocking(move || self.0.wait().unwrap().code());
        status.await.unwrap()
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        _ = self.0.kill();
        _ = self.0.wait();
    }
}

pub struct Stage {
    keep: tempfile::TempDir,
    pub server: Server,
    pub site: Site,
}

impl Stage {
    pub async fn start(hosts: usize, pages: usize) -> Self {
        Self::start_slow(hosts, pages, Duration::from_millis(400)).await
    }

    /// With a page that takes so long.
    pub async fn start_slow(hosts: usize, pages: usize, slow: Duration) -> Self {
        let (keep, server) = Server::fresh();
        let config = Config { hosts, pages, slow, crawl_delay: Some(DELAY), ..Config::default() };
        let stage = Self { keep, server, site: Site::start(config).await.unwrap() };
        let set = ["crawls", "set", "site", "--delay", "20ms", "--max-attempts", "3"];
        stage.server.run(&[&set[..], &["--retry-first", "50ms", "--retry-max", "100ms"]].concat()).ok();
        let seeds: Vec<String> = stage.site.seeds().iter().map(ToString::to_string).collect();
        stage.server.run_with(&["seed", "--crawl", "site", "-"], &seeds.join("\n")).ok();
        stage
    }

    /// A folder for a worker.
    pub fn folder(&self, name: &str) -> PathBuf {
        self.keep.path().join(name)
    }

    /// A worker with its folder, short leases and more arguments, against a server.
    pub fn worker(&self, kind: &str, name: &str, server: &str, args: &[&str]) -> Command {
        let folder = self.folder(name);
        let mut command = wayleave(&[kind, "--store", folder.to_str().unwrap()]);
        for (flag, value) in [("--crawl", "site"), ("--id", name), ("--lease", "2s")] {
            if !args.contains(&flag) {
                command.args([flag, value]);
            }
        }
        if kind == "crawl" {
            // The site is on loopback, and crawlers are given no seeds.
            command.args(["--allow-net", "127.0.0.0/8"]);
        }
        command.args(["--server", server]).args(args);
        command
    }

    /// An index server.
    pub fn index(&self, name: &str, row: &str, server: &str) -> Worker {
        let folder = self.folder(name);
        let mut command = wayleave(&["index", "--row", row, "--data", folder.to_str().unwrap(), "--id", name]);
        command.args(["--poll", "100ms", "--grace", "0", "--server", server]);
        Worker::start(command)
    }

    /// Runs a worker to its end.
    pub async fn run(&self, kind: &str, name: &str, args: &[&str]) -> Ended {
        let command = self.worker(kind, name, &self.server.url, args);
        let ended = tokio::task::spawn_blocking(move || run(command, "")).await.unwrap();
        println!("{kind} {name}: {}{}", ended.out, ended.err);
        ended
    }

    /// Starts a worker that a test ends.
    pub fn spawn(&self, kind: &str, name: &str, server: &str, args: &[&str]) -> Worker {
        Worker::start(self.worker(kind, name, server, args))
    }

    /// The state of every URL that the server knows.
    pub fn states(&self) -> BTreeMap<String, String> {
        let urls = self.server.run(&["urls", "--crawl", "site", "--all", "--json"]).json();
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        urls.iter().map(|url| (text(&url["url"]), text(&url["state"]))).collect()
    }

    /// All chunks.
    pub fn chunks(&self) -> Vec<Value> {
        self.server.run(&["chunks", "--all", "--json"]).json()
    }

    /// Every URL of the site has ended, as it should; and the site was treated well.
    pub fn check_crawled(&self) {
        let states = self.states();
        for (url, _) in self.site.indexable() {
            assert_eq!(states.get(url.as_str()).map(String::as_str), Some("fetched"), "{url}");
        }
        for (host, seed) in self.site.seeds().iter().enumerate() {
            for (path, wanted) in [
                ("/moved", "fetched"),
                ("/moved-away", "fetched"),
                ("/loop", "fetched"),
                ("/noindex", "fetched"),
                ("/twin", "fetched"),
                ("/missing", "gone"),
                ("/broken", "failed"),
                ("/private/secret", "failed"),
            ] {
                let url = seed.join(path).unwrap();
                assert_eq!(states.get(url.as_str()).map(String::as_str), Some(wanted), "{url} of host {host}");
            }
            for never in ["/nofollow", "/unlinked"] {
                assert!(!states.contains_key(seed.join(never).unwrap().as_str()), "{never} was followed");
            }
        }
        self.check_politeness();
    }

    /// No overlap, no gap below the delay, nothing that robots.txt forbids.
    pub fn check_politeness(&self) {
        assert_eq!(self.site.log().lost(), 0);
        for (host, treated) in self.site.log().politeness() {
            assert_eq!(treated.overlaps, 0, "{host}: {treated:?}");
            assert!(treated.smallest_gap.is_none_or(|gap| gap >= DELAY), "{host}: {treated:?}");
        }
        assert!(self.site.log().entries().iter().all(|access| access.path != "/private/secret"));
    }
}
