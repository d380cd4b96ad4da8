//! What servers and the pipeline may say, and what is refused.

use wayleave_core::placement::Built;

use super::*;

#[test]
fn a_copy_goes_through_its_states_and_every_repeat_is_the_same_answer() {
    let mut world = World::with_servers(1);
    world.build(1, 10);
    for (reported, state) in
        [(CopyReport::Fetching, PlacementState::Fetching), (CopyReport::Ready, PlacementState::Ready)]
    {
        assert_eq!(world.report(1, "s0", reported), Ok(Some(state)));
        world.commit();
        assert_eq!(world.report(1, "s0", reported), Ok(Some(state)));
        assert_eq!(world.out, []);
    }
    let answer = world.report(1, "s0", CopyReport::Fetching).unwrap_err();
    assert!(matches!(answer, Refusal::WrongStep { .. }));
    assert_eq!(world.out, []);
    assert!(
        answer
            .to_string()
            .starts_with("chunk 1 on server 's0' is ready and cannot become fetching: assigned may become")
    );
    world.build(2, 10);
    assert_eq!(world.report(2, "s0", CopyReport::Ready), Ok(Some(PlacementState::Ready)), "assigned may become ready");
}

#[test]
fn a_server_that_has_lost_a_copy_is_replaced_by_another_if_there_is_one() {
    let mut world = World::with_servers(2);
    (0..4).for_each(|chunk| world.build(chunk, 10));
    world.settled();
    let home = world.homes(0)[&ChunkId(0)].to_string();
    let other = if home == "s0" { "s1" } else { "s0" };
    assert_eq!(world.report(0, &home, CopyReport::Gone), Ok(None));
    world.commit();
    assert_eq!(&*world.homes(0)[&ChunkId(0)], other);
    assert_eq!(world.report(0, other, CopyReport::Gone), Ok(None), "and back again");
    assert_eq!(world.report(0, other, CopyReport::Gone), Ok(None), "a repeat changes nothing");

    let mut alone = World::with_servers(1);
    alone.build(0, 10);
    alone.settle();
    assert_eq!(alone.report(0, "s0", CopyReport::Gone), Ok(Some(PlacementState::Assigned)), "it fetches it again");
}

#[test]
fn what_is_not_known_is_named_and_changes_nothing() {
    let mut world = World::with_servers(2);
    world.build(1, 10);
    world.settled();
    let home = world.homes(0)[&ChunkId(1)].to_string();
    let other = if home == "s0" { "s1" } else { "s0" };
    for reported in [CopyReport::Fetching, CopyReport::Ready, CopyReport::Gone] {
        assert_eq!(world.report(9, "s0", reported), Err(Refusal::UnknownChunk(9)));
        assert_eq!(world.report(1, "x", reported), Err(Refusal::UnknownServer("x".into())));
    }
    let stray = Refusal::NotPlaced { chunk: 1, server: other.into() };
    assert_eq!(world.report(1, other, CopyReport::Ready), Err(stray));
    assert_eq!(world.state.chunk_gone(ChunkId(9), world.now, &mut world.out), Err(Refusal::UnknownChunk(9)));
    let filter = Filter { server: Some("x".into()), ..Filter::default() };
    assert_eq!(world.state.list(&filter, None, 1, world.now), Err(Refusal::UnknownServer("x".into())));
    assert_eq!(world.state.copies_of(ChunkId(9), world.now), Err(Refusal::UnknownChunk(9)));
    assert_eq!(world.out, []);
}

#[test]
fn a_chunk_is_built_once_and_its_artifact_is_whole() {
    let mut world = World::with_servers(1);
    let good = artifact(1, 10);
    let built = |world: &mut World, artifact: &Artifact| {
        world.state.chunk_built(ChunkId(1), artifact, 0, world.now, &mut world.out)
    };
    assert_eq!(built(&mut world, &good), Ok(Built::New));
    world.commit();
    assert_eq!(built(&mut world, &good), Ok(Built::Known));
    assert_eq!(built(&mut world, &artifact(1, 11)), Err(Refusal::AnotherArtifact(1)));
    for bad in [
        Artifact { location: "".into(), ..good.clone() },
        Artifact { location: "x".repeat(2_049).into(), ..good.clone() },
        Artifact { bytes: u64::MAX, ..good.clone() },
    ] {
        assert_eq!(built(&mut world, &bad), Err(Refusal::BadArtifact { chunk: 1 }));
    }
    assert_eq!(world.out, []);
}

