//! Long polls for the end of a crawl: waiters are notified when the last visit ends, and poll rarely until then.

use wayleave_core::frontier::view::CrawlView;

use crate::faulty::{Fate, Faulty};
use crate::prelude::*;
use crate::support::*;

/// A waiter that records when it was answered.
fn wait(world: &World, crawl: &str, ms: u64) -> JoinHandle<(Result<CrawlView, Refusal>, u64)> {
    let (frontier, began, crawl) = (world.frontier.clone(), Instant::now(), crawl.into());
    tokio::spawn(async move {
        let view = frontier.crawl_when_finished(&crawl, Millis(ms)).await;
        (view, began.elapsed().as_millis() as u64)
    })
}

#[tokio::test(start_paused = true)]
async fn all_who_wait_hear_of_the_end_at_once_and_not_before() {
    let world = World::new(4).await;
    let urls: Vec<String> = (0..8).map(|n| format!("http://h{n}.example/")).collect();
    world.put(urls.iter().map(|url| disc(url)).collect()).await;
    let waiters: Vec<_> = (0..20).map(|_| wait(&world, "DEFAULT", 60_000)).collect();
    pass(100).await;
    let visits = world.reserve(8, 1).await;
    assert_eq!(visits.len(), 8);
    for visit in &visits {
        assert!(waiters.iter().all(|waiter| !waiter.is_finished()));
        pass(333).await;
        world.fetched(visit).await;
    }
    for waiter in waiters {
        let (view, after) = waiter.await.unwrap();
        let view = view.unwrap();
        assert_eq!((view.waits_for, view.counts.fetched, after), (None, 8, 100 + 8 * 333));
        assert!(view.last_visit_at.is_some());
    }
    let (view, after) = wait(&world, "DEFAULT", 60_000).await.unwrap();
    assert_eq!((view.unwrap().waits_for, after), (None, 0), "it is finished already");
}

#[tokio::test(start_paused = true)]
async fn a_waiter_that_times_out_gets_the_reason() {
    let world = World::new(4).await;
    world.add(&["http://a.example/"]).await;
    let _visit = world.next().await.unwrap();
    let (view, after) = wait(&world, "DEFAULT", 5_000).await.unwrap();
    assert!(view.unwrap().waits_for.unwrap().contains("handed out"));
    assert_eq!(after, 5_000);
    let (unknown, after) = wait(&world, "nowhere", 5_000).await.unwrap();
    assert_eq!((unknown, after), (Err(Refusal::UnknownCrawl("nowhere".to_owned())), 0));
}

#[tokio::test(start_paused = true)]
async fn a_limit_or_a_deletion_ends_the_wait_as_well() {
    let world = World::new(2).await;
    world.add(&["http://a.example/1", "http://a.example/2"]).await;
    let visit = world.next().await.unwrap();
    world.fetched(&visit).await;
    let waiter = wait(&world, "DEFAULT", 60_000);
    pass(100).await;
    world.set_crawl("DEFAULT", CrawlChanges { pages_per_host: Change::Set(1), ..CrawlChanges::default() }).await;
    let (view, after) = waiter.await.unwrap();
    let view = view.unwrap();
    assert_eq!((view.waits_for, view.counts.queued, after), (None, 1, 100));
    world.set_crawl("DEFAULT", CrawlChanges { pages_per_host: Change::Clear, ..CrawlChanges::default() }).await;
    let waiter = wait(&world, "DEFAULT", 60_000);
    pass(100).await;
    world.frontier.delete_crawl("DEFAULT".into()).await.unwrap();
    assert_eq!(waiter.await.unwrap(), (Err(Refusal::UnknownCrawl("DEFAULT".to_owned())), 100));
}

