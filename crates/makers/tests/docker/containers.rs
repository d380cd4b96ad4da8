//! Start, stop, exits, and what cannot be started.

use std::collections::HashMap;
use std::time::Duration;

use bollard::models::ContainerCreateBody;
use bollard::query_parameters::{CreateContainerOptionsBuilder, InspectContainerOptions};
use tokio::time::timeout;
use wayleave_core::matches::{Exit, PullPolicy, Verdict};
use wayleave_makers::{Runtime, await_listening};

use super::engine::{Engine, IMAGE};
use super::support::{OWNER, ask, eventually, key, make, soon};
use super::{recipe, worker};

/// Every test has a pool of its own, because they share the engine.
fn in_pool(pool: &str, no: u64) -> wayleave_makers::runtime::WorkerKey {
    wayleave_makers::runtime::WorkerKey { pool: pool.into(), ..key(no) }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_container_is_created_asked_stopped_restarted_and_removed() {
    let engine = Engine::get().await;
    let (runtime, calls) = (engine.runtime().await, crate::support::calls());
    let mut events = runtime.events();
    let key = in_pool("whole", 1);
    let mut order = worker(1, &[]);
    order.recipe.memory_bytes = Some(64 << 20);
    order.recipe.cpu_millis = Some(500);
    let made = futures::future::join_all((0..4).map(|_| runtime.create(&key, &order, soon()))).await;
    let first = made[0].clone().unwrap();
    assert!(made.iter().all(|made| made.as_ref() == Ok(&first)), "an order that is repeated: {made:?}");
    await_listening(&calls, &first.address, soon()).await.unwrap();
    let anna = ask("anna/søk", &first, 1);
    assert_eq!(calls.reserve(&anna, soon()).await, Verdict::Yes);
    assert_eq!(calls.check(&anna, soon()).await, Verdict::Yes);
    assert_eq!(calls.release(&anna, soon()).await, Verdict::Yes);

    let docker = engine.docker().await;
    let seen = docker.inspect_container(&key.to_string(), None::<InspectContainerOptions>).await.unwrap();
    let host = seen.host_config.unwrap();
    assert_eq!((host.memory, host.nano_cpus), (Some(64 << 20), Some(500_000_000)));
    let log = host.log_config.unwrap().config.unwrap();
    assert_eq!((log["max-size"].as_str(), log["max-file"].as_str()), ("256k", "2"));
    let labels = seen.config.unwrap().labels.unwrap();
    let label = |name: &str| labels[&format!("wayleave.{name}")].as_str();
    assert_eq!((label("owner"), label("pool"), label("generation"), label("worker")), (OWNER, "whole", "abc", "1"));

    let listed = runtime.list(&"whole".into(), OWNER, soon()).await.unwrap();
    assert_eq!((listed[0].instance.as_ref(), &listed[0].exit), (Some(&first), &None));
    assert!(runtime.list(&"whole".into(), "another", soon()).await.unwrap().is_empty());
    runtime.stop(&key, soon()).await.unwrap();
    runtime.stop(&key, soon()).await.unwrap();
    let ended = timeout(Duration::from_secs(30), async {
        loop {
            let ended = events.recv().await.unwrap();
            if ended.worker == key {
                return ended;
            }
        }
    });
    let ended = ended.await.unwrap();
    assert!(ended.instance.is_run(&first));
    assert_eq!(ended.exit, Exit::Clean, "it was asked to end, and did");
    let listed = runtime.list(&"whole".into(), OWNER, soon()).await.unwrap();
    assert_eq!(listed[0].exit.as_ref(), Some(&ended.exit));
    let again = runtime.create(&key, &order, soon()).await.unwrap_err().to_string();
    assert_eq!(again, "it ended by itself, with exit code 0", "what has ended is not started by a repeated order");

    order.last = Some(first.clone());
    let second = runtime.restart(&key, &order, soon()).await.unwrap();
    assert!(second.id == first.id && second.started > first.started, "{first:?} {second:?}");
    assert_eq!(runtime.restart(&key, &order, soon()).await.as_ref(), Ok(&second));
    await_listening(&calls, &second.address, soon()).await.unwrap();
    let log = runtime.logs(&key, 10_000, soon()).await.unwrap();
    assert_eq!(log.matches("listens on 0.0.0.0:8080 with 2 slots").count(), 2, "{log}");
    assert!(runtime.logs(&key, 10, soon()).await.unwrap().len() <= 10);
    runtime.remove(&key, soon()).await.unwrap();
    runtime.remove(&key, soon()).await.unwrap();
    assert!(runtime.list(&"whole".into(), OWNER, soon()).await.unwrap().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_exit_of_a_container_is_reported() {
    let engine = Engine::get().await;
    let runtime = engine.runtime().await;
    let mut greedy = worker(3, &[("MISBEHAVE", "eat")]);
    greedy.recipe.memory_bytes = Some(32 << 20);
    for (no, order, want) in [
        (1, worker(1, &[("MISBEHAVE", "exit:3")]), Exit::Error("it exited with code 3".into())),
        (2, worker(2, &[("MISBEHAVE", "exit:0")]), Exit::Clean),
        (3, greedy, Exit::Error("it was killed: out of memory".into())),
    ] {
        let key = in_pool("ends", no);
        _ = runtime.create(&key, &order, soon()).await;
        let exit = super::support::eventually("its end", || async {
            let listed = runtime.list(&"ends".into(), OWNER, soon()).await.unwrap();
            listed.into_iter().find(|found| found.worker.0 == no).and_then(|found| found.exit)
        })
        .await;
        assert_eq!(exit, want);
        runtime.remove(&key, soon()).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_started_says_why() {
    let engine = Engine::get().await;
    let runtime = engine.runtime().await;
    let image = |name: &str, pull| {
        let mut order = worker(1, &[]);
        (order.recipe.image, order.pull) = (Some(name.into()), pull);
        order
    };
    let mut command = worker(1, &[]);
    command.recipe.command = vec!["/nothing".into()];
    let key = in_pool("reasons", 1);
    for (order, want) in [
        (image("no-such-image", PullPolicy::Never), "the engine has no image 'no-such-image', and none is pulled"),
        (image("127.0.0.1:1/none:1", PullPolicy::Missing), "the image '127.0.0.1:1/none:1' cannot be pulled"),
        (image("127.0.0.1:1/none:1", PullPolicy::Always), "connection refused"),
        (image("Not A Name", PullPolicy::Never), "invalid reference format"),
        (command, "/nothing"),
    ] {
        let why = runtime.create(&key, &order, soon()).await.unwrap_err().to_string();
        assert!(why.contains(want), "{why}");
    }
    // The last one was created and cannot be started.
    let listed = runtime.list(&"reasons".into(), OWNER, soon()).await.unwrap();
    assert_eq!((listed.len(), &listed[0].instance, &listed[0].exit), (1, &None, &None));
    runtime.remove(&key, soon()).await.unwrap();
    let past = runtime.create(&key, &worker(1, &[]), tokio::time::Instant::now()).await.unwrap_err();
    assert!(past.to_string().ends_with("in time"), "{past}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_container_that_is_not_ours_is_left_alone() {
    let engine = Engine::get().await;
    let (runtime, docker) = (engine.runtime().await, engine.docker().await);
    let key = in_pool("strangers", 1);
    let options = CreateContainerOptionsBuilder::default().name(&key.to_string()).build();
    let stranger = ContainerCreateBody {
        image: Some(IMAGE.into()),
        cmd: Some(vec!["/worker".into()]),
        labels: Some(HashMap::from([("wayleave.pool".into(), "strangers".into())])),
        ..ContainerCreateBody::default()
    };
    let id = docker.create_container(Some(options), stranger).await.unwrap().id;
    for why in [
        runtime.create(&key, &make(1, recipe(&[])), soon()).await.unwrap_err(),
        runtime.remove(&key, soon()).await.unwrap_err(),
    ] {
        assert!(why.to_string().contains("is not ours: remove or rename it"), "{why}");
    }
    assert!(runtime.list(&"strangers".into(), OWNER, soon()).await.unwrap().is_empty());
    assert!(docker.inspect_container(&id, None::<InspectContainerOptions>).await.is_ok());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_output_of_a_container_is_kept_when_it_is_removed() {
    let (engine, kept) = (Engine::get().await, tempfile::tempdir().unwrap());
    let runtime = engine.runtime().await.keeping_logs_in(kept.path().to_owned());
    let key = in_pool("kept", 1);
    runtime.create(&key, &worker(1, &[]), soon()).await.unwrap();
    let says = "listens on 0.0.0.0:8080";
    eventually("it has written something", || async {
        runtime.logs(&key, 10_000, soon()).await.ok().filter(|log| log.contains(says))
    })
    .await;
    runtime.remove(&key, soon()).await.unwrap();
    let log = runtime.logs(&key, 10_000, soon()).await.unwrap();
    assert!(log.contains(says), "{log}");
    assert_eq!(runtime.logs(&in_pool("kept", 2), 10_000, soon()).await.unwrap(), "", "it was never started");
}
