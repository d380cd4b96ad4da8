//! Chunks that move to another store: whatever a pipeline has come to, every law holds there after each chunk, every URL is
//! queued, in one chunk or finished, and everything ends.

use std::collections::BTreeSet;

use proptest::prelude::*;
use wayleave_core::frontier::request::{Put, PutKind};
use wayleave_core::frontier::row::UrlStatus;
use wayleave_core::ids::{ChunkId, ShardId};
use wayleave_core::metadata::Metadata;
use wayleave_core::pipeline::carry::{CarriedChunk, CarriedLinkState};
use wayleave_core::pipeline::request::{EndChunk, Stage};
use wayleave_core::pipeline::restore::Restored;
use wayleave_core::pipeline::row::{ChunkRow, ChunkState, LinkState};
use wayleave_core::time::Millis;

use super::properties::{World, steps};
use super::support::{Works, artifact, claim_of};
use super::{crawl, report_all, with_hosts};

/// What an import puts for each URL of a store, before the chunks.
fn puts(works: &Works) -> Vec<Put> {
    let names = |queue| works.shard.state.queue_names(queue);
    let urls = works.shard.store.urls.iter().filter_map(|((queue, key), row)| {
        let (host, crawl) = names(*queue)?;
        let waits = |lane: u8, due| PutKind::Discovered { at: Some(due), priority: 9 - lane, depth: 0 };
        let kind = match &row.status {
            UrlStatus::Queued(position) | UrlStatus::Held { position, .. } | UrlStatus::Reserved { position, .. } => {
                waits(position.lane, position.due)
            }
            UrlStatus::Done { .. } => PutKind::Known { due: None },
        };
        let url = key.url(&host, row.whole.as_deref());
        Some(Put { url, host, crawl, kind, metadata: Metadata::default() })
    });
    urls.collect()
}

/// A store with the URLs of another, and the chunks to restore.
pub fn moved(from: &Works, foreign: bool) -> (World, Vec<CarriedChunk>) {
    let mut world = World::new();
    world.works.shard.now = from.shard.now;
    for put in puts(from) {
        world.works.shard.put(put);
    }
    let carried = from.rows.keys().map(|id| {
        let chunk = from.carry(*id);
        // As from a store with more shards.
        let id = if foreign { ChunkId::new(ShardId(9), id.counter()) } else { *id };
        CarriedChunk { id, ..chunk }
    });
    (world, carried.collect())
}

/// Every URL that is handed out is in one reservation, which exists.
fn check_urls(works: &Works) {
    for (url, row) in &works.shard.store.urls {
        if let UrlStatus::Reserved { token, .. } = &row.status {
            let lease = works.shard.store.leases.get(token);
            assert!(lease.is_some_and(|lease| lease.urls.contains(url)), "{url:?} is lost: {row:?}");
        }
    }
}

/// How many links a chunk can take: their URLs may have been deleted, or be with another worker or chunk.
fn free(works: &Works, carried: &CarriedChunk) -> usize {
    let urls = carried.urls(&works.shard.state);
    let wanted = urls.iter().zip(works.shard.known(&urls)).zip(&carried.links);
    let wanted =
        wanted.filter(|(_, link)| matches!(link.state, CarriedLinkState::Crawling | CarriedLinkState::Crawled));
    let free = wanted.filter(|((_, known), _)| {
        let status = known.as_ref().map(|known| &known.row.status);
        matches!(status, Some(UrlStatus::Queued(_) | UrlStatus::Done { .. }))
    });
    free.map(|((url, _), _)| url).collect::<BTreeSet<_>>().len()
}

