//! Chunks, copies and machines that move to another store, with another number of shards, restarted after every step.

use std::collections::BTreeSet;

use wayleave_core::fleet::{CarriedMachine, Desired, Judged, Report};
use wayleave_core::frontier::request::{Outcome, Put, PutKind, PutOutcome, UrlResult};
use wayleave_core::frontier::view::{UrlFilter, UrlState, UrlView};
use wayleave_core::ids::{ChunkId, ShardId};
use wayleave_core::pipeline::carry::{CarriedChunk, CarriedLinkState};
use wayleave_core::pipeline::request::{Claim, Claimed, EndChunk, ReportLinks, Stage};
use wayleave_core::pipeline::restore::Restored;
use wayleave_core::pipeline::row::{Artifact, ChunkState};
use wayleave_core::pipeline::view::ChunkFilter;
use wayleave_core::placement::{CopyReport, PlacementState};
use wayleave_core::time::Millis;
use wayleave_shard::pipeline::Pipeline;

use crate::fleet::{Machines, NOW, report};
use crate::support::*;

const SERVERS: [&str; 3] = ["a0", "a1", "b0"];

fn claim(stage: Stage) -> Claim {
    let (crawl, host, request) = (None, None, None);
    Claim { stage, worker: "w".into(), crawl, chunks: 1, links: 1, links_min: 1, host, lease: Millis(60_000), request }
}

fn artifact(chunk: ChunkId) -> EndChunk {
    EndChunk::Complete(Some(Artifact { location: format!("http://store/{chunk}").into(), bytes: 9, checksum: [1; 32] }))
}

fn pipeline(machines: &Machines) -> Pipeline {
    Pipeline::new(machines.world.frontier.clone())
}

async fn take(machines: &Machines, stage: Stage) -> Option<Claimed> {
    pipeline(machines).claim(claim(stage), NOW, NOW).await.unwrap().pop()
}

/// Crawls a chunk, if there is one to crawl.
async fn crawl(machines: &Machines) -> Option<Claimed> {
    crawl_links(machines, 1).await
}

async fn crawl_links(machines: &Machines, links: usize) -> Option<Claimed> {
    let claim = Claim { links, ..claim(Stage::Crawl) };
    let chunk = pipeline(machines).claim(claim, NOW, NOW).await.unwrap().pop()?;
    let results = chunk.links.iter().map(|link| UrlResult::new(&*link.url.url, Outcome::Fetched)).collect();
    let report = ReportLinks { chunk: chunk.id, token: chunk.token, results, replace: false };
    pipeline(machines).report(report, Vec::new()).await.unwrap();
    pipeline(machines).end(chunk.id, chunk.token, artifact(chunk.id)).await.unwrap();
    Some(chunk)
}

async fn build(machines: &Machines) -> Option<ChunkId> {
    let chunk = take(machines, Stage::Build).await?;
    pipeline(machines).end(chunk.id, chunk.token, artifact(chunk.id)).await.unwrap();
    Some(chunk.id)
}

/// All chunks as an export carries them, page by page.
async fn carry(machines: &Machines) -> Vec<CarriedChunk> {
    let (mut all, mut after) = (Vec::new(), None);
    loop {
        let (chunks, next) = pipeline(machines).carry(None, after).await.unwrap();
        all.extend(chunks);
        after = next;
        if after.is_none() {
            return all;
        }
    }
}

/// Six built chunks with copies on three servers, one that is being built, two crawled, three that are being crawled, and
/// two URLs that wait.
async fn filled() -> Machines {
    let mut machines = Machines::new(5).await;
    for id in SERVERS {
        machines.beat(id).await;
    }
    let urls: Vec<String> = (0..14).map(|n| format!("http://h{n}.example/")).collect();
    machines.world.add(&urls.iter().map(String::as_str).collect::<Vec<_>>()).await;
    for _ in 0..6 {
        crawl(&machines).await.unwrap();
        build(&machines).await.unwrap();
    }
    machines.pass(5_000, &SERVERS).await;
    for server in SERVERS {
        let filter = wayleave_core::placement::Filter { server: Some(server.into()), ..Default::default() };
        for copy in machines.fleet.placements(filter, None, 1_000).await.unwrap().placements {
            let token = machines.tokens.get(server).copied();
            machines.fleet.report_copy(copy.chunk, server.into(), (CopyReport::Ready, None), token).await.unwrap();
        }
    }
    for _ in 0..3 {
        crawl(&machines).await.unwrap();
    }
    take(&machines, Stage::Build).await.unwrap();
    for _ in 0..3 {
        take(&machines, Stage::Crawl).await.unwrap();
    }
    machines
}

