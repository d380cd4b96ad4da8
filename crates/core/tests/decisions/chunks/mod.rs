//! Chunks: the way from claim to built, what happens when workers are lost, and what callers may not do.

mod corners;
mod properties;
mod sent_back;
mod support;
mod taken_back;

use std::collections::BTreeMap;

use support::{Works, artifact, claim_of};
use wayleave_core::frontier::request::{Outcome, Put, PutKind, Reservation, UrlResult};
use wayleave_core::frontier::view::UrlState;
use wayleave_core::ids::{ChunkId, Token};
use wayleave_core::invariants;
use wayleave_core::metadata::Metadata;
use wayleave_core::pipeline::claim::Writes;
use wayleave_core::pipeline::end::Facts;
use wayleave_core::pipeline::refusal::ChunkRefusal;
use wayleave_core::pipeline::request::{Claim, Claimed, EndChunk, OperatorAction, Stage};
use wayleave_core::pipeline::row::{ChunkRow, ChunkState};
use wayleave_core::pipeline::state::Claimable;
use wayleave_core::settings::{Change, CrawlChanges, PaceChanges};
use wayleave_core::time::{Millis, Time};

const START: u64 = 1_000_000;

fn put(works: &mut Works, host: &str, path: &str) {
    let kind = PutKind::Discovered { at: None, priority: 5, depth: 0 };
    let (url, host, crawl) = (format!("http://{host}/{path}").into(), host.into(), "c".into());
    works.shard.put(Put { url, host, crawl, kind, metadata: Metadata::default() });
}

/// A shard with this many hosts of one page each.
fn with_hosts(hosts: usize) -> Works {
    let mut works = Works::new(START);
    (0..hosts).for_each(|i| put(&mut works, &format!("h{i}.example"), "1"));
    works
}

fn crawl(works: &mut Works, links: usize) -> Claimed {
    works.claim(&claim_of(Stage::Crawl, "w", 1, links)).pop().expect("a chunk")
}

fn fetched(url: &str) -> UrlResult {
    UrlResult::new(url, Outcome::Fetched)
}

fn urls(claimed: &Claimed) -> Vec<String> {
    let mut urls: Vec<String> = claimed.links.iter().map(|link| link.url.url.to_string()).collect();
    urls.sort();
    urls
}

fn state_of(works: &Works, url: &str) -> UrlState {
    let host = url.trim_start_matches("http://").split('/').next().expect("a host");
    works.shard.lookup("c", host, url).expect("a known URL").state
}

fn report_all(works: &mut Works, claimed: &Claimed) {
    let results = claimed.links.iter().map(|link| fetched(&link.url.url)).collect();
    works.report(claimed, results, false).expect("its own links");
}

#[test]
fn a_lost_chunk_is_offered_again_whole_under_its_id() {
    let mut works = with_hosts(5);
    let first = crawl(&mut works, 5);
    let reported = vec![fetched(&first.links[0].url.url), fetched(&first.links[1].url.url)];
    assert_eq!(works.report(&first, reported, false).expect("taken").left, 3);
    works.shard.now = works.shard.now.after(Millis(10_000));
    works.reload();
    assert!(works.claim(&claim_of(Stage::Crawl, "v", 1, 5)).is_empty(), "the delays of its groups have not passed");
    assert!(works.shard.reserve(5, 1, None, 1_000).is_empty(), "its links are its own");
    works.shard.now = works.shard.now.after(Millis(1_000));
    let again = works.claim(&claim_of(Stage::Crawl, "v", 1, 2)).pop().expect("the same chunk");
    assert_eq!((again.id, again.attempts, urls(&again)), (first.id, 1, urls(&first)));
    let refused = works.end(&first, &EndChunk::Complete(Some(artifact(1)))).unwrap_err();
    assert!(
        refused
            .to_string()
            .contains("delete http://store/1, if it was made for this chunk, which does not refer to it"),
        "{refused}"
    );
}

