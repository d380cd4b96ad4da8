//! Chunks that go back to the crawl stage while an export is read: their URLs are in the file as finished, and then as links
//! or as returned ones, each once.

use std::collections::BTreeSet;

use wayleave_core::frontier::refusal::Refusal;
use wayleave_core::frontier::request::{Outcome, Put, PutKind, PutOutcome, UrlResult};
use wayleave_core::frontier::view::{UrlFilter, UrlState};
use wayleave_core::ids::ChunkId;
use wayleave_core::pipeline::carry::{CarriedChunk, CarriedLink, CarriedLinkState};
use wayleave_core::pipeline::request::{Claim, Claimed, EndChunk, OperatorAction, ReportLinks, Stage};
use wayleave_core::pipeline::restore::Restored;
use wayleave_core::pipeline::row::{Artifact, ChunkState};
use wayleave_core::time::Millis;
use wayleave_shard::pipeline::Pipeline;

use crate::support::*;

const NOW: Millis = Millis(0);

fn claim(stage: Stage) -> Claim {
    let (crawl, host, request) = (None, None, None);
    Claim { stage, worker: "w".into(), crawl, chunks: 1, links: 5, links_min: 1, host, lease: Millis(10_000), request }
}

fn pipeline(world: &World) -> Pipeline {
    Pipeline::new(world.frontier.clone())
}

async fn take(world: &World, stage: Stage) -> Option<Claimed> {
    pipeline(world).claim(claim(stage), NOW, NOW).await.unwrap().pop()
}

async fn report(world: &World, chunk: &Claimed, url: &str, outcome: Outcome) {
    let results = vec![UrlResult::new(url, outcome)];
    let report = ReportLinks { chunk: chunk.id, token: chunk.token, results, replace: false };
    pipeline(world).report(report, Vec::new()).await.unwrap();
}

async fn complete(world: &World, chunk: &Claimed) {
    let artifact = Artifact { location: "http://store/1".into(), bytes: 3, checksum: [1; 32] };
    pipeline(world).end(chunk.id, chunk.token, EndChunk::Complete(Some(artifact))).await.unwrap();
}

async fn carry(world: &World) -> Vec<CarriedChunk> {
    let (mut all, mut after) = (Vec::new(), None);
    loop {
        let (chunks, next) = pipeline(world).carry(None, after).await.unwrap();
        all.extend(chunks);
        after = next;
        if after.is_none() {
            return all;
        }
    }
}

/// The URLs that an export has read, all fetched, and the world after that: the host of the first one has moved to another
/// shard, and the content of the chunk was lost.
async fn lost() -> (World, [String; 3]) {
    let world = World::new(2).await;
    let urls = [0, 1, 2].map(|n| format!("http://{}/1", host_in(0, 2, n)));
    world.add(&urls.each_ref().map(String::as_str)).await;
    let chunk = take(&world, Stage::Crawl).await.unwrap();
    assert_eq!(chunk.links.len(), 3);
    for url in &urls {
        report(&world, &chunk, url, Outcome::Fetched).await;
    }
    complete(&world, &chunk).await;
    let read = world.urls(&UrlFilter::default(), 9).await;
    assert!(read.len() == 3 && read.iter().all(|url| url.state == UrlState::Fetched), "{read:?}");
    world.set_group(&alias_in(1, 2), &[&host_in(0, 2, 0)], delay(1_000)).await;
    let build = take(&world, Stage::Build).await.unwrap();
    let lost = EndChunk::Fail { reason: "404".into(), input_lost: true };
    assert_eq!(pipeline(&world).end(build.id, build.token, lost).await, Ok(ChunkState::Crawling));
    pass(2_000).await;
    (world, urls)
}

/// Imports the URLs as they were read before, then the chunks, twice.
async fn import(urls: &[String; 3], carried: &[CarriedChunk], shards: u16) -> World {
    let mut to = World::new(shards).await;
    pass(2_000_000).await;
    for url in urls {
        let put = Put { kind: PutKind::Restored { due: None }, ..disc(url) };
        assert_eq!(to.put(vec![put]).await, [PutOutcome::Added]);
    }
    for chunk in carried {
        assert_eq!(pipeline(&to).restore(vec![chunk.clone()]).await.unwrap(), [Restored::Restored]);
        assert_eq!(pipeline(&to).restore(vec![chunk.clone()]).await.unwrap(), [Restored::Known]);
    }
    to.reopen().await;
    to
}

