//! Bounds of exports and imports of chunks, and of the deletion of their crawl: rows that a page reads, numbers that a file
//! may take, chunks that end in one commit.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use wayleave_core::frontier::refusal::Refusal;
use wayleave_core::frontier::request::{Outcome, UrlResult};
use wayleave_core::ids::{ChunkId, ShardId};
use wayleave_core::limits::{CHUNK_AHEAD_MAX, CHUNK_COUNTER_RESTORED_MAX, CHUNK_NUMBERS_AHEAD_MAX, SLICE_ROWS};
use wayleave_core::pipeline::carry::{CarriedChunk, CarriedLink, CarriedLinkState};
use wayleave_core::pipeline::request::{Claim, Claimed, EndChunk, ReportLinks, Stage};
use wayleave_core::pipeline::restore::Restored;
use wayleave_core::pipeline::row::{Artifact, ChunkState};
use wayleave_core::pipeline::view::ChunkFilter;
use wayleave_core::time::{Millis, Time};
use wayleave_engine::rows::{Kind, key};
use wayleave_shard::pipeline::Pipeline;

use crate::faulty::{Fate, Faulty};
use crate::fleet::NOW;
use crate::support::*;

fn claim(chunks: usize, links: usize, host: Option<String>) -> Claim {
    Claim {
        stage: Stage::Crawl,
        worker: "w".into(),
        crawl: Some("DEFAULT".into()),
        chunks,
        links,
        links_min: 1,
        host: host.map(|host| host.as_str().into()),
        lease: Millis(600_000),
        request: None,
    }
}

/// A crawled chunk of another store.
fn crawled(number: u64) -> CarriedChunk {
    CarriedChunk {
        id: ChunkId::new(ShardId(0), number),
        crawl: "DEFAULT".into(),
        host: None,
        state: ChunkState::Crawled,
        worker: None,
        attempts: 0,
        inputs_lost: 0,
        index: 0,
        indexes_lost: 0,
        created_at: Time(BASE),
        since: Time(BASE),
        links: Vec::new(),
        crawled: Some(Artifact { location: "http://store/1".into(), bytes: 1, checksum: [1; 32] }),
        built: None,
        last_error: None,
        copies: Vec::new(),
    }
}

async fn fetch_and_complete(pipeline: &Pipeline, chunk: &Claimed) {
    let results = chunk.links.iter().map(|link| UrlResult::new(&*link.url.url, Outcome::Fetched)).collect();
    let report = ReportLinks { chunk: chunk.id, token: chunk.token, results, replace: false };
    pipeline.report(report, Vec::new()).await.unwrap();
    let artifact = Artifact { location: "http://store/1".into(), bytes: 3, checksum: [1; 32] };
    pipeline.end(chunk.id, chunk.token, EndChunk::Complete(Some(artifact))).await.unwrap();
}

/// Long chunks, some at rest and some in progress.
async fn long_chunks(store: &Arc<Faulty>, chunks: usize, links: usize) -> Pipeline {
    let frontier = store.open(1).await;
    let pipeline = Pipeline::new(frontier.clone());
    for n in 0..chunks {
        let host = format!("h{n}.example");
        frontier.put((0..links).map(|page| disc(&format!("http://{host}/{page}"))).collect()).await;
        let chunk = pipeline.claim(claim(1, links, Some(host)), NOW, NOW).await.unwrap().remove(0);
        assert_eq!(chunk.links.len(), links);
        if n % 2 == 0 {
            pipeline.decide(chunk.id, wayleave_core::pipeline::request::OperatorAction::Skip).await.unwrap();
        }
    }
    pipeline
}

/// A regression: every page of an export read 256 rows of each kind, and used one of them.
#[tokio::test(start_paused = true)]
async fn a_page_of_long_chunks_reads_few_of_them() {
    const CHUNKS: usize = 24;
    let store = Faulty::new();
    let pipeline = long_chunks(&store, CHUNKS, 1_000).await;
    let (mut found, mut after) = (Vec::new(), None);
    loop {
        let before = store.rows.load(Ordering::Acquire);
        let (chunks, next) = pipeline.carry(None, after).await.unwrap();
        let read = store.rows.load(Ordering::Acquire) - before;
        assert!(read <= 4, "{read} rows for {} chunks", chunks.len());
        found.extend(chunks.into_iter().map(|chunk| chunk.id));
        after = next;
        if after.is_none() {
            break;
        }
    }
    assert!(found.is_sorted() && found.len() == CHUNKS, "{found:?}");
    // A listing shows the same ones, whatever its pages.
    for most in [1, 7, 100] {
        let (mut listed, mut after) = (Vec::new(), None);
        loop {
            let (views, next) = pipeline.chunks(ChunkFilter::default(), after, most).await.unwrap();
            listed.extend(views.into_iter().map(|view| view.id));
            after = next;
            if after.is_none() {
                break;
            }
        }
        assert_eq!(listed, found, "pages of {most}");
    }
}

