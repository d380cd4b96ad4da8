//! Watches: callers that wait for a record to change. One task looks at each watched record: at once after a hint,
//! when time changes what its rows mean, and periodically in case a hint was lost. Without waiters there is no task.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;
use wayleave_core::time::{Millis, Time};
use wayleave_engine::{Error, Key, Look};

use crate::hints::Listener;
use crate::registry::Registry;
use crate::subject::Subject;

/// What a look has shown, and when that was by this process's clock.
#[derive(Clone, Debug)]
pub struct Observation {
    look: Arc<Look>,
    at: Instant,
}

impl Observation {
    /// The look; its time is that of the store when it was read.
    #[must_use]
    pub fn look(&self) -> &Look {
        &self.look
    }

    /// The store's time now, at the least: with the time that has passed since the look, so that a lease which ended
    /// meanwhile is over.
    #[must_use]
    pub fn now(&self) -> Time {
        self.look.now.after(Millis(u64::try_from(self.at.elapsed().as_millis()).unwrap_or(u64::MAX)))
    }
}

/// The records with waiters.
#[derive(Default)]
pub(crate) struct Watchers(Mutex<HashMap<Key, Arc<Watched>>>);

/// The number of a look, and what it has shown.
type Sight = Option<(u64, Result<Observation, Error>)>;

struct Watched {
    sights: watch::Sender<Sight>,
    /// Looks that were begun.
    begun: AtomicU64,
    ear: Listener,
}

/// A waiter: it gets every look that began after it did. One that was under way may show less than what its caller knows.
pub struct Watch {
    sights: watch::Receiver<Sight>,
    /// Looks that had begun by then.
    before: u64,
}

impl Watch {
    /// The next look. Fails if the store could not serve it.
    pub async fn next(&mut self) -> Result<Observation, Error> {
        loop {
            if self.sights.changed().await.is_err() {
                return Err(Error::Unavailable("the watch has ended".into()));
            }
            let sight = self.sights.borrow_and_update();
            if let Some((_, sight)) = sight.as_ref().filter(|(number, _)| *number > self.before) {
                return sight.clone();
            }
        }
    }
}

impl Watchers {
    fn lock(&self) -> MutexGuard<'_, HashMap<Key, Arc<Watched>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins to wait for a record; the first look comes at once.
    pub fn subscribe(registry: &Registry, subject: &Subject) -> Watch {
        let mut watched = registry.0.watchers.lock();
        if let Some(known) = watched.get(&subject.key) {
            let watch = Watch { before: known.begun.load(Ordering::Acquire), sights: known.sights.subscribe() };
            known.ear.wake();
            return watch;
        }
        let (sights, first) = watch::channel(None);
        let new = Arc::new(Watched { sights, begun: AtomicU64::new(0), ear: registry.hints().listen(&subject.key) });
        watched.insert(subject.key.clone(), new.clone());
        drop(watched);
        tokio::spawn(run(registry.clone(), subject.clone(), new));
        Watch { sights: first, before: 0 }
    }

    /// Ends the watch of a record unless it has waiters.
    fn end(&self, key: &Key, watched: &Watched) -> bool {
        let mut all = self.lock();
        let nobody = watched.sights.receiver_count() == 0;
        if nobody {
            all.remove(key);
        }
        nobody
    }
}

async fn run(registry: Registry, subject: Subject, watched: Arc<Watched>) {
    let poll = registry.0.config.poll;
    while !registry.0.watchers.end(&subject.key, &watched) {
        let number = watched.begun.fetch_add(1, Ordering::AcqRel) + 1;
        // The clock first: a look may seem older than it is, never younger.
        let at = Instant::now();
        let look = registry.look_at(&subject).await;
        let pause = look.as_ref().map_or(poll, |look| next_look(&subject, look, poll));
        let sight = look.map(|look| Observation { look: Arc::new(look), at });
        watched.sights.send_replace(Some((number, sight)));
        tokio::select! {
            () = watched.ear.heard() => {}
            () = tokio::time::sleep(Duration::from_millis(pause.0)) => {}
            () = watched.sights.closed() => {}
        }
    }
}

/// When to look again: when time changes what the rows mean, and soon in any case.
fn next_look(subject: &Subject, look: &Look, poll: Millis) -> Millis {
    let end = (subject.ends)(look).filter(|end| *end > look.now);
    // A millisecond of the store may be over a little later than one of ours.
    end.map_or(poll, |end| poll.min(Millis(end.since(look.now).0 + 1)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use wayleave_engine::clock::ManualClock;
    use wayleave_engine::memory::Memory;

    #[tokio::test(start_paused = true)]
    async fn a_sight_that_has_aged_is_of_the_time_that_it_is_now() {
        let look = Look { now: Time(1_000), incarnation: 0, steady_since: Time::ZERO, rows: Vec::new() };
        let sight = Observation { look: Arc::new(look), at: Instant::now() };
        tokio::time::advance(Duration::from_millis(600)).await;
        assert_eq!((sight.now(), sight.look().now), (Time(1_600), Time(1_000)));
    }

    #[tokio::test(start_paused = true)]
    async fn a_record_is_watched_by_one_task_and_only_while_somebody_waits() {
        let registry = Registry::new(Arc::new(Memory::new(ManualClock::new(Time(1_000)))));
        let subject = Subject::row(b"r".to_vec(), "this record");
        let mut watches: Vec<Watch> = (0..3).map(|_| registry.watch(&subject)).collect();
        for watch in &mut watches {
            watch.next().await.unwrap();
        }
        assert_eq!(registry.0.watchers.lock().len(), 1);
        let late = watches.pop();
        drop(watches);
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!(registry.0.watchers.lock().len(), 1, "one still waits");
        drop(late);
        while !registry.0.watchers.lock().is_empty() {
            tokio::task::yield_now().await;
        }
    }
}
