//! The Maker between a real pool and real containers.

use std::sync::Arc;

use wayleave_core::matches::{Asker, Input, PoolSpec, PullPolicy, RuntimeKind};
use wayleave_makers::runtime::docker::DockerRuntime;
use wayleave_makers::{Maker, Runtime, Site};

use super::engine::{Engine, IMAGE};
use super::support::pool::Pool;
use super::support::{OWNER, POOL, about, eventually, soon};

fn start(runtime: &Arc<DockerRuntime>, pool: &Arc<Pool>) -> Maker {
    Maker::start(
        Site { name: "here".into(), runtime: Arc::clone(runtime) as _ },
        Arc::clone(pool) as _,
        crate::support::calls(),
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_are_matched_though_makers_are_killed_and_no_container_is_left() {
    let engine = Engine::get().await;
    let runtime = Arc::new(engine.runtime().await);
    let pool = Arc::new(Pool::new(PoolSpec {
        runtime: Some(RuntimeKind::Docker),
        image: Some(IMAGE.into()),
        command: vec!["/worker".into()],
        env: [("SLOTS".to_owned(), "10".to_owned())].into(),
        port: Some(8080),
        slots: Some(10),
        max: Some(3),
        idle_ms: Some(100),
        pull: Some(PullPolicy::Never),
        ..PoolSpec::default()
    }));
    let clients: Vec<String> = (0..30).map(|n| format!("client/{n}")).collect();
    clients.iter().for_each(|client| _ = pool.put(client));
    for killed in 1..=3 {
        let maker = start(&runtime, &pool);
        eventually("the Maker has begun", || async { (pool.given("create") >= killed).then_some(()) }).await;
        drop(maker);
    }
    let maker = start(&runtime, &pool);
    let mut addresses = Vec::new();
    for client in &clients {
        let matched = eventually("a match", || async { pool.view(client).and_then(|view| view.matched) }).await;
        addresses.push(matched.address);
    }
    addresses.sort();
    addresses.dedup();
    let used: u64 = addresses.iter().map(|address| about(address)["used"].as_u64().unwrap()).sum();
    assert_eq!((addresses.len(), used), (3, 30), "slots booked = clients matched");
    assert_eq!(runtime.list(&POOL.into(), OWNER, soon()).await.unwrap().len(), 3);
    for client in &clients {
        pool.apply(Input::Cancel { asker: Asker { client: client.as_str().into(), principal: None }, token: None });
    }
    eventually("no worker is left", || async { pool.workers().is_empty().then_some(()) }).await;
    assert!(runtime.list(&POOL.into(), OWNER, soon()).await.unwrap().is_empty());
    maker.stop().await;
}
