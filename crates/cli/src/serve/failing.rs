//! The end of a process whose store has failed: it says why, lets requests finish, and ends with a code of its own, so that a
//! service manager starts it again.

use std::sync::Arc;
use std::time::Duration;

use wayleave_server::{Health, Store};

use crate::exit::{Ended, STORE_FAILED};

/// How often the store is asked.
const ASK_EVERY: Duration = Duration::from_millis(500);
/// Answers go on for this long: callers, and those who watch the server, are told why it ends.
const TELL_FOR: Duration = Duration::from_secs(1);
/// What has not ended by then is cut: threads of a store that has failed may hang. Everything that was answered is durable.
const END_WITHIN: Duration = Duration::from_secs(5);

/// Waits until the store has failed; says why. From then on the process ends, whatever hangs.
pub async fn failed(store: Arc<dyn Store>) -> String {
    let mut ticks = tokio::time::interval(ASK_EVERY);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let reason = loop {
        ticks.tick().await;
        if let Health::Failed(reason) = store.health() {
            break reason;
        }
    };
    tracing::error!(error = reason, "the store has failed; the server ends, to be started again");
    let text = message(&reason);
    std::thread::spawn(move || {
        std::thread::sleep(END_WITHIN);
        eprintln!("error: {text}");
        std::process::exit(STORE_FAILED.into());
    });
    tokio::time::sleep(TELL_FOR).await;
    reason
}

/// How the process ends then.
pub fn ended(reason: &str) -> Ended {
    Ended { code: STORE_FAILED, message: message(reason) }
}

fn message(reason: &str) -> String {
    format!("the store has failed ({reason}); nothing that was acknowledged is lost: mend the cause and start again")
}
