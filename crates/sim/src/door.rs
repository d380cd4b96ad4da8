//! A door: how clients reach one process, which may stand still or be gone.

use std::time::Duration;

use tokio::sync::watch;
use wayleave_core::frontier::refusal::Refusal;
use wayleave_shard::Frontier;

/// A client waits this long for an answer of a node, then it takes the call for lost.
const PATIENCE: Duration = Duration::from_secs(6);

/// How a process is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Life {
    Goes,
    Still,
    Gone,
}

/// Waits until a process goes on; false if it never will.
pub async fn goes(life: &mut watch::Receiver<Life>) -> bool {
    life.wait_for(|life| *life != Life::Still).await.is_ok_and(|life| *life == Life::Goes)
}

/// Does the work of a process while it goes on; none if it is gone before the work is done.
pub async fn while_it_goes<T>(mut life: watch::Receiver<Life>, work: impl Future<Output = T>) -> Option<T> {
    tokio::pin!(work);
    while goes(&mut life).await {
        tokio::select! {
            biased;
            _ = life.wait_for(|life| *life != Life::Goes) => {}
            done = &mut work => return Some(done),
        }
    }
    None
}

/// Changes how a process is, unless it is gone.
pub fn change(life: &watch::Sender<Life>, to: Life) {
    life.send_if_modified(|now| {
        let changes = *now != Life::Gone && *now != to;
        if changes {
            *now = to;
        }
        changes
    });
}

/// A process as its clients see it.
#[derive(Clone)]
pub struct Door {
    pub frontier: Frontier,
    /// None where the process cannot stand still and its calls end with its store.
    life: Option<watch::Receiver<Life>>,
}

impl Door {
    pub fn of_one(frontier: Frontier) -> Self {
        Self { frontier, life: None }
    }

    pub fn of_node(frontier: Frontier, life: watch::Receiver<Life>) -> Self {
        Self { frontier, life: Some(life) }
    }

    /// Makes a call. Where no answer comes it may or may not have been done, and may yet be.
    pub async fn ask<T>(&self, call: impl AsyncFnOnce(Frontier) -> Result<T, Refusal>) -> Result<T, Refusal> {
        let work = call(self.frontier.clone());
        let Some(life) = &self.life else { return work.await };
        let answer = tokio::time::timeout(PATIENCE, while_it_goes(life.clone(), work)).await;
        let lost = || Err(Refusal::OutcomeUnknown("the node did not answer".to_owned()));
        answer.ok().flatten().unwrap_or_else(lost)
    }
}
