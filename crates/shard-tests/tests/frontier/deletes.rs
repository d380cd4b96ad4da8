//! Deleting queues and crawls, and purging old URLs.

use wayleave_core::frontier::request::Parent;

use crate::faulty::{Fate, Faulty};
use crate::prelude::*;
use crate::support::*;

/// Number of URL rows of each shard in the store, reachable or not.
async fn url_rows_by_shard(world: &World) -> Vec<usize> {
    let mut counts = Vec::new();
    for shard in 0..world.frontier.shards() {
        let (from, to) = key::range(wayleave_core::ids::ShardId(shard), Kind::Url, Kind::Hold);
        counts.push(world.engine.scan_many(&[Scan { from, to, limit: 1 << 20 }]).await.unwrap()[0].len());
    }
    counts
}

async fn url_rows(world: &World) -> usize {
    url_rows_by_shard(world).await.into_iter().sum()
}

async fn with_urls(count: usize) -> World {
    let world = World::new(4).await;
    for crawl in ["x", "y"] {
        let put = |n| of_crawl(crawl, disc(&format!("http://h{}.example/{n}", n % 3)));
        world.put((0..count).map(put).collect()).await;
    }
    world
}

#[tokio::test(start_paused = true)]
async fn a_deleted_queue_is_forgotten_at_once_and_its_rows_soon() {
    let mut world = with_urls(300).await;
    let deleted = world.frontier.delete_queue("x".into(), "h0.example".into()).await.unwrap();
    assert_eq!(deleted, 100);
    let of_x = UrlFilter { crawl: Some("x".into()), host: Some("h0.example".into()), ..UrlFilter::default() };
    assert!(world.urls(&of_x, 50).await.is_empty());
    assert_eq!(world.frontier.stats().await.unwrap().urls.queued, 500);
    world.survives_a_restart().await;
    pass(1_000).await;
    assert_eq!(url_rows(&world).await, 2 * 500);
    let again = of_crawl("x", disc("http://h0.example/0"));
    assert_eq!(world.put(vec![again]).await, [PutOutcome::Added], "it can be discovered again");
    assert_eq!(world.frontier.delete_queue("x".into(), "never.example".into()).await, Ok(0));
}

/// What went wrong once: shards share threads, so each call waited for a slice of every shard.
#[tokio::test(start_paused = true)]
async fn shards_remove_the_rows_of_a_deleted_crawl_one_after_the_other() {
    let world = World::new(4).await;
    world.put((0..12_000).map(|n| of_crawl("x", disc(&format!("http://h{}.example/{n}", n % 40)))).collect()).await;
    assert_eq!(world.frontier.delete_crawl("x".into()).await, Ok(12_000));
    let shards_left = async |world: &World| url_rows_by_shard(world).await.iter().filter(|rows| **rows > 0).count();
    let mut left = shards_left(&world).await;
    // The deletion asks every shard twice, so rows of the first shards may be gone by now.
    assert!(left >= 2, "{left}");
    while left > 0 {
        pass(1).await;
        let now = shards_left(&world).await;
        assert!(left - now <= 1, "{left}, then {now}");
        left = now;
    }
}

#[tokio::test(start_paused = true)]
async fn a_deleted_crawl_leaves_nothing_behind() {
    let mut world = with_urls(3_000).await;
    let out = world.hand_out(9, 5).await;
    assert!(!out.is_empty());
    assert_eq!(world.frontier.delete_crawl("x".into()).await, Ok(3_000));
    assert_eq!(world.frontier.crawl("x".into()).await, Err(Refusal::UnknownCrawl("x".to_owned())));
    assert_eq!(world.frontier.delete_crawl("y".into()).await, Ok(3_000));
    world.reopen().await;
    pass(60_000).await;
    assert_eq!(url_rows(&world).await, 0, "jobs go on after a restart, and holds end");
    let stats = world.frontier.stats().await.unwrap();
    assert_eq!((stats.hosts, stats.urls.total(), stats.holds, stats.crawls), (0, 0, 0, 0));
}

