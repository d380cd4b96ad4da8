//! Calls to workers that behave, and to those that do not.

use std::time::Duration;

use tokio::time::Instant;
use wayleave_core::matches::{Instance, Verdict};
use wayleave_core::time::Millis;
use wayleave_makers::{Calls, Runtime, await_listening};
use wayleave_outgoing::Policy;

use super::opened;
use super::support::{about, ask, eventually, key, soon, worker};

#[tokio::test]
async fn a_misbehaving_worker_is_neither_a_yes_nor_a_no_and_gives_a_reason() {
    let (_state, runtime) = opened().await;
    let calls = crate::support::calls();
    for (no, misdeed, want) in [
        (1, "error", "it answered 500 Error"),
        (2, "hang", "it did not answer POST within"),
        (3, "other", "it answered for another reservation"),
        (4, "redirect", "it answered 302 Found"),
        (5, "flood", "its answer cannot be read"),
    ] {
        let instance = runtime.create(&key(no), &worker(no, &[("MISBEHAVE", misdeed)]), soon()).await.unwrap();
        await_listening(&calls, &instance.address, soon()).await.unwrap();
        let wait = if misdeed == "hang" { Duration::from_millis(300) } else { Duration::from_secs(20) };
        let verdict = calls.reserve(&ask("anna", &instance, 1), Instant::now() + wait).await;
        let Verdict::Unknown(why) = &verdict else { panic!("{misdeed}: {verdict:?}") };
        let why = why.replace("500 Internal Server Error", "500 Error");
        assert!(why.starts_with(want) && !why.contains("told to fail"), "{misdeed}: {why}");
        runtime.remove(&key(no), soon()).await.unwrap();
        let verdict = calls.check(&ask("anna", &instance, 1), soon()).await;
        let Verdict::Unknown(why) = &verdict else { panic!("{misdeed}: {verdict:?}") };
        assert!(why.contains("cannot be reached") || why.contains("connection broke"), "{misdeed}: {why}");
    }
}

/// A regression: a worker's report could send the server to any address.
#[tokio::test]
async fn a_reported_address_is_called_only_if_it_is_the_source_or_allowed() {
    let (_state, runtime) = opened().await;
    let instance = runtime.create(&key(1), &worker(1, &[("SLOTS", "10")]), soon()).await.unwrap();
    let calls = crate::support::calls();
    await_listening(&calls, &instance.address, soon()).await.unwrap();
    let port = instance.address.rsplit_once(':').unwrap().1;
    let reported = |address: &str, from: &str| {
        let mut asked = ask("anna", &instance, 1);
        (asked.address, asked.reported_from) = (address.into(), Some(from.parse().unwrap()));
        asked
    };
    let before = about(&instance.address)["connections"].as_u64().unwrap();
    for address in [&*instance.address, &format!("localhost:{port}"), &format!("0:{port}"), &format!("0.0.0.0:{port}")]
    {
        let verdict = calls.reserve(&reported(address, "203.0.113.7"), soon()).await;
        let Verdict::Unknown(why) = &verdict else { panic!("{address}: {verdict:?}") };
        assert!(why.contains("may not be called") && why.contains("--allow-net"), "{address}: {why}");
    }
    assert_eq!(about(&instance.address)["connections"].as_u64().unwrap(), before + 1, "the one that asks");
    assert_eq!(calls.reserve(&reported(&instance.address, "127.0.0.1"), soon()).await, Verdict::Yes);
    // A kept connection blocks all others.
    let foreign = calls.check(&reported(&instance.address, "203.0.113.7"), soon()).await;
    assert!(matches!(foreign, Verdict::Unknown(_)), "{foreign:?}");
    // Of several nodes each calls another machine loopback.
    let one_of_several = Calls::new(Policy::new(Vec::new(), false));
    let from_loopback = one_of_several.check(&reported(&instance.address, "127.0.0.1"), soon()).await;
    assert!(matches!(from_loopback, Verdict::Unknown(_)), "{from_loopback:?}");
    let allowed = Calls::new(Policy::new(vec!["127.0.0.0/8".parse().unwrap()], false));
    assert_eq!(allowed.check(&reported(&format!("localhost:{port}"), "203.0.113.7"), soon()).await, Verdict::Yes);
    runtime.remove(&key(1), soon()).await.unwrap();
}

