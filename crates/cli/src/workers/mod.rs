//! The reference workers as commands: settings in, a worker of `wayleave-workers` started, its progress told.

pub mod build;
pub mod crawl;
pub mod demo;
pub mod index;
mod progress;
pub mod search;
mod worker_args;

use std::future::Future;
use std::time::Duration;

use anyhow::Context;
use tokio_util::sync::CancellationToken;
use wayleave_api::Code;

pub use worker_args::AllowArgs;

use crate::remote::{Remote, RemoteArgs};
use crate::signals::Signals;

/// How long tasks on other threads may take to end after the worker has.
const ENDING: Duration = Duration::from_secs(2);

/// Runs a worker on all cores.
pub fn run<F>(remote: &RemoteArgs, worker: impl FnOnce(Remote) -> F) -> anyhow::Result<()>
where
    F: Future<Output = anyhow::Result<()>>,
{
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().context("cannot start threads")?;
    let ended = runtime.block_on(worker(Remote::new(remote)?));
    runtime.shutdown_timeout(ENDING);
    ended
}

/// Notes on stderr that a crawl does not exist. A worker may be started before its crawl, but the name may be mistyped.
async fn note_unknown(remote: &Remote, crawl: Option<&str>) -> anyhow::Result<()> {
    match remote.check_crawl(crawl).await {
        Err(error) if error.code() == Some(Code::UnknownCrawl) => {
            eprintln!("crawl '{}' does not exist: waiting until it has a URL", crawl.unwrap_or_default());
            Ok(())
        }
        known => Ok(known?),
    }
}

/// Ctrl-C and SIGTERM: the worker finishes or gives back what it holds. A second one ends it at once.
fn stopped(note: &'static str) -> anyhow::Result<CancellationToken> {
    let (signals, stop) = (Signals::listen()?, CancellationToken::new());
    let told = stop.clone();
    tokio::spawn(async move {
        signals.first().await;
        eprintln!("{note}; once more to stop at once");
        told.cancel();
    });
    Ok(stop)
}
