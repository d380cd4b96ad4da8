//! Bounds of imports of chunks: numbers that a file may take.

use wayleave_core::ids::{ChunkId, ShardId};
use wayleave_core::limits::{CHUNK_COUNTER_RESTORED_MAX, CHUNK_NUMBERS_AHEAD_MAX};
use wayleave_core::pipeline::carry::CarriedChunk;
use wayleave_core::pipeline::request::{Claim, Stage};
use wayleave_core::pipeline::restore::Restored;
use wayleave_core::pipeline::row::{Artifact, ChunkState};
use wayleave_core::time::{Millis, Time};
use wayleave_shard::pipeline::Pipeline;

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
    for number in [CHUNK_COUNTER_RESTORED_MAX - 1, next + CHUNK_NUMBERS_AHEAD_MAX] {
        let bad = crawled(number);
        let told = pipeline.restore(vec![crawled(1), bad.clone()]).await.unwrap();
        let [Restored::Known, Restored::Refused(why)] = &told[..] else { panic!("{told:?}") };
        assert!(why.contains(&format!("chunk '{}'", bad.id)) && why.contains("above the next one"), "{why}");
    }
    assert_eq!(pipeline.next_number().await, Ok(next), "a refused chunk moves nothing");
    // The worst that is accepted, and then everything goes on, here and in the next store.
    let far = next + CHUNK_NUMBERS_AHEAD_MAX - 1;
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
