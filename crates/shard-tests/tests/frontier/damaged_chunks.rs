//! Chunks that cannot be read: calls that need one are refused by its name, listings name it, and all others continue.

use std::ops::Range;

use wayleave_engine::Write;
use wayleave_engine::rows::chunk;
use wayleave_engine::transplant::as_new_store;

use crate::faulty::{DAMAGE, Faulty};
use crate::prelude::*;
use crate::support::*;

fn claim(stage: Stage, chunks: usize) -> Claim {
    let lease = Millis(600_000);
    let worker = "w".into();
    Claim { stage, worker, crawl: None, chunks, links: 1, links_min: 1, host: None, lease, request: None }
}

fn is_damaged<T>(answer: &Result<T, Refusal>, id: ChunkId) -> bool {
    matches!(answer, Err(Refusal::DamagedChunk { chunk, cause, .. }) if *chunk == id && cause == DAMAGE)
}

/// The counter of the chunk that a row of this kind is of.
fn counter(row: &Row, kind: Kind) -> Option<u64> {
    let is_kind = row.key.get(2) == Some(&(kind as u8));
    is_kind.then(|| chunk::first_counter(ShardId(0), &row.key, kind == Kind::RestingChunk).unwrap())
}

fn artifact() -> Artifact {
    Artifact { location: "file:///a".into(), bytes: 1, checksum: [7; 32], from: None }
}

/// Chunks of one link each that wait for an index builder.
async fn crawled(count: usize) -> (Arc<Faulty>, Frontier, Vec<ChunkId>) {
    let (engine, frontier) = Faulty::opened(1).await;
    let ids = crawl(&frontier, 0..count).await;
    (engine, frontier, ids)
}

async fn crawl(frontier: &Frontier, hosts: Range<usize>) -> Vec<ChunkId> {
    let count = hosts.len();
    let puts = hosts.map(|n| disc(&format!("http://h{n}.example/1"))).collect();
    assert_eq!(frontier.put(puts).await, vec![PutOutcome::Added; count]);
    let pipeline = Pipeline::new(frontier.clone());
    let chunks = pipeline.claim(claim(Stage::Crawl, count), Millis(0), Millis(0)).await.unwrap();
    let mut ids = Vec::new();
    for chunk in &chunks {
        let report = ReportLinks {
            chunk: chunk.id,
            token: chunk.token,
            results: chunk.links.iter().map(|link| fetched(&link.url.url)).collect(),
            replace: false,
        };
        pipeline.report(report, Vec::new()).await.unwrap();
        pipeline.end(chunk.id, chunk.token, EndChunk::Complete(Some(artifact()))).await.unwrap();
        ids.push(chunk.id);
    }
    assert_eq!(ids.len(), count);
    ids.sort_unstable();
    ids
}

