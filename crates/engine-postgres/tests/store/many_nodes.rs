//! Two engines on one database, as two nodes.

use std::sync::Arc;
use std::time::{Duration, Instant};

use wayleave_core::ids::{Epoch, ShardId};
use wayleave_engine::suite::harness::{all, batch, check, delete, fenced, key, names, put};
use wayleave_engine::{Batch, Engine, Error};
use wayleave_testbed::Cluster;

use crate::open;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_nodes_that_swap_one_row_exactly_one_wins_each_round() {
    const TASKS: usize = 8;
    const ROUNDS: usize = 40;
    let url = Cluster::shared().await.fresh_database().await;
    let nodes = [Arc::new(open(&url).await), Arc::new(open(&url).await)];
    let mut wins = 0;
    for round in 0..ROUNDS {
        // Round 0 is the race to create the row; it is deleted and recreated every tenth round.
        let old = match round % 10 {
            0 => None,
            _ => nodes[0].get_many(&[key(1, "seat")]).await.unwrap().remove(0),
        };
        assert_eq!(old.is_none(), round % 10 == 0);
        let race = (0..TASKS).map(|task| {
            let (node, old) = (Arc::clone(&nodes[task % 2]), old.clone());
            let value = format!("{round}.{task}");
            tokio::spawn(async move {
                let expects = vec![(key(1, "seat"), old)];
                (node.commit(Batch { expects, ..batch([put(1, "seat", &value)]) }).await, value)
            })
        });
        let mut winners = Vec::new();
        for answer in futures_in_order(race.collect()).await {
            match answer {
                (Ok(()), value) => winners.push(value),
                (Err(error), _) => assert_eq!(error, Error::Conflict),
            }
        }
        assert_eq!(winners.len(), 1, "round {round}: {winners:?}");
        check(&*nodes[1], 1, [("seat", Some(winners[0].as_str()))]).await;
        wins += winners.len();
        if round % 10 == 9 {
            let expects = vec![(key(1, "seat"), Some(winners[0].clone().into_bytes()))];
            let leave = Batch { expects, ..batch([delete(1, "seat")]) };
            nodes[0].commit(leave).await.unwrap();
        }
    }
    assert_eq!(wins, ROUNDS);
}

async fn futures_in_order<T: Send + 'static>(tasks: Vec<tokio::task::JoinHandle<T>>) -> Vec<T> {
    let mut answers = Vec::new();
    for task in tasks {
        answers.push(task.await.unwrap());
    }
    answers
}

/// The expected row is not the written row: it must be locked anyway.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_nodes_that_each_expect_what_the_other_writes_cannot_both_win() {
    let url = Cluster::shared().await.fresh_database().await;
    let nodes = [Arc::new(open(&url).await), Arc::new(open(&url).await)];
    for present in [false, true] {
        for round in 0..30 {
            let names = [format!("{present}.{round}.a"), format!("{present}.{round}.b")];
            if present {
                nodes[0].commit(batch([put(1, &names[0], "free"), put(1, &names[1], "free")])).await.unwrap();
            }
            let free = present.then(|| b"free".to_vec());
            let race = (0..2).map(|node| {
                let (mine, others) = (names[node].clone(), names[1 - node].clone());
                let expects = vec![(key(1, others), free.clone())];
                let node = Arc::clone(&nodes[node]);
                tokio::spawn(async move { node.commit(Batch { expects, ..batch([put(1, &mine, "taken")]) }).await })
            });
            let answers = futures_in_order(race.collect()).await;
            let won = answers.iter().filter(|answer| answer.is_ok()).count();
            assert!(won <= 1, "{present} {round}: both won");
            assert!(answers.iter().all(|answer| matches!(answer, Ok(()) | Err(Error::Conflict))), "{answers:?}");
            assert!(won == 1 || !present, "of two that wait for each other one must get through");
        }
    }
}