#[test]
fn a_chunk_waits_for_its_groups_and_then_goes_without_the_busy_ones() {
    let mut works = with_hosts(3);
    let first = crawl(&mut works, 3);
    let (busy, rest) = (first.links[0].url.host.clone(), first.links[1].url.url.clone());
    put(&mut works, &busy, "2");
    works.end(&first, &EndChunk::Fail { reason: "disk full".into(), input_lost: false }).expect("current");
    works.shard.now = works.shard.now.after(Millis(1_000));
    let visit = works.shard.reserve(1, 1, None, 60_000).pop().expect("its other page is free");
    assert_eq!(visit.host, busy);
    assert!(works.claim(&claim_of(Stage::Crawl, "w", 1, 5)).is_empty());
    works.shard.now = works.shard.now.after(Millis(29_000));
    let short = crawl(&mut works, 5);
    assert_eq!((short.id, short.links.len()), (first.id, 2));
    assert!(urls(&short).contains(&rest.to_string()));
    let left = first.links[0].url.url.to_string();
    assert_eq!(state_of(&works, &left), UrlState::Queued, "the third one is the frontier's again");
}

#[test]
fn a_chunk_whose_links_all_failed_is_skipped_and_has_no_artifact() {
    let mut works = with_hosts(2);
    let claimed = crawl(&mut works, 2);
    let failed: Vec<_> = urls(&claimed).iter().map(|url| UrlResult::new(url.as_str(), Outcome::Failed)).collect();
    works.report(&claimed, failed, false).expect("taken");
    let with = works.end(&claimed, &EndChunk::Complete(Some(artifact(1))));
    assert!(matches!(with, Err(ChunkRefusal::NoContent { .. })), "{with:?}");
    assert_eq!(works.end(&claimed, &EndChunk::Complete(None)), Ok(Some(ChunkState::Skipped)));
    let why = works.rows[&claimed.id].last_error.clone().unwrap();
    let last = urls(&claimed).pop().unwrap();
    assert_eq!(*why, format!("none of its links could be fetched; one of them, {last}, has failed (no status)"));
}

#[test]
fn a_chunk_without_content_names_the_link_that_failed_last() {
    let mut works = with_hosts(2);
    let claimed = crawl(&mut works, 2);
    for at in [1, 0] {
        let failed = UrlResult::new(&*claimed.links[at].url.url, Outcome::Failed);
        works.report(&claimed, vec![failed], false).expect("taken");
        works.shard.now = works.shard.now.after(Millis(10));
    }
    assert_eq!(works.end(&claimed, &EndChunk::Complete(None)), Ok(Some(ChunkState::Skipped)));
    let (why, last) = (works.rows[&claimed.id].last_error.clone().unwrap(), &claimed.links[0].url.url);
    assert_eq!(*why, format!("none of its links could be fetched; one of them, {last}, has failed (no status)"));
}

/// The reason of a chunk that is offered again.
fn why_offered(works: &Works, chunk: &Claimed) -> String {
    works.rows[&chunk.id].view(&works.shard.state, works.shard.now).reason
}

fn pause(works: &mut Works, crawl: &str) {
    let changes = CrawlChanges { paused: Change::Set(true), ..CrawlChanges::default() };
    works.shard.state.set_crawl(&crawl.into(), &changes, false, works.shard.now);
    works.shard.commit(Vec::new());
}

#[test]
fn a_chunk_that_is_offered_again_blames_no_pause_of_another_crawl() {
    let mut works = with_hosts(1);
    let claimed = crawl(&mut works, 1);
    let kind = PutKind::Discovered { at: None, priority: 5, depth: 0 };
    let (url, host, crawl) = ("http://h0.example/2".into(), "h0.example".into(), "other".into());
    works.shard.put(Put { url, host, crawl, kind, metadata: Metadata::default() });
    pause(&mut works, "other");
    works.end(&claimed, &EndChunk::Fail { reason: "disk full".into(), input_lost: false }).expect("current");
    let why = why_offered(&works, &claimed);
    assert!(why.starts_with("it is offered again when its groups may be visited; attempt 2"), "{why}");
    pause(&mut works, "c");
    let why = why_offered(&works, &claimed);
    assert!(why.starts_with("a group of its links is not free: an operator has paused crawl 'c'"), "{why}");
    // Then nothing of it is left, and nothing holds it back.
    works.shard.delete_queue(&"h0.example".into(), &"c".into());
    let why = why_offered(&works, &claimed);
    assert!(why.starts_with("a crawler is awaited"), "{why}");
}

