//! `limits.pages` of a crawl over several shards: never more pages are visited than it allows, and what it allows is
//! used.
//!
//! What could break it, each with a test: many callers at once, each shard counting on its own (callers_at_once, on one
//! thread and on several); a page that is handed out and not reported yet; a page that is revisited; a restart; a
//! commit that fails after its effect on the counts was published to other shards; a turn that fails before it commits
//! what it decided. What could leave pages unused: a page that is given back, purged or raised in one shard while the
//! URLs are queued in another, with a caller waiting for them.

use futures::future::join_all;
use tokio::sync::Notify;
use wayleave_engine::Error;

use crate::faulty::Faulty;
use crate::prelude::*;
use crate::support::*;

const SHARDS: u16 = 8;

fn pages(limit: u64) -> CrawlChanges {
    CrawlChanges { pages: Change::Set(limit), ..CrawlChanges::default() }
}

fn of_default(groups: usize, urls: usize) -> Reserve {
    Reserve { crawl: Some("DEFAULT".into()), ..want(groups, urls) }
}

/// Several hosts in every shard, with several URLs each.
async fn fill(world: &World, hosts: usize, urls: usize) {
    let mut puts = Vec::new();
    for shard in 0..SHARDS {
        for host in (0..hosts).map(|n| host_in(shard, SHARDS, n)) {
            puts.extend((0..urls).map(|n| disc(&format!("http://{host}/{n}"))));
        }
    }
    world.put(puts).await;
}

/// Concurrent callers of both forms. Returns the number of URLs handed out.
async fn callers_at_once(frontier: &Frontier, callers: usize) -> usize {
    let ask = |n: usize| {
        let frontier = frontier.clone();
        tokio::spawn(async move {
            match n % 4 {
                0 => frontier.hand_out(paced(3, 2)).await.unwrap().len(),
                1 => frontier.hand_out(paced(40, 2)).await.unwrap().len(),
                2 => frontier.reserve(of_default(2, 3)).await.unwrap().iter().map(|r| r.urls.len()).sum(),
                _ => frontier.reserve(want(5, 1)).await.unwrap().iter().map(|r| r.urls.len()).sum(),
            }
        })
    };
    join_all((0..callers).map(ask)).await.into_iter().map(Result::unwrap).sum()
}

