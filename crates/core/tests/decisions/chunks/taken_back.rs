//! What a chunk may take back or count, where others have had its URLs meanwhile.

use wayleave_core::frontier::requeue::BulkAction;
use wayleave_core::frontier::view::UrlView;
use wayleave_core::limits::CHUNK_ATTEMPTS_MAX;

use super::support::{Works, artifact, claim_of};
use super::*;

const U: &str = "http://h0.example/1";
const V: &str = "http://h1.example/1";

fn wait(works: &mut Works) {
    works.shard.now = works.shard.now.after(Millis(12_000));
    works.sweep();
}

fn put_as(works: &mut Works, kind: PutKind) {
    let (url, host, crawl) = (U.into(), "h0.example".into(), "c".into());
    works.shard.put(Put { url, host, crawl, kind, metadata: Metadata::default() });
}

fn queue_again(works: &mut Works) {
    put_as(works, PutKind::Wanted { at: None, priority: 5, explicit: false, depth: 0, again: true });
}

fn complete(works: &mut Works, chunk: &Claimed) -> Vec<Box<str>> {
    let end = EndChunk::Complete(Some(artifact(1)));
    let (first, completed) = works.ended(chunk, &end).expect("complete");
    assert!(first);
    assert_eq!(works.ended(chunk, &end), Ok((false, completed.clone())), "the call is repeated");
    completed.ended
}

fn fetch_u_elsewhere(works: &mut Works) {
    wait(works);
    let other = crawl(works, 1);
    assert_eq!(urls(&other), [U]);
    report_all(works, &other);
    complete(works, &other);
}

fn lose(works: &mut Works) -> ChunkState {
    let build = works.claim(&claim_of(Stage::Build, "b", 1, 0)).pop().expect("a crawled chunk");
    let lost = EndChunk::Fail { reason: "404".into(), input_lost: true };
    let state = works.end(&build, &lost).expect("current").expect("the first call");
    wait(works);
    state
}

/// A missing queue was taken for that of a host that moved, and its URL looked for where it lives: in the new crawl.
#[test]
fn a_chunk_at_rest_when_its_crawl_was_deleted_leaves_the_recreated_one() {
    let mut works = with_hosts(1);
    let a = crawl(&mut works, 1);
    assert_eq!(works.decide(a.id, OperatorAction::Skip), Ok(ChunkState::Skipped));
    wait(&mut works);
    works.shard.delete_crawl(&"c".into());
    put(&mut works, "h0.example", "1");
    fetch_u_elsewhere(&mut works);
    let row = &works.rows[&a.id];
    assert_eq!(row.departed(None, &works.shard.state, works.shard.now), [], "nothing is queued where it lives now");
    works.retry_in_vain(a.id);
    assert_eq!(state_of(&works, U), UrlState::Fetched);
}

#[test]
fn a_retry_leaves_what_another_chunk_fetched_after_a_requeue() {
    for reported in [false, true] {
        let mut works = with_hosts(1);
        let a = crawl(&mut works, 1);
        if reported {
            report_all(&mut works, &a);
        }
        assert_eq!(works.decide(a.id, OperatorAction::Skip), Ok(ChunkState::Skipped));
        assert_eq!(state_of(&works, U), UrlState::Failed);
        // Also if its host lives in another shard now, where this is looked up.
        let nowhere = Works::new(START);
        let departed = |works: &Works| {
            let links = works.rows[&a.id].departed(None, &nowhere.shard.state, works.shard.now);
            let known = works.shard.lookup("c", "h0.example", U).expect("known");
            links.iter().map(|link| (link.url.to_string(), link.is_wanted(&known))).collect::<Vec<_>>()
        };
        assert_eq!(departed(&works), [(U.to_owned(), true)]);
        queue_again(&mut works);
        fetch_u_elsewhere(&mut works);
        assert_eq!(departed(&works), [(U.to_owned(), false)]);
        works.retry_in_vain(a.id);
        assert_eq!(state_of(&works, U), UrlState::Fetched);
    }
}

