//! Encrypted lines to a server with a certificate of its own.

use wayleave_engine::Engine;
use wayleave_engine::suite::harness::{batch, put};
use wayleave_engine_postgres::{Options, Postgres};
use wayleave_testbed::Cluster;

use crate::open;

#[tokio::test]
async fn a_server_is_checked_as_far_as_the_url_asks() {
    let cluster = Cluster::start().await;
    let make = "openssl req -new -x509 -days 9 -nodes -newkey rsa:2048 -out server.crt -keyout server.key \
        -subj /CN=localhost -addext subjectAltName=DNS:localhost -addext basicConstraints=critical,CA:FALSE \
        && chmod 600 server.key";
    cluster.sql(&format!("copy (select 1) to program '{make}'")).await;
    cluster.sql("alter system set ssl = on").await;
    cluster.sql("select pg_reload_conf()").await;
    let certificate = cluster.sql("select pg_read_file('server.crt')").await;
    let folder = tempfile::tempdir().unwrap();
    let roots = folder.path().join("root.crt");
    std::fs::write(&roots, certificate).unwrap();
    let roots = roots.display();
    let port = cluster.address().rsplit(':').next().unwrap().to_owned();
    let url = |host: &str, rest: &str| format!("postgres://postgres@{host}:{port}/postgres?{rest}");

    for good in [
        url("localhost", "sslmode=prefer"),
        url("localhost", "sslmode=require"),
        url("localhost", &format!("sslmode=verify-full&sslrootcert={roots}")),
    ] {
        let engine = open(&good).await;
        engine.commit(batch([put(1, "a", "1")])).await.unwrap();
        let encrypted = "select bool_and(ssl) from pg_stat_ssl join pg_stat_activity using (pid) \
            where application_name = 'wayleave'";
        assert_eq!(cluster.sql(encrypted).await, "t", "{good}");
    }
    // Connections without TLS are refused from now on.
    let only_tls = "sed -i 's/^host /hostssl /' pg_hba.conf";
    cluster.sql(&format!("copy (select 1) to program '{}'", only_tls.replace('\'', "''"))).await;
    cluster.sql("select pg_reload_conf()").await;
    let plain = url("127.0.0.1", "sslmode=disable");
    let refused = Postgres::open(&plain, Options::default()).await.err().unwrap().to_string();
    assert!(refused.contains("over TLS only") && refused.contains("sslmode=verify-full"), "{refused}");
    for bad in [
        // An unknown certificate, and another name than its own.
        url("localhost", "sslmode=verify-full"),
        url("127.0.0.1", &format!("sslmode=verify-full&sslrootcert={roots}")),
    ] {
        let refused = Postgres::open(&bad, Options::default()).await.err().unwrap().to_string();
        assert!(refused.contains("certificate"), "{bad}: {refused}");
    }
}
