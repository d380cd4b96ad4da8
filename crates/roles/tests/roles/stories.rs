//! Scenarios that hold on every engine.

use std::sync::Arc;

use wayleave_core::ids::Epoch;
use wayleave_core::roles::{Outcome, Refusal, Was};
use wayleave_core::time::Time;
use wayleave_engine::Engine;
use wayleave_engine::clock::{ManualClock, SystemClock};
use wayleave_engine::memory::Memory;
use wayleave_engine_fjall::{Fjall, Options};
use wayleave_roles::{Roles, Totals};

use crate::support::{acquire, beat, holder, role, ttl, two_nodes, vacancy};

async fn a_primary_is_elected_renewed_and_followed(engine: Arc<dyn Engine>) {
    let (here, there) = (Roles::new(engine.clone()), Roles::new(engine));
    let (token, epoch) = acquire(&here, "a").await;
    assert_eq!(epoch, Epoch(1));
    let reply = beat(&there, "b", None).await.unwrap();
    assert_eq!((reply.outcome, reply.holder.as_deref(), reply.token), (Outcome::Standby, Some("a"), None));
    assert_eq!(reply.address.as_deref(), Some("http://a"), "a13: where the primary is reached");
    let reply = beat(&there, "a", Some(token)).await.unwrap();
    assert_eq!((reply.outcome, reply.epoch), (Outcome::Renewed, Epoch(1)));
    let refusal = beat(&there, "a", None).await.unwrap_err();
    assert!(matches!(refusal, Refusal::DuplicateIdentity { .. }), "a12: {refusal}");
    let view = here.now(&role()).await.unwrap();
    assert_eq!(view.standbys.iter().map(|s| &*s.uuid).collect::<Vec<_>>(), ["b"], "a14");
    assert_eq!(here.release(role(), "a".into(), Some(token)).await.unwrap().was, Was::Primary);
    let (_, epoch) = acquire(&there, "b").await;
    assert_eq!((epoch, holder(&here).await.as_deref()), (Epoch(2), Some("b")));
    assert_eq!(here.now(&role()).await.unwrap().standbys, [], "a primary is no standby");
}

async fn a_term_runs_out_and_another_takes_over(engine: Arc<dyn Engine>) {
    let roles = Roles::new(engine);
    roles.set(role(), ttl(500)).await.unwrap();
    let (token, _) = acquire(&roles, "a").await;
    let view = roles.primary(&role(), vacancy(30_000)).await.unwrap();
    assert_eq!(view.primary, None, "{}", view.reason);
    let (_, epoch) = acquire(&roles, "b").await;
    assert_eq!(epoch, Epoch(2));
    assert_eq!(beat(&roles, "a", Some(token)).await.unwrap().outcome, Outcome::Standby);
}

async fn deleted_roles_keep_their_epochs(engine: Arc<dyn Engine>) {
    let roles = Roles::new(engine);
    let (token, _) = acquire(&roles, "a").await;
    assert!(matches!(roles.delete(role()).await, Err(Refusal::InUse { .. })));
    roles.release(role(), "a".into(), Some(token)).await.unwrap();
    roles.delete(role()).await.unwrap();
    assert!(matches!(roles.delete(role()).await, Err(Refusal::UnknownRole(_))));
    assert_eq!(roles.list(None, 10).await.unwrap().roles, []);
    assert_eq!(acquire(&roles, "b").await.1, Epoch(2));
}

