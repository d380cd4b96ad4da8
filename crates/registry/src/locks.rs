//! One lock for each record that a caller in this process reads or writes at the moment. A writer holds it until its
//! write is durable, and readers wait for the writer: a store may show what it could still lose. It also keeps the
//! writers of one process from overtaking each other.
//!
//! Each record has its own lock, so a write that is held up (by a row that another session has locked) blocks no
//! other record. There are never more locks than callers: the last one to leave removes it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{OwnedRwLockReadGuard, OwnedRwLockWriteGuard, RwLock};
use wayleave_engine::Key;

/// The locks of the records that are in use.
#[derive(Default)]
pub(crate) struct Locks(Mutex<HashMap<Key, Arc<RwLock<()>>>>);

/// Somebody who uses a lock, or waits for it.
struct User<'a> {
    locks: &'a Locks,
    key: Key,
    lock: Arc<RwLock<()>>,
}

/// No write of the record is in flight. The guard goes before the user: see the user's drop.
pub(crate) struct Reading<'a> {
    _guard: OwnedRwLockReadGuard<()>,
    _user: User<'a>,
}

/// No other caller reads or writes the record.
pub(crate) struct Writing<'a> {
    _guard: OwnedRwLockWriteGuard<()>,
    _user: User<'a>,
}

impl Locks {
    /// Waits for the writers of a record.
    pub async fn read(&self, key: &Key) -> Reading<'_> {
        let user = self.user(key);
        Reading { _guard: user.lock.clone().read_owned().await, _user: user }
    }

    /// The same without waiting; none while a write is in flight or waits.
    pub fn try_read(&self, key: &Key) -> Option<Reading<'_>> {
        let user = self.user(key);
        Some(Reading { _guard: user.lock.clone().try_read_owned().ok()?, _user: user })
    }

    /// Waits for the readers and writers of a record.
    pub async fn write(&self, key: &Key) -> Writing<'_> {
        let user = self.user(key);
        Writing { _guard: user.lock.clone().write_owned().await, _user: user }
    }

    /// The records that are being written, or whose writer waits.
    pub fn being_written(&self) -> Vec<Key> {
        let locks = self.lock();
        let written = locks.iter().filter(|(_, lock)| lock.try_read().is_err());
        written.map(|(key, _)| key.clone()).collect()
    }

    fn user(&self, key: &Key) -> User<'_> {
        let lock = self.lock().entry(key.clone()).or_default().clone();
        User { locks: self, key: key.clone(), lock }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Key, Arc<RwLock<()>>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for User<'_> {
    fn drop(&mut self) {
        let mut locks = self.locks.lock();
        // The map has one, this user another. No caller can get a third meanwhile: that takes the map.
        if Arc::strong_count(&self.lock) == 2 {
            locks.remove(&self.key);
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    #[test]
    fn a_record_is_written_by_one_at_a_time_and_its_lock_ends_with_its_users() {
        let (locks, key) = (Locks::default(), Key::from("a"));
        let writing = locks.write(&key).now_or_never().expect("it is free");
        assert_eq!(locks.being_written(), std::slice::from_ref(&key));
        assert!(locks.try_read(&key).is_none() && locks.write(&key).now_or_never().is_none());
        let reading = locks.read(&Key::from("b")).now_or_never().expect("another record");
        assert_eq!(locks.lock().len(), 2);
        drop(writing);
        assert!(locks.try_read(&key).is_some());
        drop(reading);
        assert!(locks.lock().is_empty(), "locks of unused records pile up");
    }

    #[tokio::test]
    async fn one_who_waits_keeps_the_lock_that_its_holder_leaves() {
        let (locks, key) = (Locks::default(), Key::from("a"));
        let writing = locks.write(&key).await;
        let mut waiting = Box::pin(locks.write(&key));
        assert!(waiting.as_mut().now_or_never().is_none());
        drop(writing);
        let _mine = waiting.await;
        assert!(locks.write(&key).now_or_never().is_none(), "two writers with a lock each");
    }
}