#[test]
fn a_chunk_completed_without_a_report_says_so_and_returns_its_links() {
    let mut works = with_hosts(2);
    let claimed = crawl(&mut works, 2);
    assert_eq!(works.end(&claimed, &EndChunk::Complete(None)), Ok(Some(ChunkState::Skipped)));
    assert_eq!(works.rows[&claimed.id].last_error.as_deref(), Some("none of its links was reported"));
    assert!(urls(&claimed).iter().all(|url| state_of(&works, url) == UrlState::Queued));
}

#[test]
fn unreported_links_return_when_the_chunk_is_complete() {
    let mut works = with_hosts(3);
    let claimed = crawl(&mut works, 3);
    let (done, left) = (claimed.links[0].url.url.clone(), claimed.links[1].url.url.clone());
    works.report(&claimed, vec![fetched(&done)], false).expect("taken");
    assert_eq!(works.end(&claimed, &EndChunk::Complete(None)), Err(ChunkRefusal::ArtifactMissing(claimed.id)));
    works.end(&claimed, &EndChunk::Complete(Some(artifact(1)))).expect("complete");
    assert_eq!((state_of(&works, &done), state_of(&works, &left)), (UrlState::Fetched, UrlState::Queued));
}

#[test]
fn after_five_attempts_a_chunk_is_set_aside_and_an_operator_decides() {
    let mut works = with_hosts(2);
    let mut last = crawl(&mut works, 2);
    let fail = EndChunk::Fail { reason: "no space left".into(), input_lost: false };
    for attempt in 1..5 {
        assert_eq!(works.end(&last, &fail), Ok(Some(ChunkState::Crawling)), "attempt {attempt}");
        works.shard.now = works.shard.now.after(Millis(1_000));
        let again = crawl(&mut works, 2);
        assert_eq!((again.id, again.attempts), (last.id, attempt));
        last = again;
    }
    assert_eq!(works.end(&last, &fail), Ok(Some(ChunkState::SetAside)));
    let url = urls(&last)[0].clone();
    assert_eq!(state_of(&works, &url), UrlState::Failed, "marked, never deleted");
    works.check();
    assert_eq!(works.decide(last.id, OperatorAction::Retry), Ok(ChunkState::Crawling));
    works.reload();
    works.shard.now = works.shard.now.after(Millis(1_000));
    let again = crawl(&mut works, 2);
    assert_eq!((again.id, again.attempts, urls(&again)), (last.id, 0, urls(&last)));
    report_all(&mut works, &again);
    works.end(&again, &EndChunk::Complete(Some(artifact(1)))).expect("complete");
    assert_eq!(works.decide(last.id, OperatorAction::Skip), Ok(ChunkState::Skipped));
    assert!(works.claim(&claim_of(Stage::Build, "b", 5, 0)).is_empty());
    assert_eq!(works.decide(last.id, OperatorAction::Retry), Ok(ChunkState::Crawled), "its content is still there");
}

#[test]
fn lost_content_sends_a_chunk_back_to_the_crawl_stage_a_few_times() {
    let mut works = with_hosts(3);
    let lost = EndChunk::Fail { reason: "404".into(), input_lost: true };
    let id = crawl(&mut works, 3).id;
    works.shard.now = works.shard.now.after(Millis(10_000));
    for round in 1..=5 {
        works.shard.now = works.shard.now.after(Millis(60_000));
        works.sweep();
        let claimed = crawl(&mut works, 3);
        assert_eq!((claimed.id, claimed.links.len()), (id, 3), "round {round}");
        assert_eq!(works.end(&claimed, &lost), Err(ChunkRefusal::NoInput(id)));
        report_all(&mut works, &claimed);
        works.end(&claimed, &EndChunk::Complete(Some(artifact(round)))).expect("complete");
        let build = works.claim(&claim_of(Stage::Build, "b", 1, 0)).pop().expect("crawled");
        let (token, now) = (build.token, works.shard.now);
        assert_eq!(works.pipeline.reported(id, token, now).err(), Some(ChunkRefusal::NotCrawling(id)));
        let expected = if round < 5 { ChunkState::Crawling } else { ChunkState::SetAside };
        assert_eq!(works.end(&build, &lost), Ok(Some(expected)), "round {round}");
    }
}

