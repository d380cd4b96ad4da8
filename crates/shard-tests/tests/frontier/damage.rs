//! Rows that cannot be read cost what they hold: calls that need them are refused by name, all else continues, and nothing is
//! lost or stored twice.

use wayleave_engine::rows::url;

use crate::faulty::{DAMAGE, Faulty};
use crate::prelude::*;
use crate::support::*;

fn is_kind(row: &Row, kind: Kind) -> bool {
    row.key.get(2) == Some(&(kind as u8))
}

/// Whether a row is the URL row whose key ends like this.
fn is_url(row: &Row, end: &str) -> bool {
    is_kind(row, Kind::Url) && url::parse_key(&row.key).is_ok_and(|(_, key)| key.0.ends_with(end.as_bytes()))
}

fn is_damaged(refusal: &Refusal, named: &str) -> bool {
    matches!(refusal, Refusal::Damaged { host, cause } if host == named && cause == DAMAGE)
}

fn of_host(url: &str) -> wayleave_core::frontier::request::HandOut {
    wayleave_core::frontier::request::HandOut { host: Some(host_of(url)), crawl: Some("DEFAULT".into()), ..paced(1, 1) }
}

async fn with(urls: &[&str]) -> (Arc<Faulty>, Frontier) {
    let (engine, frontier) = Faulty::opened(1).await;
    let outcomes = frontier.put(urls.iter().map(|url| disc(url)).collect()).await;
    assert_eq!(outcomes, vec![PutOutcome::Added; urls.len()]);
    (engine, frontier)
}

/// The same store in a new process: nothing is cached.
async fn reopened(engine: &Arc<Faulty>, frontier: Frontier) -> Frontier {
    frontier.stop().await;
    engine.open(1).await
}

#[tokio::test(start_paused = true)]
async fn a_put_with_an_unreadable_row_is_refused_by_name_and_others_go_on() {
    let (engine, frontier) = with(&["http://a.example/1", "http://a.example/2", "http://b.example/1"]).await;
    assert_eq!(engine.damage(|row| is_url(row, "/1") && url_host(row) == 0).await, 1);
    let frontier = reopened(&engine, frontier).await;
    let urls = ["http://a.example/1", "http://a.example/2", "http://b.example/1", "http://c.example/new"];
    let outcomes = frontier.put(urls.iter().map(|url| disc(url)).collect()).await;
    assert!(matches!(&outcomes[0], PutOutcome::Failed(why) if is_damaged(why, "a.example")), "{outcomes:?}");
    assert_eq!(outcomes[1..], [PutOutcome::Known, PutOutcome::Known, PutOutcome::Added]);
    assert_eq!(engine.owns.load(Ordering::Acquire), 2, "the shard was not reloaded");
}

/// The number of the host of a URL row: hosts are numbered in the order of their first URL.
fn url_host(row: &Row) -> u64 {
    url::parse_key(&row.key).unwrap().0.host.counter() - 1
}

#[tokio::test(start_paused = true)]
async fn a_filter_is_not_rebuilt_past_damage_so_a_known_url_is_never_called_new() {
    let urls: Vec<String> = (0..3_000).map(|n| format!("http://a.example/{n:04}")).collect();
    let (engine, frontier) = with(&urls.iter().map(String::as_str).collect::<Vec<_>>()).await;
    assert_eq!(engine.damage(|row| is_url(row, "/1500")).await, 1);
    let frontier = reopened(&engine, frontier).await;
    pass(60_000).await;
    assert_eq!(frontier.damage().shards_unfiltered, 1);
    let outcomes = frontier.put(urls.iter().map(|url| disc(url)).collect()).await;
    let failed: Vec<usize> = (0..urls.len()).filter(|at| outcomes[*at] != PutOutcome::Known).collect();
    assert_eq!(failed, [1_500], "{:?}", outcomes[1_500]);
    assert_eq!(frontier.put(vec![disc("http://a.example/new")]).await, [PutOutcome::Added]);
}

