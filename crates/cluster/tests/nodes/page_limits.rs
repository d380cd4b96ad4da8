//! `limits.pages` of a crawl whose shards belong to several nodes: never more pages are visited than it allows, and what
//! it allows is used. What could break it: nodes that hand out at once, a node that is killed or taken for dead, hosts
//! that move between shards of different nodes with the pages that count, and limits that are set, removed and set again at
//! several nodes meanwhile. An unused limit costs nothing.

use std::sync::atomic::{AtomicBool, AtomicUsize};

use futures::future::join_all;
use wayleave_core::frontier::page_ledger::PageLedger;
use wayleave_core::frontier::request::{HandOut, Outcome, PutKind, Release, UrlResult};
use wayleave_core::names::CrawlName;
use wayleave_core::settings::{Change, CrawlChanges};
use wayleave_engine::rows::page_ledger;
use wayleave_shard::Revoke;

use crate::prelude::*;

const HOSTS: usize = 48;

fn crawl() -> CrawlName {
    "DEFAULT".into()
}

fn host(n: usize) -> String {
    format!("h{n}.example")
}

async fn limit(node: &Node, pages: Option<u64>) {
    let pages = pages.map_or(Change::Clear, Change::Set);
    node.frontier.set_crawl(crawl(), CrawlChanges { pages, ..CrawlChanges::default() }, false).await.unwrap();
}

/// Two URLs of every host.
async fn fill(node: &Node) {
    let urls: Vec<String> = (0..HOSTS).flat_map(|n| (0..2).map(move |i| format!("http://{}/{i}", host(n)))).collect();
    node.frontier.put(urls.iter().map(|url| put(url)).collect()).await;
}

async fn world(nodes: usize) -> (World, Vec<Node>) {
    let world = World::new();
    let mut started = Vec::new();
    for _ in 0..nodes {
        started.push(world.start().await);
    }
    world.settle(&started.iter().collect::<Vec<_>>()).await;
    fill(&started[0]).await;
    (world, started)
}

/// What one caller is given: reservations, or the number of URLs in the paced form.
async fn call(frontier: Frontier, n: usize) -> (Vec<Reservation>, usize) {
    if n.is_multiple_of(2) {
        return (frontier.reserve(ask(3, 0)).await.unwrap_or_default(), 0);
    }
    let ask = HandOut { host: None, crawl: None, queues: 3, urls: 1, held_below: None, hold: Millis(3_600_000) };
    (Vec::new(), frontier.hand_out(ask).await.unwrap_or_default().len())
}

/// Concurrent callers at all nodes.
async fn callers_at_once(nodes: &[Node], callers: usize) -> (Vec<Reservation>, usize) {
    let at = |n: usize| tokio::spawn(call(nodes[n % nodes.len()].frontier.clone(), n / nodes.len()));
    let (mut reservations, mut urls) = (Vec::new(), 0);
    for given in join_all((0..callers).map(at)).await {
        let (more, paced) = given.unwrap();
        reservations.extend(more);
        urls += paced;
    }
    (reservations, urls)
}

/// Pages that count: visited, or out.
async fn used(node: &Node) -> u64 {
    let counts = node.frontier.crawl(crawl()).await.unwrap().counts;
    counts.fetched + counts.reserved
}

async fn fetched(node: &Node, reservation: &Reservation) {
    let result = |url: &str| UrlResult { status: Some(200), ..UrlResult::new(url, Outcome::Fetched) };
    let results = reservation.urls.iter().map(|url| result(&url.url)).collect();
    let release = Release { token: reservation.token, results, ready_at: None };
    node.frontier.release(release, Vec::new()).await.unwrap();
}

/// Callers at all nodes, until the limit is used up. It is never passed, and reached within a minute.
async fn use_up(nodes: &[Node], limit: u64) -> Vec<Reservation> {
    let mut all = Vec::new();
    for _ in 0..60 {
        let (reservations, _) = callers_at_once(nodes, 24).await;
        all.extend(reservations);
        let used = used(&nodes[0]).await;
        assert!(used <= limit, "{used} pages are used, the limit is {limit}");
        if used == limit {
            return all;
        }
        pass(Duration::from_secs(1)).await;
    }
    panic!("{} of {limit} pages are used, and no more is handed out", used(&nodes[0]).await);
}

