//! Notes for people at a terminal while the server does not answer: on stderr, once, and how long it took in the end.

use std::convert::Infallible;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use wayleave_client::{Client, Error, Waiting};

use crate::output::{counted, span};

/// Shorter waits are not reported.
const WORTH_A_WORD: Duration = Duration::from_secs(1);

/// An upload that gets no acknowledgement for this long is reported.
const WORTH_A_NOTE: Duration = Duration::from_secs(3);

/// What an upload has taken from its source, and what of it the server has acknowledged.
#[derive(Debug, Default)]
pub struct Upload {
    taken: AtomicU64,
    settled: AtomicU64,
}

impl Upload {
    /// One more was taken.
    pub fn take(&self) {
        self.taken.fetch_add(1, Ordering::Relaxed);
    }

    /// One more was acknowledged.
    pub fn settle(&self) {
        self.settled.fetch_add(1, Ordering::Relaxed);
    }

    /// How many were acknowledged.
    pub fn settled(&self) -> u64 {
        self.settled.load(Ordering::Relaxed)
    }

    /// Notes once that acknowledgements stay away although some are due, and that they come again.
    pub async fn watch(&self, tells: bool) -> Infallible {
        loop {
            let before = self.settled();
            tokio::time::sleep(WORTH_A_NOTE).await;
            if tells && self.settled() == before && self.taken.load(Ordering::Relaxed) > before {
                let so_far = counted(before, "URL");
                eprintln!("waiting for the server, which acknowledges nothing; {so_far} so far");
                while self.settled() == before {
                    tokio::time::sleep(WORTH_A_NOTE / 10).await;
                }
                eprintln!("the server has answered");
            }
        }
    }
}

/// A client that reports on stderr what it waits for.
pub fn told(client: Client) -> Client {
    let (said, passed) = (AtomicBool::new(false), Mutex::default());
    client.with_observer(Arc::new(move |waiting| {
        let remark = match waiting {
            Waiting::Next { error, server } => pass_by(error, server, &passed),
            waiting => remark(waiting, &said),
        };
        if let Some(remark) = remark {
            eprintln!("{remark}");
        }
    }))
}

/// One of several servers is unavailable: no outage, but worth a note. Once per server, however many calls meet it.
fn pass_by(error: &Error, next: &str, passed: &Mutex<Vec<String>>) -> Option<String> {
    let away = match error {
        Error::Unreachable { server, cause } => format!("{server} cannot be reached ({cause})"),
        Error::Lost { server, cause } => format!("{server} did not answer ({cause})"),
        error => error.to_string(),
    };
    let mut passed = passed.lock().unwrap_or_else(PoisonError::into_inner);
    if passed.contains(&away) {
        return None;
    }
    passed.push(away.clone());
    Some(format!("note: {away}; asked {next} instead"))
}

fn remark(waiting: &Waiting<'_>, said: &AtomicBool) -> Option<String> {
    let ms = |elapsed: &Duration| span(u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX));
    match waiting {
        Waiting::Slow { server, elapsed } => {
            let first = !said.swap(true, Ordering::Relaxed);
            first.then(|| format!("waiting for {server}, which has not answered for {}", ms(elapsed)))
        }
        Waiting::Again { error, elapsed, attempt, attempts } => {
            let first = *elapsed >= WORTH_A_WORD && !said.swap(true, Ordering::Relaxed);
            first.then(|| {
                format!("waiting for the server: {error} (attempt {attempt} of {attempts} failed; trying again)")
            })
        }
        Waiting::GaveUp { elapsed, attempts } => {
            said.store(false, Ordering::Relaxed);
            Some(format!("gave up after {} in {}", counted(*attempts, "attempt"), ms(elapsed)))
        }
        Waiting::Answered { server, elapsed } => {
            let before = said.swap(false, Ordering::Relaxed);
            before.then(|| format!("{server} has answered, after {}", ms(elapsed)))
        }
        Waiting::Next { .. } => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_is_passed_by_is_told_once_and_not_as_an_outage() {
        let passed = Mutex::default();
        let error = |server: &str| Error::Unreachable { server: server.into(), cause: "connection refused".into() };
        let told = pass_by(&error("http://a:1"), "http://b:2", &passed).unwrap();
        assert_eq!(told, "note: http://a:1 cannot be reached (connection refused); asked http://b:2 instead");
        assert_eq!(pass_by(&error("http://a:1"), "http://c:3", &passed), None);
        assert!(pass_by(&error("http://b:2"), "http://c:3", &passed).is_some());
    }

    #[test]
    fn a_wait_is_told_once_with_its_reason_and_its_end_with_the_total() {
        let said = AtomicBool::new(false);
        let error = Error::Unreachable { server: "http://a:1".into(), cause: "connection refused".into() };
        let again = |ms| Waiting::Again { error: &error, elapsed: Duration::from_millis(ms), attempt: 2, attempts: 4 };
        assert_eq!(remark(&again(300), &said), None, "not worth a word yet");
        let told = remark(&again(1_200), &said).unwrap();
        assert!(told.contains("connection refused") && told.contains("2 of 4"), "{told}");
        assert_eq!(remark(&again(5_000), &said), None, "told already");
        let end = remark(&Waiting::GaveUp { elapsed: Duration::from_millis(15_200), attempts: 4 }, &said).unwrap();
        assert_eq!(end, "gave up after 4 attempts in 15.2 s");
        assert!(
            remark(&Waiting::Slow { server: "http://a:1", elapsed: WORTH_A_WORD }, &said).is_some(),
            "another call"
        );
    }
}