/// Claims come between the calls of an import: the numbers of the whole file were raised before.
#[tokio::test(start_paused = true)]
async fn workers_that_claim_during_an_import_take_no_number_of_the_file() {
    let mut world = World::new(3).await;
    let urls: Vec<String> = (0..9).map(|n| format!("http://h{n}.example/")).collect();
    world.add(&urls.iter().map(String::as_str).collect::<Vec<_>>()).await;
    let pipeline = Pipeline::new(world.frontier.clone());
    assert_eq!(pipeline.raise_numbers(5_000_000).await, Ok(5_000_000));
    assert_eq!(pipeline.raise_numbers(7).await, Ok(5_000_000), "never lowered");
    world.reopen().await;
    let pipeline = Pipeline::new(world.frontier.clone());
    for number in [3, 4_999_999] {
        assert_eq!(pipeline.restore(vec![crawled(number)]).await.unwrap(), [Restored::Restored]);
        let claimed = pipeline.claim(claim(3, 1, None), NOW, NOW).await.unwrap();
        assert!(!claimed.is_empty() && claimed.iter().all(|chunk| chunk.id.counter() >= 5_000_000), "{claimed:?}");
    }
    let next = pipeline.next_number().await.unwrap();
    assert!(next > 5_999_999, "with the usual margin: {next}");
}

/// A regression: one damaged line moved all numbers so far up that what was made afterwards could not be imported anywhere.
#[tokio::test(start_paused = true)]
async fn no_chunk_of_a_file_takes_numbers_away_from_later_imports() {
    let world = World::new(2).await;
    let pipeline = Pipeline::new(world.frontier.clone());
    assert_eq!(pipeline.restore(vec![crawled(1)]).await.unwrap(), [Restored::Restored]);
    let next = pipeline.next_number().await.unwrap();
    for number in [CHUNK_COUNTER_RESTORED_MAX - 1, next + CHUNK_AHEAD_MAX] {
        let bad = crawled(number);
        let told = pipeline.restore(vec![crawled(1), bad.clone()]).await.unwrap();
        let [Restored::Known, Restored::Refused(why)] = &told[..] else { panic!("{told:?}") };
        assert!(why.contains(&format!("chunk '{}'", bad.id)) && why.contains("above the next one"), "{why}");
    }
    assert_eq!(pipeline.next_number().await, Ok(next), "a refused chunk moves nothing");
    // The worst that is accepted, and then everything goes on, here and in the next store.
    let far = next + CHUNK_AHEAD_MAX - 1;
    assert_eq!(pipeline.restore(vec![crawled(far)]).await.unwrap(), [Restored::Restored]);
    world.add(&["http://a.example/"]).await;
    let made = pipeline.claim(claim(1, 1, None), NOW, NOW).await.unwrap().remove(0).id;
    let (chunks, _) = pipeline.carry(None, None).await.unwrap();
    let more = match chunks.last() {
        Some(last) => pipeline.carry(None, Some(last.id)).await.unwrap().0,
        None => Vec::new(),
    };
    let all: Vec<CarriedChunk> = chunks.into_iter().chain(more).collect();
    assert!(all.iter().any(|chunk| chunk.id == made), "{all:?}");
    let other = World::new(1).await;
    let other = Pipeline::new(other.frontier.clone());
    other.raise_numbers(pipeline.next_number().await.unwrap()).await.unwrap();
    let told = other.restore(all.clone()).await.unwrap();
    assert_eq!(told, vec![Restored::Restored; all.len()]);
    assert!(other.next_number().await.unwrap() < CHUNK_COUNTER_RESTORED_MAX, "more than half is left");
}

/// A regression: a damaged line of chunk numbers used up half of all numbers, and no later import could raise them.
#[tokio::test(start_paused = true)]
async fn numbers_are_not_raised_further_than_any_store_counts() {
    let world = World::new(2).await;
    let pipeline = Pipeline::new(world.frontier.clone());
    let next = pipeline.next_number().await.unwrap();
    for number in [next + CHUNK_NUMBERS_AHEAD_MAX, CHUNK_COUNTER_RESTORED_MAX, u64::MAX] {
        let refused = pipeline.raise_numbers(number).await.unwrap_err().to_string();
        assert!(refused.contains(&number.to_string()) && refused.contains("`wayleave export` wrote it"), "{refused}");
    }
    assert_eq!(pipeline.next_number().await, Ok(next), "a refused call moves nothing");
    let far = next + CHUNK_NUMBERS_AHEAD_MAX - 1;
    assert_eq!(pipeline.raise_numbers(far).await, Ok(far));
}