fn check_same(row: &ChunkRow, carried: &CarriedChunk, free: usize) {
    let same = (row.attempts, row.inputs_lost, row.index, row.indexes_lost, row.created_at);
    let chunk = (carried.attempts, carried.inputs_lost, carried.index, carried.indexes_lost, carried.created_at);
    assert_eq!(same, chunk);
    assert!(row.lease.is_none() && !row.placed && row.ended == [None; 2]);
    assert_eq!((&row.crawled, &row.built), (&carried.crawled, &carried.built));
    let state = if carried.state == ChunkState::Building { ChunkState::Crawled } else { carried.state };
    let held = row.links.iter().filter(|link| link.lease.is_some()).count();
    if carried.state != ChunkState::Crawling {
        assert_eq!((row.state, &row.last_error, row.links.len()), (state, &carried.last_error, carried.links.len()));
    } else {
        let wanted = if free == 0 { ChunkState::Skipped } else { state };
        assert_eq!((row.state, held), (wanted, free), "{row:?} {carried:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_000, max_shrink_iters: 2_000, ..ProptestConfig::default() })]

    #[test]
    fn a_pipeline_goes_on_in_another_store_from_wherever_it_was(
        steps in steps(), early in 0..3usize, foreign: bool, reload: bool, order in any::<u64>(),
    ) {
        let mut source = World::new();
        for step in &steps {
            source.run(step);
            source.laws();
        }
        let (mut world, mut carried) = moved(&source.works, foreign);
        // Workers that are faster than the import.
        let claimed = world.works.claim(&claim_of(Stage::Crawl, "early", early, 2));
        world.claimed(&claimed);
        let shift = order as usize % carried.len().max(1);
        carried.rotate_left(shift);
        for chunk in &carried {
            let clash = world.works.rows.get(&chunk.id).is_some_and(|row| row.created_at != chunk.created_at);
            let free = free(&world.works, chunk);
            let restored = world.works.restore(chunk);
            if clash {
                prop_assert!(matches!(restored, Restored::Refused(_)));
                continue;
            }
            if reload {
                world.works.reload();
            }
            world.laws();
            check_urls(&world.works);
            if restored == Restored::Restored {
                check_same(&world.works.rows[&chunk.id], chunk, free);
            }
            prop_assert_eq!(world.works.restore(chunk), Restored::Known, "an import may be repeated");
        }
        let next = world.works.pipeline.peek_id();
        prop_assert!(world.works.rows.keys().all(|id| *id != next));
        world.calm();
    }
}

#[test]
fn leases_end_and_tokens_are_not_carried() {
    let mut source = with_hosts(6);
    let reported = crawl(&mut source, 3);
    report_all(&mut source, &reported);
    let crawled = crawl(&mut source, 3);
    report_all(&mut source, &crawled);
    source.end(&crawled, &EndChunk::Complete(Some(artifact(1)))).unwrap();
    let building = source.claim(&claim_of(Stage::Build, "b", 1, 0)).remove(0);
    let (mut world, carried) = moved(&source, false);
    assert_eq!(carried.iter().map(|chunk| chunk.worker.is_some()).collect::<Vec<_>>(), [true, true]);
    for chunk in &carried {
        assert_eq!(world.works.restore(chunk), Restored::Restored);
    }
    assert!(world.works.end(&reported, &EndChunk::Complete(Some(artifact(1)))).is_err());
    assert!(world.works.end(&building, &EndChunk::Complete(Some(artifact(2)))).is_err());
    world.works.shard.now = world.works.shard.now.after(Millis(1));
    let again = crawl(&mut world.works, 3);
    assert_eq!((again.id, again.links.len(), again.attempts), (reported.id, 3, 0), "whole, and no attempt is counted");
    assert!(world.works.rows[&again.id].links.iter().all(|link| link.state == LinkState::Crawling));
    let build = world.works.claim(&claim_of(Stage::Build, "b", 5, 0));
    assert_eq!((build.len(), build[0].id, &build[0].input), (1, building.id, &Some(artifact(1))));
}

#[test]
fn a_chunk_that_contradicts_itself_or_another_is_refused_and_changes_nothing() {
    let mut source = with_hosts(1);
    let chunk = crawl(&mut source, 1);
    let good = source.carry(chunk.id);
    let (mut world, _) = moved(&source, false);
    let refused = |works: &mut Works, chunk: &CarriedChunk, why: &str| match works.restore(chunk) {
        Restored::Refused(told) => assert!(told.contains(why), "{told}"),
        other => panic!("{other:?}: {why}"),
    };
    let crawled = Some(artifact(1));
    for (bad, why) in [
        (CarriedChunk { state: ChunkState::Crawled, ..good.clone() }, "no artifact of its crawl stage"),
        (CarriedChunk { crawled: crawled.clone(), ..good.clone() }, "has an artifact of its crawl stage"),
        (CarriedChunk { state: ChunkState::Built, crawled, ..good.clone() }, "no artifact of its build stage"),
        (CarriedChunk { built: Some(artifact(1)), ..good.clone() }, "an artifact of its build stage"),
        (CarriedChunk { host: Some("other".into()), ..good.clone() }, "a link of another"),
        (CarriedChunk { links: vec![good.links[0].clone(); 4_001], ..good.clone() }, "the limit is 4000"),
        (CarriedChunk { id: ChunkId(u64::MAX), ..good.clone() }, "not made by Wayleave"),
    ] {
        refused(&mut world.works, &bad, why);
    }
    assert_eq!(world.works.restore(&good), Restored::Restored);
    refused(&mut world.works, &CarriedChunk { crawl: "other".into(), ..good.clone() }, "import into a store without");
    // A link that is named twice is one.
    let (mut world, _) = moved(&source, false);
    let twice = CarriedChunk { links: vec![good.links[0].clone(); 2], ..good };
    assert_eq!(world.works.restore(&twice), Restored::Restored);
    world.laws();
    assert_eq!(world.works.rows[&twice.id].links.len(), 1);
}