#[tokio::test(start_paused = true)]
async fn a_host_with_an_unreadable_queue_is_set_aside_and_others_are_visited() {
    let (engine, frontier) = with(&["http://a.example/1", "http://b.example/1"]).await;
    let damaged = engine.damage(|row| is_kind(row, Kind::Due) && row.key.ends_with(b"/1")).await;
    assert_eq!(damaged, 2);
    let frontier = reopened(&engine, frontier).await;
    frontier.put(vec![disc("http://c.example/1")]).await;
    let visits = frontier.reserve(want(9, 1)).await.unwrap();
    assert_eq!(visits.iter().map(|visit| &*visit.host).collect::<Vec<_>>(), ["c.example"]);
    let standing = frontier.host("a.example".into()).await.unwrap().standing;
    assert_eq!(standing.state, State::Blocked);
    assert!(standing.reason.contains("damaged") && standing.reason.contains(DAMAGE), "{}", standing.reason);
    let report = frontier.damage();
    assert_eq!((report.hosts, report.shards_closed), (2, 0));
    assert!(report.told().unwrap().contains("'a.example'"), "{report:?}");
    // A call for that host alone learns why it gets nothing.
    let refused = frontier.hand_out(of_host("http://b.example/1")).await.unwrap_err();
    assert!(is_damaged(&refused, "b.example"), "{refused}");
    let scans = engine.scans.load(Ordering::Acquire);
    for _ in 0..20 {
        assert!(frontier.reserve(want(9, 1)).await.unwrap().is_empty());
    }
    assert_eq!(engine.scans.load(Ordering::Acquire), scans, "it is not tried at once again");
    engine.repair();
    pass(31_000).await;
    assert_eq!(frontier.reserve(want(9, 1)).await.unwrap().len(), 2, "it is tried again later");
    assert_eq!(frontier.damage().hosts, 0);
}

/// A regression: a call for many URLs set a host aside although it could have had some of its URLs.
#[tokio::test(start_paused = true)]
async fn what_is_due_around_damage_is_handed_out_and_the_rest_later() {
    let urls = [1, 2, 3, 4].map(|n| format!("http://a.example/{n}"));
    let (engine, frontier) = with(&urls.each_ref().map(String::as_str)).await;
    engine.damage(|row| is_kind(row, Kind::Due) && row.key.ends_with(b"/3")).await;
    let frontier = reopened(&engine, frontier).await;
    let visit = frontier.reserve(want(9, 1_000)).await.unwrap().pop().expect("three of its URLs can be read");
    assert_eq!(texts(&visit.urls), [&urls[0], &urls[1], &urls[3]]);
    let results = [&urls[0], &urls[1], &urls[3]].into_iter().map(|url| fetched(url)).collect();
    frontier.release(Release { token: visit.token, results, ready_at: None }, Vec::new()).await.unwrap();
    pass(2_000).await;
    assert!(frontier.reserve(want(9, 1_000)).await.unwrap().is_empty());
    assert_eq!(frontier.damage().hosts, 1);
    engine.repair();
    pass(31_000).await;
    let visit = frontier.reserve(want(9, 1_000)).await.unwrap().pop().expect("it is tried again later");
    assert_eq!(texts(&visit.urls), [&urls[2]]);
    assert_eq!(frontier.damage().hosts, 0);
}

