//! How a store opens, and the errors that an operator reads when it does not.

use wayleave_engine::format::VERSION;
use wayleave_engine::rows::join;
use wayleave_engine::suite::harness::{batch, check, put};
use wayleave_engine::{Engine, Write};
use wayleave_engine_postgres::{OpenError, Options, Postgres};
use wayleave_testbed::Cluster;

use crate::open;

async fn refused(url: &str) -> OpenError {
    Postgres::open(url, Options::default()).await.err().unwrap_or_else(|| panic!("{url} was opened"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_that_make_a_store_at_once_all_get_the_same_one() {
    let url = Cluster::shared().await.fresh_database().await;
    let tasks: Vec<_> = (1..=8)
        .map(|shards| {
            let url = url.clone();
            tokio::spawn(async move { Postgres::open(&url, Options { shards, ..Options::default() }).await.unwrap() })
        })
        .collect();
    let mut nodes = Vec::new();
    for task in tasks {
        nodes.push(task.await.unwrap());
    }
    let shards = nodes[0].shards();
    assert!(nodes.iter().all(|node| node.shards() == shards), "one number of shards for all");
    nodes[0].commit(batch([put(1, "a", "1")])).await.unwrap();
    check(&nodes[7], 1, [("a", Some("1"))]).await;
    assert_eq!(open(&url).await.shards(), shards, "fixed when it was made");
}

#[tokio::test]
async fn a_store_whose_database_was_copied_is_elsewhere_until_it_is_settled() {
    let cluster = Cluster::shared().await;
    let url = cluster.fresh_database().await;
    for _ in 0..2 {
        assert!(!open(&url).await.is_elsewhere());
    }
    let database = url.rsplit('/').next().unwrap();
    let idle = format!("select count(*) from pg_stat_activity where datname = '{database}'");
    while cluster.sql(&idle).await != "0" {
        tokio::task::yield_now().await;
    }
    // Another name is no other place.
    cluster.sql(&format!("alter database {database} rename to {database}_renamed")).await;
    assert!(!open(&cluster.url_of(&format!("{database}_renamed"))).await.is_elsewhere());
    while cluster.sql(&idle.replace(database, &format!("{database}_renamed"))).await != "0" {
        tokio::task::yield_now().await;
    }
    cluster.sql(&format!("create database {database}_copy template {database}_renamed")).await;
    let copy = cluster.url_of(&format!("{database}_copy"));
    for _ in 0..2 {
        assert!(open(&copy).await.is_elsewhere(), "until it is settled");
    }
    wayleave_engine_postgres::settle(&copy).await.unwrap();
    assert!(!open(&copy).await.is_elsewhere());
}

#[tokio::test]
async fn a_store_of_a_newer_format_is_refused_by_its_number() {
    let cluster = Cluster::shared().await;
    let url = cluster.fresh_database().await;
    drop(open(&url).await);
    let database = url.rsplit('/').next().unwrap();
    let recorded = cluster.sql_in(database, "select version from wayleave_format").await;
    assert_eq!(recorded.trim(), VERSION.to_string());
    // A newer program may have made other tables: none may be made beside them, and no row be touched.
    let newer = VERSION + 1;
    let change = format!("update wayleave_format set version = {newer}; drop table wayleave_fences");
    cluster.sql_in(database, &change).await;
    let all = "select relname, relfilenode from pg_class where relname like 'wayleave%' order by 1; \
               select xmin, version from wayleave_format";
    let before = cluster.sql_in(database, all).await;
    let text = refused(&url).await.to_string();
    for words in [format!("format {newer}"), format!("up to {VERSION}"), "newer wayleave".to_owned()] {
        assert!(text.contains(&words), "{words}: {text}");
    }
    assert_eq!(cluster.sql_in(database, all).await, before, "nothing was changed");
}

#[tokio::test]
async fn a_store_with_a_raised_format_is_refused_by_older_programs() {
    let cluster = Cluster::shared().await;
    let url = cluster.fresh_database().await;
    let engine = open(&url).await;
    let joined = |format| batch([Write { key: join::key(), value: Some(join::encode(7, format)) }]);
    engine.commit(joined(VERSION)).await.unwrap();
    drop(open(&url).await);
    engine.commit(joined(VERSION + 1)).await.unwrap();
    let text = refused(&url).await.to_string();
    assert!(text.contains(&format!("format {}", VERSION + 1)) && text.contains("newer wayleave"), "{text}");
    let read = wayleave_engine_postgres::Reader::open(&url).await.err().unwrap().to_string();
    assert_eq!(read, text, "a copy is refused too");
}

#[tokio::test]
async fn a_newer_program_leaves_the_format_of_a_store_to_its_nodes() {
    let cluster = Cluster::shared().await;
    let url = cluster.fresh_database().await;
    let engine = open(&url).await;
    let database = url.rsplit('/').next().unwrap();
    // As an older program has made it, whose nodes are at work.
    cluster.sql_in(database, "update wayleave_format set version = -1").await;
    drop(open(&url).await);
    let recorded = async || cluster.sql_in(database, "select version from wayleave_format").await.trim().to_owned();
    assert_eq!(recorded().await, "-1");
    engine.commit(batch([Write { key: join::key(), value: Some(join::encode(7, VERSION)) }])).await.unwrap();
    drop(open(&url).await);
    assert_eq!(recorded().await, VERSION.to_string());
}

#[tokio::test]
async fn a_store_whose_making_was_cut_off_is_made_whole() {
    let cluster = Cluster::shared().await;
    let url = cluster.fresh_database().await;
    drop(open(&url).await);
    let database = url.rsplit('/').next().unwrap();
    cluster.sql_in(database, "drop table wayleave_rows; update wayleave_format set version = 0").await;
    let engine = open(&url).await;
    engine.commit(batch([put(1, "a", "1")])).await.unwrap();
    assert_eq!(engine.shards(), 256);
}

#[tokio::test]
async fn what_is_wrong_is_named_with_its_remedy_and_never_the_password() {
    let cluster = Cluster::shared().await;
    cluster.sql("create role guarded login password 'right'").await;
    let address = cluster.address();
    let closed = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    for (url, words) in [
        (format!("postgres://guarded:secret@{address}/postgres"), ["user guarded", "password"]),
        (format!("postgres://guarded@{address}/postgres"), ["user guarded", "password"]),
        (
            format!("postgres://postgres:secret@{address}/nowhere"),
            ["database nowhere", "createdb --owner postgres nowhere"],
        ),
        (format!("postgres://postgres:secret@{closed}/postgres"), ["cannot reach", "start it"]),
        (format!("postgres://guarded:right@{address}/postgres"), ["may not create tables", "GRANT CREATE"]),
        ("host=localhost password=secret".into(), ["postgres://", "URL"]),
        (format!("postgres://postgres:secret@{address}/postgres?sslmode=require"), ["has no TLS", "sslmode"]),
        (format!("postgres://stranger@{address}/postgres"), ["no user stranger", "createuser --pwprompt stranger"]),
    ] {
        let text = refused(&url).await.to_string();
        assert!(words.iter().all(|word| text.contains(word)), "{url}: {text}");
        assert!(!text.contains("secret"), "{url}: {text}");
    }
}

#[tokio::test]
async fn a_store_may_lie_in_a_schema_of_its_own() {
    let cluster = Cluster::shared().await;
    let url = cluster.fresh_database().await;
    let database = url.rsplit('/').next().unwrap();
    cluster.sql_in(database, "create schema one; create schema two").await;
    let one = open(&format!("{url}?options=-csearch_path%3Done")).await;
    let two = open(&format!("{url}?options=-csearch_path%3Dtwo")).await;
    one.commit(batch([put(1, "a", "1")])).await.unwrap();
    check(&two, 1, [("a", None)]).await;
    assert_eq!(cluster.sql_in(database, "select count(*) from one.wayleave_rows").await, "1");
}

#[tokio::test]
async fn the_durability_settings_of_the_database_are_reported() {
    let url = Cluster::shared().await.fresh_database().await;
    let engine = open(&url).await;
    let durability = engine.durability();
    assert!(!durability.fsync, "the shared server runs without");
    assert_eq!((durability.synchronous_commit.as_str(), durability.synchronous_standbys.as_str()), ("on", ""));
}

/// A server whose default would acknowledge before its disk, or that of its standby, has the commit.
#[tokio::test]
async fn sessions_wait_for_the_disk_whatever_the_default() {
    for weaker in ["off", "local", "remote_write"] {
        check_session_under(weaker).await;
    }
}

async fn check_session_under(weaker: &str) {
    let cluster = Cluster::shared().await;
    let url = cluster.fresh_database().await;
    let database = url.rsplit('/').next().unwrap().to_owned();
    cluster.sql(&format!("alter database {database} set synchronous_commit = {weaker}")).await;
    let engine = open(&url).await;
    assert_eq!(engine.durability().synchronous_commit, weaker);
    assert!(engine.durability().warnings().iter().any(|warning| warning.contains("synchronous_commit")));
    // The committers' sessions record their setting when they write.
    let trace = "create table seen (setting text); \
        create function see() returns trigger language plpgsql as \
        $$ begin insert into seen values (current_setting('synchronous_commit')); return new; end $$; \
        create trigger see before insert on wayleave_rows for each row execute function see()";
    cluster.sql_in(&database, trace).await;
    engine.commit(batch([put(1, "a", "1")])).await.unwrap();
    assert_eq!(cluster.sql_in(&database, "select distinct setting from seen").await, "on");
}