/// A regression: a commit was bounded by chunks, each of which may have a thousand links.
#[tokio::test(start_paused = true)]
async fn long_chunks_of_a_deleted_crawl_end_in_commits_of_few_links() {
    const LINKS: usize = 400;
    let store = Faulty::new();
    let frontier = store.open(1).await;
    let pipeline = Pipeline::new(frontier.clone());
    let mut chunks = 0;
    for stage in ["crawled", "crawling"] {
        let urls = (0..5 * LINKS).map(|n| disc(&format!("http://{stage}{n}.example/1"))).collect();
        frontier.put(urls).await;
        for chunk in pipeline.claim(claim(5, LINKS, None), NOW, NOW).await.unwrap() {
            chunks += 1;
            assert_eq!(chunk.links.len(), LINKS);
            if stage == "crawled" {
                fetch_and_complete(&pipeline, &chunk).await;
            }
        }
    }
    assert_eq!(chunks, 10);
    store.written.lock().unwrap().clear();
    frontier.delete_crawl("DEFAULT".into()).await.unwrap();
    let written = store.written.lock().unwrap().clone();
    let of_kind = |keys: &[wayleave_engine::Key], kind| {
        let (from, to) = key::range(ShardId(0), kind, kind);
        keys.iter().filter(|key| **key >= from && **key < to).count()
    };
    let ended: Vec<usize> = written.iter().map(|keys| of_kind(keys, Kind::RestingChunk)).collect();
    assert_eq!(ended.iter().sum::<usize>(), chunks);
    assert!(ended.iter().all(|ended| ended * LINKS <= SLICE_ROWS), "{ended:?}");
    let links: Vec<usize> = written.iter().map(|keys| of_kind(keys, Kind::Lease)).collect();
    assert!(links.iter().all(|links| *links <= SLICE_ROWS), "{links:?}");
}

/// A regression: a claim that was served after the deletion had begun and before it arrived made chunks that were younger
/// than the deletion. Those past the first slices stayed.
#[tokio::test(start_paused = true)]
async fn chunks_that_are_claimed_while_their_crawl_is_deleted_end_with_it() {
    const CHUNKS: usize = 600;
    let store = Faulty::new();
    let frontier = store.open(1).await;
    let pipeline = Pipeline::new(frontier.clone());
    frontier.put((0..CHUNKS + 100).map(|n| disc(&format!("http://h{n}.example/1"))).collect()).await;
    for _ in 0..CHUNKS / 100 {
        assert_eq!(pipeline.claim(claim(100, 1, None), NOW, NOW).await.unwrap().len(), 100);
    }
    // The owner is busy with a listing; the claim and then the deletion wait in its inbox while time goes on.
    store.hold_scans(true);
    let busy = pipeline.clone();
    let listing = tokio::spawn(async move { busy.chunks(ChunkFilter::default(), None, 1).await });
    pass(10).await;
    let claims = pipeline.clone();
    let claims = tokio::spawn(async move { claims.claim(claim(100, 1, None), NOW, NOW).await });
    pass(10).await;
    let deletes = frontier.clone();
    let deletes = tokio::spawn(async move { deletes.delete_crawl("DEFAULT".into()).await });
    pass(5_000).await;
    store.hold_scans(false);
    listing.await.unwrap().unwrap();
    let late = claims.await.unwrap().unwrap();
    deletes.await.unwrap().unwrap();
    assert_eq!(late.len(), 100, "they were made before the deletion arrived");
    let counts = pipeline.counts().await.unwrap();
    assert_eq!((counts.crawling, counts.offered), (0, 0), "{counts:?}");
    for chunk in late.iter().step_by(20) {
        assert!(pipeline.renew(chunk.id, chunk.token, Millis(1_000)).await.is_err(), "its token has ended");
    }
}

