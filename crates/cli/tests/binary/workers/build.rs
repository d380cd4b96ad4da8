//! `wayleave build`, after `wayleave crawl`.

use std::collections::HashSet;
use std::fs::File;

use wayleave_workers::digest::sha256;
use wayleave_workers::index::{self, OpenIndex, OpenIndexes};

use super::cut::{Cut, Moment, Proxy};
use super::stage::Stage;
use crate::prelude::*;

/// All built chunks as one index. Their files must be whole.
fn indexes(stage: &Stage, builders: &[&str]) -> (tempfile::TempDir, OpenIndexes) {
    let unpacked = tempfile::tempdir().unwrap();
    let mut indexes = OpenIndexes::default();
    for chunk in stage.chunks().iter().filter(|chunk| chunk["state"] == "built") {
        let (id, artifact) = (chunk["id"].as_str().unwrap(), &chunk["artifacts"]["build"]);
        let name = artifact["location"].as_str().unwrap().rsplit_once('/').unwrap().1;
        let file = builders.iter().map(|builder| stage.folder(builder).join(name)).find(|file| file.exists()).unwrap();
        assert_eq!(artifact["checksum"], sha256(&std::fs::read(&file).unwrap()));
        let folder = unpacked.path().join(id);
        index::unpack(File::open(&file).unwrap(), &folder).unwrap();
        indexes.add(OpenIndex::open(id, &folder).unwrap());
    }
    (unpacked, indexes)
}

/// Every chunk is built, and every word of every page is found.
fn check_built(stage: &Stage, builders: &[&str]) {
    for chunk in stage.chunks() {
        assert!(matches!(chunk["state"].as_str(), Some("built" | "skipped")), "{chunk}");
    }
    let (_unpacked, indexes) = indexes(stage, builders);
    for (url, page) in stage.site.indexable() {
        for word in &page.words {
            let query = format!("{word} {}", page.own_word()).parse().unwrap();
            let hits = indexes.search(&query, None, 10).hits;
            assert_eq!(hits.len(), 1, "{word} of {url}");
            assert_eq!((hits[0].url.as_str(), hits[0].crawl.as_str()), (url.as_str(), "site"));
        }
    }
    for hidden in ["/noindex", "/twin"] {
        for host in 0..stage.site.seeds().len() {
            let page = stage.site.page(host, hidden).unwrap();
            assert!(indexes.search(&page.own_word().parse().unwrap(), None, 10).hits.is_empty(), "{hidden}");
        }
    }
}

/// Interleavings: the answer to the claim is lost with the builder; it dies with a published index that no chunk refers
/// to; after `complete`, without hearing of it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_builder_that_is_killed_at_any_step_leaves_every_chunk_built_once() {
    let stage = Stage::start(3, 6).await;
    // It stays, because it serves its files.
    let crawler = stage.spawn("crawl", "crawler", &stage.server.url, &[]);
    stage.server.run(&["crawls", "show", "site", "--wait-finished", "--wait", "2m"]).ok();
    stage.check_crawled();
    let cuts = [
        Cut { path: "/chunks/claim", moment: Moment::After, spared: 0, content: "\"token\"" },
        Cut { path: "/complete", moment: Moment::Before, spared: 1, content: "\"artifact\"" },
        Cut { path: "/complete", moment: Moment::After, spared: 1, content: "\"built\"" },
    ];
    for cut in cuts {
        let proxy = Proxy::start(&stage.server.url, cut).await;
        proxy.kills(stage.spawn("build", "dies", &proxy.url, &["--chunks", "2"])).await;
    }
    let told = stage.run("build", "lives", &["--until-idle", "--json"]).await.json().remove(0);
    assert_eq!(told["lost"], 0, "{told}");
    // What the killed one built is still in its folder, which nobody serves.
    check_built(&stage, &["lives", "dies"]);
    let built = stage.chunks().iter().filter(|chunk| chunk["state"] == "built").count();
    let files = |builder: &str| {
        let files = std::fs::read_dir(stage.folder(builder)).unwrap().map(|file| file.unwrap().file_name());
        files.filter(|name| name.to_str().unwrap().starts_with("chunk-")).count()
    };
    assert_eq!(files("lives") + files("dies"), built + 1, "one was published and not completed");
    crawler.kill();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn chunks_whose_pages_are_gone_are_crawled_again() {
    let stage = Stage::start(2, 4).await;
    assert_eq!(stage.run("crawl", "first", &["--until-idle"]).await.code, 0);
    let before: HashSet<String> = stage.states().into_keys().collect();
    // Its crawler is gone for good, and nobody answers at its address.
    let crawler = stage.spawn("crawl", "second", &stage.server.url, &[]);
    let told = stage.run("build", "builder", &["--until-idle", "--patience", "300ms", "--json"]).await.json().remove(0);
    assert!(told["inputs_lost"].as_u64().unwrap() > 0, "{told}");
    assert_eq!(stage.states().into_keys().collect::<HashSet<_>>(), before);
    check_built(&stage, &["builder"]);
    stage.check_crawled();
    crawler.kill();
}

