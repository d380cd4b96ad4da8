//! Chunks through the handle: claims over shards, long polls, restarts, repeated calls, hosts that move, deleted crawls.

use wayleave_core::pipeline::refusal::ChunkRefusal;

use crate::prelude::*;
use crate::support::*;

const NOW: Millis = Millis(0);

fn claim(stage: Stage, chunks: usize, links: usize) -> Claim {
    let (crawl, host, request) = (None, None, None);
    Claim { stage, worker: "w".into(), crawl, chunks, links, links_min: 1, host, lease: Millis(10_000), request }
}

fn complete() -> EndChunk {
    EndChunk::Complete(Some(Artifact { location: "http://store/1".into(), bytes: 3, checksum: [1; 32], from: None }))
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
            assert!(chunk.links.iter().all(|link| *link.url.url == format!("http://{}/1", link.host)), "{chunk:?}");
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
        let (page, next, _) = pipeline.chunks(ChunkFilter::default(), after, 3).await.unwrap();
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
    let asked = claim(Stage::Crawl, 3, 2).named("r1");
    let first = pipeline.claim(asked.clone(), NOW, NOW).await.unwrap();
    let again = pipeline.claim(asked.clone(), NOW, NOW).await.unwrap();
    let key = |chunks: &[Claimed]| {
        let mut all: Vec<_> = chunks.iter().map(|c| (c.id, c.token, c.links.len())).collect();
        all.sort();
        all
    };
    assert_eq!(key(&first), key(&again));
    let other = |change: fn(&mut Claim)| {
        let mut other = asked.clone();
        change(&mut other);
        other.named("r1")
    };
    for other in [
        other(|claim| claim.stage = Stage::Build),
        other(|claim| claim.chunks = 2),
        other(|claim| claim.links = 3),
        other(|claim| claim.crawl = Some("DEFAULT".into())),
        other(|claim| claim.lease = Millis(20_000)),
    ] {
        assert_eq!(pipeline.claim(other, NOW, NOW).await, Err(Refusal::RequestReused("r1".to_owned())));
    }
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
    // The crawlers do not know yet: what they visit is theirs until the deadline.
    let next = |chunk: &Claimed| format!("http://{}/2", chunk.links[0].url.host);
    world.add(&[&next(&chunks[0]), &next(&chunks[1])]).await;
    assert!(world.reserve(9, 1).await.is_empty());
    pass(11_500).await;
    assert_eq!(world.reserve(9, 1).await.len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_skipped_chunk_keeps_its_visits_until_its_crawlers_deadline() {
    let (world, pipeline) = world(1, 1).await;
    let chunk = pipeline.claim(claim(Stage::Crawl, 1, 1), NOW, NOW).await.unwrap().remove(0);
    assert_eq!(pipeline.decide(chunk.id, OperatorAction::Skip).await, Ok(ChunkState::Skipped));
    assert_eq!(world.lookup("http://h0.example/1").await.unwrap().state, UrlState::Failed);
    world.add(&["http://h0.example/2"]).await;
    pass(9_000).await;
    assert!(world.next().await.is_none());
    pass(2_500).await;
    assert_eq!(&*world.next().await.unwrap().urls[0].url, "http://h0.example/2");
}

/// A crawler that has lost its chunk may still visit the host; everyone who waits for it sees that, and until when.
#[tokio::test(start_paused = true)]
async fn a_host_that_waits_for_an_ended_chunks_crawler_names_chunk_and_time() {
    let (world, pipeline) = world(1, 1).await;
    let waits = pipeline.claim(claim(Stage::Crawl, 1, 1), NOW, NOW).await.unwrap().remove(0);
    pipeline.report(report(&waits, Outcome::Fetched, false), Vec::new()).await.unwrap();
    world.add(&["http://h0.example/2"]).await;
    pass(1_500).await;
    let ends = pipeline.claim(claim(Stage::Crawl, 1, 1), NOW, NOW).await.unwrap().remove(0);
    pipeline.end(waits.id, waits.token, fail(false)).await.unwrap();
    let view = pipeline.chunk(waits.id).await.unwrap();
    let busy = "a group of its links is not free: 'w' is visiting host 'h0.example'; the lease ends at the latest then";
    assert!(view.reason.starts_with(busy), "{}", view.reason);
    assert_eq!(view.until, Some(ends.expires_at));

    pipeline.decide(ends.id, OperatorAction::Skip).await.unwrap();
    let reason = format!(
        "'w' may still be visiting host 'h0.example' for chunk {}, whose lease was ended by an operator",
        ends.id
    );
    let (view, host) = (pipeline.chunk(waits.id).await.unwrap(), world.host("h0.example").await);
    assert!(view.reason.contains(&reason), "{}", view.reason);
    assert!(host.standing.reason.starts_with(&reason), "{:?}", host.standing);
    assert_eq!((view.until, host.standing.ready_at), (Some(ends.expires_at), Some(ends.expires_at)));

    pass(11_500).await;
    let (view, host) = (pipeline.chunk(waits.id).await.unwrap(), world.host("h0.example").await);
    assert!(view.reason.starts_with("a crawler is awaited"), "{}", view.reason);
    let offered = format!("a URL of it is in chunk {}, which waits for a crawler", waits.id);
    assert!(host.standing.reason.ends_with(&offered), "{:?}", host.standing);
    assert!(host.standing.ready_at.is_some(), "a crawler may have it: {:?}", host.standing);
}

/// The rows of a deleted queue are removed by a job, some time after the deletion.
#[tokio::test(start_paused = true)]
async fn a_chunk_shows_no_state_of_links_whose_queue_was_deleted() {
    let (world, pipeline) = world(1, 0).await;
    let long = format!("http://h0.example/{}", "x".repeat(2_000));
    world.add(&[&long]).await;
    let chunk = pipeline.claim(claim(Stage::Crawl, 1, 1), NOW, NOW).await.unwrap().remove(0);
    pipeline.report(report(&chunk, Outcome::Gone, false), Vec::new()).await.unwrap();
    let shown = async || pipeline.chunk(chunk.id).await.unwrap().link_list.unwrap().remove(0);
    assert_eq!(shown().await.url_state, Some(UrlState::Gone));
    // The rows are removed in slices, by key.
    world.put((0..5_000).map(|n| disc(&format!("http://h0.example/a{n}"))).collect()).await;
    world.frontier.delete_queue("DEFAULT".into(), "h0.example".into()).await.unwrap();
    let link = shown().await;
    assert_eq!((link.url_state, &*link.url), (None, &*long), "its row still has the whole URL");
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
    assert_eq!(pipeline.decide(chunk.id, OperatorAction::Skip).await, Ok(ChunkState::Skipped));
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
        assert_eq!(pipeline.decide(unknown, OperatorAction::Retry).await, Err(ChunkRefusal::Unknown(unknown).into()));
        let renewed = pipeline.renew(unknown, one.token, Millis(1_000)).await;
        assert_eq!(renewed, Err(ChunkRefusal::Unknown(unknown).into()));
        let report = ReportLinks { chunk: unknown, ..report(one, Outcome::Fetched, false) };
        assert_eq!(pipeline.report(report, Vec::new()).await, Err(ChunkRefusal::Unknown(unknown).into()));
    }
    let before = pipeline.chunk(one.id).await.unwrap();
    for wrong in [
        pipeline.end(one.id, other.token, complete()).await.map(drop),
        pipeline.renew(one.id, other.token, Millis(1_000)).await.map(drop),
        pipeline.end(one.id, one.token, complete()).await.map(drop),
        pipeline.end(one.id, one.token, fail(true)).await.map(drop),
        pipeline.decide(one.id, OperatorAction::Retry).await.map(drop),
    ] {
        assert!(matches!(wrong, Err(Refusal::Chunk(_))), "{wrong:?}");
    }
    assert_eq!(pipeline.chunk(one.id).await.unwrap(), before);
}

fn host_claim(host: &str, links: usize) -> Claim {
    Claim { host: Some(host.into()), crawl: Some("DEFAULT".into()), ..claim(Stage::Crawl, 1, links) }
}

async fn one_host(pages: usize) -> (World, Pipeline) {
    let world = World::new(1).await;
    for page in 0..pages {
        // One call each, so that the lane's front is cached.
        world.add(&[&format!("http://h.example/{page}")]).await;
    }
    let pipeline = Pipeline::new(world.frontier.clone());
    (world, pipeline)
}

fn texts(links: &[wayleave_core::pipeline::request::LinkToFetch]) -> Vec<String> {
    links.iter().map(|link| link.url.url.to_string()).collect()
}

#[tokio::test(start_paused = true)]
async fn several_replacements_of_one_host_are_different_urls() {
    let (world, pipeline) = one_host(5).await;
    let chunk = pipeline.claim(host_claim("h.example", 2), NOW, NOW).await.unwrap().remove(0);
    let (answer, _) = pipeline.report(report(&chunk, Outcome::Failed, true), Vec::new()).await.unwrap();
    assert_eq!((texts(&answer.replacements), answer.left), (vec![page(2), page(3)], 2));
    let fetched = Claimed { links: answer.replacements, ..chunk };
    crawled(&pipeline, &fetched).await;
    let counts = world.frontier.crawl("DEFAULT".into()).await.unwrap().counts;
    assert_eq!((counts.queued, counts.reserved, counts.fetched, counts.failed), (1, 0, 2, 2));
    pass(1_000).await;
    assert_eq!(&*world.next().await.unwrap().urls[0].url, page(4));
}

fn page(n: usize) -> String {
    format!("http://h.example/{n}")
}

#[tokio::test(start_paused = true)]
async fn a_group_that_may_be_visited_twice_at_once_gives_a_chunk_one_link() {
    let (world, pipeline) = one_host(3).await;
    world.set_host("h.example", delay(0)).await;
    world.set_group("twice", &["h.example"], PaceChanges { parallel: Change::Set(2), ..delay(0) }).await;
    let first = pipeline.claim(claim(Stage::Crawl, 1, 3), NOW, NOW).await.unwrap().remove(0);
    let second = pipeline.claim(claim(Stage::Crawl, 1, 3), NOW, NOW).await.unwrap().remove(0);
    assert_eq!((texts(&first.links), texts(&second.links)), (vec![page(0)], vec![page(1)]));
    crawled(&pipeline, &first).await;
    crawled(&pipeline, &second).await;
    let counts = world.frontier.crawl("DEFAULT".into()).await.unwrap().counts;
    assert_eq!((counts.queued, counts.reserved, counts.fetched), (1, 0, 2));
}

#[tokio::test(start_paused = true)]
async fn a_retried_link_stays_in_the_schedule_behind_its_replacement() {
    let (world, pipeline) = one_host(2).await;
    let chunk = pipeline.claim(host_claim("h.example", 1), NOW, NOW).await.unwrap().remove(0);
    let (answer, _) = pipeline.report(report(&chunk, Outcome::Retry, true), Vec::new()).await.unwrap();
    assert_eq!(texts(&answer.replacements), [page(1)]);
    crawled(&pipeline, &Claimed { links: answer.replacements, ..chunk }).await;
    assert_eq!(world.frontier.is_finished(&"DEFAULT".into()).await, Ok(false));
    pass(600_000).await;
    assert_eq!(&*world.next().await.expect("the first page again").urls[0].url, page(0));
}

#[tokio::test(start_paused = true)]
async fn a_host_that_asks_for_rest_gives_no_replacement() {
    let (_world, pipeline) = one_host(3).await;
    let chunk = pipeline.claim(host_claim("h.example", 1), NOW, NOW).await.unwrap().remove(0);
    let mut busy = report(&chunk, Outcome::Retry, true);
    (busy.results[0].status, busy.results[0].retry_after) = (Some(429), Some(Millis(3_600_000)));
    let (answer, _) = pipeline.report(busy, Vec::new()).await.unwrap();
    assert!(answer.replacements.is_empty(), "{answer:?}");
}

#[tokio::test(start_paused = true)]
async fn a_completion_is_recognised_when_it_is_repeated_after_the_next_stage() {
    let (_world, pipeline) = world(1, 1).await;
    let chunk = pipeline.claim(claim(Stage::Crawl, 1, 1), NOW, NOW).await.unwrap().remove(0);
    crawled(&pipeline, &chunk).await;
    let build = pipeline.claim(claim(Stage::Build, 1, 0), NOW, NOW).await.unwrap().remove(0);
    pipeline.end(build.id, build.token, fail(false)).await.unwrap();
    assert_eq!(pipeline.end(chunk.id, chunk.token, complete()).await, Ok(ChunkState::Crawled), "the answer was lost");
    let other = EndChunk::Fail { reason: "another call".into(), input_lost: false };
    let refused = pipeline.end(chunk.id, chunk.token, other).await.unwrap_err().to_string();
    assert!(refused.contains("not current") && !refused.contains("garbage"), "{refused}");
}

#[tokio::test(start_paused = true)]
async fn chunks_of_a_paused_crawl_hide_no_others() {
    let world = World::new(1).await;
    let puts = |crawl: &'static str, hosts: usize| {
        (0..hosts).map(move |n| Put { crawl: crawl.into(), ..disc(&format!("http://{crawl}{n}.example/1")) })
    };
    world.put(puts("x", 80).collect()).await;
    let pipeline = Pipeline::new(world.frontier.clone());
    assert_eq!(pipeline.claim(claim(Stage::Crawl, 80, 1), NOW, NOW).await.unwrap().len(), 80);
    world.set_crawl("x", CrawlChanges { paused: Change::Set(true), ..CrawlChanges::default() }).await;
    pass(12_000).await;
    world.put(puts("y", 1).collect()).await;
    let lost = pipeline.claim(claim(Stage::Crawl, 1, 1), NOW, NOW).await.unwrap().remove(0);
    let again = pipeline.claim(claim(Stage::Crawl, 1, 1), Millis(60_000), NOW).await.unwrap().remove(0);
    assert_eq!((lost.id, &*again.crawl, again.attempts), (again.id, "y", 1));
}

