//! Claims that wait: as many are woken as there is work for, and no wake-up is lost.

use std::future::Future;
use std::pin::Pin;

use futures::future::BoxFuture;
use wayleave_shard::{CallResult, Patience};

use crate::prelude::*;
use crate::support::*;

const WAIT: Millis = Millis(60_000);

fn claim(stage: Stage, links: usize) -> Claim {
    let (crawl, host, request) = (None, None, None);
    Claim { stage, worker: "w".into(), crawl, chunks: 1, links, links_min: 1, host, lease: Millis(10_000), request }
}

fn waits(pipeline: &Pipeline, claim: Claim, linger: u64) -> JoinHandle<Vec<Claimed>> {
    let pipeline = pipeline.clone();
    tokio::spawn(async move { pipeline.claim(claim, WAIT, Millis(linger)).await.unwrap() })
}

/// A claim that is in line, and that its caller may give up without polling it again.
async fn in_line(pipeline: &Pipeline, claim: Claim) -> Pin<Box<impl Future<Output = Vec<Claimed>> + use<>>> {
    let pipeline = pipeline.clone();
    let mut waits = Box::pin(async move { pipeline.claim(claim, WAIT, Millis(0)).await.unwrap() });
    let soon = tokio::time::timeout(Duration::from_millis(10), &mut waits).await;
    assert!(soon.is_err(), "there is nothing to claim: {soon:?}");
    waits
}

fn url(n: usize) -> String {
    format!("http://h{n}.example/1")
}

async fn crawl(pipeline: &Pipeline, chunk: &Claimed) {
    let results = chunk.links.iter().map(|link| UrlResult::new(&*link.url.url, Outcome::Fetched)).collect();
    let report = ReportLinks { chunk: chunk.id, token: chunk.token, results, replace: false };
    pipeline.report(report, Vec::new()).await.unwrap();
    let artifact = Artifact { location: "http://store/1".into(), bytes: 3, checksum: [1; 32], from: None };
    pipeline.end(chunk.id, chunk.token, EndChunk::Complete(Some(artifact))).await.unwrap();
}

/// Every group that became ready, and every change of when the next one would be, woke every claim.
#[tokio::test(start_paused = true)]
async fn a_thousand_waiting_claims_do_not_all_try_every_link_and_every_chunk() {
    const LINKS: usize = 20;
    let world = World::new(4).await;
    let pipeline = Pipeline::new(world.frontier.clone());
    let crawlers: Vec<_> = (0..1_000).map(|_| waits(&pipeline, claim(Stage::Crawl, 1), 0)).collect();
    let builders: Vec<_> = (0..1_000).map(|_| waits(&pipeline, claim(Stage::Build, 0), 0)).collect();
    pass(10).await;
    let before = pipeline.looks();
    assert_eq!(before, 2_000);
    for n in 0..LINKS {
        world.add(&[&url(n)]).await;
        pass(10).await;
    }
    let looks = pipeline.looks() - before;
    let mut chunks = Vec::new();
    for crawler in crawlers.into_iter().filter(JoinHandle::is_finished) {
        chunks.extend(crawler.await.unwrap());
    }
    assert_eq!(chunks.len(), LINKS, "each link was claimed at once");
    // The claim that is woken, and one that it wakes in case there is more.
    assert!(looks <= 2 * LINKS as u64, "{looks} looks for {LINKS} links");
    let before = pipeline.looks();
    for chunk in &chunks {
        crawl(&pipeline, chunk).await;
        pass(10).await;
    }
    let looks = pipeline.looks() - before;
    let built = builders.iter().filter(|builder| builder.is_finished()).count();
    assert_eq!(built, LINKS);
    // A crawled link frees its group: a crawler looks whether there is more.
    assert!(looks <= 4 * LINKS as u64, "{looks} looks for {LINKS} chunks");
}