#[test]
fn a_retry_leaves_what_a_client_reported_or_another_chunk_gave_up() {
    for fetched in [true, false] {
        let mut works = with_hosts(1);
        let a = crawl(&mut works, 1);
        assert_eq!(works.decide(a.id, OperatorAction::Skip), Ok(ChunkState::Skipped));
        if fetched {
            put_as(&mut works, PutKind::Known { due: None });
        } else {
            queue_again(&mut works);
            wait(&mut works);
            let b = crawl(&mut works, 1);
            assert_eq!(works.decide(b.id, OperatorAction::Skip), Ok(ChunkState::Skipped));
        }
        works.retry_in_vain(a.id);
        let expected = if fetched { UrlState::Fetched } else { UrlState::Failed };
        assert_eq!(state_of(&works, U), expected);
    }
}

#[test]
fn a_completion_names_only_fetched_links_that_had_left_by_then() {
    let mut works = with_hosts(3);
    let first = crawl(&mut works, 3);
    report_all(&mut works, &first);
    works.shard.move_hosts(&["h0.example".into()], Some(&"together".into()));
    assert_eq!(complete(&mut works, &first), [U.into()]);
    assert_eq!(lose(&mut works), ChunkState::Crawling);
    let end = EndChunk::Complete(Some(artifact(1)));
    let (repeated, completed) = works.ended(&first, &end).expect("the last completion");
    assert_eq!((repeated, completed.ended), (false, vec![U.into()]), "also after it was sent back");
    // In the next round one is not reported and stays, and one is not reported and leaves.
    works.shard.now = works.shard.now.after(Millis(60_000));
    works.sweep();
    let all = works.claim(&claim_of(Stage::Crawl, "w", 5, 5));
    let again = all.into_iter().find(|chunk| chunk.id == first.id).expect("it was sent back");
    assert_eq!(urls(&again), [V, "http://h2.example/1"]);
    works.report(&again, vec![fetched(V)], false).expect("taken");
    works.shard.move_hosts(&["h2.example".into()], Some(&"others".into()));
    assert_eq!(complete(&mut works, &again), [], "that of the round before was named then");
}

#[test]
fn urls_over_a_kilobyte_that_have_left_are_named_whole() {
    let mut works = with_hosts(1);
    let path = "x".repeat(3_000);
    put(&mut works, "h1.example", &path);
    let long = format!("http://h1.example/{path}");
    let chunk = crawl(&mut works, 2);
    report_all(&mut works, &chunk);
    works.shard.move_hosts(&["h1.example".into()], Some(&"together".into()));
    let until = works.shard.now.after(Millis(10_000));
    assert_eq!(works.renewed(&chunk, until).expect("current").ended, [long.clone().into()]);
    assert_eq!(complete(&mut works, &chunk), [long.into()]);
}

/// A client of URLFrontier has no tokens: what it puts as known is finished, even if it is reserved.
#[test]
fn a_link_that_a_client_says_to_be_fetched_has_left_its_chunk() {
    let mut works = with_hosts(2);
    let chunk = crawl(&mut works, 2);
    put_as(&mut works, PutKind::Known { due: None });
    let until = works.shard.now.after(Millis(10_000));
    assert_eq!(works.renewed(&chunk, until).expect("current").ended, [U.into()]);
    let answer = works.report(&chunk, vec![fetched(U)], false).expect("its own link");
    assert_eq!((answer.left, answer.ended), (1, vec![U.into()]));
    report_all(&mut works, &chunk);
    assert_eq!(complete(&mut works, &chunk), [""; 0].map(Box::from), "the report has already named it");
    assert_eq!(works.rows[&chunk.id].view(&works.shard.state, works.shard.now).crawled, 1);

    let mut works = with_hosts(2);
    let chunk = crawl(&mut works, 2);
    report_all(&mut works, &chunk);
    put_as(&mut works, PutKind::Known { due: None });
    assert_eq!(complete(&mut works, &chunk), [U.into()]);
    assert_eq!(works.rows[&chunk.id].view(&works.shard.state, works.shard.now).crawled, 1);

    let mut works = with_hosts(1);
    let chunk = crawl(&mut works, 1);
    report_all(&mut works, &chunk);
    put_as(&mut works, PutKind::Known { due: None });
    let refused = works.end(&chunk, &EndChunk::Complete(Some(artifact(1)))).unwrap_err();
    assert!(matches!(refused, ChunkRefusal::NoContent { .. }), "{refused:?}");
    // Nor does a retry take it.
    assert_eq!(works.decide(chunk.id, OperatorAction::Skip), Ok(ChunkState::Skipped));
    works.retry_in_vain(chunk.id);
}