#[test]
fn a_chunk_of_one_host_is_one_visit_paced_by_the_crawler() {
    let mut works = Works::new(START);
    (0..6).for_each(|i| put(&mut works, "h.example", &i.to_string()));
    let claim = Claim { host: Some("h.example".into()), crawl: Some("c".into()), ..claim_of(Stage::Crawl, "w", 1, 4) };
    let claimed = works.claim(&claim).pop().expect("a chunk");
    assert_eq!(claimed.links.len(), 4);
    assert!(claimed.links.iter().all(|link| link.delay == Millis(1_000)));
    works.report(&claimed, vec![fetched(&claimed.links[0].url.url)], false).expect("taken");
    works.shard.now = works.shard.now.after(Millis(5_000));
    assert!(works.shard.reserve(1, 1, None, 1_000).is_empty(), "its visit goes on until the chunk ends");
    let gone = UrlResult::new(&*claimed.links[1].url.url, Outcome::Gone);
    works.report(&claimed, vec![gone], false).expect("taken");
    works.shard.now = works.shard.now.after(Millis(5_000));
    works.reload();
    works.shard.now = works.shard.now.after(Millis(1_000));
    let again = works.claim(&claim).pop().expect("the same chunk");
    assert_eq!(
        (again.id, again.links.len()),
        (claimed.id, 3),
        "what was fetched and what was not, without the gone one"
    );
    works.check();
    report_all(&mut works, &again);
    works.end(&again, &EndChunk::Complete(Some(artifact(1)))).expect("complete");
    assert!(works.shard.reserve(1, 1, None, 1_000).is_empty(), "the delay starts at the end");
    works.shard.now = works.shard.now.after(Millis(1_000));
    assert_eq!(works.shard.reserve(1, 5, None, 1_000).pop().expect("the rest").urls.len(), 2);
}

#[test]
fn a_renewal_keeps_all_links_of_a_chunk() {
    let mut works = with_hosts(2);
    let claimed = crawl(&mut works, 2);
    for step in 1..5 {
        works.shard.now = works.shard.now.after(Millis(9_000));
        let until = works.shard.now.after(Millis(10_000));
        assert_eq!(works.renew(&claimed, until), Ok(until), "step {step}");
        works.reload();
    }
    works.shard.now = works.shard.now.after(Millis(10_000));
    let late = works.renew(&claimed, Time(u64::MAX));
    assert!(matches!(late, Err(ChunkRefusal::NotCurrent { .. })), "{late:?}");
}

#[test]
fn a_deleted_crawl_takes_its_links_along() {
    let mut works = with_hosts(3);
    let claimed = crawl(&mut works, 3);
    works.shard.delete_crawl(&"c".into());
    works.shard.now = works.shard.now.after(Millis(20_000));
    works.sweep();
    let next = works.claim(&claim_of(Stage::Crawl, "w", 1, 5));
    assert!(next.is_empty(), "{next:?}");
    assert_eq!(works.rows[&claimed.id].state, ChunkState::Skipped);
}

fn count(chunks: &Claimable) -> usize {
    chunks.values().sum()
}

#[test]
fn every_claimable_chunk_wakes_a_waiter() {
    let mut works = with_hosts(2);
    let both = works.claim(&claim_of(Stage::Crawl, "w", 2, 1));
    let crawl = |works: &mut Works, chunk: &Claimed| {
        report_all(works, chunk);
        works.end(chunk, &EndChunk::Complete(Some(artifact(1)))).expect("complete");
    };
    crawl(&mut works, &both[0]);
    assert_eq!(count(&works.pipeline.publish(works.shard.now).crawled), 1);
    assert_eq!(count(&works.pipeline.publish(works.shard.now).crawled), 0, "once");
    // One is taken and another one comes in the same turn: the number is the same, and someone may have found none.
    works.claim(&claim_of(Stage::Build, "b", 1, 0));
    crawl(&mut works, &both[1]);
    let published = works.pipeline.publish(works.shard.now);
    assert_eq!((published.builds, count(&published.offered), count(&published.crawled)), (1, 0, 1));
}

