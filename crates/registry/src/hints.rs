//! Hints: "this row has changed, look now instead of soon". One table per process: the listeners here, and the sender
//! to other nodes once there is one. The crate `cluster` sends hints (`membership`) and receives them (`service`).
//! Hints carry no values and may be lost.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use tokio::sync::Notify;
use wayleave_engine::Key;

/// Called with the keys of rows that have changed here, to notify other nodes.
pub type SendHints = Arc<dyn Fn(&[Key]) + Send + Sync>;

/// The hints of a process; clones share them.
#[derive(Clone, Default)]
pub struct Hints(Arc<Shared>);

#[derive(Default)]
struct Shared {
    ears: Mutex<Ears>,
    send: OnceLock<SendHints>,
}

#[derive(Default)]
struct Ears {
    keys: HashMap<Key, Vec<Arc<Notify>>>,
    /// Few: whole kinds of rows.
    ranges: Vec<((Key, Key), Arc<Notify>)>,
}

/// What a listener listens for.
enum Interest {
    Key(Key),
    Range,
}

/// One who listens, until it is dropped. A hint that comes while it does something else is kept for its next wait.
pub struct Listener {
    hints: Hints,
    interest: Interest,
    notify: Arc<Notify>,
}

impl Hints {
    /// Listens for hints of one row.
    #[must_use]
    pub fn listen(&self, key: &Key) -> Listener {
        let notify = Arc::new(Notify::new());
        self.lock().keys.entry(key.clone()).or_default().push(notify.clone());
        Listener { hints: self.clone(), interest: Interest::Key(key.clone()), notify }
    }

    /// Listens for hints of all rows from the first key (inclusive) to the second (exclusive).
    #[must_use]
    pub fn listen_range(&self, range: (Key, Key)) -> Listener {
        let notify = Arc::new(Notify::new());
        self.lock().ranges.push((range, notify.clone()));
        Listener { hints: self.clone(), interest: Interest::Range, notify }
    }

    /// Wakes those who listen here for a row: this process has changed it, or another node says that it has.
    pub fn wake(&self, key: &[u8]) {
        let ears = self.lock();
        ears.keys.get(key).into_iter().flatten().for_each(|ear| ear.notify_one());
        let within = |(from, to): &(Key, Key)| from.as_slice() <= key && key < to.as_slice();
        ears.ranges.iter().filter(|(range, _)| within(range)).for_each(|(_, ear)| ear.notify_one());
    }

    /// Notifies other nodes, if this process knows any.
    pub fn send(&self, keys: &[Key]) {
        if let Some(send) = self.0.send.get() {
            send(keys);
        }
    }

    /// Sets the way to other nodes. A process joins them once, so the first one stays.
    pub fn on_send(&self, send: SendHints) {
        _ = self.0.send.set(send);
    }

    fn lock(&self) -> MutexGuard<'_, Ears> {
        self.0.ears.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Listener {
    /// Waits for a hint, or takes one that came since the last wait.
    pub async fn heard(&self) {
        self.notify.notified().await;
    }

    /// Wakes this one alone.
    pub(crate) fn wake(&self) {
        self.notify.notify_one();
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        let mut ears = self.hints.lock();
        match &self.interest {
            Interest::Range => ears.ranges.retain(|(_, ear)| !Arc::ptr_eq(ear, &self.notify)),
            Interest::Key(key) => {
                if let Some(same) = ears.keys.get_mut(key) {
                    same.retain(|ear| !Arc::ptr_eq(ear, &self.notify));
                    if same.is_empty() {
                        ears.keys.remove(key);
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    fn key(text: &str) -> Key {
        text.as_bytes().to_vec()
    }

    #[test]
    fn a_hint_wakes_the_waiters_of_its_row_and_is_kept_for_a_busy_one() {
        let hints = Hints::default();
        let (a, same, b) = (hints.listen(&key("a")), hints.listen(&key("a")), hints.listen(&key("b")));
        let range = hints.listen_range((key("a"), key("b")));
        hints.wake(b"a");
        for (woken, ear) in [(true, &a), (true, &same), (false, &b), (true, &range)] {
            assert_eq!(ear.heard().now_or_never().is_some(), woken);
        }
        hints.wake(b"b");
        assert!(range.heard().now_or_never().is_none() && a.heard().now_or_never().is_none(), "another row");
        assert!(b.heard().now_or_never().is_some() && b.heard().now_or_never().is_none(), "once");
    }

    #[test]
    fn an_ear_that_is_dropped_leaves_nothing_behind() {
        let hints = Hints::default();
        let (a, same) = (hints.listen(&key("a")), hints.listen(&key("a")));
        let range = hints.listen_range((key("a"), key("b")));
        drop(a);
        hints.wake(b"a");
        assert!(same.heard().now_or_never().is_some(), "the other one still listens");
        drop((same, range));
        assert!(hints.lock().keys.is_empty() && hints.lock().ranges.is_empty());
    }
}