/// Imports everything but the chunks.
async fn import_rest(from: &Machines, to: &mut Machines) {
    let version = from.version().await;
    to.fleet.raise_map_version(version + 1_000).await.unwrap();
    for id in SERVERS {
        let desired = if id == "a1" { Desired::Paused } else { Desired::Online };
        let (seen_at, registered_at) = (from.world.now(), from.world.now());
        let carried = CarriedMachine { report: report(id), desired, failures: 1, seen_at, registered_at };
        let view = to.fleet.restore_machine(id.into(), carried).await.unwrap();
        assert_eq!((view.judged, view.desired), (Judged::Suspect, desired));
    }
    put_urls(&from.world.urls(&UrlFilter::default(), 100).await, to).await;
}

/// Imports URLs as they were read.
async fn put_urls(urls: &[UrlView], to: &Machines) {
    put_urls_for(urls, to, &PutOutcome::Added).await;
}

async fn put_urls_for(urls: &[UrlView], to: &Machines, outcome: &PutOutcome) {
    for url in urls {
        let kind = match url.state {
            UrlState::Queued | UrlState::Reserved => PutKind::Discovered { at: None, priority: 5, depth: 0 },
            _ => PutKind::Restored { due: None },
        };
        let put = Put { kind, ..disc(&url.url) };
        assert_eq!(&to.world.put(vec![put]).await[0], outcome, "{}", url.url);
    }
}

/// The part of a chunk that every store keeps.
fn kept(chunk: &CarriedChunk) -> CarriedChunk {
    let state = if chunk.state == ChunkState::Building { ChunkState::Crawled } else { chunk.state };
    let since = if state == ChunkState::Crawling { chunk.created_at } else { chunk.since };
    CarriedChunk { state, worker: None, since, ..chunk.clone() }
}

#[tokio::test(start_paused = true)]
async fn chunks_and_copies_move_to_any_number_of_shards_and_nothing_is_lost_or_handed_out_twice() {
    let from = filled().await;
    let carried = carry(&from).await;
    assert_eq!(carried.len(), 12);
    assert_eq!(carried.iter().map(|chunk| chunk.copies.len()).sum::<usize>(), 12, "six in each of two rows");
    let known: BTreeSet<ChunkId> = carried.iter().map(|chunk| chunk.id).collect();
    for shards in [5, 1, 2, 4, 6, 11] {
        let mut to = Machines::new(shards).await;
        // Its clock is not behind that of the other store.
        pass(10_000).await;
        import_rest(&from, &mut to).await;
        to.reopen().await;
        // One after the other, with a restart after each, and the whole again.
        for chunk in &carried {
            assert_eq!(pipeline(&to).restore(vec![chunk.clone()]).await.unwrap(), [Restored::Restored]);
            to.reopen().await;
            assert_eq!(pipeline(&to).chunk(chunk.id).await.unwrap().id, chunk.id, "found by its id");
        }
        assert_eq!(pipeline(&to).restore(carried.clone()).await.unwrap(), vec![Restored::Known; carried.len()]);
        pass(2_000).await;
        let ours = carry(&to).await;
        assert_eq!(ours.iter().map(|chunk| chunk.id).collect::<BTreeSet<_>>(), known);
        let (listed, next) = pipeline(&to).chunks(ChunkFilter::default(), None, 100).await.unwrap();
        assert_eq!((listed.len(), next), (carried.len(), None));
        let mut skipped = 0;
        for chunk in &carried {
            let our = ours.iter().find(|our| our.id == chunk.id).unwrap();
            if chunk.state == ChunkState::Crawling && our.state == ChunkState::Skipped {
                skipped += 1;
                continue;
            }
            assert_eq!(kept(our), kept(chunk), "{shards} shards");
        }
        assert!(shards != 5 || skipped == 0, "with the same number of shards all links are at home");
        // Every URL that is not finished is handed out once; new chunks have new ids.
        let mut urls = BTreeSet::new();
        while let Some(chunk) = crawl(&to).await {
            assert!(known.contains(&chunk.id) || chunk.id.counter() > 1_000_000, "{}", chunk.id);
            for link in chunk.links {
                assert!(urls.insert(link.url.url.clone()), "{} was handed out twice", link.url.url);
            }
        }
        assert_eq!(urls.len(), 5, "{shards} shards: {urls:?}");
        let mut built = 6;
        while build(&to).await.is_some() {
            built += 1;
        }
        assert_eq!(built, 14, "{shards} shards");
    }
}

