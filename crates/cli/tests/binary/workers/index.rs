//! `wayleave index` and `wayleave search`, after `crawl` and `build`.

use std::ffi::OsString;

use wayleave_api::map::GetMapQuery;
use wayleave_outgoing::Policy;
use wayleave_workers::search::{self, Search, SearchResults};

use super::cut::{Cut, Moment, Proxy};
use super::stage::Stage;
use crate::prelude::*;

/// Waits for a map.
async fn map(client: &Client, what: &str, good: impl Fn(&Map) -> bool) -> Map {
    let patience = Instant::now() + Duration::from_secs(90);
    let mut since = None;
    loop {
        let map = client.map(&GetMapQuery { since, wait_ms: Some(1_000) }).await.unwrap();
        if let Some(map) = map {
            if good(&map) {
                return map;
            }
            since = Some(map.version);
        }
        assert!(Instant::now() < patience, "{what}");
    }
}

/// Whether so many rows have all of so many chunks.
fn is_whole(map: &Map, rows: usize, chunks: usize) -> bool {
    let in_row = |row: &wayleave_api::map::MapRow| row.servers.iter().map(|server| server.chunks.len()).sum::<usize>();
    map.missing_count == 0 && map.rows.len() == rows && map.rows.iter().all(|row| in_row(row) == chunks)
}

async fn find(client: &Client, words: &str, first_row: usize) -> SearchResults {
    search::run(
        client,
        &Search { words: words.to_owned(), crawl: None, limit: 10, first_row, policy: Policy::new(Vec::new(), true) },
    )
    .await
    .unwrap()
}

/// Every word of every page is found, in the row that `first_row` names first.
async fn check_words(stage: &Stage, client: &Client, first_row: usize, chunks: usize) {
    for (url, page) in stage.site.indexable() {
        for word in &page.words {
            let found = find(client, &format!("{word} {}", page.own_word()), first_row).await;
            assert_eq!((found.chunks, found.missing), (chunks, 0), "{found:?}");
            assert_eq!(found.hits.len(), 1, "{word} of {url}");
            assert_eq!((&found.hits[0].url, &found.hits[0].title), (&url.to_string(), &page.title));
        }
    }
}

/// The whole way: pages, chunks, copies, answers. Interleavings: an index server dies before it says that it fetches;
/// with a chunk that it has fetched and not reported; after the report, without hearing of it. It starts again with its
/// folder, when the builder is gone; a second row then fetches from it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_word_of_every_page_is_found_although_index_servers_are_killed_at_every_step() {
    let stage = Stage::start(2, 3).await;
    let client = Client::new(&stage.server.url).unwrap();
    let crawler = stage.spawn("crawl", "crawler", &stage.server.url, &[]);
    let builder = stage.spawn("build", "builder", &stage.server.url, &[]);
    let cuts = [
        Cut { path: "/placements/", moment: Moment::Before, spared: 1, content: "\"fetching\"" },
        Cut { path: "/placements/", moment: Moment::Before, spared: 1, content: "\"ready\"" },
        Cut { path: "/placements/", moment: Moment::After, spared: 1, content: "\"ready\"" },
    ];
    for cut in cuts {
        let proxy = Proxy::start(&stage.server.url, cut).await;
        proxy.kills(stage.index("i0", "0", &proxy.url)).await;
    }
    let first = stage.index("i0", "0", &stage.server.url);
    stage.server.run(&["crawls", "show", "site", "--wait-finished", "--wait", "2m"]).ok();
    stage.check_crawled();
    let patience = Instant::now() + Duration::from_secs(60);
    let built = loop {
        let mut states: BTreeMap<String, usize> = BTreeMap::new();
        for chunk in stage.chunks() {
            *states.entry(chunk["state"].as_str().unwrap().to_owned()).or_default() += 1;
        }
        if states.keys().all(|state| matches!(state.as_str(), "built" | "skipped")) {
            break states["built"];
        }
        assert!(Instant::now() < patience, "{states:?}");
    };
    map(&client, "the first row is whole", |map| is_whole(map, 1, built)).await;
    builder.kill();
    crawler.kill();
    let second = stage.index("i1", "1", &stage.server.url);
    map(&client, "the second row is whole", |map| is_whole(map, 2, built)).await;
    check_placed(&stage, built);
    first.kill();
    let first = stage.index("i0", "0", &stage.server.url);
    // It keeps its chunks and its address, so the map never changes.
    let patience = Instant::now() + Duration::from_secs(30);
    while !find(&client, "river", 0).await.away.is_empty() {
        assert!(Instant::now() < patience, "the restarted server does not answer");
    }
    check_words(&stage, &client, 0, built).await;
    check_words(&stage, &client, 1, built).await;
    check_command(&stage);
    first.kill();
    // Its chunks are asked for in the other row.
    let page = stage.site.page(1, "/page/1").unwrap();
    let found = find(&client, page.own_word(), 0).await;
    assert_eq!((found.hits.len(), found.chunks, found.missing, found.away.len()), (1, built, 0, 1), "{found:?}");
    second.kill();
    assert_eq!(stage.server.run(&["search", "river"]).code, 5);
    check_kept(&stage).await;
}