/// Waits until every chunk that is good is built.
fn wait_built(stage: &Stage, what: &str, good: impl Fn(&str) -> bool) {
    let patience = Instant::now() + Duration::from_secs(60);
    loop {
        let chunks = stage.chunks();
        let waiting = chunks.iter().filter(|chunk| matches!(chunk["state"].as_str(), Some("crawled" | "building")));
        let left = waiting.filter(|chunk| good(chunk["artifacts"]["crawl"]["location"].as_str().unwrap())).count();
        if left == 0 {
            return;
        }
        assert!(Instant::now() < patience, "{what}: {left} are not built");
    }
}

/// A regression: the builder waited for the machine of the first chunk in its hands, and the others waited with it; a lease
/// that was lost then counted as an attempt at each. The machine comes back, and its chunks are built too.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_machine_that_is_away_does_not_hold_up_the_chunks_of_others() {
    let stage = Stage::start(2, 4).await;
    assert_eq!(stage.run("crawl", "away", &["--once"]).await.code, 0);
    let here = stage.spawn("crawl", "here", &stage.server.url, &[]);
    stage.server.run(&["crawls", "show", "site", "--wait-finished", "--wait", "2m"]).ok();
    let port = std::fs::read_to_string(stage.folder("away").join(".port")).unwrap();
    let is_away = |location: &str| location.contains(&format!(":{port}/"));
    let builder = stage.spawn("build", "builder", &stage.server.url, &["--patience", "10m", "--chunks", "100"]);
    wait_built(&stage, "those of the crawler that runs", |location| !is_away(location));
    let waiting = stage.chunks().into_iter().filter(|chunk| chunk["state"] == "building").count();
    assert_eq!(waiting, 1, "one is still in hand, and waits for its machine");
    let back = stage.spawn("crawl", "away", &stage.server.url, &[]);
    wait_built(&stage, "that of the one that is back", |_| true);
    builder.kill();
    check_built(&stage, &["builder"]);
    here.kill();
    back.kill();
}

/// A regression: a location that somebody elsewhere names led the builder to services of its own machine, and the reason told the
/// size and digest of what they answered. The stranger's address is 127.0.0.2, which is not where the secret is.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_location_leads_the_builder_only_to_the_address_that_it_was_reported_from() {
    let stage = Stage::start(1, 2).await;
    let secret = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    secret.set_nonblocking(true).unwrap();
    let location = format!("http://{}/admin", secret.local_addr().unwrap());
    let stranger = reqwest::Client::builder().local_address("127.0.0.2".parse::<std::net::IpAddr>().ok());
    let stranger = stranger.no_proxy().build().unwrap();
    let call = async |path: String, body: Value| {
        let answer = stranger.post(format!("{}/v1/chunks/{path}", stage.server.url)).json(&body).send().await.unwrap();
        answer.error_for_status().unwrap().json::<Value>().await.unwrap()
    };
    let claim = json!({ "stage": "crawl", "worker": "stranger", "crawl": "site", "links": 1, "wait_ms": 10_000 });
    let claimed = call("claim".to_owned(), claim).await;
    let chunk = &claimed["chunks"][0];
    let (id, token, url) = (chunk["id"].as_str().unwrap(), &chunk["token"], &chunk["links"][0]["url"]);
    let results = json!([{ "url": url, "outcome": "fetched", "status": 200 }]);
    call(format!("{id}/links"), json!({ "token": token, "results": results })).await;
    let artifact = json!({ "location": location, "bytes": 5, "checksum": sha256(b"guess") });
    call(format!("{id}/complete"), json!({ "token": token, "artifact": artifact })).await;
    assert_eq!(stage.run("build", "builder", &["--once"]).await.code, 0);
    let shown = stage.server.run(&["chunks", "show", id, "--json"]).json().remove(0);
    let why = shown["last_error"].as_str().unwrap();
    assert!(why.contains("127.0.0.1 may not be called (a loopback address)") && !why.contains("sha256"), "{why}");
    assert!(secret.accept().is_err(), "nothing called it");
}