#[tokio::test]
async fn a_node_that_lost_a_shard_is_fenced_also_in_the_middle_of_its_commits() {
    let url = Cluster::shared().await.fresh_database().await;
    let (old, new) = (open(&url).await, open(&url).await);
    let (epoch, _) = old.own(ShardId(1), &[]).await.unwrap();
    let commit = |seq: u64| old.commit(fenced([(1, epoch, seq)], [put(1, &format!("{seq:03}"), "old")]));
    let mut waiting: Vec<_> = (1..=50).map(commit).collect();
    let (mine, seq) = new.own(ShardId(1), &[]).await.unwrap();
    waiting.extend((51..=60).map(commit));
    assert_eq!(mine, Epoch(epoch.0 + 1));
    for (number, answer) in (1..).zip(waiting) {
        let expected = if number <= seq { Ok(()) } else { Err(Error::Fenced { shard: 1, epoch: mine.0, seq }) };
        assert_eq!(answer.await, expected, "commit {number}, the new owner began after {seq}");
    }
    let rows = names(&new, all(1)).await;
    assert_eq!(rows.len() as u64, seq, "what was refused must not be there");
    let again = names(&old, all(1)).await;
    assert_eq!(again, rows, "nor may the old owner still see it");
}

#[tokio::test]
async fn a_new_owner_in_the_same_process_does_not_read_fenced_out_writes() {
    let url = Cluster::shared().await.fresh_database().await;
    let engine = open(&url).await;
    let (epoch, _) = engine.own(ShardId(1), &[]).await.unwrap();
    // A gap in the sequence: all of these will be refused, but they are queued for a while.
    let refused: Vec<_> =
        (0..200).map(|i| engine.commit(fenced([(1, epoch, i + 7)], [put(1, "a", &i.to_string())]))).collect();
    engine.own(ShardId(1), &[]).await.unwrap();
    check(&engine, 1, [("a", None)]).await;
    for answer in refused {
        assert!(matches!(answer.await, Err(Error::Fenced { .. })));
    }
}

