//! Reservations repeated under the same request id, because the answer was lost.

use crate::faulty::{Fate, Faulty};
use crate::prelude::*;
use crate::support::*;

fn sorted(mut reservations: Vec<Reservation>) -> Vec<Reservation> {
    reservations.sort_by_key(|reservation| reservation.token);
    reservations
}

/// A host in each of four shards, with two URLs each.
async fn world() -> World {
    let world = World::new(4).await;
    for shard in 0..4 {
        let host = host_in(shard, 4, 0);
        world.add(&[&format!("http://{host}/1"), &format!("http://{host}/2")]).await;
    }
    pass(100).await;
    world
}

#[tokio::test(start_paused = true)]
async fn a_repeated_request_gets_its_reservations_from_all_shards_and_a_restart() {
    let mut world = world().await;
    let ask = want(3, 2).named("one");
    let first = sorted(world.frontier.reserve(ask.clone()).await.unwrap());
    assert_eq!(first.len(), 3);
    pass(1_000).await;
    assert_eq!(sorted(world.frontier.reserve(ask.clone()).await.unwrap()), first, "tokens, URLs and deadlines");
    world.reopen().await;
    assert_eq!(sorted(world.frontier.reserve(ask.clone()).await.unwrap()), first, "after a restart");
    for other in [want(3, 2).named("two"), Reserve { holder: "another".into(), ..ask.clone() }] {
        let other = world.frontier.reserve(other).await.unwrap();
        assert!(other.iter().all(|r| !first.contains(r)), "another id, or another holder's: {other:?}");
    }
    world.fetched(&first[0]).await;
    assert_eq!(sorted(world.frontier.reserve(ask).await.unwrap()), first[1..], "what is over is not returned again");
}

#[tokio::test(start_paused = true)]
async fn a_reused_id_is_refused_until_its_reservations_are_over() {
    let world = world().await;
    assert_eq!(world.frontier.reserve(want(1, 1).named("one")).await.unwrap().len(), 1);
    let refused = world.frontier.reserve(want(2, 1).named("one")).await;
    assert_eq!(refused, Err(Refusal::RequestReused("one".to_owned())));
    pass(61_000).await;
    assert_eq!(world.frontier.reserve(want(2, 1).named("one")).await.unwrap().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_reservation_whose_commit_s_answer_was_lost_is_found_by_its_retry() {
    let (engine, frontier) = Faulty::opened(2).await;
    let urls = [0, 1].map(|shard| disc(&format!("http://{}/", host_in(shard, 2, 0))));
    frontier.put(urls.to_vec()).await;
    pass(100).await;
    // Another shard could grant one instead; then the repetition would return two.
    engine.set_fates(&[Fate::Lost]);
    let ask = want(1, 1).named("one");
    let lost = frontier.reserve(ask.clone()).await;
    assert!(matches!(lost, Err(Refusal::OutcomeUnknown(_))), "{lost:?}");
    let again = frontier.reserve(ask).await.unwrap();
    assert_eq!(again.len(), 1);
    let live = frontier.reservations(None, 10).await.unwrap().items;
    assert_eq!(live.len(), 1, "nothing was reserved a second time: {live:?}");
}

#[tokio::test(start_paused = true)]
async fn a_repetition_waits_for_a_first_call_whose_caller_has_gone() {
    let world = world().await;
    let frontier = world.frontier.clone();
    let ask = want(2, 1).named("one");
    // The caller disconnects after the request was sent to an owner and before it was answered.
    let gone = tokio::time::timeout(std::time::Duration::ZERO, frontier.reserve(ask.clone())).await;
    let granted = frontier.reserve(ask).await.unwrap();
    assert_eq!(granted.len(), 2);
    let live = frontier.reservations(None, 10).await.unwrap().items;
    assert_eq!(live.len(), 2, "first call: {gone:?}");
}

#[tokio::test(start_paused = true)]
async fn calls_of_one_request_at_the_same_time_are_granted_once() {
    let world = world().await;
    let ask = want(2, 1).named("one");
    let (a, b, c) = tokio::join!(
        world.frontier.reserve(ask.clone()),
        world.frontier.reserve(ask.clone()),
        world.frontier.reserve(ask.clone()),
    );
    let a = sorted(a.unwrap());
    assert_eq!((sorted(b.unwrap()), sorted(c.unwrap())), (a.clone(), a));
}

#[tokio::test(start_paused = true)]
async fn a_request_is_known_to_its_hosts_new_shard_and_to_the_next_owner() {
    let world = World::new(2).await;
    let (host, alias) = (host_in(1, 2, 0), alias_in(0, 2));
    world.add(&[&format!("http://{host}/1")]).await;
    let ask = want(1, 1).named("one");
    let first = world.frontier.reserve(ask.clone()).await.unwrap();
    world.set_group(&alias, &[&host], PaceChanges::default()).await;
    world.frontier.close_shard(ShardId(0)).await;
    world.frontier.open_shard(ShardId(0), Vec::new());
    let again = world.frontier.reserve(ask).await.unwrap();
    assert_eq!((again.len(), again[0].token, &again[0].urls), (1, first[0].token, &first[0].urls));
}

#[tokio::test(start_paused = true)]
async fn a_renewed_reservation_is_returned_with_its_new_deadline() {
    let world = world().await;
    let ask = want(1, 1).named("one");
    let first = world.frontier.reserve(ask.clone()).await.unwrap();
    pass(1_000).await;
    let until = world.frontier.renew(first[0].token, Millis(90_000)).await.unwrap();
    let again = world.frontier.reserve(ask).await.unwrap();
    assert_eq!((again[0].token, again[0].expires_at), (first[0].token, until));
}

/// The first shard grants a host; before its answer arrives the host moves to the second shard, which is asked next and
/// finds a reservation that was granted for this very request.
#[tokio::test(start_paused = true)]
async fn a_reservation_that_moves_during_its_request_is_returned_once() {
    let (engine, frontier) = Faulty::opened(2).await;
    let (moves, stays, alias) = (host_in(0, 2, 0), host_in(1, 2, 0), alias_in(1, 2));
    for host in [&moves, &stays] {
        frontier.put(vec![disc(&format!("http://{host}/"))]).await;
        pass(100).await;
    }
    engine.hold_confirmations(Some(ShardId(0)));
    let asked = tokio::spawn({
        let frontier = frontier.clone();
        async move { frontier.reserve(want(2, 1).named("one")).await }
    });
    pass(10).await;
    let moved = tokio::spawn({
        let frontier = frontier.clone();
        let hosts = Some(vec![moves.as_str().into()]);
        async move { frontier.set_group(alias.as_str().into(), hosts, PaceChanges::default(), false).await }
    });
    pass(10).await;
    assert!(!asked.is_finished(), "the first shard has not answered yet");
    engine.hold_confirmations(None);
    let granted = asked.await.unwrap().unwrap();
    let group = moved.await.unwrap().unwrap();
    assert_eq!(group.hosts, [moves.as_str().into()], "it has moved");
    let mut tokens: Vec<_> = granted.iter().map(|reservation| reservation.token).collect();
    tokens.dedup();
    assert_eq!(tokens.len(), granted.len(), "one reservation is returned once: {granted:?}");
    assert!(granted.iter().any(|reservation| *reservation.host == *moves));
}
