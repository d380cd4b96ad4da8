//! A simulated process as clients reach it; it may be paused or gone.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use wayleave_core::frontier::refusal::Refusal;
use wayleave_shard::{Broadcast, Frontier};

/// A client's timeout for a node.
const PATIENCE: Duration = Duration::from_secs(6);

/// The state of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProcessState {
    Running,
    Paused,
    Dead,
}

/// The state of a process, shared by all who need it.
#[derive(Clone)]
pub struct ProcessHandle {
    life: Arc<Mutex<ProcessState>>,
    changed: Broadcast,
}

impl ProcessHandle {
    pub fn new() -> Self {
        Self { life: Arc::new(Mutex::new(ProcessState::Running)), changed: Broadcast::default() }
    }

    pub fn now(&self) -> ProcessState {
        *self.life.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the state of the process, unless it is gone.
    pub fn change(&self, to: ProcessState) {
        let mut life = self.life.lock().unwrap_or_else(PoisonError::into_inner);
        if *life != ProcessState::Dead {
            *life = to;
        }
        drop(life);
        self.changed.notify();
    }

    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.life, &other.life)
    }

    pub async fn until(&self, wanted: impl Fn(ProcessState) -> bool) {
        let mut changed = self.changed.subscribe();
        while !wanted(self.now()) {
            changed.changed().await;
        }
    }

    /// Waits until the process runs; false if it never will.
    pub async fn goes(&self) -> bool {
        self.until(|life| life != ProcessState::Paused).await;
        self.now() == ProcessState::Running
    }

    /// Runs the work of the process while it is running; `None` if it is gone before the work is done.
    pub async fn work<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        tokio::pin!(work);
        while self.goes().await {
            tokio::select! {
                biased;
                () = self.until(|life| life != ProcessState::Running) => {}
                done = &mut work => return Some(done),
            }
        }
        None
    }
}

/// A process as its clients see it.
#[derive(Clone)]
pub struct NodeClient {
    pub frontier: Frontier,
    /// `None` where the process cannot be paused and its calls end with its store.
    life: Option<ProcessHandle>,
}

impl NodeClient {
    pub fn of_one(frontier: Frontier) -> Self {
        Self { frontier, life: None }
    }

    pub fn of_node(frontier: Frontier, life: ProcessHandle) -> Self {
        Self { frontier, life: Some(life) }
    }

    /// Makes a call. Without a response it may or may not have been applied, and may yet be.
    pub async fn ask<T>(&self, call: impl AsyncFnOnce(Frontier) -> Result<T, Refusal>) -> Result<T, Refusal> {
        let work = call(self.frontier.clone());
        let Some(life) = &self.life else { return work.await };
        let answer = tokio::time::timeout(PATIENCE, life.work(work)).await;
        let lost = || Err(Refusal::OutcomeUnknown("the node did not answer".to_owned()));
        answer.ok().flatten().unwrap_or_else(lost)
    }
}