#[tokio::test(start_paused = true)]
async fn concurrent_callers_on_several_nodes_get_exactly_the_page_limit() {
    for pages in [1, 7, 40] {
        let (_world, nodes) = world(3).await;
        limit(&nodes[0], Some(pages)).await;
        use_up(&nodes, pages).await;
        pass(Duration::from_secs(40)).await;
        callers_at_once(&nodes, 24).await;
        assert_eq!(used(&nodes[1]).await, pages, "nothing more");
    }
}

/// Pages that were out when the limit was set count, in whichever shard they are.
#[tokio::test(start_paused = true)]
async fn a_limit_that_is_set_later_counts_what_is_out() {
    let (_world, nodes) = world(3).await;
    let (reservations, paced) = callers_at_once(&nodes, 6).await;
    let out = (reservations.iter().map(|one| one.urls.len()).sum::<usize>() + paced) as u64;
    assert!(out >= 6, "{out}");
    limit(&nodes[1], Some(out - 1)).await;
    for _ in 0..5 {
        callers_at_once(&nodes, 12).await;
        assert_eq!(used(&nodes[0]).await, out, "the limit had been passed before it was set");
        pass(Duration::from_secs(3)).await;
    }
    limit(&nodes[2], Some(out + 9)).await;
    use_up(&nodes, out + 9).await;
}

/// Shards hold pages that they have not used when the limit is lowered.
#[tokio::test(start_paused = true)]
async fn a_limit_that_is_lowered_is_in_force_once_it_is_confirmed() {
    for below in [0, 3] {
        let (_world, nodes) = world(3).await;
        limit(&nodes[0], Some(1_000)).await;
        callers_at_once(&nodes, 6).await;
        let out = used(&nodes[0]).await;
        assert!(out >= 6, "{out}");
        limit(&nodes[1], Some(out - below)).await;
        for _ in 0..5 {
            callers_at_once(&nodes, 12).await;
            assert_eq!(used(&nodes[0]).await, out, "no page more");
            pass(Duration::from_secs(2)).await;
        }
    }
}

