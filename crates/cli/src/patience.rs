//! What a person at a terminal is told while the server does not answer: on stderr, once, and how long it took in the end.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use wayleave_client::{Client, Waiting};

use crate::output::span;

/// A shorter wait is nobody's concern.
const WORTH_A_WORD: Duration = Duration::from_secs(1);

/// A client that tells on stderr what it waits for.
pub fn told(client: Client) -> Client {
    let said = AtomicBool::new(false);
    client.with_observer(Arc::new(move |waiting| {
        if let Some(remark) = remark(waiting, &said) {
            eprintln!("{remark}");
        }
    }))
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
            Some(format!("gave up after {attempts} attempts in {}", ms(elapsed)))
        }
        Waiting::Answered { elapsed } => {
            let before = said.swap(false, Ordering::Relaxed);
            before.then(|| format!("the server has answered, after {}", ms(elapsed)))
        }
    }
}

#[cfg(test)]
mod tests {
    use wayleave_client::Error;

    use super::*;

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
