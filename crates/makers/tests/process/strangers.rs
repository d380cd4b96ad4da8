//! Workers whose server is gone for good, with or without its folder: the next server, with another folder, takes them over.

use std::time::Duration;

use wayleave_core::matches::Found;
use wayleave_core::names::PoolName;
use wayleave_makers::Runtime;
use wayleave_makers::runtime::WorkerKey;
use wayleave_makers::runtime::process::{ProcessRuntime, Settings};

use super::open;
use super::support::{OWNER, is_alive, key, soon, worker};

/// Every test has a pool of its own: others run at the same time, and must keep their workers.
fn of(pool: &str) -> WorkerKey {
    WorkerKey { pool: pool.into(), ..key(1) }
}

async fn next(state: &std::path::Path) -> ProcessRuntime {
    let settings = Settings { stranger_after: Duration::ZERO, ..Settings::new(state.to_owned()) };
    ProcessRuntime::open(settings).await.unwrap()
}

async fn list(runtime: &ProcessRuntime, pool: &str) -> Vec<Found> {
    runtime.list(&PoolName::from(pool), OWNER, soon()).await.unwrap()
}

#[tokio::test]
async fn a_worker_is_taken_over_once_no_server_uses_its_folder() {
    let (old, new) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let first = open(old.path()).await;
    let instance = first.create(&of("moves"), &worker(1, &[]), soon()).await.unwrap();
    let second = next(new.path()).await;
    assert_eq!(list(&second, "moves").await, [], "its server runs");
    drop(first);
    let found = super::support::eventually("it is taken over", || async { list(&second, "moves").await.pop() }).await;
    assert_eq!((found.instance.as_ref(), &found.exit), (Some(&instance), &None));
    assert_eq!(list(&second, "another").await, [], "it belongs to its pool");
    // The old folder does not know it any more, so that it has one server.
    let first = open(old.path()).await;
    assert_eq!(list(&first, "moves").await, []);
    let log = second.logs(&of("moves"), 10_000, soon()).await.unwrap();
    assert!(!log.is_empty(), "its output moves with it");
    second.remove(&of("moves"), soon()).await.unwrap();
    assert!(!is_alive(&instance.id));
}

#[tokio::test]
async fn a_worker_whose_folder_is_lost_is_found_by_its_environment_and_can_be_ended() {
    let (old, new) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let first = open(old.path()).await;
    let instance = first.create(&of("lost"), &worker(1, &[]), soon()).await.unwrap();
    drop(first);
    drop(old);
    let second = next(new.path()).await;
    let found = super::support::eventually("it is taken over", || async { list(&second, "lost").await.pop() }).await;
    assert_eq!(found.instance.as_ref(), Some(&instance));
    second.remove(&of("lost"), soon()).await.unwrap();
    assert!(!is_alive(&instance.id));
    assert_eq!(list(&second, "lost").await, []);
}

#[tokio::test]
async fn a_server_that_only_restarts_keeps_its_workers() {
    let (old, new) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let first = open(old.path()).await;
    let instance = first.create(&of("restarts"), &worker(1, &[]), soon()).await.unwrap();
    drop(first);
    let second = open(new.path()).await;
    assert_eq!(list(&second, "restarts").await, [], "it is not gone for long");
    let first = open(old.path()).await;
    assert_eq!(list(&first, "restarts").await.pop().unwrap().instance, Some(instance));
    first.remove(&of("restarts"), soon()).await.unwrap();
}