/// A store to which the fleet is being moved names its chunks last: until then an index server keeps what it has, although
/// nothing is listed for it. It comes with the token of the old store.
async fn check_kept(stage: &Stage) {
    let (_keep, other) = Server::fresh();
    let chunks = || std::fs::read_dir(stage.folder("i1")).unwrap().flatten().map(|entry| entry.file_name()).collect();
    let before: BTreeSet<OsString> = chunks();
    let moved = stage.index("i1", "1", &other.url);
    let listings = async || {
        let page = reqwest::get(format!("{}/metrics", other.url)).await.unwrap().text().await.unwrap();
        let counts =
            "wayleave_http_request_duration_seconds_count{method=\"GET\",route=\"/v1/placements\",status=\"200\"} ";
        page.lines().find_map(|line| line.strip_prefix(counts)?.parse::<u64>().ok()).unwrap_or_default()
    };
    let patience = Instant::now() + Duration::from_secs(60);
    while listings().await < 5 {
        assert!(Instant::now() < patience, "it does not read its placements");
    }
    moved.kill();
    let after: BTreeSet<OsString> = chunks();
    assert_eq!(before.difference(&after).collect::<Vec<_>>(), [""; 0]);
}

/// Every chunk is placed once in every row, and ready.
fn check_placed(stage: &Stage, built: usize) {
    let placements = stage.server.run(&["placements", "--all", "--json"]).json();
    let mut rows: HashMap<(String, u64), usize> = HashMap::new();
    for placement in &placements {
        assert_eq!(placement["state"], "ready", "{placement}");
        let chunk = placement["chunk"].as_str().unwrap().to_owned();
        *rows.entry((chunk, placement["row"].as_u64().unwrap())).or_default() += 1;
    }
    assert!(rows.values().all(|count| *count == 1), "{rows:?}");
    assert_eq!(rows.len(), 2 * built);
}

fn check_command(stage: &Stage) {
    let page = stage.site.page(0, "/latin").unwrap();
    let shown = stage.server.run(&["search", page.own_word(), "café"]).ok();
    let url = stage.site.url(0, "/latin").unwrap();
    assert!(shown.contains(&format!("1. {}\n   {url}\n", page.title)) && shown.contains(page.own_word()), "{shown}");
    let hit = stage.server.run(&["search", "--json", page.own_word()]).json().remove(0);
    assert_eq!((&hit["url"], &hit["crawl"]), (&url.as_str().into(), &"site".into()));
    assert_eq!(stage.server.run(&["search", "--crawl", "other", page.own_word()]).code, 3);
    assert_eq!(stage.server.run(&["search", "neverindexed"]).code, 3, "a script is no text");
    assert_eq!(stage.server.run(&["search", "?!"]).code, 2);
}

/// The builder's file is gone before an index server has fetched it, and its machine too.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_index_that_is_lost_before_it_was_fetched_is_built_anew() {
    let stage = Stage::start(1, 1).await;
    let client = Client::new(&stage.server.url).unwrap();
    let crawler = stage.spawn("crawl", "crawler", &stage.server.url, &[]);
    stage.server.run(&["crawls", "show", "site", "--wait-finished", "--wait", "2m"]).ok();
    assert_eq!(stage.run("build", "builder", &["--until-idle"]).await.code, 0);
    let lost = stage.chunks().into_iter().find(|chunk| chunk["state"] == "built").unwrap();
    let location = lost["artifacts"]["build"]["location"].as_str().unwrap().to_owned();
    std::fs::remove_file(stage.folder("builder").join(location.rsplit_once('/').unwrap().1)).unwrap();
    let built = stage.chunks().iter().filter(|chunk| chunk["state"] == "built").count();
    let builder = stage.spawn("build", "builder", &stage.server.url, &[]);
    let index = stage.index("i0", "0", &stage.server.url);
    map(&client, "all is served", |map| is_whole(map, 1, built)).await;
    let again = stage.chunks().into_iter().find(|chunk| chunk["id"] == lost["id"]).unwrap();
    assert_ne!(again["artifacts"]["build"]["location"], location.as_str(), "{again}");
    check_words(&stage, &client, 0, built).await;
    crawler.kill();
    builder.kill();
    index.kill();
}

#[test]
fn a_search_before_anything_is_indexed_says_so() {
    let (_keep, data) = crate::support::folder();
    let server = crate::support::Server::start(&data);
    let ended = server.run(&["search", "river"]);
    assert_eq!(ended.code, 3, "{}", ended.err);
    assert!(ended.err.contains("nothing is indexed yet"), "{}", ended.err);
}
