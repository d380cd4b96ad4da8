//! Rows that another session has locked: batches that need them wait or are refused, and all others proceed.

use std::time::{Duration, Instant};

use tokio_postgres::{Client, NoTls};
use wayleave_core::ids::ShardId;
use wayleave_engine::rows::key::OUTSIDE;
use wayleave_engine::rows::{Kind, key as keys};
use wayleave_engine::suite::harness::{all, batch, fenced, names, put};
use wayleave_engine::{Batch, Engine, Error, Key, Write};
use wayleave_testbed::Cluster;

use crate::open;

/// A row outside the shards.
fn outside(kind: Kind, name: &str) -> Key {
    keys::of(OUTSIDE, kind, &[name.as_bytes()])
}

/// A compare-and-swap as heartbeats make it.
fn swap(key: &Key, old: Option<&str>, new: &str) -> Batch {
    let value = |text: &str| text.as_bytes().to_vec();
    let writes = vec![Write { key: key.clone(), value: Some(value(new)) }];
    Batch { fences: Vec::new(), expects: vec![(key.clone(), old.map(value))], writes }
}

/// A session that holds its locks until it is dropped.
async fn holding(url: &str, lock: &str) -> Client {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.unwrap();
    tokio::spawn(connection);
    client.batch_execute("BEGIN").await.unwrap();
    client.batch_execute(lock).await.unwrap();
    client
}

async fn hold_row(url: &str, key: &Key) -> Client {
    let hex: String = key.iter().map(|byte| format!("{byte:02x}")).collect();
    holding(url, &format!("SELECT 1 FROM wayleave_rows WHERE key = '\\x{hex}' FOR UPDATE")).await
}

/// One role is locked while eight others and a node's own row are changed concurrently, again and again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_locked_role_stops_neither_other_roles_nor_nodes() {
    const ROUNDS: usize = 4;
    let url = Cluster::shared().await.fresh_database().await;
    let engine = open(&url).await;
    let roles: Vec<Key> = (0..9).map(|role| outside(Kind::Role, &format!("role {role}"))).collect();
    let node = outside(Kind::Node, "node");
    for key in roles.iter().chain([&node]) {
        engine.commit(swap(key, None, "0")).await.unwrap();
    }
    let held = hold_row(&url, &roles[4]).await;
    let stuck = tokio::spawn(engine.commit(swap(&roles[4], Some("0"), "1")));
    for round in 0..ROUNDS {
        let (old, new) = (round.to_string(), (round + 1).to_string());
        let free = roles.iter().enumerate().filter(|(role, _)| *role != 4).map(|(_, key)| key);
        let all: Vec<_> =
            free.chain([&node]).map(|key| tokio::spawn(engine.commit(swap(key, Some(&old), &new)))).collect();
        for answer in all {
            assert_eq!(answer.await.unwrap(), Ok(()), "round {round}");
        }
    }
    assert!(!stuck.is_finished(), "no other commit waits until this one is given up");
    let answer = stuck.await.unwrap();
    assert!(matches!(&answer, Err(Error::Unavailable(why)) if why.contains("pg_blocking_pids")), "{answer:?}");
    drop(held);
    engine.commit(swap(&roles[4], Some("0"), "1")).await.unwrap();
}

/// The locked row is in one transaction with many others: bisection must clear those quickly. The session that holds
/// the row locks it *before* any of them is sent, and releases it only at the end.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn batches_that_were_sent_with_a_locked_one_get_through() {
    let url = Cluster::shared().await.fresh_database().await;
    let engine = open(&url).await;
    let mut epochs = Vec::new();
    for shard in 1..=16 {
        epochs.push(engine.own(ShardId(shard), &[]).await.unwrap().0);
    }
    let held = holding(&url, "SELECT 1 FROM wayleave_fences WHERE shard = 7 FOR UPDATE").await;
    let (stuck, free): (Vec<_>, Vec<_>) = (1..=3)
        .flat_map(|seq| epochs.iter().zip(1..=16).map(move |(epoch, shard)| (shard, *epoch, seq)))
        .map(|(shard, epoch, seq)| {
            let name = format!("{seq}");
            (shard, tokio::spawn(engine.commit(fenced([(shard, epoch, seq)], [put(shard, &name, "1")]))))
        })
        .partition(|(shard, _)| *shard == 7);
    for (shard, answer) in free {
        assert_eq!(answer.await.unwrap(), Ok(()), "shard {shard}");
    }
    assert!(stuck.iter().all(|(_, answer)| !answer.is_finished()), "no other batch waits until these are given up");
    for (at, (_, answer)) in stuck.into_iter().enumerate() {
        match answer.await.unwrap() {
            // A batch sent after the first was refused finds itself out of sequence: nothing was changed either way.
            Err(Error::Fenced { .. }) if at > 0 => {}
            Err(Error::Unavailable(_)) => {}
            answer => panic!("what is behind a batch that was refused is refused too: {answer:?}"),
        }
    }
    assert!(names(&engine, all(7)).await.is_empty());
    drop(held);
    engine.commit(fenced([(7, epochs[6], 1)], [put(7, "1", "1")])).await.unwrap();
}

