//! Chunks that were sent back to the crawl stage: what left them belongs to others, and every URL is one link.

use wayleave_core::frontier::request::{Outcome, UrlResult};
use wayleave_core::frontier::row::{UrlRow, UrlStatus};
use wayleave_core::frontier::url_key::UrlKey;
use wayleave_core::frontier::view::UrlState;
use wayleave_core::limits::{CHUNK_LINKS_EVER_MAX, CHUNK_OFFER_MAX};
use wayleave_core::pipeline::carry::{CarriedChunk, CarriedLink, CarriedLinkState};
use wayleave_core::pipeline::claim::Writes;
use wayleave_core::pipeline::end::Facts;
use wayleave_core::pipeline::request::{Claim, Claimed, EndChunk, OperatorAction, Stage};
use wayleave_core::pipeline::restore::Restored;
use wayleave_core::pipeline::row::{ChunkRow, ChunkState, LinkRow, LinkState};
use wayleave_core::time::Millis;

use super::carried::moved;
use super::support::{Works, artifact, claim_of};
use super::{START, check, crawl, fetched, put, report_all, state_of, urls, with_hosts};

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
fn a_chunk_that_is_sent_back_twice_leaves_alone_what_another_chunk_has_fetched_since() {
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
    // An export still names it: it may have read the URL before the chunk was sent back for the first time.
    let returned = |link: &&LinkRow| link.state == LinkState::Returned;
    assert_eq!(works.rows[&a.id].links.iter().filter(returned).count(), 1);
    check(&works);
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
    check(&works);
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
fn a_retry_takes_nothing_back_that_returned_to_its_queue_when_nobody_claimed_the_chunk() {
    let mut works = with_hosts(2);
    let a = crawl(&mut works, 2);
    works.end(&a, &EndChunk::Fail { reason: "it broke".into(), input_lost: false }).expect("current");
    works.shard.now = works.shard.now.after(CHUNK_OFFER_MAX);
    works.sweep();
    assert_eq!(works.rows[&a.id].state, ChunkState::Skipped);
    fetch_elsewhere(&mut works, &[U, V]);
    works.retry_in_vain(a.id);
    assert_eq!((state_of(&works, U), state_of(&works, V)), (UrlState::Fetched, UrlState::Fetched));
    check(&works);
}

#[test]
fn a_retry_takes_nothing_back_that_had_left_before_an_operator_skipped_the_chunk() {
    let mut works = with_hosts(2);
    let a = crawl(&mut works, 2);
    works.shard.move_hosts(&["h0.example".into()], Some(&"together".into()));
    assert_eq!(works.decide(a.id, OperatorAction::Skip), Ok(ChunkState::Skipped));
    // The crawler may go on until the deadline.
    works.shard.now = works.shard.now.after(Millis(10_000));
    works.sweep();
    fetch_elsewhere(&mut works, &[U]);
    assert_eq!(works.decide(a.id, OperatorAction::Retry), Ok(ChunkState::Crawling));
    assert_eq!(state_of(&works, U), UrlState::Fetched, "it is a page of the other chunk");
    wait(&mut works);
    let again = crawl(&mut works, 2);
    assert_eq!((again.id, urls(&again)), (a.id, vec![V.to_owned()]), "what was skipped is crawled");
    check(&works);
}

#[test]
fn a_retry_of_a_chunk_of_a_deleted_crawl_takes_nothing_from_a_new_crawl_of_its_name() {
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
    check(&works);
}

#[test]
fn an_imported_chunk_remembers_links_that_it_could_not_take_and_leaves_them_alone() {
    for taken in [1, 2] {
        let mut source = with_hosts(2);
        let a = crawl(&mut source, 2);
        let carried = source.carry(a.id);
        let (mut world, _) = moved(&source, false);
        let works = &mut world.works;
        // A worker is faster than the import. Its chunk has another number.
        works.pipeline.raise_ids(9, &mut Vec::new());
        let early = crawl(works, taken);
        assert_eq!(works.restore(&carried), Restored::Restored);
        let expected = if taken == 2 { ChunkState::Skipped } else { ChunkState::Crawling };
        assert_eq!(works.rows[&a.id].state, expected);
        let returned = |works: &Works| {
            let links = works.carry(a.id).links.into_iter();
            let left = links.filter(|link| link.state == CarriedLinkState::Returned).map(|link| link.url.to_string());
            left.collect::<Vec<_>>()
        };
        assert_eq!(returned(works), urls(&early), "the next export names them");
        report_all(works, &early);
        complete(works, &early);
        if taken == 2 {
            works.retry_in_vain(a.id);
        }
        assert!(urls(&early).iter().all(|url| state_of(works, url) == UrlState::Fetched));
        check(works);
    }
}

#[test]
fn a_url_is_returned_once_however_often_its_chunk_is_moved() {
    let (mut source, chunk) = sent_back();
    let results = vec![fetched(V), UrlResult::new(U, Outcome::Retry)];
    source.report(&chunk, results, false).expect("taken");
    complete(&mut source, &chunk);
    let first = source.carry(chunk.id);
    let states = |chunk: &CarriedChunk| {
        let mut all: Vec<_> =
            chunk.links.iter().map(|link| (link.url.to_string(), format!("{:?}", link.state))).collect();
        all.sort();
        all
    };
    let expected =
        [(U, "Error"), (U, "Returned"), (V, "Crawled")].map(|(url, state)| (url.to_owned(), state.to_owned()));
    assert_eq!(states(&first), expected);
    let (mut world, _) = moved(&source, false);
    assert_eq!(world.works.restore(&first), Restored::Restored);
    assert_eq!(states(&world.works.carry(chunk.id)), expected, "there is no second one");
}

/// A file that someone has written by hand, or that an older version has exported.
#[test]
fn a_url_that_is_named_twice_is_one_link_whatever_its_chunk_has_come_to() {
    let mut source = with_hosts(1);
    let chunk = crawl(&mut source, 1);
    report_all(&mut source, &chunk);
    complete(&mut source, &chunk);
    let good = source.carry(chunk.id);
    let (mut world, _) = moved(&source, false);
    let link = |state| CarriedLink { state, ..good.links[0].clone() };
    let links = vec![link(CarriedLinkState::Error), good.links[0].clone(), good.links[0].clone()];
    assert_eq!(world.works.restore(&CarriedChunk { links, ..good.clone() }), Restored::Restored);
    assert_eq!(world.works.rows[&chunk.id].links.len(), 2, "an error beside the link that came back");
    assert_eq!(lose(&mut world.works), ChunkState::Crawling);
    let again = crawl(&mut world.works, 2);
    assert_eq!(urls(&again), [U]);
    check(&world.works);
    report_all(&mut world.works, &again);
    complete(&mut world.works, &again);
    check(&world.works);
    assert_eq!(state_of(&world.works, U), UrlState::Fetched);

    // The first one counts: what has left a chunk is queued, and no link of it.
    let (mut world, _) = moved(&source, false);
    let links = vec![link(CarriedLinkState::Returned), link(CarriedLinkState::Crawling)];
    let twice = CarriedChunk { state: ChunkState::Crawling, crawled: None, links, ..good.clone() };
    assert_eq!(world.works.restore(&twice), Restored::Restored);
    let row = &world.works.rows[&chunk.id];
    assert_eq!((row.state, row.links.len(), row.leases().count()), (ChunkState::Skipped, 1, 0));
    check(&world.works);
}

/// Rows that an older version has restored from such a file.
#[test]
fn a_url_that_is_two_links_of_a_row_is_taken_once() {
    let mut works = with_hosts(1);
    let chunk = crawl(&mut works, 1);
    report_all(&mut works, &chunk);
    complete(&mut works, &chunk);
    let row = works.rows.get_mut(&chunk.id).expect("a row");
    row.links.push(row.links[0].clone());
    works.reload();
    assert_eq!(lose(&mut works), ChunkState::Crawling);
    let row = &works.rows[&chunk.id];
    assert_eq!((row.links.len(), row.leases().count()), (1, 1));
    check(&works);
}

#[test]
fn links_to_be_tried_again_are_carried_even_if_a_chunk_has_no_room_for_more() {
    let (works, chunk) = sent_back();
    let row = &works.rows[&chunk.id];
    let failed = |n: usize| {
        let url = (row.links[0].url.0, UrlKey::new(&row.links[0].host, &format!("http://h0.example/p{n}")));
        LinkRow { lease: None, url, state: LinkState::Error(1), ..row.links[0].clone() }
    };
    let links: Vec<LinkRow> = row.links.iter().cloned().chain((2..CHUNK_LINKS_EVER_MAX).map(failed)).collect();
    let row = ChunkRow { links, ..row.clone() };
    // Three of the failed ones are queued again; of the others nothing is known.
    let queued = works.shard.rows(&row.urls())[0].clone().map(|row| match row.status {
        UrlStatus::Reserved { position, .. } => UrlRow { status: UrlStatus::Queued(position), ..row },
        other => panic!("{other:?}"),
    });
    let mut rows = vec![None; row.links.len()];
    rows[CHUNK_LINKS_EVER_MAX - 3..].fill(queued);
    let carried = row.carry(&rows, &works.shard.state);
    let count = |state| carried.links.iter().filter(|link| link.state == state).count();
    assert_eq!((count(CarriedLinkState::Crawling), count(CarriedLinkState::Returned)), (2, 3));
    assert_eq!(carried.links.len(), CHUNK_LINKS_EVER_MAX, "instead of some that only say what failed");
    assert_eq!(carried.contradiction(), None);
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
    check(&works);
}
