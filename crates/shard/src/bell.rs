//! A bell: tells all who listen that something has changed, in the order in which they began to wait. (A watch channel
//! wakes them in an order that it draws by itself; a simulation must give the same bytes for the same seed.)

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use tokio::sync::Notify;

#[derive(Default)]
struct Inner {
    rung: AtomicU64,
    listeners: AtomicUsize,
    told: Notify,
}

/// What is rung.
#[derive(Clone, Default)]
pub struct Bell(Arc<Inner>);

/// One who listens; it misses nothing that is rung while it does something else.
pub struct Listener {
    bell: Bell,
    heard: u64,
}

impl Bell {
    /// Tells all listeners.
    pub fn ring(&self) {
        self.0.rung.fetch_add(1, Ordering::AcqRel);
        self.0.told.notify_waiters();
    }

    /// Listens from now on.
    #[must_use]
    pub fn listen(&self) -> Listener {
        self.0.listeners.fetch_add(1, Ordering::AcqRel);
        Listener { bell: self.clone(), heard: self.0.rung.load(Ordering::Acquire) }
    }

    /// How often it has been rung.
    #[must_use]
    pub fn rung(&self) -> u64 {
        self.0.rung.load(Ordering::Acquire)
    }

    /// Whether anybody listens.
    #[must_use]
    pub fn is_listened_to(&self) -> bool {
        self.0.listeners.load(Ordering::Acquire) > 0
    }
}

impl Listener {
    /// Waits until the bell has been rung since this last returned, or since the listening began.
    pub async fn changed(&mut self) {
        loop {
            let told = self.bell.0.told.notified();
            let rung = self.bell.0.rung.load(Ordering::Acquire);
            if rung != self.heard {
                self.heard = rung;
                return;
            }
            told.await;
        }
    }

    /// How often the bell had been rung when this last heard of it.
    #[must_use]
    pub const fn heard(&self) -> u64 {
        self.heard
    }

    /// Takes all that was rung so far for heard.
    pub fn mark_unchanged(&mut self) {
        self.heard = self.bell.0.rung.load(Ordering::Acquire);
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.bell.0.listeners.fetch_sub(1, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    #[tokio::test]
    async fn a_listener_hears_what_was_rung_while_it_was_busy_once() {
        let bell = Bell::default();
        assert!(!bell.is_listened_to());
        let mut listener = bell.listen();
        assert!(bell.is_listened_to());
        assert_eq!(listener.changed().now_or_never(), None);
        bell.ring();
        bell.ring();
        assert_eq!(listener.changed().now_or_never(), Some(()));
        assert_eq!(listener.changed().now_or_never(), None);
        bell.ring();
        listener.mark_unchanged();
        assert_eq!(listener.changed().now_or_never(), None);
    }

    #[tokio::test]
    async fn listeners_wake_in_the_order_in_which_they_wait() {
        let bell = Bell::default();
        let (tell, mut told) = tokio::sync::mpsc::unbounded_channel();
        let tasks: Vec<_> = (0..50)
            .map(|n| {
                let (mut listener, tell) = (bell.listen(), tell.clone());
                tokio::spawn(async move {
                    listener.changed().await;
                    _ = tell.send(n);
                })
            })
            .collect();
        tokio::task::yield_now().await;
        bell.ring();
        futures::future::join_all(tasks).await;
        let order: Vec<u32> = std::iter::from_fn(|| told.try_recv().ok()).collect();
        assert!(order.is_sorted() && order.len() == 50, "{order:?}");
    }
}
