//! Waits until a new worker listens.
//!
//! A connection alone proves nothing: Docker's proxy accepts for a container that does not listen yet. Any answer to a GET
//! does.

use std::time::Duration;

use tokio::time::{Instant, sleep, timeout_at};

use crate::calls::Calls;
use crate::runtime::Failure;

/// The first pause between two looks; it grows.
const PAUSE_MIN: Duration = Duration::from_millis(5);
const PAUSE_MAX: Duration = Duration::from_millis(200);
/// A worker that takes a connection and does not answer is asked anew after this long.
const LOOK: Duration = Duration::from_secs(2);

/// Waits until something answers HTTP at an address. Fails if nothing does by the deadline; the reason is that of the
/// last look.
pub async fn await_listening(calls: &Calls, address: &str, deadline: Instant) -> Result<(), Failure> {
    let mut pause = PAUSE_MIN;
    let begun = Instant::now();
    let within = deadline.saturating_duration_since(begun).as_secs_f64();
    loop {
        let why = match timeout_at(deadline.min(Instant::now() + LOOK), calls.answers(address)).await {
            Ok(Ok(())) => return Ok(()),
            Ok(Err(why)) => why,
            Err(_) => "it takes connections, and does not answer".to_owned(),
        };
        if Instant::now() + pause >= deadline {
            let remedy = "it must listen on HOST and PORT of its environment, and answer HTTP";
            return Err(Failure::new(format!("it does not listen on {address} after {within:.1} s: {why}; {remedy}")));
        }
        sleep(pause).await;
        pause = (pause * 2).min(PAUSE_MAX);
    }
}