async fn roles_are_listed_page_by_page(engine: Arc<dyn Engine>) {
    let roles = Roles::new(engine);
    for name in ["b", "a", "c.d", "c"] {
        roles.heartbeat(name.into(), crate::support::ask("x", None)).await.unwrap();
    }
    roles.heartbeat("b".into(), crate::support::ask("y", None)).await.unwrap();
    roles.set("idle".into(), ttl(1_000)).await.unwrap();
    let mut names = Vec::new();
    let mut after: Option<String> = None;
    loop {
        let page = roles.list(after.as_deref(), 2).await.unwrap();
        assert!(page.roles.len() <= 2);
        names.extend(page.roles.iter().map(|view| (view.role.to_string(), view.standbys.len())));
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    let want = [("a", 0), ("b", 1), ("c", 0), ("c.d", 0), ("idle", 0)].map(|(name, count)| (name.to_owned(), count));
    assert_eq!(names, want);
    assert_eq!(roles.list(Some("not a cursor"), 2).await, Err(Refusal::BadCursor));
    let totals = Totals { roles: 5, primaries: 4, standbys_ready: 1, standbys_not_ready: 0, unguarded: 3 };
    assert_eq!(roles.totals().await.unwrap(), totals);
}

macro_rules! on_every_engine {
    ($($story:ident),* $(,)?) => {
        mod on_memory {
            $(#[tokio::test] async fn $story() {
                super::$story(std::sync::Arc::new(super::Memory::new(super::SystemClock::new()))).await;
            })*
        }
        mod on_disk {
            $(#[tokio::test(flavor = "multi_thread")] async fn $story() {
                let folder = tempfile::tempdir().unwrap();
                let engine = super::Fjall::open(&folder.path().join("data"), super::Options::default()).unwrap();
                super::$story(std::sync::Arc::new(engine)).await;
            })*
        }
        mod in_a_database {
            $(#[tokio::test(flavor = "multi_thread")] async fn $story() {
                let [engine, _] = crate::support::database().await;
                super::$story(engine).await;
            })*
        }
    };
}

on_every_engine! {
    a_primary_is_elected_renewed_and_followed,
    a_term_runs_out_and_another_takes_over,
    deleted_roles_keep_their_epochs,
    roles_are_listed_page_by_page,
}

#[tokio::test(flavor = "multi_thread")]
async fn a_term_outlives_the_server() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("data");
    let open = || Roles::new(Arc::new(Fjall::open(&path, Options::default()).unwrap()));
    let before = open();
    let (token, epoch) = acquire(&before, "a").await;
    drop(before);
    let after = open();
    assert_eq!(beat(&after, "b", None).await.unwrap().outcome, Outcome::Standby);
    let reply = beat(&after, "a", Some(token)).await.unwrap();
    assert_eq!((reply.outcome, reply.epoch), (Outcome::Renewed, epoch));
}

#[tokio::test]
async fn a4_when_another_store_steps_in_nothing_is_granted_for_one_time_to_live() {
    let (engine, clock, here, there) = two_nodes();
    let (token, _) = acquire(&here, "a").await;
    here.release(role(), "a".into(), Some(token)).await.unwrap();
    engine.fail_over();
    let reply = beat(&here, "b", None).await.unwrap();
    assert_eq!(reply.outcome, Outcome::Standby);
    assert!(reply.reason.contains("another store"), "{}", reply.reason);
    clock.advance(wayleave_core::time::Millis(14_999));
    assert_eq!(beat(&there, "c", None).await.unwrap().outcome, Outcome::Standby);
    clock.advance(wayleave_core::time::Millis(1));
    assert!(acquire(&there, "c").await.1 > Epoch(2), "epochs that may be lost are left out");
}

#[tokio::test]
async fn a5_a_clock_that_steps_back_neither_revives_nor_lengthens_a_term() {
    let clock = ManualClock::new(Time(1_000_000));
    let roles = Roles::new(Arc::new(Memory::new(clock.clone())));
    acquire(&roles, "a").await;
    clock.set(Time(1_010_000));
    assert_eq!(roles.now(&role()).await.unwrap().primary.unwrap().remaining.0, 5_000);
    clock.set(Time(0));
    assert_eq!(roles.now(&role()).await.unwrap().primary.unwrap().remaining.0, 5_000);
    clock.set(Time(1_015_000));
    assert_eq!(holder(&roles).await, None);
    clock.set(Time(1_000_000));
    assert_eq!(holder(&roles).await, None);
}

#[tokio::test]
async fn silent_standbys_are_removed_in_passing() {
    let (engine, clock, here, _) = two_nodes();
    let (token, _) = acquire(&here, "a").await;
    for n in 0..20 {
        beat(&here, &format!("s{n}"), None).await.unwrap();
    }
    clock.advance(wayleave_core::time::Millis(15_000));
    beat(&here, "a", Some(token)).await.unwrap();
    beat(&here, "a", Some(token)).await.unwrap();
    let scan = wayleave_engine::rows::standby::scan("indexer", 100);
    assert_eq!(engine.scan_many(&[scan]).await.unwrap()[0], []);
}