/// One shard has visited what it could and keeps pages for URLs that another limit holds back, while others have used all
/// the rest: they will get those pages, so the crawl is not finished.
#[tokio::test(start_paused = true)]
async fn a_crawl_is_not_finished_while_pages_of_its_limit_are_unused() {
    let (_world, nodes) = world(3).await;
    limit(&nodes[0], Some(60)).await;
    for _ in 0..40 {
        let (reservations, _) = callers_at_once(&nodes, 5).await;
        for reservation in &reservations {
            fetched(&nodes[0], reservation).await;
        }
        let view = nodes[1].frontier.crawl(crawl()).await.unwrap();
        let used = view.counts.fetched + view.counts.reserved;
        assert!(view.waits_for.is_some() || used == 60, "finished after {used} pages: {view:?}");
        pass(Duration::from_millis(1_100)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn the_limit_holds_when_nodes_are_killed_and_join() {
    let (world, mut nodes) = world(3).await;
    limit(&nodes[0], Some(60)).await;
    for round in 0..3 {
        let (reservations, _) = callers_at_once(&nodes, 6).await;
        for reservation in reservations.iter().step_by(2) {
            fetched(&nodes[0], reservation).await;
        }
        let mut killed = nodes.remove(1 + round % 2);
        killed.kill(&world);
        // What the others hand out while the shards of the killed node have no owner.
        callers_at_once(&nodes, 6).await;
        nodes.push(world.start().await);
        world.settle(&nodes.iter().collect::<Vec<_>>()).await;
        assert!(used(&nodes[0]).await <= 60);
    }
    use_up(&nodes, 60).await;
}

#[tokio::test(start_paused = true)]
async fn the_limit_holds_while_hosts_move_between_nodes() {
    let (_world, nodes) = world(3).await;
    limit(&nodes[0], Some(50)).await;
    for round in 0..12 {
        let members =
            |n: usize| (0..HOSTS).filter(move |host| (host + round) % 5 == n).map(|n| host(n).as_str().into());
        let moves = (0..2).map(|n| {
            let (frontier, alias) = (nodes[n].frontier.clone(), format!("alias{n}"));
            let hosts: Vec<_> = members(n).collect();
            async move { frontier.set_group(alias.as_str().into(), Some(hosts), PaceChanges::default(), false).await }
        });
        let (moved, (reservations, _)) = tokio::join!(join_all(moves), callers_at_once(&nodes, 4));
        let failed: Vec<_> = moved.into_iter().filter_map(Result::err).collect();
        assert!(failed.iter().all(|why| why.to_string().contains("try again")), "{failed:?}");
        for reservation in reservations.iter().step_by(2) {
            fetched(&nodes[1], reservation).await;
        }
        let used = used(&nodes[2]).await;
        assert!(used <= 50, "{used} pages after round {round}");
        pass(Duration::from_secs(2)).await;
    }
    for n in 0..2 {
        let alias = format!("alias{n}");
        let empty = nodes[0].frontier.set_group(alias.as_str().into(), Some(Vec::new()), PaceChanges::default(), false);
        empty.await.unwrap();
    }
    use_up(&nodes, 50).await;
}

/// Pages that come back in one shard are there for all others, on other nodes, too.
#[tokio::test(start_paused = true)]
async fn pages_that_come_back_are_handed_out_elsewhere() {
    let (_world, nodes) = world(3).await;
    limit(&nodes[0], Some(10)).await;
    let out = use_up(&nodes, 10).await;
    assert!(!out.is_empty());
    for reservation in &out {
        nodes[0].frontier.revoke(Revoke::Token(reservation.token)).await.unwrap();
    }
    assert!(used(&nodes[0]).await < 10);
    use_up(&nodes, 10).await;
}

#[tokio::test(start_paused = true)]
async fn a_crawl_without_a_limit_leaves_no_ledger_and_a_new_one_starts_afresh() {
    let (world, nodes) = world(2).await;
    let ledger = || async {
        pass(Duration::from_secs(1)).await;
        world.engine.get_many(&[page_ledger::key(&crawl())]).await.unwrap().pop().unwrap()
    };
    limit(&nodes[0], Some(5)).await;
    use_up(&nodes, 5).await;
    assert!(ledger().await.is_some());
    limit(&nodes[1], None).await;
    assert_eq!(ledger().await, None, "the limit was removed");
    limit(&nodes[0], Some(9)).await;
    use_up(&nodes, 9).await;
    nodes[0].frontier.delete_crawl(crawl()).await.unwrap();
    assert_eq!(ledger().await, None, "the crawl was deleted");
    fill(&nodes[0]).await;
    limit(&nodes[1], Some(3)).await;
    use_up(&nodes, 3).await;
}

/// Pages come back to shards that have nothing left to visit: they return them to those that have.
#[tokio::test(start_paused = true)]
async fn pages_that_a_shard_cannot_use_go_to_others() {
    let (_world, nodes) = world(3).await;
    limit(&nodes[0], Some(10)).await;
    let out = use_up(&nodes, 10).await;
    for reservation in &out {
        nodes[0].frontier.delete_queue(crawl(), reservation.host.clone()).await.unwrap();
    }
    assert!(used(&nodes[0]).await < 10);
    use_up(&nodes, 10).await;
}

/// A shard has unused pages, drawn before another one drew the rest, when the limit is lowered to what that one has used.
#[tokio::test(start_paused = true)]
async fn unused_pages_are_void_once_the_limit_was_lowered() {
    let (_world, nodes) = World::with::<2>().await;
    limit(&nodes[0], Some(10)).await;
    let urls = |host: &str| (0..8).map(|n| put(&format!("http://{host}/{n}"))).collect::<Vec<_>>();
    let reserve = async || {
        let ask = wayleave_core::frontier::request::Reserve { urls: 5, ..ask(1, 0) };
        nodes[0].frontier.reserve(ask).await.unwrap().pop()
    };
    nodes[0].frontier.put(urls("a.example")).await;
    pass(Duration::from_millis(100)).await;
    let first = reserve().await.unwrap();
    assert_eq!(first.urls.len(), 5);
    nodes[0].frontier.revoke(Revoke::Token(first.token)).await.unwrap();
    nodes[0].frontier.put(urls("b.example")).await;
    pass(Duration::from_millis(100)).await;
    let second = reserve().await.unwrap();
    assert_eq!((&*second.host, second.urls.len()), ("b.example", 5), "the other one must wait for its delay");
    limit(&nodes[1], Some(5)).await;
    pass(Duration::from_secs(5)).await;
    assert_eq!(reserve().await, None, "all that the limit allows is out");
    limit(&nodes[1], Some(7)).await;
    pass(Duration::from_secs(5)).await;
    assert_eq!(reserve().await.unwrap().urls.len(), 2);
}

/// The ledger's row.
async fn ledger(world: &World) -> Option<Vec<u8>> {
    world.engine.get_many(&[page_ledger::key(&crawl())]).await.unwrap().pop().unwrap()
}

/// The node that sets a limit dies before the ledger is opened: the limit never takes effect.
async fn lose_ledger(world: &World) {
    let writes = vec![wayleave_engine::Write { key: page_ledger::key(&crawl()), value: None }];
    world.engine.commit(Batch { writes, ..Batch::default() }).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_limit_whose_setter_has_died_comes_into_force() {
    let (world, nodes) = world(3).await;
    limit(&nodes[0], Some(9)).await;
    lose_ledger(&world).await;
    let (reservations, paced) = callers_at_once(&nodes, 12).await;
    assert_eq!(
        (reservations.len(), paced),
        (0, 0),
        "nothing is handed out before every shard is known to have heard of it"
    );
    pass(Duration::from_secs(30)).await;
    assert!(ledger(&world).await.is_some(), "its home has opened the ledger");
    use_up(&nodes, 9).await;
}

#[tokio::test(start_paused = true)]
async fn so_does_one_whose_home_has_died_as_well() {
    let (world, mut nodes) = world(3).await;
    limit(&nodes[0], Some(9)).await;
    lose_ledger(&world).await;
    for node in &mut nodes {
        node.kill(&world);
    }
    let nodes = [world.start().await, world.start().await];
    world.settle(&nodes.iter().collect::<Vec<_>>()).await;
    pass(Duration::from_secs(5)).await;
    use_up(&nodes, 9).await;
}

/// Pages are used without a limit between two settings of it, in whichever shards, while callers never stop.
#[tokio::test(start_paused = true)]
async fn a_limit_that_is_removed_and_set_again_counts_what_was_used_meanwhile() {
    let (_world, nodes) = world(3).await;
    for round in 0..8 {
        let before = used(&nodes[0]).await;
        let (set, _) = tokio::join!(set_pages(&nodes[round % 3], Some(before + 3)), callers_at_once(&nodes, 3));
        set.unwrap();
        let out = used(&nodes[0]).await;
        for _ in 0..3 {
            callers_at_once(&nodes, 4).await;
            let now = used(&nodes[0]).await;
            assert!(now <= out.max(before + 3), "{now} pages after {out}, the limit is {}", before + 3);
            pass(Duration::from_millis(700)).await;
        }
        let (removed, _) = tokio::join!(set_pages(&nodes[(round + 1) % 3], None), callers_at_once(&nodes, 2));
        removed.unwrap();
    }
}

/// Three nodes; the last one is not the home of the crawl, and a shard of the second one has nothing of the crawl.
async fn world_with_empty_shard() -> (World, Vec<Node>, ShardId) {
    let (world, nodes) = World::with::<3>().await;
    let mut nodes = Vec::from(nodes);
    nodes.sort_by_key(|node| !node.frontier.owns(home(&crawl(), SHARDS)));
    let empty = (0..SHARDS).map(ShardId).find(|shard| nodes[1].frontier.owns(*shard)).unwrap();
    let hosts = (0..HOSTS).map(host).filter(|host| home(host, SHARDS) != empty);
    let outcomes = nodes[0].frontier.put(hosts.map(|host| put(&format!("http://{host}/"))).collect()).await;
    assert!(outcomes.len() > 20 && outcomes.iter().all(|outcome| *outcome == PutOutcome::Added));
    (world, nodes, empty)
}

/// Imports URLs of one host that are fetched already into a shard.
async fn import(node: &Node, shard: ShardId, urls: usize) -> String {
    let host = (0..).map(|n| format!("old{n}.example")).find(|host| home(host, SHARDS) == shard).unwrap();
    let known = |n| Put { kind: PutKind::Known { due: None }, ..put(&format!("http://{host}/{n}")) };
    assert_eq!(node.frontier.put((0..urls).map(known).collect()).await, vec![PutOutcome::Added; urls]);
    host
}

/// A shard says that it has used nothing, and URLs are imported into it while the setter waits for the shards of a paused node.
#[tokio::test(start_paused = true)]
async fn pages_that_are_imported_while_the_ledger_is_made_count() {
    let (world, nodes, empty) = world_with_empty_shard().await;
    // Its first put asks all nodes for moved hosts.
    nodes[1].put(&["http://h0.example/"]).await;
    nodes[2].stand_still(&world, true);
    let frontier = nodes[0].frontier.clone();
    let changes = CrawlChanges { pages: Change::Set(9), ..CrawlChanges::default() };
    let set = tokio::spawn(async move { frontier.set_crawl(crawl(), changes, false).await });
    pass(Duration::from_millis(500)).await;
    assert!(!set.is_finished(), "it waits for the shards of the paused node");
    import(&nodes[1], empty, 3).await;
    assert!(!set.is_finished());
    nodes[2].stand_still(&world, false);
    set.await.unwrap().unwrap();
    pass(Duration::from_secs(5)).await;
    use_up(&nodes, 9).await;
}

/// Its owner ends before it has registered what was imported.
#[tokio::test(start_paused = true)]
async fn pages_that_were_imported_just_before_their_shard_was_taken_over_count() {
    let (world, mut nodes, empty) = world_with_empty_shard().await;
    limit(&nodes[0], Some(9)).await;
    import(&nodes[1], empty, 3).await;
    assert_eq!(used(&nodes[0]).await, 3);
    nodes.remove(1).kill(&world);
    // As if it had not registered them.
    let value = Some(page_ledger::encode(&PageLedger::default()));
    let writes = vec![wayleave_engine::Write { key: page_ledger::key(&crawl()), value }];
    world.engine.commit(Batch { writes, ..Batch::default() }).await.unwrap();
    world.settle(&nodes.iter().collect::<Vec<_>>()).await;
    pass(Duration::from_secs(5)).await;
    use_up(&nodes, 9).await;
}

/// It is opened anew when the limit is set again, or by the next owner of the crawl's home.
#[tokio::test(start_paused = true)]
async fn a_ledger_that_cannot_be_read_costs_the_visits_of_its_crawl_alone() {
    for again in [true, false] {
        let (world, mut nodes) = world(3).await;
        limit(&nodes[0], Some(9)).await;
        // Until its home has seen once that the ledger is open.
        pass(Duration::from_secs(30)).await;
        let of_other = |n: usize| Put { crawl: "other".into(), ..put(&format!("http://other-{}/", host(n))) };
        nodes[0].frontier.put((0..HOSTS).map(of_other).collect()).await;
        assert_eq!(world.engine.damage(|key| *key == page_ledger::key(&crawl())), 1);
        let mut others = 0;
        for _ in 0..30 {
            others += callers_at_once(&nodes, 6).await.0.len();
            pass(Duration::from_secs(1)).await;
            assert!(nodes.iter().all(|node| node.frontier.readiness().is_ok()), "no shard is closed");
            assert_eq!(used(&nodes[0]).await, 0);
        }
        assert!(others > 0, "another crawl is visited");
        if again {
            limit(&nodes[1], Some(9)).await;
        } else {
            let at_home = nodes.iter().position(|node| node.frontier.owns(home(&crawl(), SHARDS))).unwrap();
            nodes.remove(at_home).kill(&world);
            world.settle(&nodes.iter().collect::<Vec<_>>()).await;
            pass(Duration::from_secs(30)).await;
        }
        use_up(&nodes, 9).await;
    }
}

/// A store in which another session has locked the row of the ledger: commits that need it are applied late.
struct LockedLedger {
    store: Arc<Memory>,
    locked: AtomicBool,
}

impl Engine for LockedLedger {
    wayleave_engine::pass_on! { store: now own get_many scan_many look }

    fn commit(&self, batch: Batch) -> Commit {
        let needs_it = batch.expects.iter().any(|(key, _)| *key == page_ledger::key(&crawl()));
        if !needs_it || !self.locked.load(Ordering::Relaxed) {
            return self.store.commit(batch);
        }
        let store = self.store.clone();
        async move {
            pass(Duration::from_secs(4)).await;
            store.commit(batch).await
        }
        .boxed()
    }
}

async fn world_with_locks(nodes: u64) -> (World, Arc<LockedLedger>, Vec<Node>) {
    let world = World::new();
    let engine = Arc::new(LockedLedger { store: world.engine.clone(), locked: AtomicBool::new(false) });
    let mut started = Vec::new();
    for id in 1..=nodes {
        let id = wayleave_core::ids::NodeId(id);
        started.push(world.start_on(engine.clone(), id, &format!("http://node-{}", id.0)).await);
    }
    world.settle(&started.iter().collect::<Vec<_>>()).await;
    (world, engine, started)
}

/// What went wrong once: callers lack pages while the ledger is being opened, so a shard that has nothing to visit is to return some. It
/// had no answer, and asked no more, whatever came back to it later.
#[tokio::test(start_paused = true)]
async fn pages_that_come_back_to_a_shard_that_had_no_answer_of_the_ledger_go_to_others() {
    let (_world, engine, mut nodes) = world_with_locks(2).await;
    nodes.sort_by_key(|node| !node.frontier.owns(home(&crawl(), SHARDS)));
    let mut others = (0..SHARDS).map(ShardId).filter(|shard| nodes[1].frontier.owns(*shard));
    let (empty, full) = (others.next().unwrap(), others.next().unwrap());
    let old = import(&nodes[1], empty, 3).await;
    let hosts = (0..).map(host).filter(|host| home(host, SHARDS) == full).take(12);
    nodes[0].frontier.put(hosts.map(|host| put(&format!("http://{host}/"))).collect()).await;
    engine.locked.store(true, Ordering::Relaxed);
    let frontier = nodes[0].frontier.clone();
    let changes = CrawlChanges { pages: Change::Set(9), ..CrawlChanges::default() };
    let set = tokio::spawn(async move { frontier.set_crawl(crawl(), changes, false).await });
    pass(Duration::from_millis(500)).await;
    callers_at_once(&nodes, 12).await;
    assert!(!set.is_finished(), "the ledger is not open yet");
    pass(Duration::from_secs(1)).await;
    engine.locked.store(false, Ordering::Relaxed);
    set.await.unwrap().unwrap();
    use_up(&nodes, 9).await;
    nodes[0].frontier.delete_queue(crawl(), old.as_str().into()).await.unwrap();
    use_up(&nodes, 9).await;
}

async fn set_pages(node: &Node, pages: Option<u64>) -> Result<(), String> {
    let pages = pages.map_or(Change::Clear, Change::Set);
    let changes = CrawlChanges { pages, ..CrawlChanges::default() };
    node.frontier.set_crawl(crawl(), changes, false).await.map(drop).map_err(|refusal| refusal.to_string())
}

/// Two nodes set different limits at once. Whichever is in force then holds.
#[tokio::test(start_paused = true)]
async fn of_limits_set_at_several_nodes_at_once_one_is_in_force_everywhere() {
    let (_world, nodes) = world(3).await;
    let (a, b, c) =
        tokio::join!(set_pages(&nodes[0], Some(11)), set_pages(&nodes[1], Some(17)), set_pages(&nodes[2], Some(14)),);
    assert!([a, b, c].iter().any(Result::is_ok));
    let pages = nodes[2].frontier.crawl(crawl()).await.unwrap().settings.limits.pages.unwrap();
    use_up(&nodes, pages).await;
    pass(Duration::from_secs(40)).await;
    callers_at_once(&nodes, 24).await;
    assert_eq!(used(&nodes[1]).await, pages, "nothing more");
}

/// A store that counts commits, and those that depend on a row: ledgers are changed by these.
struct Counting {
    store: Arc<Memory>,
    commits: AtomicUsize,
    swaps: AtomicUsize,
}

impl Engine for Counting {
    wayleave_engine::pass_on! { store: now own get_many scan_many look }

    fn commit(&self, batch: Batch) -> Commit {
        if !batch.fences.is_empty() {
            self.commits.fetch_add(1, Ordering::Relaxed);
            self.swaps.fetch_add(usize::from(!batch.expects.is_empty()), Ordering::Relaxed);
        }
        self.store.commit(batch)
    }
}

#[tokio::test(start_paused = true)]
async fn a_limit_costs_one_ledger_write_and_nothing_while_idle() {
    let world = World::new();
    let (commits, swaps) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let engine = Arc::new(Counting { store: world.engine.clone(), commits, swaps });
    let mut nodes = Vec::new();
    for id in 1..=3 {
        let id = wayleave_core::ids::NodeId(id);
        nodes.push(world.start_on(engine.clone(), id, &format!("http://node-{}", id.0)).await);
    }
    world.settle(&nodes.iter().collect::<Vec<_>>()).await;
    fill(&nodes[0]).await;
    pass(Duration::from_secs(2)).await;
    let count = || (engine.commits.swap(0, Ordering::Relaxed), engine.swaps.swap(0, Ordering::Relaxed));
    count();
    limit(&nodes[0], Some(40)).await;
    let (commits, swaps) = count();
    assert!(
        commits <= usize::from(crate::support::SHARDS) + 1 && swaps == 1,
        "{commits} commits, {swaps} of the ledger"
    );
    pass(Duration::from_secs(100)).await;
    let (_, swaps) = count();
    assert_eq!(swaps, 0, "no shard changes the ledger of a limit that it does not use");
    // Another owner of the shards has nothing to do with it, either.
    nodes.pop().unwrap().leave(&world).await;
    world.settle(&nodes.iter().collect::<Vec<_>>()).await;
    pass(Duration::from_secs(10)).await;
    let (_, swaps) = count();
    assert_eq!(swaps, 0, "a take-over registers nothing");
    use_up(&nodes, 40).await;
}

/// A store whose commits take a moment.
struct Slow {
    store: Arc<Memory>,
}

impl Engine for Slow {
    wayleave_engine::pass_on! { store: now own get_many scan_many look }

    fn commit(&self, batch: Batch) -> Commit {
        let committed = self.store.commit(batch);
        async move {
            let committed = committed.await;
            pass(Duration::from_millis(2)).await;
            committed
        }
        .boxed()
    }
}

/// A regression: a shard whose inbox is never empty did not hear that others lack the pages that it does not need.
#[tokio::test(start_paused = true)]
async fn a_busy_shard_returns_pages_that_others_lack() {
    let world = World::new();
    let engine = Arc::new(Slow { store: world.engine.clone() });
    let node = world.start_on(engine, wayleave_core::ids::NodeId(1), "http://node-1").await;
    world.settle_one(&node).await;
    limit(&node, Some(8)).await;
    let urls = |host: &str| (0..8).map(|n| put(&format!("http://{host}/{n}"))).collect::<Vec<_>>();
    let reserve = async |wait| {
        let ask = Reserve { urls: 8, crawl: Some(crawl()), ..ask(1, wait) };
        node.frontier.reserve(ask).await.unwrap().pop()
    };
    node.frontier.put(urls("a.example")).await;
    pass(Duration::from_millis(100)).await;
    let first = reserve(0).await.unwrap();
    assert_eq!(first.urls.len(), 8, "its shard has drawn all pages");
    node.frontier.revoke(Revoke::Token(first.token)).await.unwrap();
    node.frontier.delete_queue(crawl(), "a.example".into()).await.unwrap();
    let mut busy = tokio::task::JoinSet::new();
    for task in 0..64 {
        let frontier = node.frontier.clone();
        busy.spawn(async move {
            for n in 0.. {
                let url = format!("http://a.example/{task}/{n}");
                frontier.put(vec![Put { crawl: "other".into(), ..put(&url) }]).await;
            }
        });
    }
    pass(Duration::from_millis(100)).await;
    let elsewhere = |host: &String| home(host, SHARDS) != home("a.example", SHARDS);
    let host = (0..).map(|n| format!("b{n}.example")).find(elsewhere).unwrap();
    node.frontier.put(urls(&host)).await;
    assert!(reserve(10_000).await.is_some(), "the pages are unused");
}

#[tokio::test(start_paused = true)]
async fn crawls_are_counted_once_over_all_nodes() {
    let (_world, nodes) = world(3).await;
    for n in 0..7 {
        let name = format!("c{n}");
        nodes[n % 3].frontier.set_crawl(name.as_str().into(), CrawlChanges::default(), false).await.unwrap();
    }
    let counted = async || {
        pass(Duration::from_millis(100)).await;
        [nodes[0].frontier.stats().await.unwrap().crawls, nodes[2].frontier.stats().await.unwrap().crawls]
    };
    assert_eq!(counted().await, [8, 8], "with DEFAULT");
    nodes[1].frontier.delete_crawl("c3".into()).await.unwrap();
    assert_eq!(counted().await, [7, 7]);
}