#[tokio::test(start_paused = true)]
async fn only_a_scan_of_all_hosts_shows_that_limits_block_everything() {
    let world = World::new(1).await;
    // Hosts of another crawl first, more than one slice of them.
    world.put((0..600).map(|n| of_crawl("other", disc(&format!("http://o{n}.example/")))).collect()).await;
    world.set_crawl("DEFAULT", CrawlChanges { pages_per_host: Change::Set(1), ..CrawlChanges::default() }).await;
    world.add(&["http://a.example/1", "http://a.example/2"]).await;
    assert_eq!(world.frontier.is_finished(&"DEFAULT".into()).await, Ok(false));
    let mut request = want(1, 1);
    request.crawl = Some("DEFAULT".into());
    let visit = world.frontier.reserve(request).await.unwrap().pop().unwrap();
    assert_eq!(world.frontier.is_finished(&"DEFAULT".into()).await, Ok(false));
    world.fetched(&visit).await;
    assert_eq!(world.frontier.is_finished(&"DEFAULT".into()).await, Ok(true));
    world.frontier.set_host("a.example".into(), paused(true), false, None).await.unwrap();
    world.set_crawl("DEFAULT", CrawlChanges { pages_per_host: Change::Clear, ..CrawlChanges::default() }).await;
    let view = world.frontier.crawl("DEFAULT".into()).await.unwrap();
    assert!(view.waits_for.unwrap().contains("and paused"), "a pause is not the end");
}

/// The job's home registers it and has nothing of the crawl; the shard that has all of it refuses the announcement for
/// now.
#[tokio::test(start_paused = true)]
async fn a_crawl_is_not_finished_beside_a_requeue_that_was_just_accepted() {
    let (engine, frontier) = Faulty::opened(2).await;
    let url = format!("http://{}/", host_in(1, 2, 0));
    frontier.put(vec![disc(&url)]).await;
    let visit = frontier.reserve(want(1, 1)).await.unwrap().remove(0);
    let release = Release { token: visit.token, results: vec![fetched(&url)], ready_at: None };
    frontier.release(release, Vec::new()).await.unwrap();
    pass(1_000).await;
    let finished = async || {
        let listed = frontier.crawls().await.unwrap().remove(0).waits_for.is_none();
        let waited_for = frontier.crawl_when_finished(&"DEFAULT".into(), Millis(0)).await.unwrap().waits_for.is_none();
        (frontier.is_finished(&"DEFAULT".into()).await.unwrap(), listed, waited_for)
    };
    assert_eq!(finished().await, (true, true, true));
    let of = |crawl: &str| UrlFilter { crawl: Some(crawl.into()), ..UrlFilter::default() };
    engine.set_fates(&[Fate::Done, Fate::Refused]);
    frontier.start_job(BulkAction::Requeue, of("other"), None).await.unwrap();
    assert_eq!(finished().await, (true, true, true), "of another crawl");
    pass(5_000).await;
    engine.set_fates(&[Fate::Done, Fate::Refused]);
    let job = frontier.start_job(BulkAction::Requeue, of("DEFAULT"), None).await.unwrap();
    assert_eq!(finished().await, (false, false, false), "no shard but its home has heard of it");
    pass(5_000).await;
    assert_eq!(frontier.job(job.id).await.unwrap().unwrap().outcome.done, 1);
    assert_eq!(finished().await, (false, false, false), "the URL is queued");
}

/// It was called finished, and who waited for its end went away before its first URL came.
#[tokio::test(start_paused = true)]
async fn a_crawl_that_never_had_a_url_is_not_finished_and_an_emptied_one_is() {
    let world = World::new(2).await;
    world.set_crawl("DEFAULT", CrawlChanges { pages_per_host: Change::Set(9), ..CrawlChanges::default() }).await;
    let shown = async || world.frontier.crawl("DEFAULT".into()).await.unwrap().waits_for;
    let listed = async || world.frontier.crawls().await.unwrap().remove(0).waits_for;
    for why in [shown().await, listed().await] {
        assert!(why.as_ref().unwrap().starts_with("it has received no URLs yet"), "{why:?}");
    }
    assert_eq!(world.frontier.is_finished(&"DEFAULT".into()).await, Ok(false));
    let waiter = wait(&world, "DEFAULT", 60_000);
    pass(100).await;
    world.add(&["http://a.example/1"]).await;
    let why = shown().await.unwrap();
    assert_eq!(why, "1 URL is queued at host 'a.example', due");
    let visit = world.next().await.unwrap();
    world.fetched(&visit).await;
    assert_eq!(waiter.await.unwrap().0.unwrap().waits_for, None);
    assert_eq!((shown().await, listed().await), (None, None));
}
