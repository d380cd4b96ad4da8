//! Rare courses of events around offers and replacements.

use wayleave_core::placement::GiveUpReason;

use super::support::{Works, artifact, claim_of};
use super::*;

const PAGE: &str = "http://h.example/1";

fn fail() -> EndChunk {
    EndChunk::Fail { reason: "it broke".into(), input_lost: false }
}

fn wait(works: &mut Works, span: u64) {
    works.shard.now = works.shard.now.after(Millis(span));
}

fn of_host(host: &str, crawl: &str, links: usize) -> Claim {
    Claim { host: Some(host.into()), crawl: Some(crawl.into()), ..claim_of(Stage::Crawl, "w", 1, links) }
}

fn attempts(works: &Works, url: &str) -> u32 {
    let host = url.trim_start_matches("http://").split('/').next().expect("a host");
    works.shard.lookup("c", host, url).expect("a known URL").attempts
}

#[test]
fn a_link_that_has_left_its_chunk_is_not_handed_out_with_it_again() {
    let mut works = with_hosts(2);
    let first = crawl(&mut works, 2);
    let (left, stays) = ("http://h0.example/1", "http://h1.example/1");
    // Its crawler may continue until the deadline, as an ordinary visit.
    works.shard.move_hosts(&["h0.example".into()], Some(&"together".into()));
    let parallel = PaceChanges { parallel: Change::Set(2), ..PaceChanges::default() };
    works.shard.state.set_group(&"together".into(), &parallel, false, works.shard.now).expect("a group");
    works.shard.commit(Vec::new());
    works.end(&first, &fail()).expect("current");
    wait(&mut works, 1_000);
    let again = crawl(&mut works, 5);
    assert_eq!((again.id, urls(&again)), (first.id, vec![stays.to_owned()]));
    assert_eq!(state_of(&works, left), UrlState::Reserved, "until its deadline");
}

#[test]
fn a_page_that_kills_its_crawlers_is_given_up() {
    let mut works = Works::new(START);
    put(&mut works, "h.example", "1");
    for round in 1..=5 {
        let claimed = works.claim(&of_host("h.example", "c", 5));
        assert_eq!(claimed.len(), 1, "round {round}");
        // The crawler dies, and no claim comes for this host until the offer ends.
        wait(&mut works, 10_000);
        works.sweep();
        wait(&mut works, 60_000);
        works.sweep();
        assert_eq!(works.rows[&claimed[0].id].state, ChunkState::Skipped);
        assert_eq!(attempts(&works, PAGE), round);
    }
    assert_eq!(state_of(&works, PAGE), UrlState::Failed);
}

#[test]
fn a_link_that_its_chunk_goes_without_takes_the_attempts_along() {
    let mut works = with_hosts(1);
    put(&mut works, "h.example", "1");
    let first = crawl(&mut works, 2);
    assert_eq!(first.links.len(), 2);
    works.end(&first, &fail()).expect("current");
    put(&mut works, "h.example", "2");
    wait(&mut works, 1_000);
    let visit = works.shard.reserve(1, 1, None, 60_000).pop().expect("its other page is free");
    assert_eq!(&*visit.host, "h.example");
    wait(&mut works, 30_000);
    assert_eq!(urls(&crawl(&mut works, 2)), ["http://h0.example/1"]);
    assert_eq!((state_of(&works, PAGE), attempts(&works, PAGE)), (UrlState::Queued, 1));
}

#[test]
fn a_chunk_goes_whole_soon_after_its_last_group_is_free() {
    let mut works = with_hosts(3);
    let first = crawl(&mut works, 3);
    let busy = first.links[0].url.host.clone();
    put(&mut works, &busy, "2");
    works.end(&first, &fail()).expect("current");
    wait(&mut works, 1_000);
    let visit = works.shard.reserve(1, 1, None, 60_000).pop().expect("its other page is free");
    // A waiting claim looks at it while the group is busy.
    assert!(works.claim(&claim_of(Stage::Crawl, "w", 1, 5)).is_empty());
    wait(&mut works, 2_000);
    let results = visit.urls.iter().map(|url| fetched(&url.url)).collect();
    works
        .shard
        .release(&wayleave_core::frontier::request::Release { token: visit.token, results, ready_at: None })
        .expect("released");
    wait(&mut works, 2_000);
    let again = crawl(&mut works, 5);
    assert_eq!((again.id, urls(&again)), (first.id, urls(&first)));
}

