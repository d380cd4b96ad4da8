//! One role whose row is locked in the store: only its own callers wait.

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;
use wayleave_core::roles::{HeartbeatReply, Outcome, Refusal};
use wayleave_core::time::Time;
use wayleave_engine::clock::ManualClock;
use wayleave_engine::rows::role as rows;
use wayleave_engine::{Batch, Commit, Engine, Memory};
use wayleave_roles::Roles;

use crate::support::{ask, pass, role};

/// Many more than any fixed number of lock stripes would separate.
const OTHERS: usize = 200;
/// In the test's own time, which jumps when nothing else happens: finishing before it means that nothing was waited
/// for.
const SOON: Duration = Duration::from_secs(1);

/// A store in which another session holds the row of one role.
struct Locked {
    store: Arc<Memory>,
    free: watch::Sender<bool>,
    /// Notified when a write waits for that row.
    reached: Notify,
}

impl Engine for Locked {
    wayleave_engine::pass_on! { store: now own get_many scan_many look }

    fn commit(&self, batch: Batch) -> Commit {
        if !batch.expects.iter().any(|(key, _)| *key == rows::key(&role())) {
            return self.store.commit(batch);
        }
        let (store, mut free) = (self.store.clone(), self.free.subscribe());
        self.reached.notify_one();
        async move {
            _ = free.wait_for(|free| *free).await;
            store.commit(batch).await
        }
        .boxed()
    }
}

/// Roles over such a store. All but the locked one have a primary; a heartbeat for the locked one is in flight.
async fn locked() -> (Arc<Locked>, Roles, JoinHandle<Result<HeartbeatReply, Refusal>>) {
    let store = Arc::new(Memory::new(ManualClock::new(Time(1_000_000))));
    let engine = Arc::new(Locked { store, free: watch::Sender::new(false), reached: Notify::new() });
    let roles = Roles::new(engine.clone());
    beat_others(&roles, "a", Outcome::Acquired).await;
    let stuck = tokio::spawn({
        let roles = roles.clone();
        async move { roles.heartbeat(role(), ask("stuck", None)).await }
    });
    engine.reached.notified().await;
    (engine, roles, stuck)
}

async fn beat_others(roles: &Roles, uuid: &str, outcome: Outcome) {
    for n in 0..OTHERS {
        let beat = roles.heartbeat(format!("role-{n}").as_str().into(), ask(uuid, None));
        let reply = tokio::time::timeout(SOON, beat).await;
        let reply = reply.unwrap_or_else(|_| panic!("role-{n} waits for a role that it has nothing to do with"));
        assert_eq!(reply.unwrap().outcome, outcome);
    }
}

async fn end(engine: &Locked, stuck: JoinHandle<Result<HeartbeatReply, Refusal>>) {
    assert!(!stuck.is_finished(), "the row is locked");
    engine.free.send_replace(true);
    assert_eq!(stuck.await.unwrap().unwrap().outcome, Outcome::Acquired);
}

#[tokio::test(start_paused = true)]
async fn heartbeats_of_other_roles_do_not_wait_for_a_locked_one() {
    let (engine, roles, stuck) = locked().await;
    beat_others(&roles, "b", Outcome::Standby).await;
    end(&engine, stuck).await;
}

/// A listing must wait for the write in flight, because it includes that role too. It must not block other roles
/// meanwhile: (heartbeat of the locked role) (listing) (heartbeats of all others) (the lock is released).
#[tokio::test(start_paused = true)]
async fn a_listing_that_waits_for_a_locked_role_holds_up_no_other() {
    let (engine, roles, stuck) = locked().await;
    let listing = tokio::spawn({
        let roles = roles.clone();
        async move { roles.list(None, 100).await }
    });
    pass(Duration::from_millis(1)).await;
    beat_others(&roles, "b", Outcome::Standby).await;
    assert!(!listing.is_finished(), "what it says of the locked role could still be lost");
    end(&engine, stuck).await;
    let page = listing.await.unwrap().unwrap();
    assert_eq!(page.roles.len(), 100);
    let first = page.roles.first().unwrap();
    assert_eq!((&*first.role, first.primary.as_ref().map(|primary| &*primary.uuid)), ("indexer", Some("stuck")));
}
