//! Chunks whose callers leave or repeat themselves, and whose hosts move.

use wayleave_core::pipeline::refusal::ChunkRefusal;

use crate::faulty::Faulty;
use crate::prelude::*;
use crate::support::*;

const NOW: Millis = Millis(0);

fn claim(stage: Stage) -> Claim {
    let (crawl, host, request) = (None, None, None);
    Claim { stage, worker: "w".into(), crawl, chunks: 1, links: 5, links_min: 1, host, lease: Millis(10_000), request }
}

async fn fetch_and_complete(pipeline: &Pipeline, chunk: &Claimed) {
    let results = chunk.links.iter().map(|link| UrlResult::new(&*link.url.url, Outcome::Fetched)).collect();
    let report = ReportLinks { chunk: chunk.id, token: chunk.token, results, replace: false };
    pipeline.report(report, Vec::new()).await.unwrap();
    let artifact = Artifact { location: "http://store/1".into(), bytes: 3, checksum: [1; 32], from: None };
    let ended = pipeline.end(chunk.id, chunk.token, EndChunk::Complete(Some(artifact))).await;
    assert_eq!(ended, Ok(ChunkState::Crawled));
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_leaves_is_granted_nothing_and_does_not_block_its_retry() {
    let world = World::new(2).await;
    let pipeline = Pipeline::new(world.frontier.clone());
    let asked = claim(Stage::Crawl).named("r1");
    {
        let waits = pipeline.claim(asked.clone(), Millis(60_000), NOW);
        assert!(tokio::time::timeout(Duration::from_secs(1), waits).await.is_err(), "there is nothing yet");
    }
    world.add(&["http://h0.example/1"]).await;
    pass(5_000).await;
    let (chunks, _, _) = pipeline.chunks(ChunkFilter::default(), None, 9).await.unwrap();
    assert!(chunks.is_empty(), "without a claim: {chunks:?}");
    let begin = tokio::time::Instant::now();
    let again = pipeline.claim(asked, NOW, NOW).await.unwrap();
    assert_eq!((again.len(), again[0].attempts), (1, 0));
    assert!(begin.elapsed() < Duration::from_millis(100), "{:?}", begin.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_repeated_claim_waits_for_a_stalled_shard_instead_of_claiming_more() {
    let store = Faulty::new();
    let frontier = store.open(1).await;
    frontier.put(vec![disc("http://h0.example/1"), disc("http://h1.example/1")]).await;
    let pipeline = Pipeline::new(frontier.clone());
    let asked = Claim { links: 1, ..claim(Stage::Crawl) }.named("r1");
    let first = pipeline.claim(asked.clone(), NOW, NOW).await.unwrap();
    store.hold_gets(true);
    let repeats = tokio::spawn({
        let pipeline = pipeline.clone();
        async move { pipeline.claim(asked, NOW, NOW).await }
    });
    pass(2_000).await;
    store.hold_gets(false);
    let again = repeats.await.unwrap().unwrap();
    assert_eq!(again, first);
    let (chunks, _, _) = pipeline.chunks(ChunkFilter::default(), None, 9).await.unwrap();
    assert_eq!(chunks.len(), 1);
}

/// A chunk with a link of a host that has moved to another shard after the chunk was crawled.
async fn crawled_and_moved(world: &World) -> (Pipeline, Claimed) {
    let (host, shards) = (host_in(0, 2, 0), 2);
    let stays = host_in(0, 2, 1);
    world.add(&[&format!("http://{host}/1"), &format!("http://{stays}/1")]).await;
    let pipeline = Pipeline::new(world.frontier.clone());
    let chunk = pipeline.claim(claim(Stage::Crawl), NOW, NOW).await.unwrap().remove(0);
    assert_eq!((chunk.links.len(), chunk.id.shard()), (2, ShardId(0)));
    fetch_and_complete(&pipeline, &chunk).await;
    world.set_group(&alias_in(1, shards), &[&host], delay(1_000)).await;
    (pipeline, chunk)
}

#[tokio::test(start_paused = true)]
async fn lost_content_of_a_host_that_has_moved_is_crawled_again() {
    let world = World::new(2).await;
    let (pipeline, chunk) = crawled_and_moved(&world).await;
    let moved = format!("http://{}/1", host_in(0, 2, 0));
    assert_eq!(world.lookup(&moved).await.unwrap().state, UrlState::Fetched);
    let build = pipeline.claim(claim(Stage::Build), NOW, NOW).await.unwrap().remove(0);
    let lost = EndChunk::Fail { reason: "404".into(), input_lost: true };
    for _ in 0..2 {
        let ended = pipeline.end(build.id, build.token, lost.clone()).await;
        assert_eq!(ended, Ok(ChunkState::Crawling));
        assert_eq!(world.lookup(&moved).await.unwrap().state, UrlState::Queued);
    }
    pass(2_000).await;
    let again = pipeline.claim(claim(Stage::Crawl), NOW, NOW).await.unwrap().remove(0);
    assert_eq!((again.id, again.links.len()), (chunk.id, 1), "the other link, under the same id");
    assert_eq!(*world.next().await.unwrap().urls[0].url, *moved);
}

#[tokio::test(start_paused = true)]
async fn a_deleted_crawl_ends_the_chunks_that_wait_for_a_builder_and_no_others() {
    const CHUNKS: usize = 700;
    let world = World::new(1).await;
    let urls: Vec<String> = (0..CHUNKS).map(|n| format!("http://h{n}.example/1")).collect();
    world.add(&urls.iter().map(String::as_str).collect::<Vec<_>>()).await;
    world.put(vec![of_crawl("other", disc("http://other.example/1"))]).await;
    let pipeline = Pipeline::new(world.frontier.clone());
    let one = Claim { links: 1, chunks: 100, ..claim(Stage::Crawl) };
    for _ in 0..=CHUNKS / 100 {
        for chunk in pipeline.claim(one.clone(), NOW, NOW).await.unwrap() {
            fetch_and_complete(&pipeline, &chunk).await;
        }
    }
    assert_eq!(pipeline.counts().await.unwrap().crawled, CHUNKS as u64 + 1);
    world.frontier.delete_crawl("DEFAULT".into()).await.unwrap();
    // A crawl of the same name begins anew.
    world.add(&["http://new.example/1"]).await;
    let fresh = Claim { crawl: Some("DEFAULT".into()), ..one.clone() };
    fetch_and_complete(&pipeline, &pipeline.claim(fresh, NOW, NOW).await.unwrap()[0]).await;
    let left = pipeline.claim(Claim { chunks: 100, ..claim(Stage::Build) }, NOW, NOW).await.unwrap();
    let mut crawls: Vec<_> = left.iter().map(|chunk| chunk.crawl.to_string()).collect();
    crawls.sort();
    assert_eq!(crawls, ["DEFAULT", "other"]);
    let view = pipeline.chunks(ChunkFilter::default(), None, 1).await.unwrap().0.remove(0);
    assert_eq!((view.state, view.last_error.as_deref()), (ChunkState::Skipped, Some("its crawl was deleted")));
}

#[tokio::test(start_paused = true)]
async fn a_deleted_page_is_not_brought_back_by_lost_content() {
    let world = World::new(2).await;
    let (pipeline, _) = crawled_and_moved(&world).await;
    let moved = format!("http://{}/1", host_in(0, 2, 0));
    world.frontier.delete_crawl("DEFAULT".into()).await.unwrap();
    let built = pipeline.claim(claim(Stage::Build), NOW, NOW).await.unwrap();
    for build in built {
        let lost = EndChunk::Fail { reason: "404".into(), input_lost: true };
        _ = pipeline.end(build.id, build.token, lost).await;
    }
    let (chunks, _, _) = pipeline.chunks(ChunkFilter::default(), None, 9).await.unwrap();
    for chunk in chunks {
        _ = pipeline.decide(chunk.id, OperatorAction::Retry).await;
    }
    assert!(world.lookup(&moved).await.is_none());
}

/// The shard of the chunk cannot distinguish a moved host from a forgotten one: the shard of the host can.
#[tokio::test(start_paused = true)]
async fn a_retry_is_refused_if_nothing_of_the_chunk_is_left_in_any_shard() {
    for deleted in [true, false] {
        let world = World::new(2).await;
        let host = host_in(0, 2, 0);
        let url = format!("http://{host}/1");
        world.add(&[&url]).await;
        let pipeline = Pipeline::new(world.frontier.clone());
        let chunk = pipeline.claim(claim(Stage::Crawl), NOW, NOW).await.unwrap().remove(0);
        assert_eq!(pipeline.decide(chunk.id, OperatorAction::Skip).await, Ok(ChunkState::Skipped));
        pass(11_500).await;
        if deleted {
            world.frontier.delete_crawl("DEFAULT".into()).await.unwrap();
            let answer = pipeline.decide(chunk.id, OperatorAction::Retry).await;
            assert!(matches!(answer, Err(Refusal::Chunk(ChunkRefusal::WrongState { .. }))), "{answer:?}");
        } else {
            world.set_group(&alias_in(1, 2), &[&host], delay(1_000)).await;
            assert_eq!(pipeline.decide(chunk.id, OperatorAction::Retry).await, Ok(ChunkState::Skipped));
            assert_eq!(world.lookup(&url).await.unwrap().state, UrlState::Queued);
            // From then on it is none of the chunk's.
            let answer = pipeline.decide(chunk.id, OperatorAction::Retry).await;
            assert!(matches!(answer, Err(Refusal::Chunk(ChunkRefusal::WrongState { .. }))), "{answer:?}");
        }
    }
}

/// A call that waits in an inbox while its caller leaves: what it was granted would keep groups from others, and cost the
/// chunk an attempt.
#[tokio::test(start_paused = true)]
async fn nothing_is_handed_out_to_a_caller_that_left_before_its_call_was_served() {
    let world = World::new(1).await;
    world.add(&["http://h0.example/1", "http://h1.example/1"]).await;
    let pipeline = Pipeline::new(world.frontier.clone());
    let left = tokio::time::timeout(Duration::ZERO, pipeline.claim(claim(Stage::Crawl), NOW, NOW)).await;
    assert!(left.is_err(), "its owner has not run yet");
    let left = tokio::time::timeout(Duration::ZERO, world.frontier.reserve(want(2, 1))).await;
    assert!(left.is_err(), "its owner has not run yet");
    let left = tokio::time::timeout(Duration::ZERO, world.frontier.hand_out(paced(2, 1))).await;
    assert!(left.is_err(), "its owner has not run yet");
    pass(10).await;
    assert_eq!(pipeline.counts().await.unwrap().crawling, 0);
    assert!(world.frontier.reservations(None, 9).await.unwrap().items.is_empty());
    let claimed = pipeline.claim(claim(Stage::Crawl), NOW, NOW).await.unwrap().remove(0);
    assert_eq!((claimed.attempts, claimed.links.len()), (0, 2));
}

/// Links whose hosts live elsewhere are looked up one by one, and their shards may be slow.
#[tokio::test(start_paused = true)]
async fn a_builders_lease_does_not_end_while_remote_links_are_being_queued() {
    let store = Faulty::new();
    let world = World { frontier: store.open(2).await, ..World::new(2).await };
    let (pipeline, _) = crawled_and_moved(&world).await;
    let brief = Claim { lease: Millis(1_000), ..claim(Stage::Build) };
    let build = pipeline.claim(brief, NOW, NOW).await.unwrap().remove(0);
    store.hold_gets(true);
    let ends = tokio::spawn({
        let pipeline = pipeline.clone();
        let lost = EndChunk::Fail { reason: "404".into(), input_lost: true };
        async move { pipeline.end(build.id, build.token, lost).await }
    });
    pass(3_000).await;
    store.hold_gets(false);
    assert_eq!(ends.await.unwrap(), Ok(ChunkState::Crawling));
    assert_eq!(world.lookup(&format!("http://{}/1", host_in(0, 2, 0))).await.unwrap().state, UrlState::Queued);
}