#[test]
fn an_offer_is_announced_at_its_time_despite_others() {
    let mut works = with_hosts(2);
    let both = works.claim(&claim_of(Stage::Crawl, "w", 2, 1));
    let fail = EndChunk::Fail { reason: "it broke".into(), input_lost: false };
    works.end(&both[0], &fail).expect("current");
    works.shard.now = works.shard.now.after(Millis(500));
    works.end(&both[1], &fail).expect("current");
    works.pipeline.publish(works.shard.now);
    // The first is not claimed; a waiting claim has looked at both, which may not go yet.
    assert!(works.claim(&claim_of(Stage::Crawl, "w", 1, 1)).is_empty());
    for (now, name) in [(START + 1_000, "the first"), (START + 1_500, "the second")] {
        let next = works.pipeline.next_wake().expect("a time");
        assert_eq!(next, Time(now), "{name}");
        works.shard.now = next;
        assert_eq!(count(&works.pipeline.publish(next).offered), 1, "{name}");
        assert_eq!(count(&works.pipeline.publish(next).offered), 0, "{name}, once");
    }
}

/// A chunk that is built.
fn built(works: &mut Works) -> Claimed {
    let chunk = crawl(works, 2);
    report_all(works, &chunk);
    works.end(&chunk, &EndChunk::Complete(Some(artifact(1)))).expect("crawled");
    let chunk = works.claim(&claim_of(Stage::Build, "b", 1, 0)).pop().expect("a crawled chunk");
    assert_eq!(works.end(&chunk, &EndChunk::Complete(Some(artifact(2)))), Ok(Some(ChunkState::Built)));
    chunk
}

#[test]
fn a_built_chunk_survives_reloads_until_it_is_placed() {
    let mut works = with_hosts(2);
    let chunk = built(&mut works);
    for _ in 0..3 {
        assert_eq!(works.pipeline.unplaced(9), [chunk.id]);
        let reason = works.rows[&chunk.id].view(&works.shard.state, works.shard.now).reason;
        assert!(reason.contains("about to be placed"), "{reason}");
        // The builder repeats its call, and operators can do nothing: the chunk is built anyway.
        assert_eq!(works.end(&chunk, &EndChunk::Complete(Some(artifact(2)))), Ok(None));
        assert!(
            works.decide(chunk.id, OperatorAction::Skip).is_err()
                && works.decide(chunk.id, OperatorAction::Retry).is_err()
        );
        works.reload();
    }
    assert!(works.placed(chunk.id, None));
    assert!(!works.placed(chunk.id, None), "a repeated answer changes nothing");
    assert!(!works.placed(chunk.id, Some("too late")));
    works.reload();
    assert!(works.pipeline.unplaced(9).is_empty() && !works.pipeline.has_unplaced());
    assert_eq!((works.rows[&chunk.id].state, works.rows[&chunk.id].placed), (ChunkState::Built, true));
    assert_eq!(works.end(&chunk, &EndChunk::Complete(Some(artifact(2)))), Ok(None), "still known");
}

#[test]
fn a_chunk_that_placement_refuses_is_set_aside_and_can_be_rebuilt() {
    let mut works = with_hosts(2);
    let first = built(&mut works);
    assert!(works.placed(first.id, Some("its artifact is malformed")));
    works.reload();
    let row = &works.rows[&first.id];
    assert_eq!((row.state, &row.built), (ChunkState::SetAside, &None));
    let reason = row.view(&works.shard.state, works.shard.now).reason;
    assert!(reason.contains("could not be placed: its artifact is malformed"), "{reason}");
    assert_eq!(works.decide(first.id, OperatorAction::Retry), Ok(ChunkState::Crawled));
    let again = works.claim(&claim_of(Stage::Build, "b", 1, 0)).pop().expect("the chunk");
    assert_eq!(again.id, first.id);
    assert_eq!(works.end(&again, &EndChunk::Complete(Some(artifact(3)))), Ok(Some(ChunkState::Built)));
    assert_eq!(works.pipeline.unplaced(9), [first.id]);
    assert!(works.placed(first.id, None));
}
