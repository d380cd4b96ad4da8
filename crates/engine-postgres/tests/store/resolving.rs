//! Commits whose responses were lost: what the fence reveals, and what remains unknown.

use wayleave_core::ids::{Epoch, ShardId};
use wayleave_engine::suite::harness::{batch, check, fenced, key, put};
use wayleave_engine::{Engine, Error};
use wayleave_engine_postgres::Postgres;
use wayleave_testbed::{Cluster, Fault, Proxy};

use crate::open;

struct Cuttable {
    engine: Postgres,
    proxy: Proxy,
    direct: String,
    epoch: Epoch,
}

async fn cuttable() -> Cuttable {
    let cluster = Cluster::shared().await;
    let direct = cluster.fresh_database().await;
    let proxy = Proxy::start(cluster.address()).await;
    let engine = open(&proxy.url(&direct)).await;
    let (epoch, _) = engine.own(ShardId(1), &[]).await.unwrap();
    // Commits have separate connections: one must exist before the link is cut.
    engine.commit(batch([put(9, "before", "1")])).await.unwrap();
    Cuttable { engine, proxy, direct, epoch }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fenced_commit_is_done_once_wherever_the_line_was_cut() {
    for cut in [Fault::CutBefore, Fault::CutAnswer] {
        let Cuttable { engine, proxy, epoch, .. } = cuttable().await;
        engine.commit(fenced([(1, epoch, 1)], [put(1, "a", "1")])).await.unwrap();
        proxy.arm(0, cut);
        assert_eq!(engine.commit(fenced([(1, epoch, 2)], [put(1, "a", "2")])).await, Ok(()), "{cut:?}");
        assert!(proxy.has_struck(), "{cut:?}");
        check(&engine, 1, [("a", Some("2"))]).await;
        engine.commit(fenced([(1, epoch, 3)], [put(1, "a", "3")])).await.unwrap();
        assert_eq!(engine.own(ShardId(1), &[]).await, Ok((Epoch(epoch.0 + 1), 3)), "{cut:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commits_in_a_row_survive_a_cut_together() {
    for cut in [Fault::CutBefore, Fault::CutAnswer] {
        let Cuttable { engine, proxy, epoch, .. } = cuttable().await;
        let (other, _) = engine.own(ShardId(2), &[]).await.unwrap();
        proxy.arm(0, cut);
        let answers: Vec<_> = (1..=20)
            .flat_map(|seq| {
                let name = format!("{seq:02}");
                [
                    engine.commit(fenced([(1, epoch, seq)], [put(1, &name, "1")])),
                    engine.commit(fenced([(2, other, seq)], [put(2, &name, "1")])),
                ]
            })
            .collect();
        for answer in answers {
            assert_eq!(answer.await, Ok(()), "{cut:?}");
        }
        assert_eq!(engine.own(ShardId(1), &[]).await, Ok((Epoch(epoch.0 + 1), 20)));
        assert_eq!(engine.own(ShardId(2), &[]).await, Ok((Epoch(other.0 + 1), 20)));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unfenced_commit_stays_unknown_after_a_lost_answer() {
    for (cut, found) in [(Fault::CutBefore, None), (Fault::CutAnswer, Some("1"))] {
        let Cuttable { engine, proxy, .. } = cuttable().await;
        proxy.arm(0, cut);
        let answer = engine.commit(batch([put(1, "a", "1")])).await;
        assert!(matches!(answer, Err(Error::OutcomeUnknown(_))), "{cut:?}: {answer:?}");
        check(&engine, 1, [("a", found)]).await;
    }
}

/// The link is cut, and before it is restored another node takes the shard.
async fn taken_over(cut: Fault, commits_of_the_other: u64) -> (Result<(), Error>, u64) {
    let Cuttable { engine, proxy, direct, epoch } = cuttable().await;
    let other = open(&direct).await;
    proxy.arm(0, cut);
    proxy.close(true);
    let answer = tokio::spawn(engine.commit(fenced([(1, epoch, 1)], [put(1, "a", "mine")])));
    while !proxy.has_struck() {
        tokio::task::yield_now().await;
    }
    // What was cut after its COMMIT is in the database before its response can be lost; own waits for it.
    let (theirs, seq) = other.own(ShardId(1), &[]).await.unwrap();
    for number in 1..=commits_of_the_other {
        other.commit(fenced([(1, theirs, seq + number)], [put(1, "b", "theirs")])).await.unwrap();
    }
    proxy.close(false);
    (answer.await.unwrap(), seq)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_that_never_arrived_is_fenced_by_the_new_owner() {
    let (answer, seq) = taken_over(Fault::CutBefore, 0).await;
    assert_eq!(seq, 0);
    assert_eq!(answer, Err(Error::Fenced { shard: 1, epoch: 2, seq: 0 }));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_outcome_is_unknown_once_a_new_owner_passed_the_number() {
    let (answer, _) = taken_over(Fault::CutBefore, 3).await;
    assert!(matches!(&answer, Err(Error::OutcomeUnknown(why)) if why.contains("another owner")), "{answer:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_that_cannot_be_reached_is_unavailable_and_comes_back() {
    let Cuttable { engine, proxy, epoch, .. } = cuttable().await;
    proxy.close(true);
    proxy.arm(0, Fault::CutBefore);
    // Cut midway: it may have been applied.
    let lost = engine.commit(fenced([(1, epoch, 1)], [put(1, "a", "1")])).await;
    assert!(matches!(lost, Err(Error::OutcomeUnknown(_))), "{lost:?}");
    // Not even begun: nothing was changed, and the answer comes at once.
    let refused = engine.commit(fenced([(1, epoch, 1)], [put(1, "a", "1")])).await;
    assert!(matches!(refused, Err(Error::Unavailable(_))), "{refused:?}");
    check_reads_are_unavailable(&engine).await;
    proxy.close(false);
    engine.commit(fenced([(1, epoch, 1)], [put(1, "a", "2")])).await.unwrap();
    check(&engine, 1, [("a", Some("2"))]).await;
}

async fn check_reads_are_unavailable(engine: &Postgres) {
    // Nothing was read before, so a connection must be opened.
    let answer = engine.get_many(&[key(1, "a")]).await;
    assert!(matches!(answer, Err(Error::Unavailable(_))), "{answer:?}");
}