/// Ten roles and the fence of one shard are locked, and three nodes want them, again and again. A call for another
/// row is answered before any of those calls is given up.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn locked_rows_stall_only_their_own_callers() {
    const ROUNDS: usize = 10;
    let url = Cluster::shared().await.fresh_database().await;
    let engines = [open(&url).await, open(&url).await, open(&url).await];
    let locked: Vec<Key> = (0..10).map(|role| outside(Kind::Role, &format!("locked {role}"))).collect();
    let name = |kind, at: usize| outside(kind, &format!("free {at}"));
    let mut epochs = Vec::new();
    for (at, engine) in engines.iter().enumerate() {
        for key in [name(Kind::Role, at), name(Kind::Node, at)] {
            engine.commit(swap(&key, None, "0")).await.unwrap();
        }
        epochs.push(engine.own(ShardId(at as u16 + 1), &[]).await.unwrap().0);
    }
    for key in &locked {
        engines[0].commit(swap(key, None, "0")).await.unwrap();
    }
    let mut held = vec![holding(&url, "SELECT 1 FROM wayleave_fences WHERE shard = 1 FOR UPDATE").await];
    for key in &locked {
        held.push(hold_row(&url, key).await);
    }
    let fenced_out = tokio::spawn(engines[0].commit(fenced([(1, epochs[0], 1)], [put(1, "a", "1")])));
    let wanted =
        engines.iter().flat_map(|engine| locked.iter().map(move |key| engine.commit(swap(key, Some("0"), "1"))));
    let stuck: Vec<_> = wanted.map(tokio::spawn).chain([fenced_out]).collect();
    let mut slowest = [Duration::ZERO; 4];
    for round in 0..ROUNDS {
        let (old, new) = (round.to_string(), (round + 1).to_string());
        let commits = engines.iter().enumerate().flat_map(|(at, engine)| {
            let role = swap(&name(Kind::Role, at), Some(&old), &new);
            let node = swap(&name(Kind::Node, at), Some(&old), &new);
            let put = (at > 0)
                .then(|| fenced([(at as u16 + 1, epochs[at], round as u64 + 1)], [put(at as u16 + 1, "a", &new)]));
            [(0, Some(role)), (1, Some(node)), (2, put)].map(|(kind, batch)| (kind, batch.map(|b| engine.commit(b))))
        });
        let sent = Instant::now();
        let answers = commits.filter_map(|(kind, commit)| {
            commit.map(|commit| tokio::spawn(async move { (kind, commit.await, sent.elapsed()) }))
        });
        for answer in answers.collect::<Vec<_>>() {
            let (kind, answer, took): (usize, _, _) = answer.await.unwrap();
            assert_eq!(answer, Ok(()), "round {round}");
            slowest[kind] = slowest[kind].max(took);
        }
        let sent = Instant::now();
        engines[1].own(ShardId(100 + round as u16), &[]).await.unwrap();
        slowest[3] = slowest[3].max(sent.elapsed());
    }
    println!(
        "slowest: other roles {:.0?}, nodes {:.0?}, puts {:.0?}, taken shards {:.0?}",
        slowest[0], slowest[1], slowest[2], slowest[3]
    );
    assert!(stuck.iter().all(|answer| !answer.is_finished()), "no other call waits until these are given up");
    for answer in stuck {
        let answer = answer.await.unwrap();
        assert!(matches!(answer, Err(Error::Unavailable(_))), "{answer:?}");
    }
    drop(held);
    // What was remembered as locked is found free.
    engines[0].commit(swap(&locked[0], Some("0"), "1")).await.unwrap();
    engines[0].commit(fenced([(1, epochs[0], 1)], [put(1, "a", "1")])).await.unwrap();
}

/// More rows are locked than there are committers: nodes must still be able to renew their leases.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_renews_its_lease_while_many_rows_are_locked() {
    let url = Cluster::shared().await.fresh_database().await;
    let engine = open(&url).await;
    let node = outside(Kind::Node, "node");
    engine.commit(swap(&node, None, "0")).await.unwrap();
    let roles: Vec<Key> = (0..12).map(|role| outside(Kind::Role, &format!("role {role}"))).collect();
    for key in &roles {
        engine.commit(swap(key, None, "0")).await.unwrap();
    }
    let of_roles = format!("SELECT 1 FROM wayleave_rows WHERE get_byte(key, 2) = {} FOR UPDATE", Kind::Role as u8);
    let held = holding(&url, &of_roles).await;
    let stuck: Vec<_> = roles.iter().map(|key| tokio::spawn(engine.commit(swap(key, Some("0"), "1")))).collect();
    for round in 0..8 {
        engine.commit(swap(&node, Some(&round.to_string()), &(round + 1).to_string())).await.unwrap();
    }
    assert!(stuck.iter().any(|answer| !answer.is_finished()), "no renewal waits until the others are given up");
    for answer in stuck {
        let answer = answer.await.unwrap();
        assert!(matches!(answer, Err(Error::Unavailable(_))), "{answer:?}");
    }
    drop(held);
    engine.commit(batch([put(1, "a", "1")])).await.unwrap();
}