/// The links that are queued where they live before a chunk is crawled again, if all live elsewhere.
fn departed(works: &Works, id: ChunkId, token: Option<Token>) -> Vec<String> {
    let nowhere = Works::new(START);
    let links = works.rows[&id].departed(token, &nowhere.shard.state, works.shard.now);
    links.iter().map(|link| link.url.to_string()).collect()
}

fn build(works: &mut Works) -> Claimed {
    works.claim(&claim_of(Stage::Build, "b", 1, 0)).pop().expect("a crawled chunk")
}

#[test]
fn links_are_queued_elsewhere_only_for_a_chunk_about_to_be_recrawled() {
    const NONE: [&str; 0] = [];
    let mut works = with_hosts(2);
    let a = crawl(&mut works, 2);
    assert_eq!(departed(&works, a.id, Some(a.token)), NONE, "its crawler has them");
    assert_eq!(departed(&works, a.id, None), NONE, "it cannot be retried");
    report_all(&mut works, &a);
    complete(&mut works, &a);
    let builds = build(&mut works);
    assert_eq!(departed(&works, a.id, Some(builds.token)), [U, V], "its content may be lost");
    assert_eq!(departed(&works, a.id, Some(a.token)), NONE, "another one has it");
    assert_eq!(departed(&works, a.id, None), NONE, "it cannot be retried");
    let now = works.shard.now;
    works.shard.now = now.after(Millis(10_000));
    assert_eq!(departed(&works, a.id, Some(builds.token)), NONE, "its lease has ended");
    works.shard.now = now;
    assert_eq!(works.decide(a.id, OperatorAction::Skip), Ok(ChunkState::Skipped));
    assert_eq!(departed(&works, a.id, None), NONE, "its content is there");
    assert_eq!(works.decide(a.id, OperatorAction::Retry), Ok(ChunkState::Crawled));
    for _ in 1..CHUNK_ATTEMPTS_MAX {
        assert_eq!(lose(&mut works), ChunkState::Crawling);
        let again = crawl(&mut works, 2);
        report_all(&mut works, &again);
        complete(&mut works, &again);
    }
    let builds = build(&mut works);
    assert_eq!(departed(&works, a.id, Some(builds.token)), NONE, "it is set aside with the next loss");
    let lost = EndChunk::Fail { reason: "404".into(), input_lost: true };
    assert_eq!(works.end(&builds, &lost), Ok(Some(ChunkState::SetAside)));
    assert_eq!(departed(&works, a.id, None), [U, V]);
}

#[test]
fn a_retry_takes_neither_what_failed_for_the_chunk_nor_what_had_left_it() {
    let mut works = with_hosts(3);
    let a = crawl(&mut works, 3);
    works.report(&a, vec![UrlResult::new(U, Outcome::Failed)], false).expect("taken");
    works.shard.move_hosts(&["h2.example".into()], Some(&"together".into()));
    assert_eq!(works.decide(a.id, OperatorAction::Skip), Ok(ChunkState::Skipped));
    assert_eq!(departed(&works, a.id, None), [V]);
    assert_eq!(works.decide(a.id, OperatorAction::Retry), Ok(ChunkState::Crawling));
    wait(&mut works);
    assert_eq!(urls(&crawl(&mut works, 3)), [V]);
    assert_eq!(state_of(&works, U), UrlState::Failed);
}

/// Its key holds only the start of it, so it cannot be looked up elsewhere.
#[test]
fn a_url_over_a_kilobyte_is_not_queued_elsewhere() {
    let mut works = with_hosts(1);
    put(&mut works, "h1.example", &"x".repeat(3_000));
    let a = crawl(&mut works, 2);
    assert_eq!(a.links.len(), 2);
    assert_eq!(works.decide(a.id, OperatorAction::Skip), Ok(ChunkState::Skipped));
    assert_eq!(departed(&works, a.id, None), [U]);
}

