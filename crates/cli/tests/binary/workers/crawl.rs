//! `wayleave crawl`.

use std::fs::File;

use wayleave_workers::warc::{Kind, Reader};

use super::cut::{Cut, Moment, Proxy};
use super::stage::Stage;
use crate::prelude::*;

/// The URLs in the WARC file of every crawled chunk, each of which must be whole.
fn recorded(stage: &Stage, crawler: &str) -> Vec<String> {
    let mut urls = Vec::new();
    for chunk in stage.chunks() {
        let Some(location) = chunk["artifacts"]["crawl"]["location"].as_str() else { continue };
        let file = stage.folder(crawler).join(location.rsplit_once('/').unwrap().1);
        let content = std::fs::read(&file).unwrap();
        assert_eq!(chunk["artifacts"]["crawl"]["checksum"], wayleave_workers::digest::sha256(&content));
        for record in Reader::new(BufReader::new(File::open(&file).unwrap())) {
            let record = record.unwrap();
            if record.kind == Kind::Response {
                urls.push(record.response().unwrap().url.to_string());
            }
        }
    }
    urls
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_site_is_crawled_whole_politely_and_into_warc_files() {
    let stage = Stage::start(3, 8).await;
    let mut told = stage.run("crawl", "c1", &["--until-idle", "--json"]).await.json();
    let told = told.remove(0);
    stage.check_crawled();
    assert_eq!((&told["hosts"], &told["lost"]), (&3.into(), &0.into()), "{told}");
    let fetched: Vec<_> = stage.states().into_iter().filter(|(_, state)| state == "fetched").collect();
    assert_eq!(told["pages"], fetched.len());
    let recorded = recorded(&stage, "c1");
    for (url, _) in fetched {
        assert!(recorded.contains(&url), "{url} is in no WARC file");
    }
    for chunk in stage.chunks() {
        assert!(matches!(chunk["state"].as_str(), Some("crawled" | "skipped")), "{chunk}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hosts_are_crawled_one_by_one_with_reservations() {
    let stage = Stage::start(2, 4).await;
    let mut command = wayleave(&["crawl", "--single", "--crawl", "site", "--until-idle", "--links", "3"]);
    command.args(["--lease", "2s", "--server", &stage.server.url, "--allow-net", "127.0.0.0/8"]);
    let ended = tokio::task::spawn_blocking(move || run(command, "")).await.unwrap();
    assert_eq!(ended.code, 0, "{}", ended.err);
    assert!(ended.err.contains(" pages, ") && ended.err.contains("2 hosts"), "{}", ended.err);
    stage.check_crawled();
    assert!(stage.chunks().is_empty());
}

/// Interleavings: the answer to the claim is lost with the crawler; it dies with a fetched page that it never reports;
/// after the report; with a published WARC file that no chunk refers to; after `complete`, without hearing of it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crawler_that_is_killed_at_any_step_leaves_nothing_undone_and_nothing_done_twice() {
    let cuts = [
        Cut { path: "/chunks/claim", moment: Moment::After, spared: 2, content: "\"token\"" },
        Cut { path: "/links", moment: Moment::Before, spared: 3, content: "\"fetched\"" },
        Cut { path: "/links", moment: Moment::After, spared: 3, content: "\"left\"" },
        Cut { path: "/complete", moment: Moment::Before, spared: 1, content: "\"artifact\"" },
        Cut { path: "/complete", moment: Moment::After, spared: 1, content: "\"crawled\"" },
    ];
    let runs = cuts.map(|cut| {
        tokio::spawn(async move {
            let stage = Stage::start(2, 3).await;
            let proxy = Proxy::start(&stage.server.url, cut).await;
            proxy.kills(stage.spawn("crawl", "dies", &proxy.url, &[])).await;
            let ended = stage.run("crawl", "lives", &["--until-idle"]).await;
            assert_eq!(ended.code, 0, "{cut:?}: {}", ended.err);
            println!("{cut:?}");
            stage.check_crawled();
            for chunk in stage.chunks() {
                assert!(matches!(chunk["state"].as_str(), Some("crawled" | "skipped")), "{cut:?}: {chunk}");
            }
        })
    });
    for run in runs {
        run.await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crawler_that_is_told_to_stop_gives_back_what_it_has_not_fetched() {
    let stage = Stage::start(3, 8).await;
    // With such a lease nothing comes back unless it is given back.
    let mut crawler = stage.spawn("crawl", "stops", &stage.server.url, &["--lease", "1h"]);
    while stage.site.log().entries().len() < 8 {
        assert!(crawler.0.try_wait().unwrap().is_none(), "it has ended");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    rustix::process::kill_process(rustix::process::Pid::from_child(&crawler.0), rustix::process::Signal::INT).unwrap();
    assert_eq!(crawler.wait().await, Some(0));
    assert!(stage.chunks().iter().all(|chunk| chunk["state"] != "crawling"), "{:?}", stage.chunks());
    assert!(stage.states().values().all(|state| state != "reserved"), "{:?}", stage.states());
    assert_eq!(stage.run("crawl", "goes-on", &["--until-idle"]).await.code, 0);
    stage.check_crawled();
}

/// The answers of the slow page, with the status that its visitors stayed for.
fn slow_answers(stage: &Stage) -> Vec<Option<u16>> {
    let entries = stage.site.log().entries();
    entries.iter().filter(|access| access.path == "/slow").map(|access| access.status).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_page_that_takes_longer_than_a_lease_is_fetched_once() {
    let stage = Stage::start_slow(1, 1, Duration::from_secs(5)).await;
    assert_eq!(stage.run("crawl", "patient", &["--until-idle", "--lease", "2s"]).await.code, 0);
    assert_eq!(slow_answers(&stage), [Some(200)]);
    stage.check_crawled();
}

/// The crawler learns of it with its next renewal, long before the page has come.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_visit_that_an_operator_ends_is_broken_off() {
    let stage = Stage::start_slow(1, 1, Duration::from_secs(20)).await;
    let slow = stage.site.url(0, "/slow").unwrap().to_string();
    let crawler = stage.spawn("crawl", "obedient", &stage.server.url, &[]);
    let patience = Instant::now() + Duration::from_secs(60);
    while stage.states().get(&slow).is_none_or(|state| state != "reserved") {
        assert!(Instant::now() < patience, "the page is never visited");
    }
    let host = stage.site.url(0, "/").unwrap().host_str().unwrap().to_owned();
    stage.server.run(&["hosts", "set", &host, "--pause"]).ok();
    stage.server.run(&["reservations", "revoke", "--host", &host]).ok();
    while slow_answers(&stage).is_empty() {
        assert!(Instant::now() < patience, "the fetch goes on");
    }
    assert_eq!(slow_answers(&stage), [None]);
    crawler.kill();
}

#[test]
fn a_host_off_loopback_is_not_fetched_without_a_contact() {
    let (keep, server) = Server::fresh();
    let store = keep.path().join("pages");
    let crawl = ["crawl", "--store", store.to_str().unwrap(), "--until-idle"];
    let refused = server.run(&[&crawl[..], &["--seed", "http://host.invalid/"]].concat());
    assert_eq!(refused.code, 2, "{}", refused.err);
    assert!(refused.err.contains("--contact"), "{}", refused.err);
    let refused = server.run(&[&crawl[..], &["--seed", "ftp://127.0.0.1/"]].concat());
    assert_eq!(refused.code, 2, "{}", refused.err);
    assert!(refused.err.contains("http://"), "{}", refused.err);
    assert_eq!(server.stats()["urls"]["queued"], 0, "refused before it is added");
    server.run(&["put", "http://host.invalid/"]).ok();
    for mode in [&[][..], &["--single"]] {
        let refused = server.run(&[&crawl[..], mode].concat());
        assert_eq!(refused.code, 2, "{}", refused.err);
        assert!(refused.err.contains("host.invalid") && refused.err.contains("--contact"), "{}", refused.err);
        let url = server.run(&["urls", "lookup", "http://host.invalid/", "--json"]).json().remove(0);
        assert_eq!((&url["state"], &url["attempts"]), (&"queued".into(), &0.into()), "the URL is not to blame: {url}");
    }
    let wrong = server.run(&[&crawl[..], &["--contact", "me"]].concat());
    assert_eq!(wrong.code, 2, "{}", wrong.err);
    assert_eq!(server.run(&["crawl", "--single", "--scope", "galaxy"]).code, 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn links_out_of_scope_are_not_followed_unless_told() {
    let stage = Stage::start(2, 2).await;
    let seed = stage.site.url(0, "/").unwrap().to_string();
    for (crawl, scope, hosts) in [("near", "host", 1), ("far", "any", 2)] {
        stage.server.run(&["crawls", "set", crawl, "--delay", "20ms", "--max-attempts", "1"]).ok();
        let mut command = wayleave(&["crawl", "--single", "--until-idle", "--crawl", crawl, "--scope", scope]);
        command.args(["--seed", &seed, "--server", &stage.server.url, "--json"]);
        let told = tokio::task::spawn_blocking(move || run(command, "")).await.unwrap().json().remove(0);
        assert_eq!(told["hosts"], hosts, "{told}");
        assert_eq!(told["out_of_scope"] == 0, scope == "any", "{told}");
    }
}

#[test]
fn once_fetches_once_and_says_when_there_was_nothing() {
    let (keep, server) = Server::fresh();
    let store = keep.path().join("pages");
    let nothing = server.run(&["crawl", "--once", "--store", store.to_str().unwrap()]);
    assert_eq!(nothing.code, 3, "{}", nothing.err);
    let away = run(wayleave(&["crawl", "--once", "--server", "http://127.0.0.1:1"]), "");
    assert_eq!(away.code, 5, "{}", away.err);
}

/// A regression: a URL of this machine was fetched for anybody who put it into a crawl.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn loopback_is_fetched_only_in_a_crawl_that_the_crawler_has_a_seed_there_for() {
    let stage = Stage::start(1, 1).await;
    let elsewhere = stage.site.url(0, "/").unwrap().to_string();
    let mut command = wayleave(&["crawl", "--single", "--until-idle", "--json", "--server", &stage.server.url]);
    command.args(["--crawl", "site"]);
    let told = tokio::task::spawn_blocking(move || run(command, "")).await.unwrap().json().remove(0);
    assert_eq!((&told["pages"], &told["refused"]), (&0.into(), &1.into()), "{told}");
    assert!(stage.site.log().politeness().is_empty(), "not even its robots.txt");
    stage.server.run(&["crawls", "set", "seeded", "--delay", "20ms", "--max-attempts", "1"]).ok();
    let mut command = wayleave(&["crawl", "--single", "--until-idle", "--json", "--server", &stage.server.url]);
    command.args(["--crawl", "seeded", "--seed", &elsewhere]);
    let told = tokio::task::spawn_blocking(move || run(command, "")).await.unwrap().json().remove(0);
    assert!(told["pages"].as_u64() > Some(0) && told["refused"] == 0, "{told}");
}
