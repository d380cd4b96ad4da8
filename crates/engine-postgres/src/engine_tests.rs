//! The conformance suite over a real database.

use wayleave_engine::suite::harness::{Harness, fenced, key, put};
use wayleave_testbed::Cluster;

use super::*;
use crate::timekeeper::Timekeeper;

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

/// Two nodes, one of them far away, after the database's clock has stepped back. Time and that clock are made up; the
/// notes are in the database.
#[tokio::test]
async fn a_far_node_does_not_replace_the_note_of_a_near_one_that_leads_by_more() {
    const SECOND: u64 = 1_000_000;
    let store = InDatabase::create().await;
    let Ok(session) = store.engine.bench.database.nodes.lease().await else { panic!("no connection") };
    let shows = |us: u64| if us < 10 * SECOND { 1_000 * SECOND + us } else { 980 * SECOND + us };
    let look = |sent_us: u64, way_us: u64| Sample {
        store_us: shows(sent_us + way_us),
        sent_us,
        arrived_us: sent_us + 2 * way_us,
    };
    let mut nodes = [200, 12_000].map(|way_us| (way_us, Timekeeper::new(look(0, way_us), 0)));
    for round in 1..=100 {
        for (place, (way_us, keeper)) in nodes.iter_mut().enumerate() {
            if round > 70 && place == 0 {
                // The near node has died.
                continue;
            }
            let sample = look(round * SECOND + place as u64 * SECOND / 3, *way_us);
            let text = "SELECT at, seq FROM wayleave_fences WHERE shard = -1";
            let row = session.client.query_opt(text, &[]).await.unwrap();
            let read =
                |column: usize| row.as_ref().map_or(Time::ZERO, |row| Time(row.get::<_, i64>(column).cast_unsigned()));
            let note = Note { at: read(0), store: read(1) };
            let (noted_us, arrived_us) = (note.extrapolated_us(sample.store_us), sample.arrived_us);
            keeper.learn(sample);
            keeper.raise(noted_us, arrived_us);
            keeper.compare(noted_us.saturating_sub(sample.store_us), arrived_us);
            if let Some((at_us, store_us)) = keeper.lead(arrived_us) {
                let (store, at) = (store_us.div_ceil(1_000).cast_signed(), (at_us / 1_000).cast_signed());
                session.client.execute(&session.statements.note, &[&store, &at]).await.unwrap();
            }
            let steady_s = keeper.at(arrived_us).saturating_sub(keeper.steady_us()) / SECOND;
            let least = round.saturating_sub(if round < 10 { 1 } else { 15 });
            assert!(steady_s >= least, "node {place} at {round} s: steady for {steady_s} s");
        }
    }
}

/// A regression: a page on a bad sector counted as an outage, or as an unknown outcome.
#[tokio::test]
async fn an_unreadable_row_is_damage_and_its_commit_changes_nothing() {
    let store = InDatabase::create().await;
    let (cluster, database) = (Cluster::shared().await, store.url.rsplit('/').next().unwrap());
    let (epoch, mut seq) = store.engine.own(ShardId(1), &[]).await.unwrap();
    let (other, _) = store.engine.own(ShardId(2), &[]).await.unwrap();
    let commit = |seq, name| store.engine.commit(fenced([(1, epoch, seq)], [put(1, "a", name), put(1, name, "1")]));
    for (code, is_damage) in [("58030", true), ("58P01", true), ("XX001", true), ("XX002", true), ("53100", false)] {
        let fails = format!(
            "CREATE OR REPLACE FUNCTION fails() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN \
             RAISE EXCEPTION 'input/output error' USING ERRCODE = '{code}'; END $$"
        );
        cluster.sql_in(database, &fails).await;
        let bad: String = key(1, "bad").iter().map(|byte| format!("{byte:02x}")).collect();
        let at = format!(
            "CREATE OR REPLACE TRIGGER fails BEFORE INSERT ON wayleave_rows FOR EACH ROW \
             WHEN (NEW.key = '\\x{bad}') EXECUTE FUNCTION fails()"
        );
        cluster.sql_in(database, &at).await;
        // Both are queued before a committer runs, so they share a transaction.
        let bad = commit(seq + 1, "bad");
        let beside = store.engine.commit(fenced([(2, other, seq + 1)], [put(2, "a", code)]));
        match bad.await {
            Err(Error::Corrupt(why)) if is_damage => assert!(why.contains("save the rest with"), "{why}"),
            Err(Error::Unavailable(_)) if !is_damage => {}
            other => panic!("{code}: {other:?}"),
        }
        if is_damage {
            assert_eq!(beside.await, Ok(()), "{code}: another shard is whole");
        }
        commit(seq + 1, code).await.unwrap();
        seq += 1;
    }
    assert_eq!(store.engine.get_many(&[key(1, "bad")]).await, Ok(vec![None]));
}

/// A regression: every row was called damaged, one by one.
#[tokio::test]
async fn a_connection_that_the_database_cannot_open_makes_it_unavailable_and_damages_no_row() {
    let store = InDatabase::create().await;
    let (cluster, database) = (Cluster::shared().await, store.url.rsplit('/').next().unwrap());
    let (epoch, seq) = store.engine.own(ShardId(1), &[]).await.unwrap();
    let commit = |name| store.engine.commit(fenced([(1, epoch, seq + 1)], [put(1, name, "1")]));
    // Each new connection reads this table.
    cluster.sql_in(database, "ALTER TABLE wayleave_fences RENAME TO hidden").await;
    let cut = format!(
        "SELECT count(pg_terminate_backend(pid, 60000)) FROM pg_stat_activity WHERE datname = '{database}' AND pid <> pg_backend_pid()"
    );
    cluster.sql(&cut).await;
    let read = store.engine.get_many(&[key(1, "a")]).await;
    assert!(matches!(&read, Err(Error::Unavailable(why)) if why.contains("wayleave_fences")), "{read:?}");
    let owned = store.engine.own(ShardId(2), &[]).await;
    assert!(matches!(owned, Err(Error::Unavailable(_))), "{owned:?}");
    let refused = commit("a").await;
    assert!(matches!(refused, Err(Error::Unavailable(_))), "{refused:?}");
    cluster.sql_in(database, "ALTER TABLE hidden RENAME TO wayleave_fences").await;
    commit("b").await.unwrap();
    assert_eq!(store.engine.get_many(&[key(1, "a")]).await, Ok(vec![None]));
}