#[tokio::test(start_paused = true)]
async fn claims_for_a_crawl_do_not_look_at_every_link_of_another() {
    const LINKS: usize = 20;
    let world = World::new(4).await;
    let pipeline = Pipeline::new(world.frontier.clone());
    let of = |crawl: &str| Claim { crawl: Some(crawl.into()), ..claim(Stage::Crawl, 1) };
    let idle: Vec<_> = (0..1_000).map(|_| waits(&pipeline, of("other"), 0)).collect();
    let busy: Vec<_> = (0..LINKS).map(|_| waits(&pipeline, of("DEFAULT"), 0)).collect();
    pass(10).await;
    let before = pipeline.looks();
    for n in 0..LINKS {
        world.add(&[&url(n)]).await;
        pass(10).await;
    }
    assert!(busy.iter().all(JoinHandle::is_finished) && !idle.iter().any(JoinHandle::is_finished));
    let looks = pipeline.looks() - before;
    assert!(looks <= LINKS as u64 + 2, "{looks} looks for {LINKS} links");
}

#[tokio::test(start_paused = true)]
async fn claims_that_linger_do_not_look_before_a_chunk_is_full() {
    let world = World::new(1).await;
    let pipeline = Pipeline::new(world.frontier.clone());
    let all: Vec<_> = (0..1_000).map(|_| waits(&pipeline, claim(Stage::Crawl, 5), 30_000)).collect();
    pass(10).await;
    let before = pipeline.looks();
    for n in 0..5 {
        assert_eq!(pipeline.looks() - before, 0, "{n} links are too few");
        world.add(&[&url(n)]).await;
        pass(10).await;
    }
    assert_eq!(all.iter().filter(|claim| claim.is_finished()).count(), 1);
    assert!(pipeline.looks() - before <= 2, "{} looks", pipeline.looks() - before);
}