/// All pages of chunks of a filter, and which are left out.
async fn listed(pipeline: &Pipeline, filter: &ChunkFilter, most: usize) -> (Vec<ChunkId>, Vec<ChunkId>) {
    let (mut ids, mut damaged, mut after) = (Vec::new(), Vec::new(), None);
    loop {
        let (page, next, unread) = pipeline.chunks(filter.clone(), after, most).await.unwrap();
        ids.extend(page.iter().map(|view| view.id));
        damaged.extend(unread);
        after = next;
        if after.is_none() {
            return (ids, damaged);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_resting_chunk_that_cannot_be_read_is_named_and_the_others_go_on() {
    let (engine, frontier, ids) = crawled(300).await;
    let pipeline = Pipeline::new(frontier.clone());
    for id in &ids {
        assert_eq!(pipeline.decide(*id, OperatorAction::Skip).await, Ok(ChunkState::Skipped));
    }
    let bad: Vec<ChunkId> = ids.iter().copied().filter(|id| id.counter().is_multiple_of(3)).collect();
    let is_bad = |row: &Row| counter(row, Kind::RestingChunk).is_some_and(|no| no.is_multiple_of(3));
    assert_eq!(engine.damage(is_bad).await, bad.len());
    assert!(is_damaged(&pipeline.chunk(bad[0]).await, bad[0]));
    assert!(is_damaged(&pipeline.decide(bad[0], OperatorAction::Retry).await, bad[0]));
    let good: Vec<ChunkId> = ids.iter().copied().filter(|id| !bad.contains(id)).collect();
    assert_eq!(pipeline.decide(good[0], OperatorAction::Retry).await, Ok(ChunkState::Crawled));
    for most in [7, 1_000] {
        assert_eq!(listed(&pipeline, &ChunkFilter::default(), most).await, (good.clone(), bad.clone()));
    }
    assert_eq!(engine.owns.load(Ordering::Acquire), 1, "the shard was not reloaded");
    engine.repair();
    assert_eq!(listed(&pipeline, &ChunkFilter::default(), 7).await, (ids, vec![]));
    assert_eq!(pipeline.decide(bad[0], OperatorAction::Retry).await, Ok(ChunkState::Crawled));
}

/// A regression: in a copied store the listing looked for each of the millions of ids that the copy has left out.
#[tokio::test(start_paused = true)]
async fn damage_of_chunks_from_before_and_after_a_copy_is_listed_with_few_reads() {
    let (engine, frontier, mut ids) = crawled(10).await;
    frontier.stop().await;
    let key = chunk::pipeline_key(ShardId(0));
    let value = engine.get_many(std::slice::from_ref(&key)).await.unwrap().remove(0).unwrap();
    let Row { key, value } = as_new_store(Row { key, value }).unwrap().unwrap();
    engine.commit(Batch { writes: vec![Write { key, value: Some(value) }], ..Batch::default() }).await.unwrap();
    let frontier = engine.open(1).await;
    ids.extend(crawl(&frontier, 10..20).await);
    assert!(ids[10].counter() - ids[9].counter() >= 1 << 24);
    let bad = ids[8..12].to_vec();
    let is_bad = |row: &Row| counter(row, Kind::Chunk).is_some_and(|no| bad.iter().any(|id| id.counter() == no));
    assert_eq!(engine.damage(is_bad).await, bad.len());
    let good: Vec<ChunkId> = ids.iter().copied().filter(|id| !bad.contains(id)).collect();
    let scans = engine.scans.load(Ordering::Acquire);
    assert_eq!(listed(&Pipeline::new(frontier), &ChunkFilter::default(), 1_000).await, (good, bad));
    let scans = engine.scans.load(Ordering::Acquire) - scans;
    assert!(scans < 100, "{scans} scans");
}

#[tokio::test(start_paused = true)]
async fn claims_pass_over_a_chunk_that_cannot_be_read() {
    let (engine, frontier, ids) = crawled(5).await;
    let pipeline = Pipeline::new(frontier.clone());
    assert_eq!(engine.damage(|row| counter(row, Kind::Chunk) == Some(ids[1].counter())).await, 1);
    let good: Vec<ChunkId> = ids.iter().copied().filter(|id| *id != ids[1]).collect();
    let crawled = ChunkFilter { state: Some(ChunkState::Crawled), ..ChunkFilter::default() };
    assert_eq!(listed(&pipeline, &crawled, 2).await, (good.clone(), vec![ids[1]]));
    let claimed = pipeline.claim(claim(Stage::Build, 9), Millis(0), Millis(0)).await.unwrap();
    let mut claimed: Vec<ChunkId> = claimed.iter().map(|chunk| chunk.id).collect();
    claimed.sort_unstable();
    assert_eq!(claimed, good);
    assert!(is_damaged(&pipeline.chunk(ids[1]).await, ids[1]));
    assert_eq!(pipeline.chunk(ids[0]).await.unwrap().state, ChunkState::Building);
    // A chunk that a worker has is in memory, whatever is damaged.
    assert_eq!(engine.damage(|row| counter(row, Kind::Chunk).is_some()).await, 5);
    assert_eq!(listed(&pipeline, &ChunkFilter::default(), 9).await, (good, vec![ids[1]]));
    engine.repair();
    pass(31_000).await;
    let claimed = pipeline.claim(claim(Stage::Build, 9), Millis(0), Millis(0)).await.unwrap();
    assert_eq!(claimed.iter().map(|chunk| chunk.id).collect::<Vec<_>>(), [ids[1]]);
    assert_eq!(engine.owns.load(Ordering::Acquire), 1, "the shard was not reloaded");
}

/// A regression: it was said to count in the chunk, and was crawled again.
#[tokio::test(start_paused = true)]
async fn a_completion_names_fetched_links_whose_rows_cannot_be_read() {
    let (engine, frontier) = Faulty::opened(1).await;
    let urls = ["http://a.example/one", "http://b.example/two"];
    assert_eq!(frontier.put(urls.map(disc).to_vec()).await, vec![PutOutcome::Added; 2]);
    let pipeline = Pipeline::new(frontier.clone());
    let two = Claim { links: 2, ..claim(Stage::Crawl, 1) };
    let chunk = pipeline.claim(two, Millis(0), Millis(0)).await.unwrap().remove(0);
    let results = chunk.links.iter().map(|link| fetched(&link.url.url)).collect();
    let report = ReportLinks { chunk: chunk.id, token: chunk.token, results, replace: false };
    pipeline.report(report, Vec::new()).await.unwrap();
    let is_first = |row: &Row| row.key.get(2) == Some(&(Kind::Url as u8)) && row.key.ends_with(b"one");
    assert_eq!(engine.damage(is_first).await, 1);
    let complete = || EndChunk::Complete(Some(artifact()));
    let ended = pipeline.end_lease(chunk.id, chunk.token, complete()).await.unwrap();
    assert_eq!((ended.state, ended.ended.clone()), (ChunkState::Crawled, vec![urls[0].into()]));
    assert_eq!(pipeline.end_lease(chunk.id, chunk.token, complete()).await, Ok(ended), "a repeated call");
    engine.repair();
    pass(60_000).await;
    let state = async |n: usize| {
        let host = ["a.example", "b.example"][n];
        frontier.lookup("DEFAULT".into(), host.into(), urls[n]).await.unwrap().unwrap().state
    };
    assert_eq!((state(0).await, state(1).await), (UrlState::Queued, UrlState::Fetched));
}

/// A regression: the link was forgotten, so that its page was in no chunk any more.
#[tokio::test(start_paused = true)]
async fn a_chunk_is_not_sent_back_while_the_row_of_a_link_cannot_be_read() {
    let (engine, frontier, ids) = crawled(1).await;
    let pipeline = Pipeline::new(frontier.clone());
    let is_url = |row: &Row| row.key.get(2) == Some(&(Kind::Url as u8));
    let is_refused = |refused: Refusal| matches!(refused, Refusal::Damaged { host, .. } if host == "h0.example");
    let built = pipeline.claim(claim(Stage::Build, 1), Millis(0), Millis(0)).await.unwrap().remove(0);
    let lost = || EndChunk::Fail { reason: "404".into(), input_lost: true };
    assert_eq!(engine.damage(is_url).await, 1);
    assert!(is_refused(pipeline.end(built.id, built.token, lost()).await.unwrap_err()));
    engine.repair();
    assert_eq!(pipeline.chunk(ids[0]).await.map(|chunk| chunk.state), Ok(ChunkState::Building), "it is as it was");
    assert_eq!(pipeline.end(built.id, built.token, lost()).await, Ok(ChunkState::Crawling));
    assert_eq!(pipeline.decide(ids[0], OperatorAction::Skip).await, Ok(ChunkState::Skipped));
    engine.damage(is_url).await;
    assert!(is_refused(pipeline.decide(ids[0], OperatorAction::Retry).await.unwrap_err()));
    engine.repair();
    assert_eq!(pipeline.decide(ids[0], OperatorAction::Retry).await, Ok(ChunkState::Crawling));
}
