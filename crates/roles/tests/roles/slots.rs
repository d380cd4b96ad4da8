//! Slots over a store that loses responses and nodes that race with each other.

use wayleave_core::names::Slot;
use wayleave_core::roles::{HeartbeatCall, Outcome, Refusal};
use wayleave_engine::memory::LostAnswer;
use wayleave_roles::Roles;

use crate::support::{ask, role, two_nodes};

fn mon() -> Option<Slot> {
    Some("mon".into())
}

async fn stand(roles: &Roles, uuid: &str) -> Outcome {
    roles.heartbeat(role(), HeartbeatCall { slot: mon(), ..ask(uuid, None) }).await.unwrap().outcome
}

#[tokio::test]
async fn a_slot_is_recorded_once_though_the_stores_answer_was_lost() {
    for truth in [LostAnswer::Applied, LostAnswer::Dropped] {
        let (engine, _, here, there) = two_nodes();
        let reply = here.heartbeat(role(), HeartbeatCall { slot: mon(), ..ask("a", None) }).await.unwrap();
        engine.lose_next_answer(truth);
        here.release_after(role(), "a".into(), reply.token, mon()).await.unwrap();
        // The client, too, may have to retry, and through another node.
        there.release_after(role(), "a".into(), reply.token, mon()).await.unwrap();
        assert_eq!(stand(&there, "b").await, Outcome::Standby, "{truth:?}");
    }
}

/// Candidates of two nodes all ask for the role concurrently, again and again; the primary records the slot with its
/// release.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn of_many_that_stand_at_once_through_two_nodes_one_is_given_the_slot() {
    for round in 0..50 {
        let (_, _, here, there) = two_nodes();
        let candidates = (0..8).map(|n| {
            let roles = if n % 2 == 0 { here.clone() } else { there.clone() };
            tokio::spawn(async move {
                let uuid = format!("c{n}");
                loop {
                    let reply = match roles.heartbeat(role(), HeartbeatCall { slot: mon(), ..ask(&uuid, None) }).await {
                        Ok(reply) => reply,
                        Err(Refusal::Unavailable(_)) => continue,
                        Err(refusal) => panic!("{refusal}"),
                    };
                    if reply.ran.is_some() {
                        return 0;
                    }
                    if reply.outcome == Outcome::Acquired {
                        while let Err(refusal) =
                            roles.release_after(role(), uuid.as_str().into(), reply.token, mon()).await
                        {
                            assert!(matches!(refusal, Refusal::Unavailable(_)), "{refusal}");
                        }
                        return 1;
                    }
                    tokio::task::yield_now().await;
                }
            })
        });
        let ran: u32 = futures::future::join_all(candidates).await.into_iter().map(Result::unwrap).sum();
        assert_eq!(ran, 1, "round {round}");
    }
}
