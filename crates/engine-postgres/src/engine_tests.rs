//! The conformance suite over a real database.

use wayleave_engine::suite::harness::Harness;
use wayleave_testbed::Cluster;

use super::*;

struct InDatabase {
    engine: Postgres,
    url: String,
}

impl Harness for InDatabase {
    type Engine = Postgres;
    async fn create() -> Self {
        let url = Cluster::shared().await.fresh_database().await;
        Self { engine: Postgres::open(&url, Options::default()).await.unwrap(), url }
    }
    fn engine(&self) -> &Postgres {
        &self.engine
    }
    async fn damage(self, row: &[u8]) -> Self {
        drop(self.engine);
        let key: String = row.iter().map(|byte| format!("{byte:02x}")).collect();
        let database = self.url.rsplit('/').next().unwrap();
        let url = Cluster::shared().await.damaged_copy(database, "wayleave_rows", &format!("key = '\\x{key}'")).await;
        Self { engine: Postgres::open(&url, Options::default()).await.unwrap(), url }
    }
    async fn reopen(self) -> Self {
        drop(self.engine);
        Self { engine: Postgres::open(&self.url, Options::default()).await.unwrap(), url: self.url }
    }
}

mod suite {
    wayleave_engine::conformance!(super::InDatabase);
}

/// Occupies every connection of a pool, as slow calls would.
async fn hold(pool: &Pool) -> Vec<crate::pool::Lease<'_>> {
    let mut held = Vec::new();
    for _ in 0..pool.size() {
        held.push(pool.lease().await.unwrap_or_else(|trouble| panic!("{}", trouble.words())));
    }
    held
}

/// A node's lease renewal.
fn renewal(old: Option<&str>, new: &str) -> Batch {
    let key = wayleave_engine::rows::node::key(wayleave_core::ids::NodeId(7));
    let value = |text: &str| text.as_bytes().to_vec();
    let writes = vec![wayleave_engine::Write { key: key.clone(), value: Some(value(new)) }];
    Batch { fences: Vec::new(), expects: vec![(key, old.map(value))], writes }
}

#[tokio::test]
async fn a_look_does_not_wait_for_slow_reads() {
    let store = InDatabase::create().await;
    let _held = hold(&store.engine.reads).await;
    store.engine.look(&[]).await.unwrap();
}

#[tokio::test]
async fn taking_a_shard_does_not_wait_for_commits() {
    let store = InDatabase::create().await;
    let _held = hold(&store.engine.bench.database.commits).await;
    store.engine.own(ShardId(1), &[]).await.unwrap();
}

#[tokio::test]
async fn a_node_renews_its_lease_while_every_other_connection_is_in_use() {
    let store = InDatabase::create().await;
    let database = &store.engine.bench.database;
    let _held = (hold(&database.commits).await, hold(&database.owns).await, hold(&store.engine.reads).await);
    store.engine.commit(renewal(None, "1")).await.unwrap();
    store.engine.look(&[]).await.unwrap();
    store.engine.commit(renewal(Some("1"), "2")).await.unwrap();
}