#[test]
fn a_remote_link_is_requeued_only_by_its_chunk_and_once_its_url_ended() {
    let nowhere = Works::new(START);
    let mut works = with_hosts(1);
    let a = crawl(&mut works, 1);
    assert_eq!(works.decide(a.id, OperatorAction::Skip), Ok(ChunkState::Skipped));
    let given_up = works.rows[&a.id].departed(None, &nowhere.shard.state, works.shard.now).remove(0);
    let known = works.shard.lookup("c", "h0.example", U).expect("known");
    assert!(given_up.is_wanted(&known));
    let fetched = UrlView { state: UrlState::Fetched, ..known.clone() };
    assert!(!given_up.is_wanted(&fetched), "another chunk has fetched it in the same millisecond");

    let mut works = with_hosts(1);
    let a = crawl(&mut works, 1);
    report_all(&mut works, &a);
    complete(&mut works, &a);
    let builds = build(&mut works);
    let lost = works.rows[&a.id].departed(Some(builds.token), &nowhere.shard.state, works.shard.now).remove(0);
    for (state, wanted) in [
        (UrlState::Fetched, true),
        (UrlState::Failed, true),
        (UrlState::Queued, false),
        (UrlState::Reserved, false),
        (UrlState::Gone, false),
    ] {
        assert_eq!(lost.is_wanted(&UrlView { state, ..known.clone() }), wanted, "{state:?}");
    }
}

#[test]
fn a_deleted_url_is_forgotten_by_its_chunk_but_named_to_its_crawler() {
    let mut works = with_hosts(3);
    let a = crawl(&mut works, 3);
    report_all(&mut works, &a);
    put_as(&mut works, PutKind::Known { due: None });
    assert_eq!(complete(&mut works, &a), [U.into()]);
    for host in ["h0.example", "h1.example"] {
        works.shard.rework(host, "c", BulkAction::Delete);
    }
    assert_eq!(lose(&mut works), ChunkState::Crawling);
    assert_eq!(works.rows[&a.id].links.len(), 2, "the one to crawl, and the one that was named");
    let completed = works.ended(&a, &EndChunk::Complete(Some(artifact(1)))).expect("it is repeated");
    assert_eq!((completed.0, completed.1.ended), (false, vec![U.into()]));
}

/// Its host may be forgotten or have moved, and there may be a new crawl of its name: the rows decide, not a reason,
/// which a worker may send.
#[test]
fn a_retry_that_finds_nothing_is_refused_in_any_shard() {
    for anew in [false, true] {
        let mut works = with_hosts(1);
        let a = crawl(&mut works, 1);
        assert_eq!(works.decide(a.id, OperatorAction::Skip), Ok(ChunkState::Skipped));
        wait(&mut works);
        works.shard.delete_crawl(&"c".into());
        if anew {
            put(&mut works, "h5.example", "1");
        }
        works.retry_in_vain(a.id);
        // A shard that lacks the host cannot know whether its URL was deleted.
        assert_eq!(works.decide_about(a.id, OperatorAction::Retry, true), Ok(ChunkState::Skipped));
    }
}

#[test]
fn no_decision_depends_on_a_reason_that_a_worker_sends() {
    let mut works = with_hosts(2);
    let mut a = crawl(&mut works, 2);
    for attempt in 0..CHUNK_ATTEMPTS_MAX {
        if attempt > 0 {
            a = crawl(&mut works, 2);
        }
        works.end(&a, &EndChunk::Fail { reason: "its crawl was deleted".into(), input_lost: false }).expect("current");
        wait(&mut works);
    }
    assert_eq!(works.rows[&a.id].state, ChunkState::SetAside);
    works.shard.delete_queue(&"h0.example".into(), &"c".into());
    assert_eq!(works.decide(a.id, OperatorAction::Retry), Ok(ChunkState::Crawling), "one is left");
}