#[test]
fn a_crawler_that_asks_for_a_host_of_one_crawl_gets_no_chunk_of_another() {
    let mut works = Works::new(START);
    put(&mut works, "h.example", "1");
    let kind = PutKind::Discovered { at: None, priority: 5, depth: 0 };
    let (url, host) = ("http://h.example/sports".into(), "h.example".into());
    works.shard.put(Put { url, host, crawl: "sports".into(), kind, metadata: Metadata::default() });
    let sports = works.claim(&of_host("h.example", "sports", 5)).pop().expect("a chunk");
    works.end(&sports, &fail()).expect("current");
    wait(&mut works, 1_000);
    let claimed = works.claim(&of_host("h.example", "c", 5)).pop().expect("a chunk");
    assert_eq!(urls(&claimed), [PAGE]);
    works.end(&claimed, &EndChunk::Complete(None)).expect("current");
    wait(&mut works, 1_000);
    let again = works.claim(&of_host("h.example", "sports", 5)).pop().expect("a chunk");
    assert_eq!((again.id, urls(&again)), (sports.id, urls(&sports)));
}

#[test]
fn a_link_is_never_replaced_by_itself_and_a_repeated_report_counts_once() {
    let mut works = Works::new(START);
    put(&mut works, "h.example", "1");
    let claimed = works.claim(&of_host("h.example", "c", 1)).pop().expect("a chunk");
    let at_once = UrlResult { retry_after: Some(Millis(0)), ..UrlResult::new(PAGE, Outcome::Retry) };
    for _ in 0..3 {
        let answer = works.report(&claimed, vec![at_once.clone()], true).expect("its own link");
        assert_eq!((answer.replacements.len(), answer.left), (0, 0));
    }
    assert_eq!((state_of(&works, PAGE), attempts(&works, PAGE)), (UrlState::Queued, 1));
    // Others of the host are found behind it.
    put(&mut works, "h.example", "2");
    put(&mut works, "h.example", "3");
    works.end(&claimed, &EndChunk::Complete(None)).expect("current");
    wait(&mut works, 1_000);
    let claimed = works.claim(&of_host("h.example", "c", 1)).pop().expect("a chunk");
    let again = UrlResult { url: claimed.links[0].url.url.clone(), ..at_once };
    let answer = works.report(&claimed, vec![again], true).expect("its own link");
    assert_eq!(answer.replacements.len(), 1);
    assert_ne!(answer.replacements[0].url.url, claimed.links[0].url.url);
}

/// Otherwise a repeated report is taken for one about the link that came back.
#[test]
fn a_chunk_of_several_groups_never_gets_a_failed_link_back() {
    let mut works = with_hosts(2);
    let hosts = ["h0.example", "h1.example"];
    for host in hosts {
        let none = PaceChanges { delay: Change::Set(Millis(0)), ..PaceChanges::default() };
        works.shard.state.set_host(&host.into(), &none, false, None, works.shard.now).expect("a host");
        works.shard.commit(Vec::new());
    }
    let claimed = crawl(&mut works, 1);
    let page = claimed.links[0].url.clone();
    let at_once = UrlResult { retry_after: Some(Millis(0)), ..UrlResult::new(&*page.url, Outcome::Retry) };
    let answer = works.report(&claimed, vec![at_once.clone()], true).expect("its own link");
    let other: Vec<_> = answer.replacements.iter().map(|link| link.url.host.clone()).collect();
    assert_eq!(other.len(), 1, "the other group is ready, and planned although its own came first");
    assert_ne!(other[0], page.host);
    for _ in 0..3 {
        let repeated = works.report(&claimed, vec![at_once.clone()], true).expect("its own link");
        assert_eq!(repeated.left, 1, "the other one is still to be fetched");
    }
    assert_eq!(attempts(&works, &page.url), 1);
    let failed = UrlResult::new(&*answer.replacements[0].url.url, Outcome::Gone);
    let last = works.report(&claimed, vec![failed], true).expect("its own link");
    assert_eq!((last.replacements.len(), last.left), (0, 0), "only a page is due that was in the chunk");
    let rest = works.shard.reserve(5, 5, None, 1_000);
    assert_eq!(
        rest.iter().map(|visit| visit.host.clone()).collect::<Vec<_>>(),
        [page.host],
        "it stays in the schedule"
    );
}

