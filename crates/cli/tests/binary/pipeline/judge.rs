//! What must hold when all processes are left alone again.

use std::collections::HashSet;

use futures::TryStreamExt as _;
use wayleave_api::chunks::{Chunk, ChunkState, ListChunksQuery};
use wayleave_api::fleet::{Desired, SetMachineRequest};
use wayleave_api::map::GetMapQuery;
use wayleave_api::placements::{CopyState, ListPlacementsQuery, Placement};
use wayleave_api::urls::{ListUrlsQuery, UrlState};

use super::killer::Kills;
use super::stage::{CRAWL, ROWS, Stage};
use super::words;
use crate::prelude::*;

/// Only a pipeline that hangs takes longer without any change. A machine that is lost with its files costs most: 30 s until
/// it is failed, 60 s until its chunks are placed again; three times half a minute until an index is built anew.
const STILL_MAX: Duration = Duration::from_secs(180);

/// How often the state is looked at.
const LOOK: Duration = Duration::from_millis(500);

impl Stage {
    /// How many chunks are in which state.
    pub async fn chunk_counts(&self) -> BTreeMap<String, usize> {
        let mut counts = BTreeMap::new();
        for chunk in self.chunks().await {
            *counts.entry(format!("{:?}", chunk.state)).or_default() += 1;
        }
        counts
    }

    async fn chunks(&self) -> Vec<Chunk> {
        let query = ListChunksQuery { limit: Some(1_000), ..ListChunksQuery::default() };
        self.client.all_chunks(query).try_collect().await.unwrap()
    }

    async fn placements(&self) -> Vec<Placement> {
        let query = ListPlacementsQuery { limit: Some(1_000), ..ListPlacementsQuery::default() };
        self.client.all_placements(query).try_collect().await.unwrap()
    }
}

/// Waits until nothing is left to do; then checks everything, and prints one line of figures.
pub async fn check(stage: &mut Stage, kills: &Kills) {
    let map = whole(stage).await;
    let took = stage.begun.elapsed();
    remove_lost(stage).await;
    let links = check_links(stage).await;
    let (built, skipped) = check_chunks(stage).await;
    check_placements(stage, &built).await;
    let (visits, gap) = check_politeness(stage);
    println!("  {} s: all is built and served; every word is searched now", took.as_secs());
    let searched = words::check(stage, &map).await;
    println!(
        "seen: {links} links of {} hosts in {} chunks ({skipped} skipped) in {:.1} s: every link settled, every chunk built once \
         and ready once in each of {ROWS} rows; {kills}, {} machines lost with their files; {visits} visits, smallest gap {} ms of {} ms asked for, 0 overlaps; \
         {searched} words searched and found, in all rows",
        stage.size.hosts,
        built.len(),
        took.as_secs_f64(),
        stage.lost.len(),
        gap.as_millis(),
        stage.size.delay.as_millis(),
    );
}

/// The map, once it has every built chunk in every row.
async fn whole(stage: &mut Stage) -> Map {
    let (mut since, mut last) = (Instant::now(), String::new());
    loop {
        let settled = stage.is_settled().await;
        let map = stage.client.map(&GetMapQuery::default()).await.unwrap().unwrap();
        let mut placements = stage.placements().await;
        // What a lost machine should delete stays on its list until the machine is removed.
        placements.retain(|copy| copy.state != CopyState::Draining || !stage.lost.contains(&copy.server));
        let ready = placements.iter().filter(|placement| placement.state == CopyState::Ready).count();
        let chunks = stage.chunk_counts().await;
        let built = chunks.get("Built").copied().unwrap_or_default();
        if settled && map.missing_count == 0 && ready == placements.len() && ready == ROWS * built {
            return map;
        }
        let now = format!("{chunks:?}, {} of {} copies ready, {} missing", ready, placements.len(), map.missing_count);
        if now != last {
            (since, last) = (Instant::now(), now);
        }
        if since.elapsed() > STILL_MAX {
            explain(stage, &placements).await;
            panic!("nothing moves any more: settled: {settled}, {last}");
        }
        tokio::time::sleep(LOOK).await;
    }
}

/// Takes the machines that are lost out of the fleet, as their operator would: none is needed any more.
async fn remove_lost(stage: &Stage) {
    for name in &stage.lost {
        let drain = SetMachineRequest { desired: Desired::Drain };
        stage.client.set_machine(name, &drain).await.unwrap();
        stage.client.delete_machine(name).await.unwrap();
    }
    let begun = Instant::now();
    while stage.placements().await.iter().any(|copy| stage.lost.contains(&copy.server)) {
        assert!(begun.elapsed() < STILL_MAX, "copies on machines that are gone");
        tokio::time::sleep(LOOK).await;
    }
}