/// What is behind a gap is handed out, new URLs too, and the gap is named meanwhile. What is in it is found after a restart, or
/// after a pause.
#[tokio::test(start_paused = true)]
async fn urls_behind_a_gap_are_handed_out_and_those_in_it_once_they_can_be_read() {
    for restarts in [false, true] {
        let urls = [1, 2, 3, 4, 5, 6].map(|n| format!("http://a.example/{n}"));
        let (engine, frontier) = with(&urls.each_ref().map(String::as_str)).await;
        let bad = |row: &Row| is_kind(row, Kind::Due) && [b"/2", b"/4"].iter().any(|end| row.key.ends_with(*end));
        assert_eq!(engine.damage(bad).await, 2);
        let mut frontier = reopened(&engine, frontier).await;
        let mut seen: Vec<String> = Vec::new();
        for round in 0..7 {
            let visits = frontier.reserve(want(9, 1)).await.unwrap();
            for visit in &visits {
                let results = visit.urls.iter().map(|url| fetched(&url.url)).collect();
                let release = Release { token: visit.token, results, ready_at: None };
                frontier.release(release, Vec::new()).await.unwrap();
            }
            let out: Vec<_> = visits.into_iter().flat_map(|visit| visit.urls).collect();
            seen.extend(texts(&out).into_iter().map(str::to_owned));
            if round == 1 {
                // Behind a gap and before what comes next.
                assert_eq!(frontier.put(vec![disc("http://a.example/5new")]).await, [PutOutcome::Added]);
                assert_eq!(frontier.put(vec![disc(&urls[3])]).await, [PutOutcome::Known]);
            }
            pass(1_100).await;
        }
        let readable = ["1", "3", "5", "6", "5new"].map(|name| format!("http://a.example/{name}"));
        assert_eq!(seen, readable, "in order, and each once");
        assert_eq!(frontier.damage().hosts, 1);
        let standing = frontier.host("a.example".into()).await.unwrap().standing;
        assert!(standing.state == State::Blocked && standing.reason.contains(DAMAGE), "{standing:?}");
        engine.repair();
        if restarts {
            frontier = reopened(&engine, frontier).await;
        }
        pass(40_000).await;
        let visit = frontier.reserve(want(9, 9)).await.unwrap().pop().expect("the gap is looked into again");
        let in_gap: Vec<&str> =
            texts(&visit.urls).into_iter().filter(|url| !seen.iter().any(|seen| seen == url)).collect();
        assert_eq!(in_gap, [&urls[1], &urls[3]], "{restarts}");
        assert_eq!(frontier.damage().hosts, 0);
    }
}

/// A lane that has no URL in the damaged block is whole, and its host is not reported.
#[tokio::test(start_paused = true)]
async fn a_host_that_misses_no_url_is_not_reported() {
    let (engine, frontier) = with(&["http://a.example/1", "http://a.example/2"]).await;
    let frontier = reopened(&engine, frontier).await;
    let visit = frontier.reserve(want(1, 1)).await.unwrap().remove(0);
    frontier
        .release(
            Release { token: visit.token, results: vec![fetched("http://a.example/1")], ready_at: None },
            Vec::new(),
        )
        .await
        .unwrap();
    // A block without rows of this lane that a scan to its end must read.
    engine.damage_key(|row| is_kind(row, Kind::Due) && row.key.ends_with(b"/2"), |key| key.push(9)).await;
    pass(2_000).await;
    let visit = frontier.reserve(want(1, 9)).await.unwrap().remove(0);
    assert_eq!(texts(&visit.urls), ["http://a.example/2"]);
    assert_eq!(frontier.damage().hosts, 0);
}