#[tokio::test(start_paused = true)]
async fn an_unclaimed_offer_is_withdrawn_and_its_links_return() {
    let (world, pipeline) = world(1, 2).await;
    let chunk = pipeline.claim(claim(Stage::Crawl, 1, 2), NOW, NOW).await.unwrap().remove(0);
    pass(20_000).await;
    assert!(world.next().await.is_none(), "they are kept for the chunk");
    pass(600_000).await;
    assert_eq!(world.reserve(5, 1).await.len(), 2, "any crawler may have them now");
    let view = pipeline.chunk(chunk.id).await.unwrap();
    assert_eq!(view.state, ChunkState::Skipped);
    assert!(view.reason.contains("went back to their queues"), "{}", view.reason);
}

#[tokio::test(start_paused = true)]
async fn a_chunk_whose_queue_is_deleted_ends() {
    let (world, pipeline) = world(1, 1).await;
    let chunk = pipeline.claim(claim(Stage::Crawl, 1, 1), NOW, NOW).await.unwrap().remove(0);
    pass(11_500).await;
    world.frontier.delete_queue("DEFAULT".into(), "h0.example".into()).await.unwrap();
    assert!(pipeline.claim(claim(Stage::Crawl, 1, 1), NOW, NOW).await.unwrap().is_empty());
    assert_eq!(pipeline.chunk(chunk.id).await.unwrap().state, ChunkState::Skipped);
}

