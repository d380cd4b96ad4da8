//! Renews the lease of a chunk or reservation while a worker works on it, and reports its loss.
//!
//! A worker may continue only while its lease certainly lasts: afterwards another one visits the same hosts. So time
//! counts from the *sending* of the last call that the server has answered, which is before the server's own count.
//!
//! Interleavings: A renewal that is answered late extends the lease from its sending, not from its answer. An answer
//! that never comes loses the lease at its end, even if the client still retries. A refusal loses it at once. A
//! dropped lease is no longer renewed; the server ends it.

use std::future::Future;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until, timeout_at};
use wayleave_client::Error;

/// How much of a lease passes before it is renewed.
const RENEW_AFTER: u32 = 3;
/// The part of a lease at its end in which nothing is begun or continued.
const MARGIN: u32 = 10;

/// A lease that is renewed until it is dropped.
#[derive(Debug)]
pub struct Lease {
    lost: watch::Receiver<Option<String>>,
    task: JoinHandle<()>,
}

impl Lease {
    /// Keeps a lease that was asked for at `asked`. `renew` extends it by `length` and may be repeated.
    pub fn keep<F, R>(asked: Instant, length: Duration, renew: F) -> Self
    where
        F: Fn() -> R + Send + 'static,
        R: Future<Output = Result<(), Error>> + Send,
    {
        let (sender, lost) = watch::channel(None);
        let task = tokio::spawn(async move {
            let why = renewing(asked, length, renew).await;
            sender.send_replace(Some(why));
        });
        Self { lost, task }
    }

    /// Waits until the lease is lost, and says why.
    pub async fn lost(&self) -> String {
        let mut lost = self.lost.clone();
        let why = lost.wait_for(Option::is_some).await.map(|why| why.clone());
        why.ok().flatten().unwrap_or_else(|| "it is no longer renewed".to_owned())
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Returns when the lease is lost, with the reason.
async fn renewing<F, R>(asked: Instant, length: Duration, renew: F) -> String
where
    F: Fn() -> R,
    R: Future<Output = Result<(), Error>>,
{
    let (mut since, mut next) = (asked, asked + length / RENEW_AFTER);
    let mut failed = None;
    loop {
        let end = since + length - length / MARGIN;
        sleep_until(next.min(end)).await;
        let sent = Instant::now();
        if sent >= end {
            return failed.unwrap_or_else(|| "it could not be renewed in time".to_owned());
        }
        match timeout_at(end, renew()).await {
            Ok(Ok(())) => (since, next) = (sent, sent + length / RENEW_AFTER),
            Ok(Err(error)) if error.is_transient() => {
                next = Instant::now() + length / MARGIN;
                failed = Some(error.to_string());
            }
            Ok(Err(error)) => return error.to_string(),
            Err(_) => return "the server did not answer before its end".to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use wayleave_api::{Code, Problem};

    use super::*;

    const LENGTH: Duration = Duration::from_secs(60);

    fn refused(code: Code) -> Error {
        Error::Refused(Box::new(Problem::new(code, "x")))
    }

    /// When the lease is lost if the nth renewal, from 0, takes so long and ends so.
    async fn lost_after<F>(renew: F) -> (Duration, String)
    where
        F: Fn(usize) -> (Duration, Result<(), Error>) + Send + Sync + 'static,
    {
        let (start, calls, renew) = (Instant::now(), Arc::new(AtomicUsize::new(0)), Arc::new(renew));
        let lease = Lease::keep(start, LENGTH, move || {
            let (renew, call) = (renew.clone(), calls.fetch_add(1, Ordering::SeqCst));
            async move {
                let (takes, end) = renew(call);
                tokio::time::sleep(takes).await;
                end
            }
        });
        let why = lease.lost().await;
        (start.elapsed(), why)
    }

    #[tokio::test(start_paused = true)]
    async fn a_refusal_loses_a_lease_at_once() {
        let at_third = |call| (Duration::ZERO, if call < 2 { Ok(()) } else { Err(refused(Code::NotCurrent)) });
        assert_eq!(lost_after(at_third).await.0, Duration::from_secs(60));
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_that_never_comes_loses_it_before_its_end() {
        let (after, why) = lost_after(|_| (Duration::from_secs(3_600), Ok(()))).await;
        assert_eq!((after, why.as_str()), (Duration::from_secs(54), "the server did not answer before its end"));
    }

    #[tokio::test(start_paused = true)]
    async fn an_outage_is_survived_while_it_is_shorter_than_the_lease() {
        let short = |call| match call {
            1..=3 => (Duration::ZERO, Err(refused(Code::Unavailable))),
            30.. => (Duration::ZERO, Err(refused(Code::NotCurrent))),
            _ => (Duration::ZERO, Ok(())),
        };
        assert!(lost_after(short).await.0 > Duration::from_secs(500));
        let (after, _) = lost_after(|_| (Duration::ZERO, Err(refused(Code::Unavailable)))).await;
        assert_eq!(after, Duration::from_secs(54));
    }

    /// The answer of the first renewal takes 30 s. Counted from there, the lease would seem to last until 104 s; the
    /// server ends it at 80 s.
    #[tokio::test(start_paused = true)]
    async fn a_late_answer_extends_from_its_sending() {
        let late = |call| match call {
            0 => (Duration::from_secs(30), Ok(())),
            _ => (Duration::from_secs(3_600), Ok(())),
        };
        assert_eq!(lost_after(late).await.0, Duration::from_secs(74));
    }
}
