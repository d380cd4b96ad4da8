//! The owner threads: each has its own runtime, and every shard stays on one of them.

use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::Context as _;
use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;
use wayleave_shard::OwnerThreads;

/// How long work on the owner threads may continue after the frontier has stopped.
const GRACE: Duration = Duration::from_secs(5);

/// A thread and its stop channel.
type Thread = (oneshot::Sender<()>, JoinHandle<()>);

/// Threads that run until they are stopped.
pub struct Owners {
    first: Handle,
    lanes: OwnerThreads,
    threads: Vec<Thread>,
}

impl Owners {
    /// Starts `count` threads, at least one.
    pub fn start(count: usize) -> anyhow::Result<Self> {
        let (first, thread) = start_one()?;
        let (mut handles, mut threads) = (Vec::new(), vec![thread]);
        for _ in 1..count {
            let (handle, thread) = start_one()?;
            handles.push(handle);
            threads.push(thread);
        }
        Ok(Self { lanes: OwnerThreads::new(first.clone(), handles), first, threads })
    }

    /// One of the runtimes, for work that belongs to no shard.
    pub const fn first(&self) -> &Handle {
        &self.first
    }

    /// The runtimes of the owners.
    pub const fn lanes(&self) -> &OwnerThreads {
        &self.lanes
    }

    /// Stops all threads.
    pub fn stop(self) {
        let threads: Vec<JoinHandle<()>> =
            self.threads.into_iter().map(|(stop, thread)| (drop(stop), thread).1).collect();
        for thread in threads {
            // A panic there was reported where it happened.
            _ = thread.join();
        }
    }
}

fn start_one() -> anyhow::Result<(Handle, Thread)> {
    // An owner is busy for a whole poll. A task woken from another thread, by a message or a sync, must not wait for
    // many polls.
    let runtime = Builder::new_current_thread().enable_all().global_queue_interval(1).build();
    let runtime = runtime.context("cannot start threads")?;
    let handle = runtime.handle().clone();
    let (stop, stopped) = oneshot::channel::<()>();
    let run = move || {
        _ = runtime.block_on(stopped);
        runtime.shutdown_timeout(GRACE);
    };
    let thread = std::thread::Builder::new().name("shard".to_owned()).spawn(run).context("cannot start threads")?;
    Ok((handle, (stop, thread)))
}