#[tokio::test(start_paused = true)]
async fn pages_of_a_limit_are_not_counted_twice_when_content_is_lost() {
    let (world, pipeline) = world(1, 3).await;
    world.set_crawl("DEFAULT", CrawlChanges { pages: Change::Set(2), ..CrawlChanges::default() }).await;
    let chunk = pipeline.claim(claim(Stage::Crawl, 1, 3), NOW, NOW).await.unwrap().remove(0);
    assert_eq!(chunk.links.len(), 2, "the limit");
    crawled(&pipeline, &chunk).await;
    let build = pipeline.claim(claim(Stage::Build, 1, 0), NOW, NOW).await.unwrap().remove(0);
    pipeline.end(build.id, build.token, fail(true)).await.unwrap();
    pass(2_000).await;
    let again = pipeline.claim(claim(Stage::Crawl, 5, 3), NOW, NOW).await.unwrap();
    assert_eq!((again.len(), again[0].links.len()), (1, 2), "the same two, and no third");
    crawled(&pipeline, &again[0]).await;
    pass(2_000).await;
    assert!(pipeline.claim(claim(Stage::Crawl, 5, 3), NOW, NOW).await.unwrap().is_empty());
    assert!(world.next().await.is_none());
}

#[tokio::test(start_paused = true)]
async fn skipped_chunks_go_after_a_month_and_those_of_a_deleted_crawl_in_a_day() {
    const HOUR: u64 = 3_600_000;
    let (world, pipeline) = world(1, 3).await;
    let chunks = pipeline.claim(claim(Stage::Crawl, 3, 1), NOW, NOW).await.unwrap();
    let unknown = |id| Err(Refusal::Chunk(ChunkRefusal::Unknown(id)));
    crawled(&pipeline, &chunks[0]).await;
    pipeline.decide(chunks[1].id, OperatorAction::Skip).await.unwrap();
    pass(29 * 24 * HOUR).await;
    assert_eq!(pipeline.chunk(chunks[1].id).await.unwrap().state, ChunkState::Skipped);
    pass(2 * 24 * HOUR).await;
    assert_eq!(pipeline.chunk(chunks[1].id).await, unknown(chunks[1].id));
    assert_eq!(pipeline.chunk(chunks[0].id).await.unwrap().state, ChunkState::Crawled, "it is in progress");
    world.frontier.delete_crawl("DEFAULT".into()).await.unwrap();
    pass(HOUR / 2).await;
    assert_eq!(pipeline.chunk(chunks[0].id).await.unwrap().state, ChunkState::Skipped);
    pass(4 * HOUR).await;
    assert_eq!(pipeline.chunk(chunks[0].id).await, unknown(chunks[0].id));
    assert_eq!(world.frontier.stats().await.unwrap().urls.total(), 0);
}

