//! Lists page through everything exactly once.

use wayleave_core::frontier::view::HostFilter;

use crate::prelude::*;
use crate::support::*;

#[tokio::test(start_paused = true)]
async fn every_page_size_shows_each_thing_exactly_once() {
    let world = World::new(4).await;
    let put = |n: usize| of_crawl(["x", "y"][n % 2], disc(&format!("http://h{}.example/{n}", n % 17)));
    world.put((0..500).map(put).collect()).await;
    world.set_group("some", &["h1.example", "h2.example", "h3.example"], PaceChanges::default()).await;
    for limit in [1, 2, 7, 64, 1_000] {
        let urls = world.urls(&UrlFilter::default(), limit).await;
        let distinct: BTreeSet<_> = urls.iter().map(|url| (url.crawl.clone(), url.url.clone())).collect();
        assert_eq!((urls.len(), distinct.len()), (500, 500), "pages of {limit}");
        let hosts = world.hosts(&HostFilter::default(), limit).await;
        let distinct: BTreeSet<_> = hosts.iter().map(|host| host.host.clone()).collect();
        assert_eq!((hosts.len(), distinct.len()), (17, 17), "pages of {limit}");
        let of_x = UrlFilter { crawl: Some("x".into()), contains: Some("/1".into()), ..UrlFilter::default() };
        assert_eq!(world.urls(&of_x, limit).await.len(), 55, "pages of {limit}");
        let one = UrlFilter { host: Some("h2.example".into()), ..UrlFilter::default() };
        assert_eq!(world.urls(&one, limit).await.len(), 30, "pages of {limit}");
    }
    let groups = world.frontier.groups(&HostFilter::default(), None, 100).await.unwrap();
    assert_eq!((groups.items.len(), groups.next), (15, None));
    let mut queues = Vec::new();
    for start in (0..17).step_by(5) {
        queues.extend(world.frontier.queues("x".into(), start, 5, true).await.unwrap());
    }
    assert_eq!((queues.len(), queues.iter().collect::<BTreeSet<_>>().len()), (17, 17));
}

#[tokio::test(start_paused = true)]
async fn a_crawl_is_finished_when_nothing_of_it_can_be_handed_out() {
    let world = World::new(4).await;
    let limit = CrawlChanges { pages_per_host: Change::Set(1), ..CrawlChanges::default() };
    world.frontier.set_crawl("DEFAULT".into(), limit, false).await.unwrap();
    world.add(&["http://a.example/1", "http://a.example/2", "http://b.example/1"]).await;
    let crawl = || async { world.frontier.crawl("DEFAULT".into()).await.unwrap() };
    assert!(crawl().await.waits_for.unwrap().contains("queued"));
    let visits = world.reserve(9, 1).await;
    assert!(crawl().await.waits_for.unwrap().contains("handed out"));
    for visit in &visits {
        world.fetched(visit).await;
    }
    let view = crawl().await;
    assert_eq!((view.waits_for, view.last_visit_at), (None, Some(world.now())), "one URL is left, over the limit");
    assert_eq!(view.counts.queued, 1);
    world.add(&["http://c.example/1"]).await;
    assert!(crawl().await.waits_for.unwrap().contains("c.example"));
}

#[tokio::test(start_paused = true)]
async fn no_page_hides_a_reservation_because_others_were_released() {
    let world = World::new(3).await;
    let urls: Vec<String> = (0..300).map(|n| format!("http://h{n}.example/")).collect();
    world.put(urls.iter().map(|url| disc(url)).collect()).await;
    let visits = world.reserve(300, 1).await;
    let (mut seen, mut after) = (BTreeSet::new(), None);
    loop {
        let page = world.frontier.reservations(after.as_deref(), 10).await.unwrap();
        seen.extend(page.items.iter().map(|view| view.token));
        // Two of those listed end before the next page is read.
        for view in page.items.iter().take(2) {
            let visit = visits.iter().find(|visit| visit.token == view.token).unwrap();
            world.fetched(visit).await;
        }
        let tokens = visits.iter().map(|visit| visit.token.to_string());
        assert!(page.next.iter().all(|next| tokens.clone().all(|token| !next.contains(&token))), "tokens are secret");
        match page.next {
            Some(next) => after = Some(next),
            None => break,
        }
    }
    assert_eq!(seen.len(), 300);
}