/// What is not at its end, and why.
async fn explain(stage: &Stage, placements: &[Placement]) {
    let crawl = stage.client.crawl(CRAWL).await.unwrap();
    println!("{:?}, waits for {:?}", crawl.counts, crawl.waits_for);
    for chunk in stage.chunks().await.iter().filter(|chunk| !is_over(chunk)).take(10) {
        println!("{chunk:?}");
    }
    for placement in placements.iter().filter(|placement| placement.state != CopyState::Ready).take(10) {
        println!("{placement:?}");
    }
}

fn is_over(chunk: &Chunk) -> bool {
    matches!(chunk.state, ChunkState::Built | ChunkState::Skipped)
}

/// Every link of the site is known and has ended as it should. Returns how many there are.
async fn check_links(stage: &Stage) -> usize {
    let query = ListUrlsQuery { crawl: Some(CRAWL.to_owned()), limit: Some(1_000), ..ListUrlsQuery::default() };
    let urls: Vec<_> = stage.client.all_urls(query).try_collect().await.unwrap();
    let states: HashMap<String, UrlState> = urls.iter().map(|url| (url.url.clone(), url.state)).collect();
    let mut wanted: HashMap<String, UrlState> =
        stage.site.indexable().map(|(url, _)| (url.to_string(), UrlState::Fetched)).collect();
    for seed in stage.site.seeds() {
        for (state, paths) in [
            (UrlState::Fetched, &["/moved", "/moved-away", "/loop", "/noindex", "/twin"][..]),
            (UrlState::Gone, &["/missing"]),
            (UrlState::Failed, &["/broken", "/private/secret"]),
        ] {
            wanted.extend(paths.iter().map(|path| (seed.join(path).unwrap().to_string(), state)));
        }
    }
    let wrong: Vec<_> = wanted.iter().filter(|(url, state)| states.get(*url) != Some(state)).collect();
    let wrong: Vec<_> = wrong.iter().map(|(url, _)| urls.iter().find(|known| known.url == **url).ok_or(url)).collect();
    assert!(wrong.is_empty(), "{} links ended otherwise, such as {:#?}", wrong.len(), &wrong[..wrong.len().min(5)]);
    assert_eq!(states.len(), wanted.len(), "links that the site does not have");
    assert_eq!((urls.len(), wanted.len()), (states.len(), stage.size.links_of_all()), "a link is listed twice");
    urls.len()
}

/// Every chunk has ended, and none shares its files with another. Returns those that are built, and the number of the others.
async fn check_chunks(stage: &Stage) -> (HashSet<String>, usize) {
    let chunks = stage.chunks().await;
    for chunk in &chunks {
        assert!(is_over(chunk), "{chunk:?}");
        assert!(chunk.worker.is_none(), "{chunk:?}");
    }
    let built: Vec<&Chunk> = chunks.iter().filter(|chunk| chunk.state == ChunkState::Built).collect();
    assert!(built.iter().all(|chunk| chunk.links.crawling == 0 && chunk.links.crawled > 0), "{built:?}");
    let locations = built.iter().flat_map(|chunk| {
        let artifacts = &chunk.artifacts;
        [&artifacts.crawl, &artifacts.build].map(|artifact| artifact.clone().unwrap().location)
    });
    assert_eq!(locations.collect::<HashSet<_>>().len(), 2 * built.len());
    let ids: HashSet<String> = built.iter().map(|chunk| chunk.id.clone()).collect();
    assert_eq!(ids.len(), built.len());
    (ids, chunks.len() - built.len())
}

/// Every built chunk is ready in every row, once, and nothing else is placed anywhere.
async fn check_placements(stage: &Stage, built: &HashSet<String>) {
    let mut copies: HashMap<(String, u8), usize> = HashMap::new();
    for placement in stage.placements().await {
        assert_eq!(placement.state, CopyState::Ready, "{placement:?}");
        assert!(built.contains(&placement.chunk), "{placement:?}");
        *copies.entry((placement.chunk, placement.row)).or_default() += 1;
    }
    assert!(copies.values().all(|count| *count == 1), "{copies:?}");
    assert_eq!(copies.len(), ROWS * built.len());
}

/// By the hosts' own access logs nobody overlapped or came back too early. Returns the visits and the smallest gap.
fn check_politeness(stage: &Stage) -> (usize, Duration) {
    let log = stage.site.log();
    assert_eq!(log.lost(), 0);
    let treated = log.politeness();
    assert_eq!(treated.len(), stage.size.hosts);
    for (host, treated) in &treated {
        assert_eq!(treated.overlaps, 0, "{host}: {treated:?}");
        assert!(treated.smallest_gap.is_some_and(|gap| gap >= stage.size.delay), "{host}: {treated:?}");
    }
    assert!(log.entries().iter().all(|access| access.path != "/private/secret"));
    let gap = treated.values().filter_map(|host| host.smallest_gap).min().unwrap();
    (treated.values().map(|host| host.visits).sum(), gap)
}
