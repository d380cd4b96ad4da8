//! The Maker between a real pool and real workers.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use wayleave_core::matches::{PoolSpec, RuntimeKind, Verdict};
use wayleave_makers::runtime::process::ProcessRuntime;
use wayleave_makers::{Maker, Runtime, Site};

use super::opened;
use super::support::pool::Pool;
use super::support::{OWNER, POOL, about, eventually, is_alive, program, soon};

fn spec(env: &[(&str, &str)], max: u64) -> PoolSpec {
    let env = [("SLOTS", "10")].iter().chain(env).map(|(name, value)| (name.to_string(), value.to_string())).collect();
    PoolSpec {
        runtime: Some(RuntimeKind::Process),
        command: vec![program().into()],
        env,
        slots: Some(10),
        max: Some(max),
        start_ms_max: Some(20_000),
        ..PoolSpec::default()
    }
}

fn start(runtime: &Arc<ProcessRuntime>, pool: &Arc<Pool>) -> Maker {
    let runtime: Arc<dyn Runtime> = Arc::clone(runtime) as _;
    Maker::start(Site { name: "here".into(), runtime }, Arc::clone(pool) as _, crate::support::calls())
}

/// A runtime in a folder of its own, and a Maker between it and a pool.
async fn started(spec: PoolSpec) -> (tempfile::TempDir, Arc<ProcessRuntime>, Arc<Pool>, Maker) {
    let (state, runtime) = opened().await;
    let (runtime, pool) = (Arc::new(runtime), Arc::new(Pool::new(spec)));
    let maker = start(&runtime, &pool);
    (state, runtime, pool, maker)
}

async fn matched(pool: &Pool, client: &str) -> wayleave_core::matches::Matched {
    eventually("a match", || async { pool.view(client).and_then(|view| view.matched) }).await
}

async fn clean_up(runtime: &ProcessRuntime) {
    for found in runtime.list(&POOL.into(), OWNER, soon()).await.unwrap() {
        let key = wayleave_makers::runtime::WorkerKey {
            owner: OWNER.into(),
            pool: POOL.into(),
            generation: found.generation,
            worker: found.worker,
        };
        runtime.remove(&key, soon()).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn twenty_clients_at_once_get_the_slots_of_two_workers() {
    let (_state, runtime, pool, maker) = started(spec(&[], 2)).await;
    let clients: Vec<String> = (0..20).map(|n| format!("client/{n}")).collect();
    clients.iter().for_each(|client| _ = pool.put(client));
    let mut addresses = Vec::new();
    for client in &clients {
        addresses.push(matched(&pool, client).await.address);
    }
    addresses.sort();
    addresses.dedup();
    assert_eq!(addresses.len(), 2);
    let used: u64 = addresses.iter().map(|address| about(address)["used"].as_u64().unwrap()).sum();
    assert_eq!(used, 20, "slots booked = clients matched");
    let listed = runtime.list(&POOL.into(), OWNER, soon()).await.unwrap();
    assert_eq!(listed.len(), 2, "one process per worker, however often it was ordered");
    let (batches, reported) = (pool.batches.load(Ordering::Relaxed), pool.reported.load(Ordering::Relaxed));
    assert!(batches <= reported, "{batches} batches, {reported} news");
    maker.stop().await;
    clean_up(&runtime).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stopped_maker_leaves_workers_running_for_the_next_one() {
    let (_state, runtime, pool, maker) = started(spec(&[], 1)).await;
    pool.put("anna");
    let anna = matched(&pool, "anna").await;
    maker.stop().await;
    let listed = runtime.list(&POOL.into(), OWNER, soon()).await.unwrap();
    assert!(is_alive(&listed[0].instance.as_ref().unwrap().id));
    let maker = start(&runtime, &pool);
    pool.put("ben");
    assert_eq!(matched(&pool, "ben").await.address, anna.address);
    assert_eq!(pool.given("create"), 1);
    maker.stop().await;
    clean_up(&runtime).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_end_of_a_worker_is_reported_and_its_client_gets_another() {
    let (_state, runtime, pool, maker) = started(spec(&[], 2)).await;
    pool.put("anna");
    let first = matched(&pool, "anna").await;
    let listed = runtime.list(&POOL.into(), OWNER, soon()).await.unwrap();
    let pid = listed[0].instance.as_ref().unwrap().id.parse().unwrap();
    rustix::process::kill_process(rustix::process::Pid::from_raw(pid).unwrap(), rustix::process::Signal::KILL).unwrap();
    let second = eventually("another worker", || async {
        pool.put("anna");
        pool.view("anna").and_then(|view| view.matched).filter(|matched| matched.worker != first.worker)
    })
    .await;
    let mut ask = super::support::ask("anna", listed[0].instance.as_ref().unwrap(), 0);
    (ask.address, ask.token) = (second.address.clone(), second.token.unwrap());
    assert_eq!(crate::support::calls().check(&ask, soon()).await, Verdict::Yes);
    maker.stop().await;
    clean_up(&runtime).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pool_whose_workers_cannot_be_made_knows_why() {
    let (_state, runtime) = opened().await;
    let runtime = Arc::new(runtime);
    for (env, command, want) in [
        (vec![], "/no/such/program", "does not exist"),
        (vec![("MISBEHAVE", "exit:3")], program(), "code 3"),
        (vec![("MISBEHAVE", "deaf")], program(), "does not listen"),
    ] {
        let mut spec = spec(&env, 1);
        spec.command = vec![command.into()];
        spec.start_ms_max = Some(1_000);
        let pool = Arc::new(Pool::new(spec));
        let maker = start(&runtime, &pool);
        pool.put("anna");
        eventually(want, || async { pool.why().contains(want).then_some(()) }).await;
        eventually("nothing is left", || async { pool.workers().is_empty().then_some(()) }).await;
        maker.stop().await;
        clean_up(&runtime).await;
    }
}
