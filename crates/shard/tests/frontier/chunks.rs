//! Chunks through the handle: claims over shards, long polls, restarts, repeated calls, hosts that move, deleted crawls.

use std::time::Duration;

use wayleave_core::frontier::refusal::Refusal;
use wayleave_core::frontier::request::{Outcome, RequestId, UrlResult};
use wayleave_core::frontier::view::UrlState;
use wayleave_core::pipeline::refusal::ChunkRefusal;
use wayleave_core::pipeline::request::{Claim, Claimed, Decision, EndChunk, ReportLinks, Stage};
use wayleave_core::pipeline::row::{Artifact, ChunkState};
use wayleave_core::pipeline::view::ChunkFilter;
use wayleave_core::time::Millis;
use wayleave_shard::pipeline::Pipeline;

use crate::support::*;

const NOW: Millis = Millis(0);

fn claim(stage: Stage, chunks: usize, links: usize) -> Claim {
    let (crawl, host, request) = (None, None, None);
    Claim { stage, worker: "w".into(), crawl, chunks, links, links_min: 1, host, lease: Millis(10_000), request }
}

fn complete() -> EndChunk {
    EndChunk::Complete(Some(Artifact { location: "http://store/1".into(), bytes: 3, checksum: [1; 32] }))
}

fn fail(lost: bool) -> EndChunk {
    EndChunk::Fail { reason: "it broke".into(), input_lost: lost }
}

async fn world(shards: u16, hosts: usize) -> (World, Pipeline) {
    let world = World::new(shards).await;
    let urls: Vec<String> = (0..hosts).map(|n| format!("http://h{n}.example/1")).collect();
    world.add(&urls.iter().map(String::as_str).collect::<Vec<_>>()).await;
    let pipeline = Pipeline::new(world.frontier.clone());
    (world, pipeline)
}

fn report(chunk: &Claimed, outcome: Outcome, replace: bool) -> ReportLinks {
    let results = chunk.links.iter().map(|link| UrlResult::new(&*link.url.url, outcome)).collect();
    ReportLinks { chunk: chunk.id, token: chunk.token, results, replace }
}

async fn crawled(pipeline: &Pipeline, chunk: &Claimed) {
    pipeline.report(report(chunk, Outcome::Fetched, false), Vec::new()).await.unwrap();
    assert_eq!(pipeline.end(chunk.id, chunk.token, complete()).await, Ok(ChunkState::Crawled));
}

#[tokio::test(start_paused = true)]
async fn links_of_all_shards_are_crawled_and_built_across_restarts() {
    let (mut world, mut pipeline) = world(4, 40).await;
    let mut links = 0;
    loop {
        let chunks = pipeline.claim(claim(Stage::Crawl, 2, 3), NOW, NOW).await.unwrap();
        if chunks.is_empty() {
            break;
        }
        world.reopen().await;
        pipeline = Pipeline::new(world.frontier.clone());
        for chunk in &chunks {
            assert!(chunk.links.iter().all(|link| link.delay == Millis(1_000)));
            links += chunk.links.len();
            crawled(&pipeline, chunk).await;
        }
    }
    assert_eq!(links, 40);
    let mut built = 0;
    loop {
        let chunks = pipeline.claim(claim(Stage::Build, 3, 0), NOW, NOW).await.unwrap();
        if chunks.is_empty() {
            break;
        }
        world.reopen().await;
        pipeline = Pipeline::new(world.frontier.clone());
        for chunk in &chunks {
            assert!(chunk.input.is_some());
            assert_eq!(pipeline.end(chunk.id, chunk.token, complete()).await, Ok(ChunkState::Built));
            assert_eq!(pipeline.end(chunk.id, chunk.token, complete()).await, Ok(ChunkState::Built), "again");
            built += 1;
        }
    }
    let mut listed = Vec::new();
    let mut after = None;
    loop {
        let (page, next) = pipeline.chunks(ChunkFilter::default(), after, 3).await.unwrap();
        listed.extend(page);
        after = next;
        if after.is_none() {
            break;
        }
    }
    assert_eq!(listed.len(), built);
    assert!(listed.iter().all(|chunk| chunk.state == ChunkState::Built && !chunk.reason.is_empty()));
    assert_eq!(world.lookup("http://h7.example/1").await.unwrap().state, UrlState::Fetched);
}