#[tokio::test(start_paused = true)]
async fn a_restart_between_two_pages_hides_no_host_and_no_group() {
    let mut world = World::new(2).await;
    let urls: Vec<String> = (0..60).map(|n| format!("http://h{n}.example/")).collect();
    world.put(urls.iter().map(|url| disc(url)).collect()).await;
    for n in 0..20 {
        world.frontier.delete_queue("DEFAULT".into(), format!("h{n}.example").as_str().into()).await.unwrap();
    }
    world.put((60..70).map(|n| disc(&format!("http://h{n}.example/"))).collect()).await;
    world.set_group("some", &["h30.example", "h31.example"], PaceChanges::default()).await;
    world.set_group("other", &["h40.example"], PaceChanges::default()).await;
    let (mut hosts, mut groups) = (BTreeSet::new(), BTreeSet::new());
    let (mut after_host, mut after_group) = (None, None);
    let (mut more_hosts, mut more_groups) = (true, true);
    while more_hosts || more_groups {
        if more_hosts {
            let page = world.frontier.hosts(&HostFilter::default(), after_host.as_deref(), 7).await.unwrap();
            hosts.extend(page.items.into_iter().map(|view| view.host));
            (more_hosts, after_host) = (page.next.is_some(), page.next);
        }
        if more_groups {
            let page = world.frontier.groups(&HostFilter::default(), after_group.as_deref(), 7).await.unwrap();
            groups.extend(page.items.into_iter().map(|view| view.group));
            (more_groups, after_group) = (page.next.is_some(), page.next);
        }
        world.reopen().await;
    }
    assert_eq!((hosts.len(), groups.len()), (50, 49));
}

#[tokio::test(start_paused = true)]
async fn groups_of_one_crawl_are_those_that_have_a_queue_of_it() {
    let world = World::new(4).await;
    let put = |n: usize| of_crawl(["x", "y"][n % 2], disc(&format!("http://h{n}.example/")));
    world.put((0..20).map(put).collect()).await;
    world.set_group("some", &["h1.example", "h2.example", "h4.example"], PaceChanges::default()).await;
    world.set_group("even", &["h6.example"], PaceChanges::default()).await;
    for (crawl, want) in [(Some("x"), 9), (Some("y"), 10), (Some("z"), 0), (None, 18)] {
        let filter = HostFilter { state: None, crawl: crawl.map(Into::into) };
        let page = world.frontier.groups(&filter, None, 100).await.unwrap();
        assert_eq!((page.items.len(), page.next), (want, None), "{crawl:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_page_of_hosts_with_many_queues_is_a_short_one() {
    let world = World::new(1).await;
    let crawls = 400;
    for n in 0..30 {
        let put = |crawl: usize| of_crawl(&format!("crawl-{crawl}"), disc(&format!("http://h{n}.example/")));
        world.put((0..crawls).map(put).collect()).await;
    }
    let page = world.frontier.hosts(&HostFilter::default(), None, 1_000).await.unwrap();
    assert!(page.items.len() < 20 && page.next.is_some(), "{} hosts of {crawls} queues", page.items.len());
    assert_eq!(world.hosts(&HostFilter::default(), 1_000).await.len(), 30);
}

#[tokio::test(start_paused = true)]
async fn crawls_page_by_name_with_the_sums_of_all_shards() {
    let world = World::new(4).await;
    for n in 0..40 {
        let put = |host: usize| of_crawl(&format!("crawl-{n:02}"), disc(&format!("http://h{host}.example/{n}")));
        world.put((0..=n % 5).map(put).collect()).await;
    }
    for limit in [1, 3, 40, 1_000] {
        let (mut all, mut after) = (Vec::new(), None::<String>);
        loop {
            let page = world.frontier.crawls_page(after.as_deref(), limit).await.unwrap();
            assert!(page.items.len() <= limit);
            all.extend(page.items);
            after = page.next;
            if after.is_none() {
                break;
            }
        }
        let shown: Vec<_> = all.iter().map(|view| (view.crawl.to_string(), view.counts.queued, view.queues)).collect();
        let want: Vec<_> = (0..40).map(|n| (format!("crawl-{n:02}"), n % 5 + 1, n % 5 + 1)).collect();
        assert_eq!(shown, want, "pages of {limit}");
    }
    let page = world.frontier.crawls_page(Some("crawl-10"), 2).await.unwrap();
    world.frontier.delete_crawl("crawl-12".into()).await.unwrap();
    let next = world.frontier.crawls_page(page.next.as_deref(), 2).await.unwrap();
    assert_eq!(&*next.items[0].crawl, "crawl-13", "the last one that was shown is gone, and hides none");
}