/// The order: the owner prepares a batch, loses the shard, takes it again, and only then the old batch is sent, as a
/// host move may do on another owner's behalf. The fence row is locked, so the database cannot refuse the batch yet.
#[tokio::test]
async fn a_batch_of_an_earlier_epoch_is_refused_at_once_and_never_shown() {
    let cluster = Cluster::shared().await;
    let url = cluster.fresh_database().await;
    let engine = open(&url).await;
    let (old, _) = engine.own(ShardId(1), &[]).await.unwrap();
    let (other, _) = engine.own(ShardId(2), &[]).await.unwrap();
    engine.commit(fenced([(1, old, 1)], [put(1, "a", "kept")])).await.unwrap();
    let late = [fenced([(1, old, 2)], [delete(1, "a")]), fenced([(2, other, 1), (1, old, 2)], [delete(1, "a")])];
    let (new, seq) = engine.own(ShardId(1), &[]).await.unwrap();
    let (client, connection) = tokio_postgres::connect(&url, tokio_postgres::NoTls).await.unwrap();
    tokio::spawn(connection);
    client.batch_execute("BEGIN; SELECT 1 FROM wayleave_fences FOR UPDATE").await.unwrap();
    for batch in late {
        let answer = engine.commit(batch);
        check(&engine, 1, [("a", Some("kept"))]).await;
        assert_eq!(names(&engine, all(1)).await, ["a"], "the new owner reads its shard while the old batch waits");
        assert_eq!(answer.await, Err(Error::Fenced { shard: 1, epoch: new.0, seq }));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_nodes_that_take_a_shard_by_their_seats_only_the_seated_one_gets_it() {
    let url = Cluster::shared().await.fresh_database().await;
    let (one, two) = (open(&url).await, open(&url).await);
    let seat = |name: &str| [(key(9, "seat"), Some(name.as_bytes().to_vec()))];
    for round in 0..20 {
        let (seated, name) = if round % 2 == 0 { (&one, "one") } else { (&two, "two") };
        seated.commit(batch([put(9, "seat", name)])).await.unwrap();
        let (ones, twos) = (seat("one"), seat("two"));
        let (first, second) = tokio::join!(one.own(ShardId(1), &ones), two.own(ShardId(1), &twos));
        let (winner, loser) = if round % 2 == 0 { (first, second) } else { (second, first) };
        assert_eq!(winner, Ok((Epoch(round + 1), 0)));
        assert_eq!(loser, Err(Error::Conflict));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_that_write_the_same_rows_in_different_orders_all_get_through() {
    let url = Cluster::shared().await.fresh_database().await;
    let nodes = [Arc::new(open(&url).await), Arc::new(open(&url).await)];
    let writers = (0..2).map(|number| {
        let node = Arc::clone(&nodes[number]);
        tokio::spawn(async move {
            for round in 0..50 {
                let rows = (0..50).map(|row| if number == 0 { row } else { 49 - row });
                let writes = rows.map(|row| put(1, &format!("{row:02}"), &format!("{number}.{round}")));
                node.commit(batch(writes)).await.unwrap();
            }
        })
    });
    futures_in_order(writers.collect()).await;
    let rows = nodes[0].scan_many(&[all(1)]).await.unwrap().remove(0);
    assert!(rows.windows(2).all(|pair| pair[0].value == pair[1].value), "a torn batch was left");
}

#[tokio::test]
async fn a_node_sees_at_once_what_another_has_committed() {
    let url = Cluster::shared().await.fresh_database().await;
    let (one, two) = (open(&url).await, open(&url).await);
    one.commit(batch([put(1, "a", "1")])).await.unwrap();
    check(&two, 1, [("a", Some("1"))]).await;
    let look = two.look(&[all(1)]).await.unwrap();
    assert_eq!(look.rows[0].len(), 1);
    assert!(look.incarnation > 0, "PostgreSQL has timelines");
}

/// Time is shared through commits: a node never lags behind a commit that it can see.
#[tokio::test]
async fn a_commit_of_one_node_is_in_the_past_of_all_others() {
    let cluster = Cluster::shared().await;
    let url = cluster.fresh_database().await;
    let (one, two) = (open(&url).await, open(&url).await);
    one.own(ShardId(1), &[]).await.unwrap();
    let ahead = one.now().0 + 3_600_000;
    let database = url.rsplit('/').next().unwrap();
    // Another node has committed that far ahead of the database's clock, which has stepped back since.
    cluster.sql_in(database, &format!("update wayleave_fences set at = {ahead}")).await;
    one.own(ShardId(1), &[]).await.unwrap();
    assert!(one.now().0 >= ahead);
    assert!(one.look(&[]).await.unwrap().steady_since.0 >= ahead, "that is a step for a node which has not seen it");
    // It records its lead for the others.
    let begun = Instant::now();
    while two.look(&[]).await.unwrap().now.0 < ahead {
        assert!(begun.elapsed() < Duration::from_secs(60), "the other node learns of it");
    }
    assert!(two.now().0 >= ahead);
    let late = open(&url).await;
    assert!((ahead..ahead + 60_000).contains(&late.now().0));
}

/// Fence rows change with every commit, and a long-lived snapshot keeps every version of them. A look must not visit
/// them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_look_reads_one_fence_row_however_many_versions_there_are() {
    let cluster = Cluster::shared().await;
    let url = cluster.fresh_database().await;
    let engine = open(&url).await;
    let (client, connection) = tokio_postgres::connect(&url, tokio_postgres::NoTls).await.unwrap();
    tokio::spawn(connection);
    client.batch_execute("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1 FROM wayleave_fences").await.unwrap();
    let (epoch, _) = engine.own(ShardId(1), &[]).await.unwrap();
    for seq in 1..=500 {
        engine.commit(fenced([(1, epoch, seq)], [put(1, "a", "1")])).await.unwrap();
    }
    let database = url.rsplit('/').next().unwrap();
    let count = async |column: &str| -> u64 {
        let text = format!("select coalesce({column}, 0) from pg_stat_user_tables where relname = 'wayleave_fences'");
        cluster.sql_in(database, &text).await.parse().unwrap()
    };
    // Statistics arrive late: sessions report them when they have been idle for a moment.
    let settled = async || {
        let mut last = (count("seq_scan").await, count("idx_scan").await);
        let begun = Instant::now();
        loop {
            tokio::time::sleep(Duration::from_millis(1_500)).await;
            let now = (count("seq_scan").await, count("idx_scan").await);
            // The clock's own sampling continues: a few index scans per second.
            if now.1.saturating_sub(last.1) < 20 || begun.elapsed() > Duration::from_secs(20) {
                return now;
            }
            last = now;
        }
    };
    let before = settled().await;
    for _ in 0..200 {
        engine.look(&[all(1)]).await.unwrap();
    }
    let begun = Instant::now();
    while count("idx_scan").await < before.1 + 200 && count("seq_scan").await < before.0 + 200 {
        assert!(begun.elapsed() < Duration::from_secs(60), "the looks are counted");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert_eq!(count("seq_scan").await, before.0, "a look walks over the whole table");
}