#[tokio::test(start_paused = true)]
async fn a_lost_chunk_wakes_a_crawler_that_waits_when_its_groups_are_ready() {
    let (world, pipeline) = world(1, 3).await;
    let first = pipeline.claim(claim(Stage::Crawl, 1, 3), NOW, NOW).await.unwrap().remove(0);
    let begin = tokio::time::Instant::now();
    let waiting = pipeline.claim(claim(Stage::Crawl, 1, 3), Millis(60_000), NOW).await.unwrap();
    let waited = begin.elapsed();
    assert_eq!((waiting[0].id, waiting[0].attempts, waiting[0].links.len()), (first.id, 1, 3));
    let due = Duration::from_secs(11)..Duration::from_millis(11_100);
    assert!(due.contains(&waited), "its lease of 10 s, then the delay of 1 s: {waited:?}");
    let late = pipeline.end(first.id, first.token, complete()).await.unwrap_err();
    assert!(matches!(&late, Refusal::Chunk(ChunkRefusal::NotCurrent { .. })), "{late}");
    assert!(late.to_string().contains("'w' holds it now"), "{late}");
    drop(world);
}

#[tokio::test(start_paused = true)]
async fn an_index_builder_that_waits_is_woken_by_a_crawled_chunk() {
    let (_world, pipeline) = world(2, 2).await;
    let chunks = pipeline.claim(claim(Stage::Crawl, 2, 2), NOW, NOW).await.unwrap();
    let waits = tokio::spawn({
        let pipeline = pipeline.clone();
        async move { pipeline.claim(claim(Stage::Build, 5, 0), Millis(60_000), NOW).await.unwrap() }
    });
    pass(5_000).await;
    assert!(!waits.is_finished());
    crawled(&pipeline, &chunks[0]).await;
    let begin = tokio::time::Instant::now();
    assert_eq!(waits.await.unwrap()[0].id, chunks[0].id);
    assert!(begin.elapsed() < Duration::from_millis(100));
}

