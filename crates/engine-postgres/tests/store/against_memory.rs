//! The memory engine as the model: both engines agree on every commit and read, in flight or not.

use std::sync::atomic::{AtomicU16, Ordering};

use proptest::collection::vec;
use proptest::prelude::*;
use wayleave_core::ids::ShardId;
use wayleave_core::time::Time;
use wayleave_engine::clock::ManualClock;
use wayleave_engine::suite::harness::{check, key, put};
use wayleave_engine::{Batch, Engine, Fence, Memory, Scan, Write};
use wayleave_testbed::Cluster;

use crate::open;

#[derive(Clone, Debug)]
enum Op {
    /// Whether its fence holds, conditions (name, value; 9 is absent), and writes (name, value; 9 deletes).
    Commit {
        fence: Option<bool>,
        expects: Vec<(u8, u8)>,
        writes: Vec<(u8, u8)>,
    },
    Get(Vec<u8>),
    Scan(Vec<(u8, u8, usize)>),
    Settle,
}

const NAMES: u8 = 12;
const ABSENT: u8 = 9;

fn op() -> impl Strategy<Value = Op> {
    let pairs = |max| vec((0..NAMES, prop_oneof![0..4_u8, Just(ABSENT)]), 0..max);
    let fence = prop_oneof![4 => Just(Some(true)), 1 => Just(None), 1 => Just(Some(false))];
    let expects = prop_oneof![3 => Just(Vec::new()), 1 => pairs(2)];
    let commit = (fence, expects, pairs(8)).prop_map(|(fence, expects, writes)| Op::Commit { fence, expects, writes });
    let scan = (0..NAMES, 0..=NAMES, prop_oneof![0..6_usize, Just(usize::MAX)]);
    prop_oneof![
        4 => commit,
        3 => vec(0..NAMES, 0..8).prop_map(Op::Get),
        3 => vec(scan, 0..3).prop_map(Op::Scan),
        1 => Just(Op::Settle),
    ]
}

fn name(number: u8) -> String {
    format!("{number:02}")
}

fn value(number: u8) -> Option<Vec<u8>> {
    (number != ABSENT).then(|| vec![number; usize::from(number)])
}

async fn same_answers(store: &impl Engine, shard: u16, ops: Vec<Op>) -> Result<(), TestCaseError> {
    let model = Memory::new(ManualClock::new(Time(1_000)));
    let mut next = 1;
    let (epoch, _) = store.own(ShardId(shard), &[]).await.unwrap();
    prop_assert_eq!(model.own(ShardId(shard), &[]).await.unwrap().0, epoch);
    let mut waiting = Vec::new();
    for op in ops {
        match op {
            Op::Commit { fence, expects, writes } => {
                let seq = if fence == Some(true) { next } else { next + 3 };
                let batch = Batch {
                    fences: fence.map(|_| Fence { shard: ShardId(shard), epoch, seq }).into_iter().collect(),
                    expects: expects.iter().map(|(row, is)| (key(shard, name(*row)), value(*is))).collect(),
                    writes: writes
                        .iter()
                        .map(|(row, is)| Write { key: key(shard, name(*row)), value: value(*is) })
                        .collect(),
                };
                let answer = store.commit(batch.clone());
                match model.commit(batch).await {
                    Ok(()) => {
                        next += u64::from(fence.is_some());
                        waiting.push(answer);
                    }
                    // Until it is refused the store may show it; the model never does.
                    refused => prop_assert_eq!(answer.await, refused),
                }
            }
            Op::Get(rows) => {
                let keys: Vec<_> = rows.iter().map(|row| key(shard, name(*row))).collect();
                prop_assert_eq!(store.get_many(&keys).await, model.get_many(&keys).await);
            }
            Op::Scan(scans) => {
                let scan = |(from, to, limit): &(u8, u8, usize)| Scan {
                    from: key(shard, name(*from)),
                    to: key(shard, name(*to)),
                    limit: *limit,
                };
                let scans: Vec<_> = scans.iter().map(scan).collect();
                prop_assert_eq!(store.scan_many(&scans).await, model.scan_many(&scans).await);
            }
            Op::Settle => {
                for answer in waiting.drain(..) {
                    prop_assert_eq!(answer.await, Ok(()));
                }
            }
        }
    }
    for answer in waiting {
        prop_assert_eq!(answer.await, Ok(()));
    }
    let all = [wayleave_engine::suite::harness::all(shard)];
    prop_assert_eq!(store.scan_many(&all).await, model.scan_many(&all).await);
    prop_assert_eq!(store.look(&all).await.unwrap().rows, model.scan_many(&all).await.unwrap());
    Ok(())
}

#[test]
fn reads_match_the_model_with_commits_in_flight() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let store = runtime.block_on(async { open(&Cluster::shared().await.fresh_database().await).await });
    let shard = AtomicU16::new(0);
    proptest!(ProptestConfig { cases: 150, max_shrink_iters: 200, failure_persistence: None, ..ProptestConfig::default() },
    |(ops in vec(op(), 1..40))| {
        runtime.block_on(same_answers(&store, shard.fetch_add(1, Ordering::Relaxed), ops))?;
    });
}

/// Between the moment that a batch leaves the overlay and the database query nothing may be missed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_row_is_always_there_while_it_becomes_durable() {
    let store = open(&Cluster::shared().await.fresh_database().await).await;
    let mut answers = Vec::new();
    for round in 0..1_000 {
        let value = round.to_string();
        answers.push(store.commit(wayleave_engine::suite::harness::batch([put(1, "a", &value)])));
        for _ in 0..round % 4 {
            check(&store, 1, [("a", Some(value.as_str()))]).await;
        }
    }
    for answer in answers {
        answer.await.unwrap();
    }
}
