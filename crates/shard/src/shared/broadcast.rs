//! A change notification for any number of subscribers, who are woken in the order in which they began to wait.
//!
//! Hand-written over tokio's `Notify`, because tokio's watch channel wakes its receivers in random order: the simulator
//! needs the same run for the same seed.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use tokio::sync::Notify;

#[derive(Default)]
struct Inner {
    version: AtomicU64,
    subscribers: AtomicUsize,
    wakers: Notify,
}

/// The sending side; clones share one version.
#[derive(Clone, Default)]
pub struct Broadcast(Arc<Inner>);

/// A subscriber; it misses no notification that is sent while it does something else.
pub struct Subscriber {
    broadcast: Broadcast,
    seen: u64,
}

impl Broadcast {
    /// Notifies all subscribers.
    pub fn notify(&self) {
        self.0.version.fetch_add(1, Ordering::AcqRel);
        self.0.wakers.notify_waiters();
    }

    /// Subscribes to notifications from now on.
    #[must_use]
    pub fn subscribe(&self) -> Subscriber {
        self.0.subscribers.fetch_add(1, Ordering::AcqRel);
        Subscriber { broadcast: self.clone(), seen: self.0.version.load(Ordering::Acquire) }
    }

    /// The number of notifications so far.
    #[must_use]
    pub fn version(&self) -> u64 {
        self.0.version.load(Ordering::Acquire)
    }

    /// Whether there is any subscriber.
    #[must_use]
    pub fn has_subscribers(&self) -> bool {
        self.0.subscribers.load(Ordering::Acquire) > 0
    }
}

impl Subscriber {
    /// Waits for a notification that this subscriber has not seen yet.
    pub async fn changed(&mut self) {
        loop {
            let wakers = self.broadcast.0.wakers.notified();
            let version = self.broadcast.0.version.load(Ordering::Acquire);
            if version != self.seen {
                self.seen = version;
                return;
            }
            wakers.await;
        }
    }

    /// The version that this subscriber has seen.
    #[must_use]
    pub const fn seen(&self) -> u64 {
        self.seen
    }

    /// Marks all notifications so far as seen.
    pub fn mark_unchanged(&mut self) {
        self.seen = self.broadcast.0.version.load(Ordering::Acquire);
    }
}

impl Drop for Subscriber {
    fn drop(&mut self) {
        self.broadcast.0.subscribers.fetch_sub(1, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    #[tokio::test]
    async fn a_listener_hears_what_was_rung_while_it_was_busy_once() {
        let broadcast = Broadcast::default();
        assert!(!broadcast.has_subscribers());
        let mut subscriber = broadcast.subscribe();
        assert!(broadcast.has_subscribers());
        assert_eq!(subscriber.changed().now_or_never(), None);
        broadcast.notify();
        broadcast.notify();
        assert_eq!(subscriber.changed().now_or_never(), Some(()));
        assert_eq!(subscriber.changed().now_or_never(), None);
        broadcast.notify();
        subscriber.mark_unchanged();
        assert_eq!(subscriber.changed().now_or_never(), None);
    }

    #[tokio::test]
    async fn listeners_wake_in_the_order_in_which_they_wait() {
        let broadcast = Broadcast::default();
        let (tell, mut wakers) = tokio::sync::mpsc::unbounded_channel();
        let tasks: Vec<_> = (0..50)
            .map(|n| {
                let (mut subscriber, tell) = (broadcast.subscribe(), tell.clone());
                tokio::spawn(async move {
                    subscriber.changed().await;
                    _ = tell.send(n);
                })
            })
            .collect();
        tokio::task::yield_now().await;
        broadcast.notify();
        futures::future::join_all(tasks).await;
        let order: Vec<u32> = std::iter::from_fn(|| wakers.try_recv().ok()).collect();
        assert!(order.is_sorted() && order.len() == 50, "{order:?}");
    }
}