/// Each in its own block, the middle one damaged: the third is deleted, purged and listed, and after a repair the second is too.
#[tokio::test(start_paused = true)]
async fn what_is_behind_a_damaged_block_is_listed_and_deleted_and_purged() {
    let urls = ["http://a.example/1", "http://a.example/2", "http://a.example/3"];
    let all = |page: wayleave_core::frontier::view::Page<wayleave_core::frontier::view::UrlView>| {
        let urls: Vec<String> = page.items.into_iter().map(|url| url.url.into()).collect();
        (urls.join(" "), page.damaged.iter().map(|host| host.to_string()).collect::<Vec<_>>(), page.next)
    };
    for kind in [Kind::Url, Kind::Due] {
        for host in [None, Some("a.example".into())] {
            let (engine, frontier) = with(&urls).await;
            engine.damage(|row| is_kind(row, kind) && row.key.ends_with(b"/2")).await;
            let of = UrlFilter { host, ..UrlFilter::default() };
            let listed = all(frontier.urls(&of, None, 100).await.unwrap());
            assert_eq!(listed, ([urls[0], urls[2]].join(" "), vec!["a.example".to_owned()], None), "{kind:?} {of:?}");
            let mut pages = (Vec::new(), None::<String>);
            loop {
                let (urls, _, next) = all(frontier.urls(&of, pages.1.as_deref(), 1).await.unwrap());
                pages.0.extend(Some(urls).filter(|urls| !urls.is_empty()));
                pages.1 = next;
                if pages.1.is_none() {
                    break;
                }
            }
            assert_eq!(pages.0, [urls[0], urls[2]]);
            engine.repair();
            assert_eq!(all(frontier.urls(&of, None, 100).await.unwrap()), (urls.join(" "), vec![], None));
        }
    }
    // By a job, and by PurgeURLs.
    let (engine, frontier) = with(&urls).await;
    engine.damage(|row| is_url(row, "/2")).await;
    let id = frontier.start_job(BulkAction::Delete, UrlFilter::default(), None).await.unwrap().id;
    pass(10_000).await;
    let job = frontier.job(id).await.unwrap().unwrap();
    assert_eq!((job.outcome.done, job.outcome.unreadable), (2, 1));
    engine.repair();
    assert_eq!(all(frontier.urls(&UrlFilter::default(), None, 100).await.unwrap()).0, urls[1]);
    let (engine, frontier) = with(&urls).await;
    engine.damage(|row| is_url(row, "/2")).await;
    let refused = frontier.purge("DEFAULT".into(), None, wayleave_core::time::Time::NEVER).await.unwrap_err();
    assert!(refused.to_string().contains("the other URLs, 2, have been removed"), "{refused}");
    engine.repair();
    assert_eq!(frontier.purge("DEFAULT".into(), None, wayleave_core::time::Time::NEVER).await, Ok(1));
    // With their queue.
    let (engine, frontier) = with(&urls).await;
    engine.damage(|row| is_url(row, "/2")).await;
    frontier.delete_crawl("DEFAULT".into()).await.unwrap();
    pass(100_000).await;
    engine.repair();
    assert_eq!(engine.damage(|row| is_kind(row, Kind::Url)).await, 1, "the third is gone");
    engine.repair();
    let frontier = reopened(&engine, frontier).await;
    pass(100_000).await;
    assert_eq!(
        engine.damage(|row| is_kind(row, Kind::Url) || is_kind(row, Kind::DeletedQueue)).await,
        0,
        "and so is the second"
    );
    drop(frontier);
}

/// A regression: what is behind it was found, and the holds in it only after a restart.
#[tokio::test(start_paused = true)]
async fn holds_behind_a_damaged_block_end_and_those_in_it_once_they_can_be_read() {
    let urls = ["http://a.example/1", "http://b.example/1", "http://c.example/1"];
    let (engine, frontier) = with(&urls).await;
    for _ in 0..3 {
        assert_eq!(frontier.hand_out(paced(1, 1)).await.unwrap().len(), 1);
        pass(1_000).await;
    }
    let mut holds = 0;
    let second = |row: &Row| is_kind(row, Kind::Hold) && row.key.ends_with(b"/1") && hold_host(row) == 1;
    holds += engine.damage(second).await;
    assert_eq!(holds, 1);
    pass(40_000).await;
    let again = frontier.hand_out(paced(9, 1)).await.unwrap();
    assert_eq!(texts(&again), [urls[0], urls[2]]);
    engine.repair();
    pass(31_000).await;
    let all = frontier.hand_out(paced(9, 1)).await.unwrap();
    assert!(texts(&all).contains(&urls[1]), "{all:?}");
}

/// The number of the host of a hold.
fn hold_host(row: &Row) -> u64 {
    wayleave_engine::rows::hold::parse_key(&row.key).unwrap().1.host.counter() - 1
}