/// A chunk that was built anew must not be confused with the old one that a server still has.
#[test]
fn a_chunk_built_anew_waits_until_its_old_copy_is_gone() {
    let mut world = World::with_servers(1);
    world.build(1, 10);
    world.settle();
    world.gone(1);
    world.build(1, 20);
    world.pass(0);
    assert_eq!(world.list(None)[0].state, PlacementState::Draining);
    let answer = world.report(1, "s0", CopyReport::Ready);
    assert_eq!(answer, Err(Refusal::NotWanted { chunk: 1, server: "s0".into() }));
    assert_eq!(world.report(1, "s0", CopyReport::Gone), Ok(Some(PlacementState::Assigned)));
    world.settle();
    assert_eq!(world.state.map().missing_count, 0);
}

#[test]
fn sources_are_the_addresses_of_servers_that_have_it() {
    let mut world = World::with_servers(1);
    world.join("t0", 1, 1);
    world.build(1, 10);
    assert_eq!(world.list(Some("t0"))[0].sources, Vec::<std::sync::Arc<str>>::new());
    world.report(1, "s0", CopyReport::Ready).unwrap();
    assert_eq!(world.list(Some("t0"))[0].sources, ["s0:80".into()]);
    assert_eq!(world.list(Some("s0"))[0].sources, Vec::<std::sync::Arc<str>>::new(), "not from itself");
    assert_eq!(world.state.copies_of(ChunkId(1), world.now).unwrap().len(), 2);
}

