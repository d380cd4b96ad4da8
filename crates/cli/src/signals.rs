//! The signals that stop a process, for all commands that run until they are stopped.

use std::time::{Duration, Instant};

use anyhow::Context;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

/// Signals that come sooner after the first one are the same.
const GAP: Duration = Duration::from_secs(1);

/// Whether a further signal is meant as one. A supervisor that signals a process and then its group, as `timeout` does, sends two
/// at a time and means one.
pub fn is_meant(first: Instant, now: Instant) -> bool {
    now.duration_since(first) >= GAP
}

/// Ctrl-C and SIGTERM. The first one is remembered; a further one that is meant as such ends the process at once with code 1.
#[derive(Clone, Debug)]
pub struct Signals(watch::Receiver<bool>);

impl Signals {
    /// Listens from now on. Must be called within a runtime.
    pub fn listen() -> anyhow::Result<Self> {
        let listen = |kind| signal(kind).context("cannot listen for signals");
        let (mut interrupt, mut terminate) = (listen(SignalKind::interrupt())?, listen(SignalKind::terminate())?);
        let (tell, told) = watch::channel(false);
        tokio::spawn(async move {
            let mut first = None;
            loop {
                tokio::select! {
                    _ = interrupt.recv() => {}
                    _ = terminate.recv() => {}
                }
                let now = Instant::now();
                if is_meant(*first.get_or_insert(now), now) {
                    eprintln!("stopped at once");
                    std::process::exit(1);
                }
                tell.send_replace(true);
            }
        });
        Ok(Self(told))
    }

    /// Waits for the first of them.
    pub async fn first(mut self) {
        if self.0.wait_for(|told| *told).await.is_err() {
            std::future::pending().await
        }
    }

    /// Works until a signal comes; `None` if it came first.
    pub async fn unless_told<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            biased;
            () = self.clone().first() => None,
            done = work => Some(done),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_signals_in_one_moment_are_one() {
        let first = Instant::now();
        let after = |ms| is_meant(first, first + Duration::from_millis(ms));
        assert_eq!([0, 1, 999, 1_000, 60_000].map(after), [false, false, false, true, true]);
    }
}