#[tokio::test(start_paused = true)]
async fn many_callers_at_once_are_given_as_many_pages_as_the_limit_says() {
    for limit in [1, 7, 50] {
        let world = World::new(SHARDS).await;
        world.set_crawl("DEFAULT", pages(limit)).await;
        fill(&world, 6, 5).await;
        let mut given = 0;
        for _ in 0..9 {
            given += callers_at_once(&world.frontier, 60).await;
            assert!(given as u64 <= limit, "{given} pages are out, the limit is {limit}");
            pass(1_000).await;
        }
        assert_eq!(given as u64, limit, "what the limit leaves is handed out");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn concurrent_callers_on_several_threads_get_exactly_the_page_limit() {
    for limit in 1..9 {
        let world = World::new(SHARDS).await;
        world.set_crawl("DEFAULT", pages(limit)).await;
        fill(&world, 3, 3).await;
        let mut given = 0;
        for _ in 0..20 {
            given += callers_at_once(&world.frontier, 24).await;
            assert!(given as u64 <= limit, "{given} pages are out, the limit is {limit}");
        }
        assert_eq!(given as u64, limit);
    }
}

#[tokio::test(start_paused = true)]
async fn a_revisited_page_counts_again_for_the_crawl_also_after_a_restart() {
    let mut world = World::new(SHARDS).await;
    let revisit = Change::Set(Revisit::Fixed(Millis(1_000)));
    world.set_crawl("DEFAULT", CrawlChanges { revisit, ..pages(20) }).await;
    fill(&world, 1, 1).await;
    let mut visits = 0;
    for round in 0..9 {
        for visit in world.reserve(99, 9).await {
            visits += visit.urls.len();
            world.fetched(&visit).await;
        }
        pass(5_000).await;
        if round % 2 == 0 {
            world.reopen().await;
        }
    }
    assert_eq!(visits, 20);
}

/// A caller waiting for a page that the limit withholds is woken when one is available again, in whichever shard.
#[tokio::test(start_paused = true)]
async fn a_page_returned_in_one_shard_is_handed_to_a_waiter_of_another() {
    let world = World::new(SHARDS).await;
    world.set_crawl("DEFAULT", pages(1)).await;
    let (first, second) = (host_in(1, SHARDS, 0), host_in(5, SHARDS, 0));
    world.add(&[&format!("http://{first}/")]).await;
    let visit = world.next().await.unwrap();
    world.add(&[&format!("http://{second}/")]).await;
    assert_eq!(world.next().await, None, "the page that the limit leaves is out");
    let frontier = world.frontier.clone();
    let waits = tokio::spawn(async move { frontier.reserve(Reserve { wait: Millis(600_000), ..want(1, 1) }).await });
    pass(100).await;
    let gone_later = |result: UrlResult| UrlResult {
        outcome: Outcome::Retry,
        next_at: Some(Time(world.now().0 + 86_400_000)),
        ..result
    };
    world.release(&visit, gone_later).await.unwrap();
    let granted = tokio::time::timeout(Duration::from_secs(60), waits).await.expect("it is woken").unwrap().unwrap();
    assert_eq!(*granted[0].host, *second);
}

#[tokio::test(start_paused = true)]
async fn a_spent_crawl_wakes_in_all_shards_after_a_purge_or_a_higher_limit() {
    let world = World::new(SHARDS).await;
    world.set_crawl("DEFAULT", pages(1)).await;
    let hosts = [host_in(1, SHARDS, 0), host_in(5, SHARDS, 0), host_in(6, SHARDS, 0)];
    world.add(&[&format!("http://{}/", hosts[0])]).await;
    let visit = world.next().await.unwrap();
    world.fetched(&visit).await;
    pass(10).await;
    let purged_before = world.now();
    pass(10).await;
    world.add(&[&format!("http://{}/", hosts[1]), &format!("http://{}/", hosts[2])]).await;
    assert_eq!(world.next().await, None);
    assert_eq!(world.frontier.purge("DEFAULT".into(), None, purged_before).await, Ok(1));
    pass(10).await;
    let visit = world.next().await.expect("a page is to be had again");
    world.fetched(&visit).await;
    assert_eq!(world.next().await, None);
    world.set_crawl("DEFAULT", pages(2)).await;
    pass(10).await;
    assert!(world.next().await.is_some());
    assert_eq!(world.next().await, None);
}

#[tokio::test(start_paused = true)]
async fn why_and_the_crawl_name_the_limit_that_blocks() {
    let world = World::new(SHARDS).await;
    world.set_crawl("DEFAULT", pages(2)).await;
    let hosts = [host_in(1, SHARDS, 0), host_in(5, SHARDS, 0)];
    world.add(&[&format!("http://{}/1", hosts[0]), &format!("http://{}/2", hosts[0])]).await;
    let visit = world.reserve(1, 2).await.pop().unwrap();
    world.add(&[&format!("http://{}/1", hosts[1])]).await;
    world.next().await;
    let reason = world.host(&hosts[1]).await.standing.reason;
    assert!(reason.contains("limit of 2 pages") && reason.contains("handed out"), "{reason}");
    world.fetched(&visit).await;
    world.next().await;
    let reason = world.host(&hosts[1]).await.standing.reason;
    assert!(reason.contains("has reached its limit of 2 pages"), "{reason}");
    let view = world.frontier.crawl("DEFAULT".into()).await.unwrap();
    assert_eq!((view.waits_for, view.over_limit), (None, 1));
    let reached = view.limit_reached.unwrap();
    assert!(reached.contains("limit of 2 pages"), "{reached}");
}

/// A store that answers commits of one shard late, and then refuses them.
struct Late {
    store: Memory,
    shard: ShardId,
    late: AtomicBool,
    answer: Arc<Notify>,
}

impl Engine for Late {
    wayleave_engine::pass_on! { store: now own get_many scan_many look }

    fn commit(&self, batch: Batch) -> Commit {
        let mine = batch.fences.iter().any(|fence| fence.shard == self.shard) && !batch.writes.is_empty();
        if !mine || !self.late.load(Ordering::Acquire) {
            return self.store.commit(batch);
        }
        let answer = self.answer.clone();
        Box::pin(async move {
            answer.notified().await;
            Err(Error::Unavailable("no room".to_owned()))
        })
    }
}

async fn open_late(shard: ShardId) -> (Arc<Late>, Frontier) {
    let store = Memory::new(RuntimeClock::new());
    let late = Arc::new(Late { store, shard, late: AtomicBool::new(false), answer: Arc::default() });
    let config = Config { clock_step: Millis(0), ..Config::new(SHARDS) };
    let frontier = Frontier::open(late.clone(), config, &tokio::runtime::Handle::current()).await.unwrap();
    (late, frontier)
}

/// The page is given back in memory, another shard could take it, and then the commit is refused: the page is still
/// handed out.
#[tokio::test(start_paused = true)]
async fn a_page_that_is_given_back_is_to_be_had_only_once_that_is_durable() {
    let (first, second) = (host_in(1, SHARDS, 0), host_in(5, SHARDS, 0));
    let (late, frontier) = open_late(ShardId(1)).await;
    frontier.set_crawl("DEFAULT".into(), pages(1), false).await.unwrap();
    frontier.put(vec![disc(&format!("http://{first}/"))]).await;
    let visit = frontier.reserve(want(1, 1)).await.unwrap().remove(0);
    frontier.put(vec![disc(&format!("http://{second}/"))]).await;
    late.late.store(true, Ordering::Release);
    let release = Release { token: visit.token, results: Vec::new(), ready_at: None };
    let releasing = tokio::spawn({
        let frontier = frontier.clone();
        async move { frontier.release(release, Vec::new()).await }
    });
    pass(100).await;
    assert_eq!(frontier.reserve(want(9, 9)).await, Ok(Vec::new()), "the release is not durable");
    late.late.store(false, Ordering::Release);
    late.answer.notify_waiters();
    assert!(releasing.await.unwrap().is_err());
    pass(1_000).await;
    assert_eq!(frontier.reserve(want(9, 9)).await, Ok(Vec::new()), "the page is still out");
    frontier.release(Release { token: visit.token, results: Vec::new(), ready_at: None }, Vec::new()).await.unwrap();
    pass(2_000).await;
    let again: usize = frontier.reserve(want(9, 9)).await.unwrap().iter().map(|visit| visit.urls.len()).sum();
    assert_eq!(again, 1);
}

/// The same where the limit is to be removed, and the crawl's home has used the page.
#[tokio::test(start_paused = true)]
async fn a_page_is_used_until_the_removal_of_its_limit_is_durable() {
    let at_home = home("DEFAULT", SHARDS);
    let (first, second) = (host_in(at_home.0, SHARDS, 0), host_in((at_home.0 + 1) % SHARDS, SHARDS, 0));
    let (late, frontier) = open_late(at_home).await;
    frontier.set_crawl("DEFAULT".into(), pages(1), false).await.unwrap();
    frontier.put(vec![disc(&format!("http://{first}/"))]).await;
    assert_eq!(frontier.reserve(want(1, 1)).await.unwrap().len(), 1);
    frontier.put(vec![disc(&format!("http://{second}/"))]).await;
    late.late.store(true, Ordering::Release);
    let removing = tokio::spawn({
        let (frontier, none) = (frontier.clone(), CrawlChanges { pages: Change::Clear, ..CrawlChanges::default() });
        async move { frontier.set_crawl("DEFAULT".into(), none, false).await }
    });
    pass(100).await;
    // Whoever looks at a host learns what others use.
    frontier.host(second.as_str().into()).await.unwrap();
    assert_eq!(frontier.reserve(want(9, 9)).await, Ok(Vec::new()), "the removal is not durable");
    late.late.store(false, Ordering::Release);
    late.answer.notify_waiters();
    assert!(removing.await.unwrap().is_err());
    pass(1_000).await;
    assert_eq!(frontier.reserve(want(9, 9)).await, Ok(Vec::new()), "the page is still out");
}

/// Two visits are revoked in one turn. The rows of the second cannot be read, so nothing of the first is committed; and
/// before the shard has reloaded, another shard is asked.
#[tokio::test(start_paused = true)]
async fn pages_of_a_turn_that_failed_are_not_to_be_had_again() {
    let (engine, frontier) = Faulty::opened(2).await;
    frontier.set_crawl("DEFAULT".into(), pages(2), false).await.unwrap();
    let urls = |shard: u16, hosts: usize| {
        let url = move |n| disc(&format!("http://{}/", host_in(shard, 2, n)));
        (0..hosts).map(url).collect::<Vec<_>>()
    };
    frontier.put(urls(0, 2)).await;
    assert_eq!(frontier.reserve(want(2, 1)).await.unwrap().len(), 2);
    frontier.put(urls(1, 2)).await;
    pass(2_000).await;
    let given = async || frontier.reserve(want(9, 9)).await.unwrap().len();
    assert_eq!(given().await, 0, "both pages are out");
    engine.hold_scans(true);
    engine.fail_read_after(1);
    let revoked = frontier.revoke(Revoke::Holder("worker".into())).await;
    assert!(revoked.is_err(), "{revoked:?}");
    assert_eq!(given().await, 0, "both pages are out as before");
    engine.hold_scans(false);
    pass(2_000).await;
    assert_eq!(frontier.stats().await.unwrap().reservations, 2);
    assert_eq!(given().await, 0);
    assert_eq!(frontier.revoke(Revoke::Holder("worker".into())).await, Ok((2, 0)));
    pass(2_000).await;
    assert_eq!(given().await, 2, "now they are back");
}
