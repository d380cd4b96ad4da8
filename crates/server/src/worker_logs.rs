//! The output of workers, as the server sees it: the starter of the server provides it, because runtimes have it.

use std::path::PathBuf;

use futures::future::BoxFuture;
use wayleave_core::matches::Labels;
use wayleave_core::names::{PoolName, SiteName};
use wayleave_core::time::Time;

/// A worker whose output is wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogOf {
    /// Its pool.
    pub pool: PoolName,
    /// What its runtime finds it by.
    pub labels: Labels,
    /// The runtime that has it.
    pub site: SiteName,
}

/// A worker that was removed, and whose output this process keeps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptLog {
    /// The worker's name.
    pub worker: String,
    /// What its runtime finds its output by.
    pub labels: Labels,
    /// The runtime that had it.
    pub site: SiteName,
    /// How it ended.
    pub reason: String,
    /// When it was removed, by the clock of this machine.
    pub removed_at: Time,
    /// Where its output is.
    pub folder: PathBuf,
}

/// Where the output of workers is read.
pub trait WorkerLogs: Send + Sync {
    /// The removed workers of a pool whose output this process keeps, also if the pool is gone; the last one first.
    fn kept(&self, pool: PoolName) -> BoxFuture<'static, Vec<KeptLog>>;

    /// The end of a worker's output; none if its site is not one of this process. An error says why it cannot be read.
    fn log(&self, of: LogOf, bytes_max: usize) -> BoxFuture<'static, Option<Result<String, String>>>;
}
