//! The process runtime, calls to workers and the Maker, with the worker of the examples as a real process.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

mod abandoned;
mod adoption;
mod limits;
mod maker;
mod orders;
mod running;
mod scripted;
mod slow_engine;
#[path = "../support/mod.rs"]
mod support;
mod worker_calls;

use std::path::Path;

use wayleave_makers::runtime::process::{ProcessRuntime, Settings};

/// A runtime on this folder. The lock of the one before is free once its last task has ended.
async fn open(state: &Path) -> ProcessRuntime {
    support::eventually("the state folder is free", || async {
        ProcessRuntime::open(Settings::new(state.to_owned())).await.ok()
    })
    .await
}

/// The same in a folder of its own.
async fn opened() -> (tempfile::TempDir, ProcessRuntime) {
    let state = tempfile::tempdir().unwrap();
    let runtime = open(state.path()).await;
    (state, runtime)
}