#[test]
fn listings_come_in_slices_and_filters_hold() {
    let mut world = World::with_servers(3);
    world.join("t0", 1, 1);
    (0..400).for_each(|chunk| world.build(chunk, 10));
    for chunk in 0..100 {
        world.report(chunk, "t0", CopyReport::Ready).unwrap();
    }
    assert_eq!(world.list(None).len(), 800);
    let filter =
        Filter { state: Some(PlacementState::Assigned), row: Some(wayleave_core::fleet::RowNo(1)), server: None };
    let (mut after, mut seen) = (None, Vec::new());
    loop {
        let page = world.state.list(&filter, after.as_ref(), 7, world.now).unwrap();
        assert!(page.placements.len() <= 7);
        seen.extend(page.placements.iter().map(|copy| copy.chunk.0));
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    assert!(seen.into_iter().eq(100..400));
}

/// Its artifact was lost before a server had it: asking the next server does not help.
#[test]
fn a_chunk_that_no_server_can_fetch_leaves_placement_after_a_few_attempts() {
    let mut world = World::with_servers(2);
    world.build(1, 10);
    let mut last = String::new();
    for attempt in 1..=3 {
        assert_eq!(world.state.chunk_count(), 1, "attempt {attempt}");
        world.commit();
        world.state = world.store.load(world.config);
        let home = world.homes(0)[&ChunkId(1)].to_string();
        world.report(1, &home, CopyReport::Fetching).unwrap();
        world.report(1, &home, CopyReport::Gone).unwrap();
        last = format!("index servers could not fetch it in 3 attempts (the last by '{home}' from ");
    }
    assert_eq!(world.state.chunk_count(), 0);
    world.commit();
    world.state = world.store.load(world.config);
    let answer = world.state.returns(None, 10);
    assert!(matches!(&answer[..], [(ChunkId(1), 0, GiveUpReason::Lost(why))] if why.contains(&last)), "{answer:?}");
    // A late announcement of the lost index, before and after the pipeline knows.
    for _ in 0..2 {
        world.build(1, 10);
        assert_eq!(world.state.chunk_count(), 0);
        world.state.returned(&[(ChunkId(1), 0)], &mut world.out);
        assert!(!world.state.has_returns());
    }
    world.given_up(1);
    world.build(1, 10);
    world.settle();
    assert_eq!((world.state.chunk_count(), world.state.returns(None, 10)), (1, Vec::new()));
    // It is remembered for an hour.
    assert_eq!(world.state.map().missing_count, 0);
    world.pass(3_600_000);
    world.commit();
    assert_eq!((world.store.returns.len(), world.store.chunks[&ChunkId(1)].index), (0, 1));
}

#[test]
fn a_chunk_that_a_server_has_or_had_is_not_given_up() {
    let mut world = World::with_servers(2);
    world.join("t0", 1, 1);
    world.build(1, 10);
    world.report(1, "t0", CopyReport::Ready).unwrap();
    let gone = |world: &mut World| {
        world.commit();
        let home = world.homes(0)[&ChunkId(1)].to_string();
        world.report(1, &home, CopyReport::Gone).unwrap();
    };
    (0..10).for_each(|_| gone(&mut world));
    assert_eq!(world.state.chunk_count(), 1);
    // Being ready forgives; a copy that was ready and is lost is none that could not be fetched.
    world.settled();
    assert_eq!(world.store.chunks[&ChunkId(1)].unfetched, 0);
    world.report(1, "t0", CopyReport::Gone).unwrap();
    (0..2).for_each(|_| gone(&mut world));
    assert_eq!(world.state.chunk_count(), 1);
    world.commit();
    assert_eq!(world.store.chunks[&ChunkId(1)].unfetched, 1);
}

/// A store that is not mounted on one machine says nothing about the artifact.
#[test]
fn one_server_that_cannot_fetch_takes_no_chunk_from_those_that_may() {
    let mut world = World::with_servers(1);
    world.join("t0", 1, 1);
    world.build(1, 10);
    world.report(1, "t0", CopyReport::Fetching).unwrap();
    for _ in 0..5 {
        world.commit();
        world.report(1, "s0", CopyReport::Gone).unwrap();
    }
    assert_eq!(world.state.chunk_count(), 1, "the other one is fetching it");
    world.report(1, "t0", CopyReport::Ready).unwrap();
    assert_eq!(world.state.chunk_count(), 1);
    // Once all have reported so, it is given up.
    world.build(2, 10);
    for server in ["s0", "t0", "s0"] {
        world.commit();
        world.report(2, server, CopyReport::Gone).unwrap();
    }
    assert_eq!(world.state.returns(None, 9).len(), 1);
}

/// A server with a full disk, or at its limit of memory maps, says nothing about the index. It was built anew, and in the end set
/// aside, though the file was sound.
#[test]
fn a_lone_server_that_is_unable_to_keep_a_chunk_rests_and_the_chunk_stays() {
    let mut world = World::with_servers(1);
    world.build(1, 10);
    world.report(1, "s0", CopyReport::Ready).unwrap();
    for attempt in 1..=10 {
        world.commit();
        let again = world.report(1, "s0", CopyReport::Unable);
        assert_eq!(again, Ok(Some(PlacementState::Assigned)), "attempt {attempt}");
        assert_eq!((world.state.chunk_count(), world.state.has_returns()), (1, false), "attempt {attempt}");
        world.report(1, "s0", CopyReport::Fetching).unwrap();
    }
    world.commit();
    assert_eq!(world.store.chunks[&ChunkId(1)].unfetched, 0);
    let rest = world.state.explain_rest(&"s0".into(), world.now).unwrap();
    assert!(rest.starts_with("it could not fetch, keep or open chunks, 1 times in a row: "), "{rest}");
    world.report(1, "s0", CopyReport::Ready).unwrap();
    assert_eq!(world.state.explain_rest(&"s0".into(), world.now), None);
}

/// It may have the only good file of the chunk: others that cannot fetch it prove nothing.
#[test]
fn a_server_that_is_unable_may_still_have_an_unfetchable_chunk() {
    let mut world = World::with_servers(1);
    world.join("t0", 1, 1);
    world.build(1, 10);
    world.report(1, "s0", CopyReport::Unable).unwrap();
    for _ in 0..5 {
        world.commit();
        world.report(1, "t0", CopyReport::Gone).unwrap();
        world.report(1, "s0", CopyReport::Unable).unwrap();
    }
    assert_eq!(world.state.chunk_count(), 1);
    world.report(1, "s0", CopyReport::Gone).unwrap();
    assert_eq!(world.state.chunk_count(), 0, "now all have reported that they cannot fetch it");
}

/// Numbers of servers that have left are given to others.
#[test]
fn a_new_server_is_not_taken_for_one_that_could_not_fetch() {
    let mut world = World::with_servers(1);
    world.join("t0", 1, 1);
    world.build(1, 10);
    world.commit();
    world.report(1, "s0", CopyReport::Gone).unwrap();
    world.leave("s0");
    world.pass(0);
    world.join("s1", 0, 1);
    world.pass(0);
    for _ in 0..2 {
        world.commit();
        world.report(1, "t0", CopyReport::Gone).unwrap();
    }
    assert_eq!(world.state.chunk_count(), 1, "s1 may fetch it");
    world.report(1, "s1", CopyReport::Gone).unwrap();
    assert_eq!(world.state.chunk_count(), 0);
}

/// The pipeline knows by an announcement of the next index, before that is noted.
#[test]
fn the_announcement_of_the_next_index_shows_that_the_pipeline_knows() {
    let mut world = World::with_servers(1);
    world.build(1, 10);
    world.state.give_up((ChunkId(1), 0), GiveUpReason::BuildAgain, world.now, &mut world.out);
    assert!(world.state.has_returns());
    world.given_up(1);
    world.build(1, 20);
    assert!(!world.state.has_returns() && world.state.chunk_count() == 1);
    world.state.give_up((ChunkId(1), 0), GiveUpReason::BuildAgain, world.now, &mut world.out);
    assert_eq!((world.state.chunk_count(), world.state.has_returns()), (1, false), "a late call");
}

/// What an operator wants is part of the row, so that it is carried out though the caller went away; the last wish before the
/// pipeline hears of it counts.
#[test]
fn the_wish_to_skip_a_chunk_outlives_its_caller() {
    let mut world = World::with_servers(1);
    world.build(1, 10);
    world.state.give_up((ChunkId(1), 0), GiveUpReason::BuildAgain, world.now, &mut world.out);
    world.state.give_up((ChunkId(1), 0), GiveUpReason::Skip, world.now, &mut world.out);
    world.commit();
    world.state = world.store.load(world.config);
    assert_eq!(world.state.returns(None, 9), [(ChunkId(1), 0, GiveUpReason::Skip)]);
    assert_eq!(world.state.chunk_count(), 0);
}

/// A fetch that outlives its index must not vouch for the next one.
#[test]
fn a_report_about_another_index_is_refused() {
    let mut world = World::with_servers(1);
    world.build(1, 10);
    let (chunk, server) = (ChunkId(1), "s0".into());
    let [first, second] = [10, 20].map(|bytes| Artifact { checksum: [bytes; 32], ..artifact(1, u64::from(bytes)) });
    assert_eq!(world.state.check_index(chunk, &server, artifact(1, 10).checksum), Ok(()));
    world.state.give_up((chunk, 0), GiveUpReason::BuildAgain, world.now, &mut world.out);
    assert_eq!(world.state.check_index(chunk, &server, first.checksum), Ok(()), "what is to be deleted may be any");
    world.report(1, "s0", CopyReport::Gone).unwrap();
    world.given_up(1);
    world.state.chunk_built(chunk, &second, 1, world.now, &mut world.out).unwrap();
    let refused = Refusal::AnotherIndex { chunk: 1, server: "s0".to_owned() };
    assert_eq!(world.state.check_index(chunk, &server, artifact(1, 10).checksum), Err(refused));
    assert_eq!(world.state.check_index(chunk, &server, second.checksum), Ok(()));
}