/// A regression: chunks of a store whose clock was ahead were younger than every deletion.
#[tokio::test(start_paused = true)]
async fn imported_chunks_from_the_future_end_with_their_crawl() {
    let world = World::new(2).await;
    let pipeline = Pipeline::new(world.frontier.clone());
    let future = world.now().after(Millis(86_400_000));
    world.add(&["http://a.example/1"]).await;
    let link =
        CarriedLink { host: "a.example".into(), url: "http://a.example/1".into(), state: CarriedLinkState::Crawling };
    let chunks: Vec<CarriedChunk> = (1..=3)
        .map(|number| match number {
            1 => {
                let home = wayleave_shard::home("a.example", 2);
                let (state, crawled_at) = (ChunkState::Crawling, None);
                let id = ChunkId::new(home, number);
                let links = vec![link.clone()];
                CarriedChunk { id, state, crawled: crawled_at, links, created_at: future, ..crawled(number) }
            }
            _ => CarriedChunk { created_at: future, since: future, ..crawled(number) },
        })
        .collect();
    assert_eq!(pipeline.restore(chunks.clone()).await.unwrap(), vec![Restored::Restored; 3]);
    assert_eq!(pipeline.restore(chunks.clone()).await.unwrap(), vec![Restored::Known; 3], "known by its time");
    let before = pipeline.counts().await.unwrap();
    assert_eq!((before.offered, before.crawled), (1, 2), "{before:?}");
    world.frontier.delete_crawl("DEFAULT".into()).await.unwrap();
    for chunk in &chunks {
        let view = pipeline.chunk(chunk.id).await.unwrap();
        assert_eq!((view.state, view.last_error.as_deref()), (ChunkState::Skipped, Some("its crawl was deleted")));
    }
}

/// A regression: all chunks in progress of a deleted crawl ended in one commit, however many.
#[tokio::test(start_paused = true)]
async fn chunks_in_progress_of_a_deleted_crawl_end_in_bounded_commits() {
    const CHUNKS: usize = 600;
    let store = Faulty::new();
    let frontier = store.open(1).await;
    let pipeline = Pipeline::new(frontier.clone());
    frontier.put((0..CHUNKS).map(|n| disc(&format!("http://h{n}.example/1"))).collect()).await;
    let mut claimed: Vec<Claimed> = Vec::new();
    while claimed.len() < CHUNKS {
        claimed.extend(pipeline.claim(claim(100, 1, None), NOW, NOW).await.unwrap());
    }
    store.written.lock().unwrap().clear();
    frontier.delete_crawl("DEFAULT".into()).await.unwrap();
    let (from, to) = key::range(ShardId(0), Kind::RestingChunk, Kind::RestingChunk);
    let ended = |keys: &Vec<wayleave_engine::Key>| keys.iter().filter(|key| **key >= from && **key < to).count();
    let commits: Vec<usize> = store.written.lock().unwrap().iter().map(ended).filter(|ended| *ended > 0).collect();
    assert_eq!(commits.iter().sum::<usize>(), CHUNKS);
    assert!(commits.iter().all(|ended| *ended <= 256), "{commits:?}");
    for chunk in claimed.iter().step_by(50) {
        assert!(pipeline.renew(chunk.id, chunk.token, Millis(1_000)).await.is_err(), "its token has ended");
        let view = pipeline.chunk(chunk.id).await.unwrap();
        assert_eq!((view.state, view.last_error.as_deref()), (ChunkState::Skipped, Some("its crawl was deleted")));
    }
    // A new crawl of this name is another one.
    frontier.put(vec![disc("http://new.example/1")]).await;
    assert_eq!(pipeline.claim(claim(1, 1, None), NOW, NOW).await.unwrap().len(), 1);
}

/// Whatever becomes of a slice, refused or in doubt, the answer says what is left and what to do.
#[tokio::test(start_paused = true)]
async fn a_deletion_that_ends_between_its_slices_says_that_it_may_be_repeated() {
    for fate in [Fate::Refused, Fate::Lost] {
        let mut told = 0;
        for before in 0..4 {
            let store = Faulty::new();
            let frontier = store.open(1).await;
            let pipeline = Pipeline::new(frontier.clone());
            frontier.put(vec![disc("http://h.example/1")]).await;
            let chunk = pipeline.claim(claim(1, 1, None), NOW, NOW).await.unwrap().remove(0);
            fetch_and_complete(&pipeline, &chunk).await;
            store.set_fates(&[vec![Fate::Done; before], vec![fate]].concat());
            let refused = frontier.delete_crawl("DEFAULT".into()).await;
            store.set_fates(&[]);
            pass(5_000).await;
            if matches!(&refused, Err(Refusal::OutcomeUnknown(why)) if why.contains("delete it again")) {
                told += 1;
            }
            frontier.delete_crawl("DEFAULT".into()).await.unwrap();
            assert_eq!(pipeline.chunk(chunk.id).await.unwrap().state, ChunkState::Skipped, "{fate:?} after {before}");
        }
        assert!(told > 0, "{fate:?}");
    }
}
