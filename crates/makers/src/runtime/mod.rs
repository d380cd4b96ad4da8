//! Runtimes start and stop workers: the trait and its two implementations.
//!
//! A runtime identifies a worker by its [`WorkerKey`], which it stores with whatever it starts (in a record, in labels). So a
//! repeated order is recognised, and what was started before a crash is found again. A runtime decides nothing and must not
//! know why a worker is wanted. Every call returns by its deadline, and a failure has a reason that an operator understands.
//!
//! A Kubernetes runtime fits the same trait: `create` makes a pod of that name, labels are labels, `events` is a watch.

pub mod docker;
pub mod process;
mod removed_output;

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use async_trait::async_trait;
use tokio::sync::mpsc;
use tokio::time::Instant;
use wayleave_core::matches::{
    Exit, Instance, Labels, Make, RuntimeKind, WorkerFound, WorkerNo, worker_name, worker_suffix,
};
use wayleave_core::names::PoolName;
use wayleave_core::redact;

use crate::limits::REASON_CHARS_MAX;

/// Starts and ends workers.
#[async_trait]
pub trait Runtime: Send + Sync + 'static {
    /// Its kind, which recipes name.
    fn kind(&self) -> RuntimeKind;

    /// Creates and starts a worker. If there is one of this key already, it is that one. Fails if it cannot be started,
    /// or has ended already.
    async fn create(&self, worker: &WorkerKey, make: &Make, deadline: Instant) -> Result<Instance, Failure>;

    /// Starts a worker again that has exited. If it runs, it is that one; what it ran last before the order is
    /// [`Make::last`]. Fails if it cannot be started, or has been and has ended already.
    async fn restart(&self, worker: &WorkerKey, make: &Make, deadline: Instant) -> Result<Instance, Failure>;

    /// Asks a worker to end, and waits until it has. One that does not exist has ended. Fails if it still runs at the
    /// deadline.
    async fn stop(&self, worker: &WorkerKey, deadline: Instant) -> Result<(), Failure>;

    /// Ends a worker by force and removes all that is left of it. One that does not exist is removed. Fails if
    /// something may be left of it.
    async fn remove(&self, worker: &WorkerKey, deadline: Instant) -> Result<(), Failure>;

    /// Everything there is of a pool of this owner, of whatever generation, running or not. Fails if that is unknown:
    /// an incomplete list would declare living workers dead.
    async fn list(&self, pool: &PoolName, owner: &str, deadline: Instant) -> Result<Vec<WorkerFound>, Failure>;

    /// The end of a worker's output, also of one of the last that were removed. Empty if there is none: it was never started,
    /// or its output is not kept any more.
    async fn logs(&self, worker: &WorkerKey, bytes_max: usize, deadline: Instant) -> Result<String, Failure>;

    /// The last workers of a pool that were removed here and whose output is kept, the last one first. A pool's owner
    /// forgets them when it ends; this list outlives the server. Fails if that cannot be read in time.
    async fn removed(&self, _pool: &PoolName, _deadline: Instant) -> Result<Vec<Removed>, Failure> {
        Ok(Vec::new())
    }

    /// News of workers that have ended. Only a hint: it may be missing, late or repeated, and only lists are
    /// complete. There is one receiver: the last that was asked for.
    fn events(&self) -> mpsc::Receiver<Ended>;
}

/// Which worker: what a runtime finds it by.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WorkerKey {
    /// The installation that started it: another one may use the same runtime.
    pub owner: Arc<str>,
    /// Its pool.
    pub pool: PoolName,
    /// The pool's generation: a pool of the same name may have been there before.
    pub generation: u64,
    /// Its number.
    pub worker: WorkerNo,
}

impl WorkerKey {
    /// Of a worker of this pool with these labels.
    #[must_use]
    pub fn new(pool: &PoolName, labels: &Labels) -> Self {
        let Labels { owner, generation, worker } = labels.clone();
        Self { owner, pool: pool.clone(), generation, worker }
    }
}

/// The worker's name, as its pool shows it; also that of its container.
impl fmt::Display for WorkerKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&worker_name(&self.pool, self.generation, self.worker))
    }
}

/// Where the files of a worker are, in a folder of all workers. The name of a pool is made of letters, digits, `.`, `_`
/// and `-`, and starts with a letter or a digit, so it is the name of a folder; that of a worker ends as its name does.
fn worker_folder(folder: &Path, worker: &WorkerKey) -> PathBuf {
    folder.join(&*worker.pool).join(worker_suffix(worker.generation, worker.worker))
}

/// A worker that was removed, and whose output is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Removed {
    /// The generation of its pool.
    pub generation: u64,
    /// Its number.
    pub worker: WorkerNo,
    /// How it ended.
    pub reason: String,
    /// When it was removed.
    pub at: SystemTime,
    /// Where its output is.
    pub folder: PathBuf,
}

/// A worker has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ended {
    /// The worker.
    pub worker: WorkerKey,
    /// What has ended: the time of its start distinguishes the worker's runs.
    pub instance: Instance,
    /// How.
    pub exit: Exit,
}

/// Why a runtime could not carry out an order: a sentence for the operator.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Failure(pub Arc<str>);

impl Failure {
    /// With this reason, bounded.
    pub fn new(reason: impl fmt::Display) -> Self {
        Self(crate::runtime::bounded(&reason.to_string()).into())
    }
}

/// A reason as it may be stored and shown: one line of bounded length.
#[must_use]
pub fn bounded(reason: &str) -> String {
    redact::reason(reason, REASON_CHARS_MAX)
}
