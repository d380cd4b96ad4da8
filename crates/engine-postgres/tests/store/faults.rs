//! A fault at every step of a transaction's pipeline: a batch is applied entirely or not at all, and its answer is
//! true.

use wayleave_core::ids::{Epoch, ShardId};
use wayleave_engine::suite::harness::{batch, delete, fenced, key, put};
use wayleave_engine::{Batch, Engine, Error};
use wayleave_engine_postgres::Postgres;
use wayleave_testbed::{Cluster, Fault, Proxy};

use crate::open;

/// Faults at any step.
const ANYWHERE: [Fault; 6] = [
    Fault::Cancel,
    Fault::CutBefore,
    Fault::CutAnswer,
    // What poolers report when they lose the server, after they have forwarded the client's COMMIT.
    Fault::MakeUp { severity: "FATAL", code: "08P01" },
    Fault::MakeUp { severity: "FATAL", code: "57P01" },
    Fault::MakeUp { severity: "FATAL", code: "58000" },
];
/// Faults in place of the response to COMMIT.
const AT_COMMIT: [Fault; 4] = [
    Fault::MakeUp { severity: "ERROR", code: "40003" },
    Fault::MakeUp { severity: "ERROR", code: "08006" },
    Fault::MakeUp { severity: "ERROR", code: "57P02" },
    Fault::MakeUp { severity: "ERROR", code: "XX000" },
];

struct World {
    cluster: Cluster,
    engine: Postgres,
    /// A second node, over a connection without faults.
    witness: Postgres,
    proxy: Proxy,
    database: String,
}

impl World {
    async fn new() -> Self {
        let cluster = Cluster::shared().await;
        let direct = cluster.fresh_database().await;
        let proxy = Proxy::start(cluster.address()).await;
        let (engine, witness) = (open(&proxy.url(&direct)).await, open(&direct).await);
        let database = direct.rsplit('/').next().unwrap().to_owned();
        Self { cluster, engine, witness, proxy, database }
    }

    /// Epoch and sequence number of shard 1 in the database.
    async fn fence_state(&self) -> (u64, u64) {
        let text = "select epoch, seq from wayleave_fences where shard = 1";
        let found = self.cluster.sql_in(&self.database, text).await;
        let (epoch, seq) = found.split_once('|').unwrap();
        (epoch.parse().unwrap(), seq.parse().unwrap())
    }

    /// The three rows that [`change`] changes, in the database.
    async fn rows(&self) -> [Option<Vec<u8>>; 3] {
        let keys = ["a", "b", "d"].map(|name| key(1, name));
        self.witness.get_many(&keys).await.unwrap().try_into().unwrap()
    }

    async fn set_back(&self) {
        self.witness.commit(batch([put(1, "a", "old"), delete(1, "b"), put(1, "d", "old")])).await.unwrap();
    }
}

fn old() -> [Option<Vec<u8>>; 3] {
    [Some(b"old".to_vec()), None, Some(b"old".to_vec())]
}

fn new() -> [Option<Vec<u8>>; 3] {
    [Some(b"new".to_vec()), Some(b"new".to_vec()), None]
}

/// A batch that uses every statement.
fn change(epoch: Epoch, seq: Option<u64>) -> Batch {
    let writes = [put(1, "a", "new"), put(1, "b", "new"), delete(1, "d")];
    let expects = vec![(key(1, "a"), Some(b"old".to_vec())), (key(1, "b"), None)];
    Batch { expects, ..fenced(seq.map(|seq| (1, epoch, seq)), writes) }
}

/// Every fault at every step of a transaction of `steps` steps.
fn faults(steps: usize) -> impl Iterator<Item = (usize, Fault)> {
    let anywhere = (0..steps).flat_map(|step| ANYWHERE.map(|fault| (step, fault)));
    anywhere.chain(AT_COMMIT.map(|fault| (steps - 1, fault)))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fenced_commit_is_applied_exactly_once_under_every_fault() {
    let world = World::new().await;
    let (epoch, mut seq) = world.engine.own(ShardId(1), &[]).await.unwrap();
    world.set_back().await;
    world.engine.commit(change(epoch, Some(seq + 1))).await.unwrap();
    seq += 1;
    let steps = world.proxy.steps();
    assert_eq!(steps, 7, "begin, fence, expect, absent, put, delete, commit");
    for (step, fault) in faults(steps) {
        world.set_back().await;
        world.proxy.arm(step, fault);
        let answer = world.engine.commit(change(epoch, Some(seq + 1))).await;
        assert!(world.proxy.has_struck(), "{fault:?} at {step}");
        let found = (world.fence_state().await.1, world.rows().await);
        assert_eq!((answer, found), (Ok(()), (seq + 1, new())), "{fault:?} at {step}");
        seq += 1;
    }
}

/// Without a fence the outcome of a lost commit cannot be resolved. "Unknown" then means all or nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_without_a_fence_is_atomic_and_truly_answered_under_faults() {
    let world = World::new().await;
    world.set_back().await;
    world.engine.commit(change(Epoch(0), None)).await.unwrap();
    for (step, fault) in faults(world.proxy.steps()) {
        world.set_back().await;
        world.proxy.arm(step, fault);
        let answer = world.engine.commit(change(Epoch(0), None)).await;
        assert!(world.proxy.has_struck(), "{fault:?} at {step}");
        let found = world.rows().await;
        match answer {
            Ok(()) => assert_eq!(found, new(), "{fault:?} at {step}"),
            Err(Error::OutcomeUnknown(_)) => {
                assert!(found == new() || found == old(), "{fault:?} at {step}: {found:?}")
            }
            Err(error) => assert_eq!(found, old(), "{fault:?} at {step}: {error}"),
        }
    }
}

/// A cancelled BEGIN must not let the new epoch take effect without the seat that it depends on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_shard_is_taken_only_with_its_seat_under_every_fault() {
    let world = World::new().await;
    world.engine.own(ShardId(1), &[]).await.unwrap();
    world.witness.commit(batch([put(9, "seat", "mine")])).await.unwrap();
    for name in ["mine", "theirs"] {
        let expects = [(key(9, "seat"), Some(name.as_bytes().to_vec())), (key(9, "absent"), None)];
        // Begin, own, expect, absent, delete, commit.
        for (step, fault) in faults(6) {
            let (before, _) = world.fence_state().await;
            world.proxy.arm(step, fault);
            let answer = world.engine.own(ShardId(1), &expects).await;
            assert!(world.proxy.has_struck(), "{fault:?} at {step}");
            let (after, _) = world.fence_state().await;
            assert!(name == "mine" || after == before, "{fault:?} at {step}: taken without its seat: {answer:?}");
            match answer {
                Ok((epoch, _)) => assert_eq!((epoch.0, after), (before + 1, before + 1), "{fault:?} at {step}"),
                Err(Error::OutcomeUnknown(_)) => assert!(after <= before + 1, "{fault:?} at {step}"),
                Err(error) => assert_eq!(after, before, "{fault:?} at {step}: {error}"),
            }
        }
    }
}

/// A session whose COMMIT was cancelled is left in an aborted transaction: it must not return to the pool.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_a_cancelled_commit_the_next_ones_go_through() {
    let world = World::new().await;
    let (epoch, seq) = world.engine.own(ShardId(1), &[]).await.unwrap();
    for number in 1..=20 {
        world.proxy.arm(3, Fault::Cancel);
        let commit = world.engine.commit(fenced([(1, epoch, seq + number)], [put(1, "a", &number.to_string())]));
        assert_eq!(commit.await, Ok(()), "{number}");
    }
    assert_eq!(world.fence_state().await.1, seq + 20);
}
