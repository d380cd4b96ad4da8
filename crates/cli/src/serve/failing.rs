//! Ends a process whose store has failed: it logs why, lets requests finish, and exits with a dedicated code, so that a
//! service manager restarts it.

use std::sync::Arc;
use std::time::Duration;

use wayleave_server::{Health, Store};

use crate::exit::{Ended, STORE_FAILED};

/// The polling interval of the store's health.
const ASK_EVERY: Duration = Duration::from_millis(500);
/// How long it still answers: callers and monitoring learn why it ends.
const TELL_FOR: Duration = Duration::from_secs(1);
/// What has not finished by then is aborted: threads of a failed store may hang. Everything acknowledged is durable.
const END_WITHIN: Duration = Duration::from_secs(5);

/// Waits until the store has failed; returns the reason. From then on the process ends, whatever hangs.
pub async fn failed(store: Arc<dyn Store>) -> String {
    let mut ticks = tokio::time::interval(ASK_EVERY);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let reason = loop {
        ticks.tick().await;
        if let Health::Failed(reason) = store.health() {
            break reason;
        }
    };
    tracing::error!(error = reason, "the store has failed; the server exits and must be restarted");
    let text = message(&reason);
    std::thread::spawn(move || {
        std::thread::sleep(END_WITHIN);
        eprintln!("error: {text}");
        std::process::exit(STORE_FAILED.into());
    });
    tokio::time::sleep(TELL_FOR).await;
    reason
}

/// The resulting exit.
pub fn ended(reason: &str) -> Ended {
    Ended { code: STORE_FAILED, message: message(reason) }
}

fn message(reason: &str) -> String {
    format!("the store has failed ({reason}); nothing acknowledged is lost: fix the cause and restart")
}