#[tokio::test(start_paused = true)]
async fn a_reservation_that_expires_returns_what_can_be_read_and_keeps_the_rest() {
    let (engine, frontier) = with(&["http://a.example/1", "http://a.example/2"]).await;
    assert_eq!(frontier.reserve(want(1, 2)).await.unwrap()[0].urls.len(), 2);
    engine.damage(|row| is_url(row, "/1")).await;
    pass(70_000).await;
    let visit = frontier.reserve(want(1, 2)).await.unwrap().pop().expect("its group is free");
    assert_eq!(texts(&visit.urls), ["http://a.example/2"]);
    let fetched = Release { token: visit.token, results: vec![fetched("http://a.example/2")], ready_at: None };
    frontier.release(fetched, Vec::new()).await.unwrap();
    let view = frontier.host("a.example".into()).await.unwrap();
    assert_eq!(view.counts.reserved, 1);
    assert!(view.standing.reason.contains("cannot be returned"), "{}", view.standing.reason);
    assert_eq!((frontier.damage().hosts, frontier.damage().stranded_urls), (1, 1));
    // Neither a restart nor more time loses it, and no task spins meanwhile.
    let frontier = reopened(&engine, frontier).await;
    let before = engine.commits.lock().unwrap().len();
    pass(3_600_000).await;
    assert!(engine.commits.lock().unwrap().len() < before + 20);
    assert_eq!(frontier.host("a.example".into()).await.unwrap().counts.reserved, 1);
    engine.repair();
    pass(700_000).await;
    let again = frontier.reserve(want(1, 2)).await.unwrap().pop().expect("it has returned");
    assert_eq!((texts(&again.urls), again.urls[0].attempts), (vec!["http://a.example/1"], 1));
    assert_eq!((frontier.damage().hosts, frontier.damage().stranded_urls), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_hold_that_expires_while_its_url_cannot_be_read_is_kept_until_it_can() {
    let (engine, frontier) = with(&["http://a.example/1", "http://b.example/1"]).await;
    assert_eq!(frontier.hand_out(paced(2, 1)).await.unwrap().len(), 2);
    let frontier = reopened(&engine, frontier).await;
    engine.damage(|row| is_url(row, "/1") && url_host(row) == 0).await;
    pass(40_000).await;
    assert_eq!(texts(&frontier.hand_out(paced(2, 1)).await.unwrap()), ["http://b.example/1"]);
    assert_eq!(frontier.damage().stranded_urls, 1);
    engine.repair();
    pass(60_000).await;
    let all = frontier.hand_out(paced(2, 1)).await.unwrap();
    assert!(texts(&all).contains(&"http://a.example/1"), "{all:?}");
    assert_eq!(frontier.stats().await.unwrap().holds, 2);
}

#[tokio::test(start_paused = true)]
async fn a_release_that_needs_an_unreadable_row_is_refused_and_changes_nothing() {
    let (engine, frontier) = with(&["http://a.example/1"]).await;
    let visit = frontier.reserve(want(1, 1)).await.unwrap().remove(0);
    engine.damage(|row| is_url(row, "/1")).await;
    let results = vec![UrlResult::new("http://a.example/1", Outcome::Fetched)];
    let release = Release { token: visit.token, results, ready_at: None };
    let refused = frontier.release(release.clone(), Vec::new()).await.unwrap_err();
    assert!(is_damaged(&refused, "a.example"), "{refused}");
    engine.repair();
    frontier.release(release, Vec::new()).await.expect("the reservation was kept");
}

#[tokio::test(start_paused = true)]
async fn a_revoked_reservation_frees_its_group_and_keeps_what_cannot_be_read() {
    let (engine, frontier) = with(&["http://a.example/1", "http://a.example/2", "http://b.example/1"]).await;
    assert_eq!(frontier.reserve(want(2, 2)).await.unwrap().len(), 2);
    engine.damage(|row| is_url(row, "/2")).await;
    assert_eq!(frontier.revoke(wayleave_shard::Revoke::Holder("worker".into())).await, Ok((2, 0)));
    pass(2_000).await;
    let again: Vec<_> = frontier.reserve(want(2, 2)).await.unwrap().into_iter().flat_map(|visit| visit.urls).collect();
    assert_eq!(again.len(), 2, "{again:?}");
    engine.repair();
    pass(100_000).await;
    assert_eq!(frontier.stats().await.unwrap().urls.reserved, 0, "all have expired or returned");
}

#[tokio::test(start_paused = true)]
async fn lookups_and_listings_name_the_host_and_other_hosts_can_be_listed() {
    let (engine, frontier) = with(&["http://a.example/1", "http://a.example/2", "http://b.example/1"]).await;
    engine.damage(|row| is_url(row, "/2")).await;
    let refused = frontier.lookup("DEFAULT".into(), "a.example".into(), "http://a.example/2").await.unwrap_err();
    assert!(is_damaged(&refused, "a.example"), "{refused}");
    let of = |host: &str| UrlFilter { host: Some(host.into()), ..UrlFilter::default() };
    let listed = frontier.urls(&of("a.example"), None, 100).await.unwrap();
    assert_eq!((listed.items.len(), listed.damaged), (1, vec!["a.example".into()]));
    assert_eq!(frontier.urls(&of("b.example"), None, 100).await.unwrap().items.len(), 1);
    assert_eq!(engine.owns.load(Ordering::Acquire), 1, "the shard was not reloaded");
}

#[tokio::test(start_paused = true)]
async fn a_job_passes_over_what_cannot_be_read_and_says_so() {
    let (engine, frontier) = with(&["http://a.example/1", "http://b.example/1", "http://c.example/1"]).await;
    engine.damage(|row| is_url(row, "/1") && url_host(row) == 1).await;
    let id = frontier.start_job(BulkAction::Delete, UrlFilter::default(), None).await.unwrap().id;
    pass(10_000).await;
    let job = frontier.job(id).await.unwrap().unwrap();
    assert_eq!((job.outcome.done, job.outcome.unreadable), (2, 1));
    assert_eq!(job.state, wayleave_core::frontier::bulk_job::JobState::Done);
    assert_eq!(frontier.stats().await.unwrap().urls.total(), 1);
}

#[tokio::test(start_paused = true)]
async fn an_unreadable_deleted_queue_does_not_stop_the_removal_of_others() {
    let (engine, frontier) = with(&["http://a.example/1", "http://b.example/1"]).await;
    engine.damage(|row| is_url(row, "/1") && url_host(row) == 0).await;
    frontier.delete_crawl("DEFAULT".into()).await.unwrap();
    pass(100_000).await;
    let commits = engine.commits.lock().unwrap().len();
    pass(60_000).await;
    assert_eq!(engine.commits.lock().unwrap().len(), commits, "no task spins");
    assert_eq!(
        frontier.put(vec![disc("http://b.example/1"), disc("http://a.example/1")]).await,
        [PutOutcome::Added, PutOutcome::Added]
    );
    engine.repair();
    assert_eq!(engine.damage(|row| is_kind(row, Kind::DeletedQueue)).await, 1, "the job of the unreadable queue stays");
}

#[tokio::test(start_paused = true)]
async fn a_shard_with_unreadable_hot_rows_closes_alone_and_is_retried() {
    let (engine, frontier) = Faulty::opened(2).await;
    let hosts = [host_in(0, 2, 0), host_in(1, 2, 0)];
    let urls = hosts.each_ref().map(|host| format!("http://{host}/1"));
    frontier.put(urls.iter().map(|url| disc(url)).collect()).await;
    frontier.stop().await;
    assert!(engine.damage(|row| is_kind(row, Kind::Log) && row.key.starts_with(&[0, 1])).await > 0);
    let owns = engine.owns.load(Ordering::Acquire);
    let frontier = engine.open(2).await;
    let mut ready = BTreeSet::new();
    for _ in 0..120 {
        pass(1_000).await;
        ready.insert(frontier.readiness().is_ok());
        assert!(frontier.readiness().unwrap_err().contains("shard 1"));
    }
    assert_eq!(ready, BTreeSet::from([false]), "readiness does not change");
    assert!(engine.owns.load(Ordering::Acquire) < owns + 15, "0.5 s, doubling to 30 s");
    assert_eq!(frontier.damage().shards_closed, 1);
    let outcomes = frontier.put(urls.iter().map(|url| disc(url)).collect()).await;
    assert_eq!(outcomes[0], PutOutcome::Known);
    assert!(matches!(&outcomes[1], PutOutcome::Failed(why) if why.is_unavailable()), "{outcomes:?}");
    assert_eq!(frontier.reserve(want(9, 1)).await.unwrap().len(), 1);
    assert_eq!(frontier.reserve(want(9, 1).named("r")).await, Ok(vec![]), "no grant of that shard is waited for");
    engine.repair();
    pass(31_000).await;
    assert_eq!(frontier.readiness(), Ok(()));
    assert_eq!(frontier.put(vec![disc(&urls[1])]).await, [PutOutcome::Known]);
}

/// Damage comes and goes at random while URLs are put, visited and released and the process restarts. An oracle knows which
/// URLs were acknowledged: none of them is ever added again.
#[tokio::test(start_paused = true)]
async fn no_acknowledged_url_is_added_again_under_damage() {
    for seed in 0..6_u64 {
        let engine = Faulty::new();
        let mut frontier = engine.open(1).await;
        let mut state = seed + 1;
        let mut below = move |n: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % n
        };
        let mut oracle: BTreeMap<String, ()> = BTreeMap::new();
        let mut refused = 0;
        for _ in 0..120 {
            match below(8) {
                0 => {
                    let kinds = [Kind::Url, Kind::Due, Kind::Hold][below(3) as usize];
                    let n = below(7);
                    engine.damage(|row| is_kind(row, kinds) && u64::from(*row.key.last().unwrap()) % 7 == n).await;
                }
                1 => engine.repair(),
                2 if below(4) == 0 => {
                    frontier.stop().await;
                    frontier = engine.open(1).await;
                }
                2 => pass(below(90_000)).await,
                3 => drop(frontier.hand_out(paced(3, 2)).await),
                4 => {
                    for visit in frontier.reserve(want(2, 2)).await.unwrap() {
                        let results = visit.urls.iter().map(|url| fetched(&url.url)).collect();
                        let release = Release { token: visit.token, results, ready_at: None };
                        _ = frontier.release(release, Vec::new()).await;
                    }
                }
                _ => {
                    let urls: BTreeSet<String> =
                        (0..10).map(|_| format!("http://h{}.example/{}", below(5), below(40))).collect();
                    let outcomes = frontier.put(urls.iter().map(|url| disc(url)).collect()).await;
                    for (url, outcome) in urls.into_iter().zip(outcomes) {
                        match outcome {
                            PutOutcome::Added => {
                                assert_eq!(oracle.insert(url.clone(), ()), None, "{seed}: {url} twice")
                            }
                            PutOutcome::Known => {
                                assert!(oracle.contains_key(&url), "{seed}: {url} is known from nowhere")
                            }
                            PutOutcome::Failed(why) => {
                                assert!(matches!(*why, Refusal::Damaged { .. }), "{seed}: {why}");
                                refused += 1;
                            }
                            other => panic!("{seed}: {other:?}"),
                        }
                    }
                }
            }
        }
        assert!(refused > 0, "{seed}: the damage was met");
        engine.repair();
        pass(1_500_000).await;
        let counts = frontier.stats().await.unwrap().urls;
        assert_eq!((counts.total(), counts.reserved), (oracle.len() as u64, 0), "{seed}: everything has returned");
        let urls = frontier.urls(&UrlFilter::default(), None, 1_000).await.unwrap().items;
        assert_eq!(urls.len(), oracle.len(), "{seed}");
        assert!(urls.iter().all(|url| url.state != UrlState::Reserved), "{seed}");
        assert_eq!(frontier.damage().hosts, 0, "{seed}");
    }
}

#[tokio::test(start_paused = true)]
async fn while_the_store_refuses_growth_only_new_urls_are_refused() {
    let (engine, frontier) = with(&["http://a.example/1", "http://b.example/1"]).await;
    let visits = frontier.reserve(want(2, 1)).await.unwrap();
    *engine.no_growth.lock().unwrap() = Some("200 MiB are left".to_owned());
    let outcomes = frontier.put(vec![disc("http://a.example/1"), disc("http://a.example/2")]).await;
    assert_eq!(outcomes[0], PutOutcome::Known);
    let full = Refusal::StoreFull("200 MiB are left".to_owned());
    assert_eq!(outcomes[1], PutOutcome::Failed(Box::new(full)));
    frontier.renew(visits[0].token, Millis(60_000)).await.unwrap();
    let release = |at: usize| {
        let results = visits[at].urls.iter().map(|url| fetched(&url.url)).collect();
        Release { token: visits[at].token, results, ready_at: None }
    };
    let refused = frontier.release(release(0), vec![disc("http://c.example/found")]).await.unwrap_err();
    assert!(matches!(&refused, Refusal::StoreFull(why) if why.contains("was kept")), "{refused}");
    frontier.release(release(1), vec![disc("http://a.example/1")]).await.expect("no new link");
    *engine.no_growth.lock().unwrap() = None;
    frontier.release(release(0), vec![disc("http://c.example/found")]).await.expect("the reservation was kept");
    assert_eq!(frontier.stats().await.unwrap().urls.total(), 3);
}