/// The content of chunks is lost after the export has read their URLs, which it calls fetched: only the chunks say that
/// they are to be crawled again. In a store with another number of shards most hosts live elsewhere than their chunk.
#[tokio::test(start_paused = true)]
async fn links_whose_urls_were_read_before_their_content_was_lost_are_crawled_again_wherever_their_hosts_live() {
    let from = Machines::new(3).await;
    let long = format!("http://h0.example/{}", "x".repeat(2_000));
    let urls: Vec<String> = (1..12).map(|n| format!("http://h{n}.example/")).chain([long]).collect();
    from.world.add(&urls.iter().map(String::as_str).collect::<Vec<_>>()).await;
    let mut chunks = 0;
    while crawl_links(&from, 3).await.is_some() {
        chunks += 1;
    }
    let read = from.world.urls(&UrlFilter::default(), 100).await;
    assert!(read.iter().all(|url| url.state == UrlState::Fetched));
    while let Some(chunk) = take(&from, Stage::Build).await {
        let lost = EndChunk::Fail { reason: "404".into(), input_lost: true };
        pipeline(&from).end(chunk.id, chunk.token, lost).await.unwrap();
    }
    let carried = carry(&from).await;
    assert_eq!((carried.len(), carried.iter().map(|chunk| chunk.links.len()).sum::<usize>()), (chunks, 12));
    assert!(carried.iter().all(|chunk| chunk.state == ChunkState::Crawling));
    for shards in [3, 1, 2, 5, 16] {
        let mut to = Machines::new(shards).await;
        pass(10_000).await;
        put_urls(&read, &to).await;
        for chunk in &carried {
            assert_eq!(pipeline(&to).restore(vec![chunk.clone()]).await.unwrap(), [Restored::Restored]);
            to.reopen().await;
            // The import is repeated from its beginning.
            put_urls_for(&read, &to, &PutOutcome::Known).await;
        }
        assert_eq!(pipeline(&to).restore(carried.clone()).await.unwrap(), vec![Restored::Known; carried.len()]);
        pass(2_000).await;
        let mut crawled = BTreeSet::new();
        while let Some(chunk) = crawl_links(&to, 3).await {
            for link in chunk.links {
                assert!(crawled.insert(link.url.url.to_string()), "{} was handed out twice", link.url.url);
            }
        }
        assert_eq!(crawled, urls.iter().cloned().collect(), "{shards} shards");
        // What has ended since is not brought back by a repeated import.
        assert_eq!(pipeline(&to).restore(carried.clone()).await.unwrap(), vec![Restored::Known; carried.len()]);
        pass(2_000).await;
        assert!(take(&to, Stage::Crawl).await.is_none());
    }
}

/// The servers are suspect until they report, and keep what they have; one that does not report in ten minutes has failed.
#[tokio::test(start_paused = true)]
async fn restored_servers_keep_their_copies_and_have_time_to_report() {
    let from = filled().await;
    let carried = carry(&from).await;
    let mut to = Machines::new(3).await;
    // The owner has listened for long when the machines come.
    pass(3_600_000).await;
    import_rest(&from, &mut to).await;
    for part in carried.chunks(5) {
        pipeline(&to).restore(part.to_vec()).await.unwrap();
    }
    let copies = |page: wayleave_core::placement::Page| -> Vec<_> {
        page.placements.into_iter().map(|copy| (copy.chunk, copy.server, copy.state)).collect()
    };
    let all = |machines: &Machines| {
        let fleet = machines.fleet.clone();
        async move { copies(fleet.placements(Default::default(), None, 1_000).await.unwrap()) }
    };
    assert_eq!(all(&to).await, all(&from).await);
    assert!(to.version().await > from.version().await);
    pass(60_000).await;
    to.reopen().await;
    assert_eq!(to.judged("a0").await, Judged::Suspect);
    // Another token is refused; a report without one registers it again.
    let old = Report { token: from.tokens.get("a0").copied(), ..report("a0") };
    assert!(to.try_report("a0", old).await.is_err());
    let elsewhere = Report { row: Some(1), ..report("a0") };
    assert!(to.try_report("a0", elsewhere).await.is_err(), "its row cannot change");
    assert_eq!(to.beat("a0").await.judged, Judged::Healthy);
    assert!(to.fleet.report("a0".into(), Report { address: "x.example:80".into(), ..report("a0") }).await.is_err());
    to.beat("b0").await;
    to.pass(300_000, &["a0", "b0"]).await;
    assert_eq!(all(&to).await, all(&from).await, "nothing moves while a1 may still come");
    assert_eq!((to.judged("a1").await, to.view("a1").await.desired), (Judged::Suspect, Desired::Paused));
    to.pass(400_000, &["a0", "b0"]).await;
    assert_eq!(to.judged("a1").await, Judged::Failed);
    let moved = all(&to).await;
    assert!(
        moved.iter().any(|(_, server, state)| &**server == "a0" && *state == PlacementState::Assigned),
        "{moved:?}"
    );
    // Restoring it again sets only what the operator wants.
    let (seen_at, registered_at) = (to.world.now(), to.world.now());
    let again = CarriedMachine { report: report("a0"), desired: Desired::Drain, failures: 0, seen_at, registered_at };
    let view = to.fleet.restore_machine("a0".into(), again).await.unwrap();
    assert_eq!((view.judged, view.desired), (Judged::Healthy, Desired::Drain));
    assert_eq!(carried[0].links[0].state, CarriedLinkState::Crawled);
    assert!(carried.iter().all(|chunk| chunk.id.shard() < ShardId(5)));
}
