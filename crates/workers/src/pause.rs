//! A switch that keeps a worker from beginning new work.

use tokio::sync::watch;

/// The worker's side; clones share the switch.
#[derive(Debug, Clone)]
pub struct Pause(watch::Receiver<bool>);

/// The side that sets it.
#[derive(Debug)]
pub struct Switch(watch::Sender<bool>);

/// A switch that is off, and its worker's side.
#[must_use]
pub fn switch() -> (Switch, Pause) {
    let (set, seen) = watch::channel(false);
    (Switch(set), Pause(seen))
}

impl Pause {
    /// Waits while the switch is on. Without a setter it is off.
    pub async fn over(&self) {
        let mut seen = self.0.clone();
        let _ = seen.wait_for(|paused| !paused).await;
    }

    /// Whether the switch is on.
    #[must_use]
    pub fn is_on(&self) -> bool {
        *self.0.borrow()
    }
}

impl Switch {
    /// Another worker's side.
    #[must_use]
    pub fn pause(&self) -> Pause {
        Pause(self.0.subscribe())
    }

    /// Sets it.
    pub fn set(&self, paused: bool) {
        self.0.send_replace(paused);
    }
}