#[tokio::test(start_paused = true)]
async fn a_claim_abandoned_after_its_wake_up_leaves_the_link_to_the_next() {
    let world = World::new(1).await;
    let pipeline = Pipeline::new(world.frontier.clone());
    let first = in_line(&pipeline, claim(Stage::Crawl, 1)).await;
    let next = waits(&pipeline, claim(Stage::Crawl, 1), 0);
    pass(10).await;
    world.add(&[&url(0)]).await;
    pass(10).await;
    assert!(!next.is_finished(), "the first one in line was woken");
    drop(first);
    pass(10).await;
    assert!(next.is_finished());
    assert_eq!(next.await.unwrap()[0].links.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_build_claim_abandoned_after_its_wake_up_leaves_the_chunk_to_the_next() {
    let world = World::new(1).await;
    let pipeline = Pipeline::new(world.frontier.clone());
    let first = in_line(&pipeline, claim(Stage::Build, 0)).await;
    let next = waits(&pipeline, claim(Stage::Build, 0), 0);
    world.add(&[&url(0)]).await;
    let chunk = pipeline.claim(claim(Stage::Crawl, 1), Millis(0), Millis(0)).await.unwrap().remove(0);
    crawl(&pipeline, &chunk).await;
    pass(10).await;
    assert!(!next.is_finished(), "the first one in line was woken");
    drop(first);
    pass(10).await;
    assert!(next.is_finished());
    assert_eq!(next.await.unwrap()[0].id, chunk.id);
}

/// It would use the wake-up up, and continue waiting for more.
#[tokio::test(start_paused = true)]
async fn a_lingering_claim_does_not_keep_a_link_from_one_that_would_take_it() {
    let world = World::new(1).await;
    let pipeline = Pipeline::new(world.frontier.clone());
    let lingers = waits(&pipeline, claim(Stage::Crawl, 3), 30_000);
    pass(10).await;
    let next = waits(&pipeline, claim(Stage::Crawl, 3), 0);
    pass(10).await;
    world.add(&[&url(0)]).await;
    pass(10).await;
    assert!(next.is_finished() && !lingers.is_finished());
    assert_eq!(next.await.unwrap()[0].links.len(), 1);
    // It gets a full chunk at once, and later what there is.
    world.add(&[&url(1), &url(2)]).await;
    pass(10).await;
    assert!(!lingers.is_finished());
    world.add(&[&url(3)]).await;
    pass(10).await;
    assert!(lingers.is_finished());
    assert_eq!(lingers.await.unwrap()[0].links.len(), 3);
    let lingers = waits(&pipeline, claim(Stage::Crawl, 3), 5_000);
    pass(6_000).await;
    world.add(&[&url(4)]).await;
    pass(10).await;
    assert!(lingers.is_finished(), "it lingers no more");
    assert_eq!(lingers.await.unwrap()[0].links.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_claim_for_another_crawl_does_not_keep_a_link_from_its_waiter() {
    let world = World::new(1).await;
    let pipeline = Pipeline::new(world.frontier.clone());
    let other = Claim { crawl: Some("other".into()), ..claim(Stage::Crawl, 1) };
    let other = waits(&pipeline, other, 0);
    pass(10).await;
    let next = waits(&pipeline, claim(Stage::Crawl, 1), 0);
    pass(10).await;
    world.add(&[&url(0)]).await;
    pass(10).await;
    assert!(next.is_finished() && !other.is_finished());
}

/// One turn of the owner makes several links claimable, and each claim takes one.
#[tokio::test(start_paused = true)]
async fn links_that_become_ready_together_wake_as_many_claims() {
    let world = World::new(2).await;
    let pipeline = Pipeline::new(world.frontier.clone());
    let all: Vec<_> = (0..8).map(|_| waits(&pipeline, claim(Stage::Crawl, 1), 0)).collect();
    pass(10).await;
    let urls: Vec<String> = (0..8).map(url).collect();
    world.add(&urls.iter().map(String::as_str).collect::<Vec<_>>()).await;
    pass(10).await;
    assert!(all.iter().all(JoinHandle::is_finished));
}

/// The first URL of a host is put off, so its group looks ready at a time when nothing of it is due. The claim
/// continues with the group beside it, which wakes no other claim.
#[tokio::test(start_paused = true)]
async fn a_claim_does_not_sleep_beside_a_link_because_of_a_stale_ready_group() {
    let world = World::new(1).await;
    let pipeline = Pipeline::new(world.frontier.clone());
    let at = |ms| world.now().after(Millis(ms));
    let late = "http://h0.example/2";
    world.put(vec![disc_at(&url(0), at(10_000)), disc_at(late, at(3_600_000)), disc_at(&url(1), at(10_001))]).await;
    world.put(vec![known(&url(0), Some(at(7_200_000)))]).await;
    pass(10_500).await;
    let waits = waits(&pipeline, claim(Stage::Crawl, 1), 0);
    pass(10).await;
    assert!(waits.is_finished(), "{:?} {:?}", world.host("h0.example").await, world.host("h1.example").await);
    assert_eq!(&*waits.await.unwrap()[0].links[0].url.url, url(1));
}

/// Another host keeps the group ready, so a new URL of this one makes no group ready.
#[tokio::test(start_paused = true)]
async fn a_claim_for_one_host_finds_a_new_url_in_a_group_that_stayed_ready() {
    let world = World::new(1).await;
    let pipeline = Pipeline::new(world.frontier.clone());
    let [first, second] = [0, 1].map(|n| format!("h{n}.example"));
    world.set_group("both", &[&first, &second], PaceChanges::default()).await;
    world.add(&[&url(1), "http://h0.example/0"]).await;
    let one = Claim { host: Some(first.as_str().into()), crawl: Some("DEFAULT".into()), ..claim(Stage::Crawl, 1) };
    let taken = pipeline.claim(one.clone(), Millis(0), Millis(0)).await.unwrap();
    crawl(&pipeline, &taken[0]).await;
    let waits = waits(&pipeline, one, 0);
    pass(5_000).await;
    assert!(!waits.is_finished());
    world.add(&[&url(0)]).await;
    pass(2_000).await;
    assert!(waits.is_finished());
}

/// A caller that may not wait: others have all places.
struct NoPlace;

impl Patience for NoPlace {
    fn sleep(&mut self) -> CallResult<BoxFuture<'static, ()>> {
        Err(Refusal::Overloaded)
    }
}

/// A regression: crawlers that linger got nothing while strangers had all places for calls that wait.
#[tokio::test(start_paused = true)]
async fn a_claim_that_lingers_and_may_not_wait_takes_what_there_is() {
    let world = World::new(1).await;
    let pipeline = Pipeline::new(world.frontier.clone());
    world.add(&[&url(0)]).await;
    let take = async || pipeline.clone().claim_while(claim(Stage::Crawl, 4), WAIT, Millis(5_000), &mut NoPlace).await;
    assert_eq!(take().await.unwrap()[0].links.len(), 1, "less than a full chunk");
    assert_eq!(take().await, Err(Refusal::Overloaded), "there is nothing");
}