#[test]
fn a_replacement_is_of_a_group_that_the_chunk_has_no_link_of() {
    let mut works = with_hosts(2);
    // As soon as a visit has ended, the next may begin.
    for host in ["h0.example", "h1.example"] {
        let none = PaceChanges { delay: Change::Set(Millis(0)), ..PaceChanges::default() };
        works.shard.state.set_host(&host.into(), &none, false, None, works.shard.now).expect("a host");
        works.shard.commit(Vec::new());
        put(&mut works, host, "2");
    }
    let claimed = crawl(&mut works, 2);
    let (kept, gone) = (claimed.links[0].url.clone(), claimed.links[1].url.clone());
    works.report(&claimed, vec![fetched(&kept.url)], false).expect("taken");
    let answer = works.report(&claimed, vec![UrlResult::new(&*gone.url, Outcome::Gone)], true).expect("taken");
    let hosts: Vec<_> = answer.replacements.iter().map(|link| link.url.host.clone()).collect();
    assert_eq!(hosts, [gone.host], "the group of the link that was fetched belongs to the chunk already");
    let rest = works.shard.reserve(5, 5, None, 1_000);
    assert_eq!(rest.len(), 1, "it stays in the schedule");
    assert_eq!(rest[0].host, kept.host);
}

#[test]
fn the_reason_of_a_chunk_does_not_grow_with_every_retry() {
    let mut works = with_hosts(1);
    let claimed = crawl(&mut works, 1);
    works.end(&claimed, &fail()).expect("current");
    let mut reasons = Vec::new();
    // Its link has returned to its queue, and is not its own any more.
    for _ in 0..3 {
        wait(&mut works, 600_000);
        works.sweep();
        let row = &works.rows[&claimed.id];
        assert_eq!(row.state, ChunkState::Skipped);
        reasons.push(row.last_error.clone().expect("a reason"));
        for other in works.shard.reserve(1, 1, None, 1_000) {
            let results = vec![fetched(&other.urls[0].url)];
            let release = wayleave_core::frontier::request::Release { token: other.token, results, ready_at: None };
            works.shard.release(&release).expect("released");
        }
        works.retry_in_vain(claimed.id);
    }
    assert!(reasons.iter().all(|reason| *reason == reasons[0]), "{reasons:?}");
}

#[test]
fn content_of_links_that_have_left_is_garbage_and_the_refusal_says_so() {
    let mut works = with_hosts(1);
    let claimed = crawl(&mut works, 1);
    works.report(&claimed, vec![fetched("http://h0.example/1")], false).expect("taken");
    works.shard.move_hosts(&["h0.example".into()], Some(&"together".into()));
    let refused = works.end(&claimed, &EndChunk::Complete(Some(artifact(1)))).unwrap_err();
    assert!(matches!(refused, ChunkRefusal::NoContent { .. }), "{refused:?}");
    let text = refused.to_string();
    assert!(text.contains("have left it") && text.contains("http://store/1"), "{text}");
}

/// The crawler believes that all its pages count, unless an answer says otherwise.
#[test]
fn a_completion_names_the_links_that_have_left_and_so_does_its_repetition() {
    let mut works = with_hosts(2);
    let claimed = crawl(&mut works, 2);
    report_all(&mut works, &claimed);
    works.shard.move_hosts(&["h0.example".into()], Some(&"together".into()));
    let end = EndChunk::Complete(Some(artifact(1)));
    let (_, completed) = works.ended(&claimed, &end).expect("complete");
    assert_eq!((completed.state, completed.ended), (ChunkState::Crawled, vec!["http://h0.example/1".into()]));
    // Nor does it count later.
    build(&mut works);
    let (_, repeated) = works.ended(&claimed, &end).expect("the call is repeated late");
    assert_eq!(repeated.ended.len(), 1);
    let row = &works.rows[&claimed.id];
    assert_eq!(row.view(&works.shard.state, works.shard.now).crawled, 1);
}

