//! A PostgreSQL server for tests.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};

use rustix::process::Signal;

use crate::server::Server;

/// Options for starting a server.
#[derive(Clone, Debug)]
pub struct Options {
    /// Whether commits reach the disk. Off is faster, and only for tests that never crash the server.
    pub fsync: bool,
    /// The address to listen on.
    pub listen: String,
    /// The port; 0 takes a free one. A server in its own network namespace may have any.
    pub port: u16,
    /// A command prefix for every program, such as `ip netns exec NAME`.
    pub prefix: Vec<String>,
    /// Further settings of the server, each `name=value`.
    pub settings: Vec<String>,
}

impl Default for Options {
    fn default() -> Self {
        Self { fsync: true, listen: "127.0.0.1".into(), port: 0, prefix: Vec::new(), settings: Vec::new() }
    }
}

/// A PostgreSQL server with its own folder. When the last clone is dropped or the test process ends, it stops and its
/// folder is removed.
#[derive(Clone)]
pub struct Cluster(Arc<Server>);

impl Cluster {
    /// A new server. Panics if PostgreSQL is not installed or does not start.
    pub async fn start() -> Self {
        Self::start_with(Options::default()).await
    }

    /// A new server with options. Panics if PostgreSQL is not installed or does not start.
    pub async fn start_with(options: Options) -> Self {
        blocking(move || Self(Arc::new(Server::create(options)))).await
    }

    /// The server that all tests of this process share; it runs without fsync. Panics if PostgreSQL is not installed or
    /// does not start.
    pub async fn shared() -> Self {
        static SHARED: OnceLock<Cluster> = OnceLock::new();
        let make = || Self(Arc::new(Server::create(Options { fsync: false, ..Options::default() })));
        blocking(move || SHARED.get_or_init(make).clone()).await
    }

    /// Creates a new, empty database and returns its URL.
    pub async fn fresh_database(&self) -> String {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let name = format!("test_{}", NUMBER.fetch_add(1, Ordering::Relaxed));
        self.sql(&format!("create database {name}")).await;
        self.url_of(&name)
    }

    /// The URL of the database `postgres`.
    #[must_use]
    pub fn url(&self) -> String {
        self.url_of("postgres")
    }

    /// The URL of a database.
    #[must_use]
    pub fn url_of(&self, database: &str) -> String {
        format!("postgres://postgres@{}/{database}", self.address())
    }

    /// The address that the server listens on, with its port.
    #[must_use]
    pub fn address(&self) -> String {
        format!("{}:{}", self.0.options.listen, self.0.port)
    }

    /// Runs SQL in the database `postgres` and returns the result, row by row, fields separated by `|`. Panics if it
    /// fails.
    pub async fn sql(&self, text: &str) -> String {
        self.sql_in("postgres", text).await
    }

    /// Runs SQL in a database. Panics if it fails.
    pub async fn sql_in(&self, database: &str, text: &str) -> String {
        let (database, text) = (database.to_owned(), text.to_owned());
        self.on_server(move |server| server.sql(&database, &text)).await
    }

    /// Copies a database, whose clients are disconnected, and damages in the copy the pages of the rows of a table that meet a
    /// condition. Returns the URL of the copy. Panics if there is no such row.
    pub async fn damaged_copy(&self, database: &str, table: &str, condition: &str) -> String {
        let pages = format!("select distinct (ctid::text::point)[0]::int from {table} where {condition}");
        let pages: Vec<u64> =
            self.sql_in(database, &pages).await.lines().map(|page| page.parse().expect("a page's number")).collect();
        assert!(!pages.is_empty(), "no row meets the condition");
        self.sql(&format!(
            "select pg_terminate_backend(pid, 60000) from pg_stat_activity where datname = '{database}'"
        ))
        .await;
        let copy = format!("{database}_damaged");
        // By files: the server has none of its pages in memory.
        self.sql(&format!("create database {copy} template {database} strategy file_copy")).await;
        let file = self.sql_in(&copy, &format!("select pg_relation_filepath('{table}')")).await;
        self.on_server(move |server| pages.iter().for_each(|page| server.damage(file.trim(), *page))).await;
        self.url_of(&copy)
    }

    /// Restarts the server with a fast shutdown, which disconnects its clients.
    pub async fn restart(&self) {
        self.stop().await;
        self.start_again().await;
    }

    /// Stops the server with a fast shutdown, which disconnects its clients.
    pub async fn stop(&self) {
        self.on_server(|server| server.stop(Signal::INT)).await;
    }

    /// Stops the server as a crash would: immediately, with recovery at the next start.
    pub async fn stop_immediate(&self) {
        self.on_server(|server| server.stop(Signal::QUIT)).await;
    }

    /// Starts a stopped server, at the same address. Panics if it does not start.
    pub async fn start_again(&self) {
        self.on_server(Server::start).await;
    }

    /// Pauses every process of the server (SIGSTOP).
    pub async fn pause(&self) {
        self.on_server(|server| server.signal_all(Signal::STOP)).await;
    }

    /// Resumes a paused server.
    pub async fn resume(&self) {
        self.on_server(|server| server.signal_all(Signal::CONT)).await;
    }

    /// Starts a synchronous standby of this server. Panics if it does not start.
    pub async fn standby(&self) -> Self {
        Self(Arc::new(self.on_server(|server| Server::follow(server, None, "standby")).await))
    }

    /// Starts a synchronous standby elsewhere, which connects over the network. Panics if it does not start.
    pub async fn standby_with(&self, options: Options) -> Self {
        Self(Arc::new(self.on_server(|server| Server::follow(server, Some(options), "standby")).await))
    }

    /// Promotes a standby. Panics if the promotion fails.
    pub async fn promote(&self) {
        assert_eq!(self.sql("select pg_promote(true, 60)").await, "t", "the standby was not promoted");
    }

    /// What the server wrote to its log.
    pub async fn log(&self) -> String {
        self.on_server(Server::log).await
    }

    async fn on_server<T: Send + 'static>(&self, act: impl FnOnce(&Server) -> T + Send + 'static) -> T {
        let server = Arc::clone(&self.0);
        blocking(move || act(&server)).await
    }
}

async fn blocking<T: Send + 'static>(act: impl FnOnce() -> T + Send + 'static) -> T {
    match tokio::task::spawn_blocking(act).await {
        Ok(value) => value,
        Err(error) => std::panic::resume_unwind(error.into_panic()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_server_keeps_its_rows_over_a_crash_and_a_failover() {
        let primary = Cluster::start().await;
        primary.sql("create table t as select 1 as n").await;
        primary.stop_immediate().await;
        primary.start_again().await;
        assert_eq!(primary.sql("select n from t").await, "1");
        let standby = primary.standby().await;
        primary.sql("insert into t values (2)").await;
        primary.stop_immediate().await;
        standby.promote().await;
        assert_eq!(standby.sql("select sum(n) from t").await, "3");
        assert_eq!(standby.sql("show transaction_read_only").await, "off");
    }

    #[tokio::test]
    async fn databases_of_a_shared_server_are_apart() {
        let (one, two) = (Cluster::shared().await, Cluster::shared().await);
        assert_eq!(one.address(), two.address());
        let (first, second) = (one.fresh_database().await, two.fresh_database().await);
        assert_ne!(first, second);
        let name = first.rsplit('/').next().unwrap().to_owned();
        one.sql_in(&name, "create table t (n int)").await;
        assert_eq!(two.sql("select count(*) from pg_tables where tablename = 't'").await, "0");
    }
}