#[tokio::test]
async fn a_worker_that_never_listens_differs_from_one_that_does_not_answer() {
    let (_state, runtime) = opened().await;
    let calls = crate::support::calls();
    let instance = runtime.create(&key(1), &worker(1, &[("MISBEHAVE", "deaf")]), soon()).await.unwrap();
    let within = || Instant::now() + Duration::from_millis(300);
    let why = await_listening(&calls, &instance.address, within()).await.unwrap_err().to_string();
    assert!(why.starts_with("it does not listen on 127.0.0.1:") && why.contains("refused"), "{why}");
    runtime.remove(&key(1), soon()).await.unwrap();
    // It takes connections into its backlog.
    let mute = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = mute.local_addr().unwrap().to_string();
    let why = await_listening(&calls, &address, within()).await.unwrap_err().to_string();
    assert!(why.contains("it takes connections, and does not answer"), "{why}");
    let past = calls.check(&ask("anna", &instance, 1), Instant::now()).await;
    assert_eq!(past, Verdict::Unknown("its time was over before it could be asked".into()));
}

#[tokio::test]
async fn client_names_reach_the_worker_unchanged_and_connections_are_reused() {
    let (_state, runtime) = opened().await;
    let calls = crate::support::calls();
    let instance = runtime.create(&key(1), &worker(1, &[("SLOTS", "1000")]), soon()).await.unwrap();
    await_listening(&calls, &instance.address, soon()).await.unwrap();
    let names = ["a/b", "../..", "..", "a b?c#d", "%2F", "søk \u{1f600}", "queue", &"x".repeat(255)];
    for (n, name) in (1..).zip(names) {
        assert_eq!(calls.reserve(&ask(name, &instance, n), soon()).await, Verdict::Yes, "{name}");
        assert_eq!(calls.check(&ask(name, &instance, n), soon()).await, Verdict::Yes, "{name}");
    }
    assert_eq!(about(&instance.address)["used"], names.len(), "each is a client of its own");
    for n in 0..100 {
        let ask = ask(&format!("client {n}"), &instance, 1_000 + n);
        assert_eq!(calls.reserve(&ask, soon()).await, Verdict::Yes);
        assert_eq!(calls.release(&ask, soon()).await, Verdict::Yes);
    }
    let connections = about(&instance.address)["connections"].as_u64().unwrap();
    assert!(connections <= 10, "216 calls one after the other took {connections} connections");
    let many = (0..200).map(|n| {
        let (calls, ask) = (calls.clone(), ask(&format!("crowd {n}"), &instance, 5_000 + n));
        async move { calls.reserve(&ask, soon()).await }
    });
    let verdicts = futures::future::join_all(many).await;
    assert!(verdicts.iter().all(|verdict| *verdict == Verdict::Yes), "side by side: {verdicts:?}");
    runtime.remove(&key(1), soon()).await.unwrap();
}

#[tokio::test]
async fn an_unconfirmed_reservation_expires() {
    let (_state, runtime) = opened().await;
    let calls = crate::support::calls();
    let instance: Instance = runtime.create(&key(1), &worker(1, &[]), soon()).await.unwrap();
    await_listening(&calls, &instance.address, soon()).await.unwrap();
    let mut short = ask("anna", &instance, 1);
    short.reservation = Millis(50);
    assert_eq!(calls.reserve(&short, soon()).await, Verdict::Yes);
    eventually("the slot is free", || async { (about(&instance.address)["used"] == 0).then_some(()) }).await;
    assert_eq!(calls.check(&short, soon()).await, Verdict::No);
    runtime.remove(&key(1), soon()).await.unwrap();
}