#[test]
fn a_crawl_delay_holds_from_the_report_on_in_a_chunk_of_one_host() {
    let mut works = Works::new(START);
    (0..3).for_each(|i| put(&mut works, "h.example", &i.to_string()));
    let claimed: Claimed = works.claim(&of_host("h.example", "c", 2)).pop().expect("a chunk");
    let first = UrlResult { crawl_delay: Some(Millis(7_000)), ..fetched(&claimed.links[0].url.url) };
    works.report(&claimed, vec![first], false).expect("taken");
    // The crawler is lost.
    wait(&mut works, 10_000);
    works.sweep();
    wait(&mut works, 6_900);
    assert!(works.claim(&of_host("h.example", "c", 2)).is_empty(), "the site asked for seven seconds");
    wait(&mut works, 100);
    assert_eq!(works.claim(&of_host("h.example", "c", 2)).len(), 1);
}

fn built(works: &mut Works) -> ChunkRow {
    let claimed = crawl(works, 1);
    report_all(works, &claimed);
    works.end(&claimed, &EndChunk::Complete(Some(artifact(1)))).expect("current");
    build(works);
    works.rows[&claimed.id].clone()
}

fn build(works: &mut Works) {
    let claimed = works.claim(&claim_of(Stage::Build, "b", 1, 1)).pop().expect("a crawled chunk");
    works.end(&claimed, &EndChunk::Complete(Some(artifact(2)))).expect("current");
}

#[test]
fn an_operator_may_have_a_chunk_built_anew_any_number_of_times() {
    let mut works = with_hosts(1);
    let mut row = built(&mut works);
    let lose = |works: &mut Works, row: &ChunkRow, why: &GiveUpReason| {
        let mut writes = Writes::default();
        assert!(works.pipeline.index_lost(row, (row.index, why), works.shard.now, &mut writes.pipeline));
        works.commit(writes);
        works.rows[&row.id].clone()
    };
    for loss in 1..5 {
        assert_eq!(
            lose(&mut works, &row, &GiveUpReason::Lost("no server can fetch it".into())).state,
            ChunkState::Crawled,
            "{loss}"
        );
        build(&mut works);
        row = works.rows[&row.id].clone();
    }
    for _ in 0..6 {
        let asked = lose(&mut works, &row, &GiveUpReason::BuildAgain);
        assert_eq!((asked.state, asked.attempts, asked.indexes_lost), (ChunkState::Crawled, 0, 0));
        build(&mut works);
        row = works.rows[&row.id].clone();
    }
}

/// In one decision, so that no index builder sees it in between, and a repetition finds another number.
#[test]
fn a_built_chunk_that_an_operator_skips_waits_for_no_builder() {
    let mut works = with_hosts(1);
    let row = built(&mut works);
    let mut writes = Writes::default();
    assert!(works.pipeline.index_lost(&row, (row.index, &GiveUpReason::Skip), works.shard.now, &mut writes.pipeline));
    works.commit(writes);
    let skipped = works.rows[&row.id].clone();
    assert_eq!((skipped.state, skipped.index, skipped.built.is_none()), (ChunkState::Skipped, row.index + 1, true));
    assert_eq!(skipped.last_error.as_deref(), Some("skipped by an operator"));
    assert!(works.claim(&claim_of(Stage::Build, "b", 1, 1)).is_empty());
    let mut writes = Writes::default();
    for why in [GiveUpReason::Skip, GiveUpReason::BuildAgain, GiveUpReason::Lost("late".into())] {
        assert!(!works.pipeline.index_lost(&skipped, (row.index, &why), works.shard.now, &mut writes.pipeline));
    }
    works.reload();
    assert_eq!(works.decide(row.id, OperatorAction::Retry), Ok(ChunkState::Crawled), "its content is still there");
    build(&mut works);
}