/// A regression: they named the URLs of the crawl for a month.
#[tokio::test(start_paused = true)]
async fn chunks_that_ended_before_their_crawl_was_deleted_are_removed_with_it() {
    const HOUR: u64 = 3_600_000;
    let (world, pipeline) = world(2, 3).await;
    world.put(vec![of_crawl("other", disc("http://o.example/1"))]).await;
    let chunks = pipeline.claim(claim(Stage::Crawl, 4, 1), NOW, NOW).await.unwrap();
    for chunk in &chunks {
        pipeline.decide(chunk.id, OperatorAction::Skip).await.unwrap();
    }
    pass(3 * HOUR).await;
    for crawl in ["DEFAULT", "other"] {
        let of_crawl = ChunkFilter { crawl: Some(crawl.into()), ..ChunkFilter::default() };
        assert!(!pipeline.chunks(of_crawl, None, 9).await.unwrap().0.is_empty(), "{crawl}");
    }
    world.frontier.delete_crawl("DEFAULT".into()).await.unwrap();
    // A crawl of the same name begins anew.
    world.add(&["http://h0.example/new"]).await;
    pass(4 * HOUR).await;
    let left = pipeline.chunks(ChunkFilter::default(), None, 9).await.unwrap().0;
    assert_eq!(left.iter().map(|chunk| chunk.crawl.to_string()).collect::<Vec<_>>(), ["other"], "{left:?}");
}

#[tokio::test(start_paused = true)]
async fn the_first_pass_over_old_chunks_begins_soon_after_a_start() {
    const HOUR: u64 = 3_600_000;
    let (mut world, pipeline) = world(1, 1).await;
    let chunk = pipeline.claim(claim(Stage::Crawl, 1, 1), NOW, NOW).await.unwrap().remove(0);
    world.frontier.delete_crawl("DEFAULT".into()).await.unwrap();
    // A server that never runs for long.
    for _ in 0..8 {
        pass(HOUR / 4).await;
        world.frontier.stop().await;
        world.reopen().await;
    }
    pass(120_000).await;
    let pipeline = Pipeline::new(world.frontier.clone());
    assert_eq!(pipeline.chunk(chunk.id).await, Err(Refusal::Chunk(ChunkRefusal::Unknown(chunk.id))));
}