#[tokio::test(start_paused = true)]
async fn the_last_visit_is_remembered_while_another_crawl_has_a_queue() {
    let world = with_urls(3).await;
    world.set_delay("h0.example", 50_000).await;
    let out = world.reserve(9, 1).await;
    for visit in &out {
        world.fetched(visit).await;
    }
    world.frontier.delete_crawl("x".into()).await.unwrap();
    assert!(world.host("h0.example").await.last_visit_at.is_some());
    assert_eq!(world.host("h0.example").await.settings.delay.unwrap().0, 50_000);
    world.frontier.delete_crawl("y".into()).await.unwrap();
    assert_eq!(world.frontier.host("h0.example".into()).await, Err(Refusal::UnknownHost("h0.example".to_owned())));
}

#[tokio::test(start_paused = true)]
async fn deleting_under_a_live_reservation_harms_neither() {
    let world = with_urls(3).await;
    let visits = world.reserve(9, 1).await;
    assert_eq!(visits.len(), 3);
    world.frontier.delete_crawl("x".into()).await.unwrap();
    world.frontier.delete_crawl("y".into()).await.unwrap();
    for visit in &visits {
        world.fetched(visit).await;
    }
    pass(1_000).await;
    assert_eq!(url_rows(&world).await, 0, "a release brings nothing back");
    assert_eq!(world.frontier.stats().await.unwrap().urls.total(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_purge_removes_what_is_older_than_a_time() {
    let mut world = with_urls(30).await;
    let visits = world.reserve(1, 2).await;
    pass(5_000).await;
    let before = world.now();
    let put = |n| of_crawl("x", disc(&format!("http://h0.example/young{n}")));
    world.put((0..5).map(put).collect()).await;
    let purged = world.frontier.purge("x".into(), None, before).await.unwrap();
    assert_eq!(purged, 30);
    let filter = UrlFilter { crawl: Some("x".into()), ..UrlFilter::default() };
    assert_eq!(world.urls(&filter, 50).await.len(), 5);
    world.fetched(&visits[0]).await;
    assert_eq!(world.urls(&filter, 50).await.len(), 5);
    assert_eq!(world.frontier.crawl("x".into()).await.unwrap().counts.total(), 5);
    world.survives_a_restart().await;
}

#[tokio::test(start_paused = true)]
async fn what_was_purged_can_be_discovered_again_and_the_rest_stays_known() {
    let world = with_urls(30).await;
    let put = |n| of_crawl("x", disc(&format!("http://h{}.example/{n}", n % 3)));
    assert_eq!(world.put((0..30).map(put).collect()).await, vec![PutOutcome::Known; 30]);
    pass(1_000).await;
    assert_eq!(world.frontier.purge("x".into(), Some("h0.example".into()), world.now()).await, Ok(10));
    let again = world.put((0..30).map(put).collect()).await;
    let want = (0..30).map(|n| if n % 3 == 0 { PutOutcome::Added } else { PutOutcome::Known });
    assert_eq!(again, want.collect::<Vec<_>>());
}

#[tokio::test(start_paused = true)]
async fn a_host_scheduled_by_time_outlives_its_last_queue_with_its_settings() {
    let mut world = World::new(1).await;
    world.add(&["http://a.example/1"]).await;
    let later = Time(world.now().0 + 60_000);
    world.frontier.set_host("a.example".into(), delay(7), false, Some(later)).await.unwrap();
    assert_eq!(world.frontier.delete_queue("DEFAULT".into(), "a.example".into()).await, Ok(1));
    world.survives_a_restart().await;
    let view = world.host("a.example").await;
    assert_eq!((view.queued_at, view.settings.delay), (Some(later), Some(Millis(7))));
    pass(60_000).await;
    assert_eq!(&*world.reserve(1, 0).await[0].host, "a.example");
}

/// Holds and reservations are counted together as handed out; what is not reserved is on hold. A URL that an update or
/// purge removes from a reservation, and a queue deleted under one, must no longer be counted for it.
#[tokio::test(start_paused = true)]
async fn holds_are_counted_exactly_under_any_releases() {
    let mut world = World::new(1).await;
    world.set_delay("a.example", 0).await;
    world.add(&["http://a.example/1", "http://a.example/2", "http://a.example/3"]).await;
    world.put(vec![of_crawl("other", disc("http://b.example/1"))]).await;
    let only = HandOut { host: Some("a.example".into()), ..paced(1, 1) };
    assert_eq!(world.frontier.hand_out(only).await.unwrap().len(), 1);
    let other = HandOut { crawl: Some("other".into()), ..paced(1, 1) };
    assert_eq!(world.frontier.hand_out(other).await.unwrap().len(), 1);
    let visit = world.reserve(1, 2).await.remove(0);
    assert_eq!((&*visit.host, visit.urls.len()), ("a.example", 2));
    assert_eq!(world.frontier.stats().await.unwrap().holds, 2);
    world.put(vec![known(&visit.urls[0].url, None)]).await;
    assert_eq!(world.frontier.stats().await.unwrap().holds, 2);
    world.survives_a_restart().await;
    world.frontier.delete_queue("DEFAULT".into(), "a.example".into()).await.unwrap();
    assert_eq!(world.frontier.stats().await.unwrap().holds, 1, "that of the other crawl");
    world.survives_a_restart().await;
    world.fetched(&visit).await;
    world.survives_a_restart().await;
    pass(60_000).await;
    assert_eq!(world.frontier.stats().await.unwrap().holds, 0);
}

/// A reserved page of a crawl in shard 0, and a link on it whose shard never had any URL of the crawl.
async fn page_with_link(world: &World, crawl: &str) -> (Reservation, Put) {
    let (page, link) = [0, 1].map(|shard| format!("http://{}/", host_in(shard, 2, 0))).into();
    assert_eq!(world.put(vec![of_crawl(crawl, disc(&page))]).await, [PutOutcome::Added]);
    let visit = world.next().await.unwrap();
    (visit, of_crawl(crawl, disc(&link)))
}

async fn release_with(world: &World, visit: &Reservation, link: Put) -> Result<Vec<PutOutcome>, Refusal> {
    let results = visit.urls.iter().map(|url| fetched(&url.url)).collect();
    let release = Release { token: visit.token, results, ready_at: None };
    world.frontier.release(release, vec![link]).await.map(|(_, outcomes)| outcomes)
}

async fn parent(world: &World, visit: &Reservation) -> Option<Parent> {
    world.frontier.begin_release(visit.token, vec![visit.urls[0].url.clone()]).await.unwrap().pop().unwrap()
}

#[tokio::test(start_paused = true)]
async fn links_found_on_a_page_do_not_make_its_deleted_crawl_anew() {
    let world = World::new(2).await;
    let (visit, link) = page_with_link(&world, "news").await;
    let page = parent(&world, &visit).await.unwrap();
    world.frontier.delete_crawl("news".into()).await.unwrap();
    let outcomes = release_with(&world, &visit, link.clone().found(&page)).await.unwrap();
    assert!(
        matches!(&outcomes[..], [PutOutcome::Rejected(why)] if why.contains("crawl 'news' was deleted")),
        "{outcomes:?}"
    );
    assert_eq!(world.frontier.crawls().await.unwrap(), []);
    // A crawl of the same name that is created later accepts links of its own pages.
    pass(5_000).await;
    let (visit, link) = page_with_link(&world, "news").await;
    let page = parent(&world, &visit).await.unwrap();
    assert_eq!(release_with(&world, &visit, link.found(&page)).await, Ok(vec![PutOutcome::Added]));
}

/// The page's shard reloads after a refused commit and loses the tombstone; the link's shard has kept it.
#[tokio::test(start_paused = true)]
async fn links_of_a_recreated_crawl_are_taken_after_its_pages_shard_reopened() {
    let (engine, frontier) = Faulty::opened(2).await;
    let [page, link] = [0, 1].map(|shard| of_crawl("news", disc(&format!("http://{}/", host_in(shard, 2, 0)))));
    assert_eq!(frontier.put(vec![page.clone(), link.clone()]).await, [PutOutcome::Added, PutOutcome::Added]);
    frontier.delete_crawl("news".into()).await.unwrap();
    pass(1_000).await;
    assert_eq!(frontier.put(vec![page.clone()]).await, [PutOutcome::Added], "the crawl is made anew");
    engine.set_fates(&[Fate::Refused]);
    let other = Put { url: format!("{}other", page.url).into(), ..page };
    assert!(matches!(frontier.put(vec![other]).await[..], [PutOutcome::Failed(_)]));
    pass(2_000).await;
    let visit = frontier.reserve(want(1, 1)).await.unwrap().remove(0);
    let parents = frontier.begin_release(visit.token, vec![visit.urls[0].url.clone()]).await.unwrap();
    let release = Release { token: visit.token, results: vec![fetched(&visit.urls[0].url)], ready_at: None };
    let link = link.found(parents[0].as_ref().unwrap());
    let answer = frontier.release(release, vec![link]).await.map(|(_, outcomes)| outcomes);
    assert_eq!(answer, Ok(vec![PutOutcome::Added]));
}

#[tokio::test(start_paused = true)]
async fn a_shard_that_was_opened_meanwhile_lets_the_release_be_sent_again() {
    let mut world = World::new(2).await;
    let (visit, link) = page_with_link(&world, "news").await;
    let page = parent(&world, &visit).await.unwrap();
    pass(1).await;
    world.reopen().await;
    let answer = release_with(&world, &visit, link.clone().found(&page)).await;
    assert!(
        matches!(&answer, Err(Refusal::OutcomeUnknown(why)) if why.contains("send the release again")),
        "{answer:?}"
    );
    let page = parent(&world, &visit).await.unwrap();
    assert_eq!(release_with(&world, &visit, link.found(&page)).await, Ok(vec![PutOutcome::Added]));
}

/// Rows of URLs, queued or not, that are left in the store.
async fn rows_left(engine: &Faulty) -> usize {
    let (from, to) = key::range(ShardId(0), Kind::Url, Kind::Due);
    let found = engine.scan_many(&[Scan { from, to, limit: usize::MAX }]).await.unwrap();
    found[0].len()
}

#[tokio::test(start_paused = true)]
async fn removing_a_long_queue_reads_each_row_and_each_tombstone_once() {
    const URLS: usize = 20_000;
    let (engine, frontier) = Faulty::opened(1).await;
    let urls: Vec<String> = (0..URLS).map(|n| format!("http://h.example/{n}")).collect();
    for part in urls.chunks(1_000) {
        frontier.put(part.iter().map(|url| disc(url)).collect()).await;
    }
    pass(60_000).await;
    let (rows, passed) = (engine.rows.load(Ordering::Acquire), engine.passed.load(Ordering::Acquire));
    frontier.delete_queue("DEFAULT".into(), "h.example".into()).await.unwrap();
    let commits = engine.commits.lock().unwrap().len();
    pass(60_000).await;
    let (rows, passed) = (engine.rows.load(Ordering::Acquire) - rows, engine.passed.load(Ordering::Acquire) - passed);
    assert_eq!(rows, 2 * URLS);
    assert_eq!(passed, 0);
    let slices = engine.commits.lock().unwrap().len() - commits;
    assert!((40..=42).contains(&slices), "{slices} slices of 1,000 rows");
    assert_eq!(rows_left(&engine).await, 0);
}

#[tokio::test(start_paused = true)]
async fn short_queues_are_removed_many_at_a_time() {
    let (engine, frontier) = Faulty::opened(1).await;
    frontier.put((0..640).map(|n| disc(&format!("http://h{n}.example/"))).collect()).await;
    pass(60_000).await;
    frontier.delete_crawl("DEFAULT".into()).await.unwrap();
    let commits = engine.commits.lock().unwrap().len();
    pass(60_000).await;
    let slices = engine.commits.lock().unwrap().len() - commits;
    assert!(slices <= 22, "{slices} slices of 32 queues");
    assert_eq!(rows_left(&engine).await, 0);
}

/// Rows of one kind in the store.
async fn rows_of(engine: &Faulty, kind: Kind) -> usize {
    let (from, to) = key::range(ShardId(0), kind, kind);
    engine.scan_many(&[Scan { from, to, limit: usize::MAX }]).await.unwrap()[0].len()
}

#[tokio::test(start_paused = true)]
async fn what_is_deleted_leaves_the_store_though_nothing_else_happens() {
    let engine = Faulty::new();
    let config = wayleave_shard::Config { log_bytes_max: 50_000, ..wayleave_shard::Config::new(1) };
    let runtime = tokio::runtime::Handle::current();
    let frontier = wayleave_shard::Frontier::open(engine.clone(), config, &runtime).await.unwrap();
    for part in 0..3 {
        frontier.put((0..1_000).map(|n| disc(&format!("http://h{part}-{n}.example/"))).collect()).await;
    }
    pass(60_000).await;
    assert!(rows_of(&engine, Kind::Host).await >= 1_000, "they were checkpointed");
    frontier.delete_crawl("DEFAULT".into()).await.unwrap();
    pass(120_000).await;
    for kind in [Kind::Host, Kind::Crawl, Kind::Url, Kind::Due, Kind::DeletedQueue] {
        assert_eq!(rows_of(&engine, kind).await, 0, "{kind:?}");
    }
    assert_eq!(rows_of(&engine, Kind::Log).await, 1, "that says where the log begins");
}

/// A regression: a start began to read the log at its first row ever, and passed over the tombstones of all that were truncated.
#[tokio::test(start_paused = true)]
async fn a_start_passes_over_no_truncated_row_of_the_log() {
    let engine = Faulty::new();
    let config = || wayleave_shard::Config { log_bytes_max: 2_000, ..wayleave_shard::Config::new(1) };
    let runtime = tokio::runtime::Handle::current();
    let frontier = wayleave_shard::Frontier::open(engine.clone(), config(), &runtime).await.unwrap();
    for n in 0..500 {
        frontier.put(vec![disc(&format!("http://h{}.example/{n}", n % 50))]).await;
    }
    pass(1_000).await;
    let commits = engine.commits.lock().unwrap().len();
    assert!(commits > 500 && rows_of(&engine, Kind::Log).await < 100, "{commits} commits, mostly checkpointed");
    frontier.stop().await;
    let passed = engine.passed.load(Ordering::Acquire);
    let frontier = wayleave_shard::Frontier::open(engine.clone(), config(), &runtime).await.unwrap();
    assert_eq!(frontier.stats().await.unwrap().urls.total(), 500);
    let passed = engine.passed.load(Ordering::Acquire) - passed;
    assert!(passed < 20, "{passed}");
}

#[tokio::test(start_paused = true)]
async fn a_host_whose_last_queue_is_deleted_during_a_visit_is_forgotten_later() {
    let world = World::new(1).await;
    world.add(&["http://a.example/1"]).await;
    world.set_delay("a.example", 20_000).await;
    let visit = world.next().await.unwrap();
    assert_eq!(world.frontier.delete_queue("DEFAULT".into(), "a.example".into()).await, Ok(1));
    pass(5_000).await;
    world.fetched(&visit).await;
    pass(10_000).await;
    assert_eq!(world.frontier.stats().await.unwrap().hosts, 1, "its delay has not passed");
    pass(12_000).await;
    assert_eq!(world.frontier.stats().await.unwrap().hosts, 0);
    world.add(&["http://a.example/1"]).await;
    let abandoned = world.next().await.unwrap();
    assert_eq!(world.frontier.delete_queue("DEFAULT".into(), "a.example".into()).await, Ok(1));
    world.add(&["http://a.example/2"]).await;
    pass(abandoned.expires_at.0 - world.now().0 + 30_000).await;
    assert_eq!(world.frontier.stats().await.unwrap().hosts, 1, "it has a queue again");
    assert!(world.next().await.is_some());
}
