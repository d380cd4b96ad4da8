//! Chunks that were sent back to the crawl stage: what left them belongs to others, and every URL is one link.

use wayleave_core::limits::{CHUNK_LINKS_EVER_MAX, CHUNK_OFFER_MAX};

use super::support::{Works, artifact, claim_of};
use super::*;

const U: &str = "http://h0.example/1";
const V: &str = "http://h1.example/1";

fn wait(works: &mut Works) {
    works.shard.now = works.shard.now.after(Millis(2_000));
}

fn complete(works: &mut Works, chunk: &Claimed) {
    works.end(chunk, &EndChunk::Complete(Some(artifact(1)))).expect("complete");
}

fn build(works: &mut Works) -> Claimed {
    works.claim(&claim_of(Stage::Build, "b", 1, 0)).pop().expect("a crawled chunk")
}

/// The builder finds that the content of a chunk is lost.
fn lose(works: &mut Works) -> ChunkState {
    let build = build(works);
    let lost = EndChunk::Fail { reason: "404".into(), input_lost: true };
    let state = works.end(&build, &lost).expect("current").expect("the first call");
    wait(works);
    state
}

/// A chunk of both URLs that was sent back once, and claimed again.
fn sent_back() -> (Works, Claimed) {
    let mut works = with_hosts(2);
    let first = crawl(&mut works, 2);
    report_all(&mut works, &first);
    complete(&mut works, &first);
    assert_eq!(lose(&mut works), ChunkState::Crawling);
    let again = crawl(&mut works, 2);
    assert_eq!((again.id, urls(&again)), (first.id, vec![U.to_owned(), V.to_owned()]));
    (works, again)
}

/// Otherwise a page would be in two chunks, and its URL be counted twice.
#[test]
fn a_chunk_sent_back_twice_leaves_what_another_chunk_fetched_since() {
    let (mut works, a) = sent_back();
    works.report(&a, vec![fetched(V)], false).expect("taken");
    complete(&mut works, &a);
    assert_eq!(state_of(&works, U), UrlState::Queued, "it has left the chunk");
    wait(&mut works);
    let b = crawl(&mut works, 1);
    assert_eq!(urls(&b), [U]);
    report_all(&mut works, &b);
    complete(&mut works, &b);
    assert_eq!(lose(&mut works), ChunkState::Crawling);
    assert_eq!(state_of(&works, U), UrlState::Fetched, "it is a page of the other chunk");
    let again = crawl(&mut works, 2);
    assert_eq!((again.id, urls(&again)), (a.id, vec![V.to_owned()]));
}

#[test]
fn a_retried_chunk_leaves_alone_what_another_chunk_has_fetched_since() {
    let (mut works, a) = sent_back();
    works.end(&a, &EndChunk::Complete(None)).expect("complete");
    wait(&mut works);
    let b = crawl(&mut works, 2);
    assert_eq!(urls(&b), [U, V]);
    report_all(&mut works, &b);
    complete(&mut works, &b);
    works.retry_in_vain(a.id);
    assert_eq!((state_of(&works, U), state_of(&works, V)), (UrlState::Fetched, UrlState::Fetched));
}

/// Fetches what is queued in another chunk.
fn fetch_elsewhere(works: &mut Works, expected: &[&str]) {
    wait(works);
    let other = crawl(works, 2);
    assert_eq!(urls(&other), expected);
    report_all(works, &other);
    complete(works, &other);
}

#[test]
fn a_retry_leaves_links_that_returned_while_no_crawler_had_the_chunk() {
    let mut works = with_hosts(2);
    let a = crawl(&mut works, 2);
    works.end(&a, &EndChunk::Fail { reason: "it broke".into(), input_lost: false }).expect("current");
    works.shard.now = works.shard.now.after(CHUNK_OFFER_MAX);
    works.sweep();
    assert_eq!(works.rows[&a.id].state, ChunkState::Skipped);
    fetch_elsewhere(&mut works, &[U, V]);
    works.retry_in_vain(a.id);
    assert_eq!((state_of(&works, U), state_of(&works, V)), (UrlState::Fetched, UrlState::Fetched));
}

#[test]
fn a_retry_leaves_links_that_had_left_before_the_chunk_was_skipped() {
    let mut works = with_hosts(2);
    let a = crawl(&mut works, 2);
    works.shard.move_hosts(&["h0.example".into()], Some(&"together".into()));
    assert_eq!(works.decide(a.id, OperatorAction::Skip), Ok(ChunkState::Skipped));
    // The crawler may continue until the deadline.
    works.shard.now = works.shard.now.after(Millis(10_000));
    works.sweep();
    fetch_elsewhere(&mut works, &[U]);
    assert_eq!(works.decide(a.id, OperatorAction::Retry), Ok(ChunkState::Crawling));
    assert_eq!(state_of(&works, U), UrlState::Fetched, "it is a page of the other chunk");
    wait(&mut works);
    let again = crawl(&mut works, 2);
    assert_eq!((again.id, urls(&again)), (a.id, vec![V.to_owned()]), "what was skipped is crawled");
}

#[test]
fn a_retry_after_a_deletion_takes_nothing_from_the_recreated_crawl() {
    let mut works = with_hosts(2);
    let a = crawl(&mut works, 2);
    works.shard.delete_crawl(&"c".into());
    let (row, mut writes) = (works.rows[&a.id].clone(), Writes::default());
    let facts = Facts { rows: &[], now: works.shard.now, jitter: 0, entropy: &|| 0, found_elsewhere: false };
    works.pipeline.crawl_deleted(&row, &facts, &mut works.shard.state, &mut writes);
    works.commit(writes);
    put(&mut works, "h0.example", "1");
    works.shard.now = works.shard.now.after(Millis(10_000));
    works.sweep();
    fetch_elsewhere(&mut works, &[U]);
    let row = &works.rows[&a.id];
    assert_eq!(row.departed(None, &works.shard.state, works.shard.now), [], "nothing is queued where it lives now");
    works.retry_in_vain(a.id);
    assert_eq!(state_of(&works, U), UrlState::Fetched);
}

#[test]
fn replacements_end_at_the_most_links_that_a_chunk_may_have_had() {
    let mut works = Works::new(START);
    (0..5_000).for_each(|n| put(&mut works, "h.example", &n.to_string()));
    let claim =
        Claim { host: Some("h.example".into()), crawl: Some("c".into()), ..claim_of(Stage::Crawl, "w", 1, 1_000) };
    let chunk = works.claim(&claim).pop().expect("a chunk");
    let mut open: Vec<_> = chunk.links.iter().map(|link| link.url.url.clone()).collect();
    for round in 0..5 {
        let gone = open.drain(..900).map(|url| UrlResult::new(&*url, Outcome::Gone)).collect();
        let answer = works.report(&chunk, gone, true).expect("its own links");
        let expected = [900, 900, 900, 300, 0][round];
        assert_eq!(answer.replacements.len(), expected, "round {round}");
        open.extend(answer.replacements.into_iter().map(|link| link.url.url));
        // The last round: too few are left for another one.
        if open.len() < 900 {
            break;
        }
    }
    assert_eq!(works.rows[&chunk.id].links.len(), CHUNK_LINKS_EVER_MAX);
}