#[tokio::test(start_paused = true)]
async fn a_claim_lingers_for_a_full_chunk_and_no_longer() {
    let (world, pipeline) = world(1, 2).await;
    let begin = tokio::time::Instant::now();
    let waits = tokio::spawn({
        let pipeline = pipeline.clone();
        async move { pipeline.claim(claim(Stage::Crawl, 1, 4), Millis(10_000), Millis(3_000)).await.unwrap() }
    });
    pass(1_000).await;
    world.add(&["http://i1.example/1", "http://i2.example/1"]).await;
    assert_eq!(waits.await.unwrap()[0].links.len(), 4);
    assert!(begin.elapsed() < Duration::from_millis(1_200));
    world.add(&["http://i3.example/1"]).await;
    let begin = tokio::time::Instant::now();
    let short = pipeline.claim(claim(Stage::Crawl, 1, 4), Millis(10_000), Millis(3_000)).await.unwrap();
    assert_eq!(short[0].links.len(), 1);
    assert!((3_000..3_100).contains(&(begin.elapsed().as_millis() as u64)), "{:?}", begin.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_repeated_request_gets_the_same_chunks() {
    let (_world, pipeline) = world(4, 12).await;
    let request = Some(RequestId { id: "r1".into(), asks: 7 });
    let asked = Claim { request, ..claim(Stage::Crawl, 3, 2) };
    let first = pipeline.claim(asked.clone(), NOW, NOW).await.unwrap();
    let again = pipeline.claim(asked.clone(), NOW, NOW).await.unwrap();
    let key = |chunks: &[Claimed]| {
        let mut all: Vec<_> = chunks.iter().map(|c| (c.id, c.token, c.links.len())).collect();
        all.sort();
        all
    };
    assert_eq!(key(&first), key(&again));
    let other = Claim { request: Some(RequestId { id: "r1".into(), asks: 8 }), ..asked };
    assert_eq!(pipeline.claim(other, NOW, NOW).await, Err(Refusal::RequestReused("r1".to_owned())));
}

#[tokio::test(start_paused = true)]
async fn failed_links_are_replaced_once_and_a_repetition_gets_the_same() {
    let (_world, pipeline) = world(1, 4).await;
    let chunk = pipeline.claim(claim(Stage::Crawl, 1, 2), NOW, NOW).await.unwrap().remove(0);
    let (first, _) = pipeline.report(report(&chunk, Outcome::Failed, true), Vec::new()).await.unwrap();
    assert_eq!((first.replacements.len(), first.left), (2, 2));
    let (again, _) = pipeline.report(report(&chunk, Outcome::Failed, true), Vec::new()).await.unwrap();
    assert_eq!(again, first);
}

#[tokio::test(start_paused = true)]
async fn a_host_that_moves_takes_its_link_out_of_the_chunk() {
    let (world, pipeline) = world(4, 1).await;
    let chunk = pipeline.claim(claim(Stage::Crawl, 1, 1), NOW, NOW).await.unwrap().remove(0);
    // An alias in every shard: whichever is the home of the host, one of them is elsewhere.
    for alias in ["one", "two", "three", "four", "five"] {
        world.set_group(alias, &["h0.example"], delay(1_000)).await;
        world.frontier.delete_group(alias.into()).await.unwrap();
    }
    let (_, ended) = pipeline.renew(chunk.id, chunk.token, Millis(60_000)).await.unwrap();
    assert_eq!(ended, ["http://h0.example/1".into()]);
    let (answer, _) = pipeline.report(report(&chunk, Outcome::Fetched, false), Vec::new()).await.unwrap();
    assert_eq!((answer.ended.len(), answer.left), (1, 0), "its result is not taken");
    assert!(world.next().await.is_none(), "the visit goes on until the deadline that it had");
    pass(11_500).await;
    assert!(world.next().await.is_some(), "then it is the frontier's again");
    assert_eq!(pipeline.end(chunk.id, chunk.token, EndChunk::Complete(None)).await, Ok(ChunkState::Skipped));
}

#[tokio::test(start_paused = true)]
async fn deleting_a_crawl_ends_the_tokens_of_its_chunks() {
    let (world, pipeline) = world(4, 8).await;
    let chunks = pipeline.claim(claim(Stage::Crawl, 4, 2), NOW, NOW).await.unwrap();
    world.frontier.delete_crawl("DEFAULT".into()).await.unwrap();
    for chunk in &chunks {
        let renewed = pipeline.renew(chunk.id, chunk.token, Millis(1_000)).await;
        assert!(matches!(renewed, Err(Refusal::Chunk(ChunkRefusal::NotCurrent { .. }))), "{renewed:?}");
        let view = pipeline.chunk(chunk.id).await.unwrap();
        assert_eq!((view.state, view.last_error.as_deref()), (ChunkState::Skipped, Some("its crawl was deleted")));
    }
    let stats = world.frontier.reservations(None, 9).await.unwrap();
    assert!(stats.items.is_empty(), "{stats:?}");
}

#[tokio::test(start_paused = true)]
async fn a_crawl_is_finished_only_when_its_chunks_are() {
    let (world, pipeline) = world(2, 1).await;
    let chunk = pipeline.claim(claim(Stage::Crawl, 1, 1), NOW, NOW).await.unwrap().remove(0);
    pipeline.report(report(&chunk, Outcome::Fetched, false), Vec::new()).await.unwrap();
    assert!(!world.frontier.is_finished(&"DEFAULT".into()).await.unwrap(), "the content may be lost");
    pipeline.end(chunk.id, chunk.token, complete()).await.unwrap();
    assert!(world.frontier.is_finished(&"DEFAULT".into()).await.unwrap());
    let build = pipeline.claim(claim(Stage::Build, 1, 0), NOW, NOW).await.unwrap().remove(0);
    assert_eq!(pipeline.end(build.id, build.token, fail(true)).await, Ok(ChunkState::Crawling));
    assert!(!world.frontier.is_finished(&"DEFAULT".into()).await.unwrap(), "its content is lost");
    assert_eq!(pipeline.decide(chunk.id, Decision::Skip).await, Ok(ChunkState::Skipped));
    assert!(world.frontier.is_finished(&"DEFAULT".into()).await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn unknown_chunks_and_tokens_of_others_are_refused_and_nothing_changes() {
    use wayleave_core::ids::{ChunkId, ShardId};
    let (_world, pipeline) = world(4, 8).await;
    let chunks = pipeline.claim(claim(Stage::Crawl, 2, 2), NOW, NOW).await.unwrap();
    let (one, other) = (&chunks[0], &chunks[1]);
    for unknown in [ChunkId::new(ShardId(900), 1), ChunkId::new(ShardId(1), 77_777), ChunkId(0)] {
        assert_eq!(pipeline.chunk(unknown).await, Err(ChunkRefusal::Unknown(unknown).into()));
        let ended = pipeline.end(unknown, one.token, complete()).await;
        assert_eq!(ended, Err(ChunkRefusal::Unknown(unknown).into()));
        assert_eq!(pipeline.decide(unknown, Decision::Retry).await, Err(ChunkRefusal::Unknown(unknown).into()));
    }
    let before = pipeline.chunk(one.id).await.unwrap();
    for wrong in [
        pipeline.end(one.id, other.token, complete()).await.map(drop),
        pipeline.renew(one.id, other.token, Millis(1_000)).await.map(drop),
        pipeline.end(one.id, one.token, complete()).await.map(drop),
        pipeline.end(one.id, one.token, fail(true)).await.map(drop),
        pipeline.decide(one.id, Decision::Retry).await.map(drop),
    ] {
        assert!(matches!(wrong, Err(Refusal::Chunk(_))), "{wrong:?}");
    }
    assert_eq!(pipeline.chunk(one.id).await.unwrap(), before);
}