/// Crawls all that there is to crawl. Returns the links that are handed out, each once.
async fn crawl_all(to: &World) -> BTreeSet<String> {
    let mut crawled = BTreeSet::new();
    for _ in 0..5 {
        while let Some(chunk) = take(to, Stage::Crawl).await {
            for link in &chunk.links {
                let url = link.url.url.to_string();
                report(to, &chunk, &url, Outcome::Fetched).await;
                assert!(crawled.insert(url), "handed out twice: {link:?}");
            }
            complete(to, &chunk).await;
        }
        pass(2_000).await;
    }
    crawled
}

async fn check(world: &World, urls: &[String; 3], wanted: &[usize]) {
    let carried = carry(world).await;
    let wanted: BTreeSet<String> = wanted.iter().map(|n| urls[*n].clone()).collect();
    for shards in [2, 1, 5] {
        let to = import(urls, &carried, shards).await;
        assert_eq!(crawl_all(&to).await, wanted, "{shards} shards: {carried:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn links_that_live_elsewhere_are_carried_by_the_chunk_that_was_sent_back() {
    let (mut world, urls) = lost().await;
    let carried = carry(&world).await;
    let returned = carried[0].links.iter().filter(|link| link.state == CarriedLinkState::Returned);
    assert_eq!(returned.map(|link| link.url.to_string()).collect::<Vec<_>>(), urls[..1]);
    check(&world, &urls, &[0, 1, 2]).await;
    // Also by the chunk that has been claimed since, and after a restart.
    let chunk = take(&world, Stage::Crawl).await.unwrap();
    assert_eq!(chunk.links.len(), 2);
    world.reopen().await;
    let view = pipeline(&world).chunk(chunk.id).await.unwrap();
    assert_eq!((view.crawling, view.crawled, view.error), (2, 0, 0), "it is none of its links any more");
    check(&world, &urls, &[0, 1, 2]).await;
}

#[tokio::test(start_paused = true)]
async fn links_that_nobody_fetched_are_carried_by_the_chunk_that_was_completed_without_them() {
    let (world, urls) = lost().await;
    let chunk = take(&world, Stage::Crawl).await.unwrap();
    report(&world, &chunk, &urls[1], Outcome::Fetched).await;
    complete(&world, &chunk).await;
    assert_eq!(world.lookup(&urls[2]).await.unwrap().state, UrlState::Queued);
    check(&world, &urls, &[0, 2]).await;
}

#[tokio::test(start_paused = true)]
async fn links_that_are_to_be_tried_again_later_are_carried_beside_their_error() {
    let (world, urls) = lost().await;
    let chunk = take(&world, Stage::Crawl).await.unwrap();
    report(&world, &chunk, &urls[1], Outcome::Fetched).await;
    report(&world, &chunk, &urls[2], Outcome::Retry).await;
    complete(&world, &chunk).await;
    check(&world, &urls, &[0, 2]).await;
}

#[tokio::test(start_paused = true)]
async fn links_of_an_offer_that_nobody_took_are_carried() {
    let (world, urls) = lost().await;
    pass(700_000).await;
    assert_eq!(carry(&world).await[0].state, ChunkState::Skipped);
    check(&world, &urls, &[0, 1, 2]).await;
}

#[tokio::test(start_paused = true)]
async fn a_link_whose_host_moves_out_of_a_chunk_that_was_sent_back_is_carried() {
    let (world, urls) = lost().await;
    take(&world, Stage::Crawl).await.unwrap();
    let alias = (0..).map(|n| format!("other{n}")).find(|name| wayleave_shard::home(name, 2).0 == 1).unwrap();
    world.set_group(&alias, &[&host_in(0, 2, 1)], delay(1_000)).await;
    check(&world, &urls, &[0, 1, 2]).await;
}

fn returned(carried: &[CarriedChunk], id: ChunkId) -> Vec<String> {
    let links = carried.iter().filter(|chunk| chunk.id == id).flat_map(|chunk| &chunk.links);
    let links = links.filter(|link| link.state == CarriedLinkState::Returned);
    links.map(|link| link.url.to_string()).collect()
}

#[tokio::test(start_paused = true)]
async fn a_link_whose_host_moved_before_the_completion_is_carried_until_it_is_finished_where_it_lives() {
    let (mut world, urls) = lost().await;
    let chunk = take(&world, Stage::Crawl).await.unwrap();
    report(&world, &chunk, &urls[1], Outcome::Fetched).await;
    report(&world, &chunk, &urls[2], Outcome::Fetched).await;
    let alias = (0..).map(|n| format!("other{n}")).find(|name| wayleave_shard::home(name, 2).0 == 1).unwrap();
    world.set_group(&alias, &[&host_in(0, 2, 1)], delay(1_000)).await;
    complete(&world, &chunk).await;
    assert_eq!(returned(&carry(&world).await, chunk.id), urls[..2], "both are queued in the other shard");
    check(&world, &urls, &[0, 1]).await;
    pass(2_000).await;
    let other = take(&world, Stage::Crawl).await.unwrap();
    assert_ne!(other.id.shard(), chunk.id.shard());
    assert_eq!(returned(&carry(&world).await, chunk.id), urls[..2], "they are with a crawler");
    report(&world, &other, &urls[1], Outcome::Fetched).await;
    complete(&world, &other).await;
    world.reopen().await;
    assert_eq!(returned(&carry(&world).await, chunk.id), urls[..1]);
    check(&world, &urls, &[0]).await;
    pass(2_000).await;
    let last = take(&world, Stage::Crawl).await.unwrap();
    report(&world, &last, &urls[0], Outcome::Gone).await;
    pipeline(&world).end(last.id, last.token, EndChunk::Complete(None)).await.unwrap();
    assert_eq!(returned(&carry(&world).await, chunk.id), [""; 0], "it is gone, there");
    check(&world, &urls, &[]).await;
}

/// The shard of the chunk has no row of it and cannot tell what became of it: the one that it lives in can.
#[tokio::test(start_paused = true)]
async fn an_imported_link_that_lives_in_another_shard_is_carried_until_it_is_finished_there() {
    let (world, urls) = lost().await;
    let carried = carry(&world).await;
    let mut to = import(&urls, &carried, 5).await;
    assert_ne!(returned(&carry(&to).await, carried[0].id), [""; 0], "they live in other shards");
    check(&to, &urls, &[0, 1, 2]).await;
    assert_eq!(crawl_all(&to).await.len(), 3);
    to.reopen().await;
    assert_eq!(returned(&carry(&to).await, carried[0].id), [""; 0]);
    check(&to, &urls, &[]).await;
}

/// What ended for good is not brought back.
#[tokio::test(start_paused = true)]
async fn links_that_failed_or_were_deleted_are_not_carried() {
    let (world, urls) = lost().await;
    let chunk = take(&world, Stage::Crawl).await.unwrap();
    report(&world, &chunk, &urls[1], Outcome::Fetched).await;
    report(&world, &chunk, &urls[2], Outcome::Gone).await;
    complete(&world, &chunk).await;
    check(&world, &urls, &[0]).await;
    // A chunk that was never sent back remembers nothing.
    let other = World::new(2).await;
    other.add(&["http://a.example/1"]).await;
    let chunk = take(&other, Stage::Crawl).await.unwrap();
    pipeline(&other).end(chunk.id, chunk.token, EndChunk::Complete(None)).await.unwrap();
    assert!(carry(&other).await[0].links.is_empty());
    let refused = pipeline(&other).decide(chunk.id, OperatorAction::Retry).await;
    assert!(matches!(refused, Err(Refusal::Chunk(_))), "{refused:?}");
}

/// A chunk that placement refuses is not restored, so nothing that it names is queued.
#[tokio::test(start_paused = true)]
async fn links_of_a_chunk_that_is_refused_stay_as_they_are() {
    let (world, urls) = lost().await;
    let good = carry(&world).await.remove(0);
    let returned = |link: &&CarriedLink| link.state == CarriedLinkState::Returned;
    assert_eq!(good.links.iter().filter(returned).map(|link| link.url.to_string()).collect::<Vec<_>>(), urls[..1]);
    let nowhere = || Some(Artifact { location: "".into(), bytes: 3, checksum: [1; 32] });
    let links = vec![CarriedLink { state: CarriedLinkState::Returned, ..good.links[1].clone() }];
    let bad = CarriedChunk {
        id: ChunkId::new(good.id.shard(), good.id.counter() + 1),
        state: ChunkState::Built,
        crawled: nowhere(),
        built: nowhere(),
        links: links.clone(),
        ..good.clone()
    };
    let to = World::new(2).await;
    for url in &urls {
        let put = Put { kind: PutKind::Restored { due: None }, ..disc(url) };
        assert_eq!(to.put(vec![put]).await, [PutOutcome::Added]);
    }
    // Beside one that is accepted, without links of its own.
    let good = CarriedChunk { links: Vec::new(), ..good };
    let told = pipeline(&to).restore(vec![good, bad]).await.unwrap();
    assert!(matches!(&told[..], [Restored::Restored, Restored::Refused(_)]), "{told:?}");
    assert_eq!(to.lookup(&links[0].url).await.unwrap().state, UrlState::Fetched);
}
