//! `limits.pages` of a crawl whose shards belong to several nodes: never more pages are visited than it allows, and what
//! it allows is used. What could break it: nodes that hand out at once, a node that is killed or taken for dead, hosts
//! that move between shards of different nodes with the pages that count.

use std::time::Duration;

use futures::future::join_all;
use wayleave_core::frontier::request::{HandOut, Outcome, Release, Reservation, UrlResult};
use wayleave_core::names::CrawlName;
use wayleave_core::settings::{Change, CrawlChanges, PaceChanges};
use wayleave_core::time::Millis;
use wayleave_engine::Engine;
use wayleave_engine::rows::page_ledger;
use wayleave_shard::{Frontier, Revoke};

use crate::support::{Node, World, ask, pass, put};

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
async fn callers_at_several_nodes_at_once_are_given_as_many_pages_as_the_limit_says() {
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
