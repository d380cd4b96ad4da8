//! The output of workers, as the server sees it: the starter of the server provides it, because runtimes have it.

use futures::future::BoxFuture;
use wayleave_core::matches::Labels;
use wayleave_core::names::{PoolName, SiteName};

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

/// Where the output of workers is read.
pub trait WorkerLogs: Send + Sync {
    /// The end of a worker's output; none if its site is not one of this process. An error says why it cannot be read.
    fn log(&self, of: LogOf, bytes_max: usize) -> BoxFuture<'static, Option<Result<String, String>>>;
}
