//! Those who wait for a role to change. One task looks at each role that somebody waits for: at once when this process has
//! changed it or was told of a change, at the end of the present term, and from time to time for changes that came through
//! other nodes. Without somebody who waits there is no task.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, watch};
use tokio::time::Instant;
use wayleave_core::names::RoleName;
use wayleave_core::roles::{Facts, Refusal};
use wayleave_core::time::{Millis, Time};

use crate::roles::Inner;

/// What the last look saw, and when that was by this process's clock.
type Sight = Result<Arc<(Facts, Instant)>, Refusal>;

/// The roles that somebody waits for.
#[derive(Default)]
pub(crate) struct Watchers(Mutex<HashMap<RoleName, Arc<Watched>>>);

struct Watched {
    sights: watch::Sender<Option<Sight>>,
    nudge: Notify,
}

/// One who waits: hears of every look that came after it began to.
pub(crate) struct News(watch::Receiver<Option<Sight>>);

impl News {
    /// The next look. The time that has passed since is added, so that a term which ended meanwhile is over.
    pub async fn next(&mut self) -> Result<Facts, Refusal> {
        loop {
            if self.0.changed().await.is_err() {
                return Err(Refusal::Unavailable("nobody watches this role any more".into()));
            }
            let Some(sight) = self.0.borrow_and_update().clone() else { continue };
            let (mut facts, at) = Arc::unwrap_or_clone(sight?);
            facts.now = facts.now.after(Millis(u64::try_from(at.elapsed().as_millis()).unwrap_or(u64::MAX)));
            return Ok(facts);
        }
    }
}

impl Watchers {
    fn lock(&self) -> MutexGuard<'_, HashMap<RoleName, Arc<Watched>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets the task of a role, if there is one, look at once.
    pub fn nudge(&self, role: &str) {
        if let Some(watched) = self.lock().get(role) {
            watched.nudge.notify_one();
        }
    }

    /// Begins to wait for a role; the first look comes at once.
    pub fn subscribe(inner: &Arc<Inner>, role: &RoleName) -> News {
        let mut watched = inner.watchers.lock();
        if let Some(known) = watched.get(role) {
            let news = News(known.sights.subscribe());
            known.nudge.notify_one();
            return news;
        }
        let (sights, news) = watch::channel(None);
        let new = Arc::new(Watched { sights, nudge: Notify::new() });
        watched.insert(role.clone(), new.clone());
        drop(watched);
        tokio::spawn(run(inner.clone(), role.clone(), new));
        News(news)
    }

    /// How many roles are watched.
    #[cfg(test)]
    pub fn count(&self) -> usize {
        self.lock().len()
    }

    /// Ends the watch of a role unless somebody waits for it.
    fn end(&self, role: &RoleName, watched: &Watched) -> bool {
        let mut all = self.lock();
        let nobody = watched.sights.receiver_count() == 0;
        if nobody {
            all.remove(role);
        }
        nobody
    }
}

async fn run(inner: Arc<Inner>, role: RoleName, watched: Arc<Watched>) {
    while !inner.watchers.end(&role, &watched) {
        // The clock first: what is told is rather thought older than younger.
        let at = Instant::now();
        let sight = inner.look(&role).await.map(|seen| seen.facts);
        let pause = sight.as_ref().map_or(inner.config.poll, |facts| next_look(facts, inner.config.poll));
        watched.sights.send_replace(Some(sight.map(|facts| Arc::new((facts, at)))));
        tokio::select! {
            () = watched.nudge.notified() => {}
            () = tokio::time::sleep(Duration::from_millis(pause.0)) => {}
            () = watched.sights.closed() => {}
        }
    }
}

/// When to look again: at the end of the present term, which comes by time alone, and soon in any case.
fn next_look(facts: &Facts, poll: Millis) -> Millis {
    let end: Option<Time> = facts.row.as_ref().and_then(|row| row.live(facts.now)).map(|term| term.expires_at);
    // A millisecond of the store may be over a little later than one of ours.
    end.map_or(poll, |end| poll.min(Millis(end.since(facts.now).0 + 1)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Roles, Wait, WaitFor};
    use wayleave_engine::clock::ManualClock;
    use wayleave_engine::memory::Memory;

    #[tokio::test(start_paused = true)]
    async fn a_sight_that_has_aged_shows_no_primary_whose_time_is_over() {
        let (sights, news) = watch::channel(None);
        let mut news = News(news);
        let facts = Facts {
            role: "r".into(),
            row: None,
            standbys: Vec::new(),
            origin: None,
            now: Time(1_000),
            incarnation: 0,
            stepped_at: Time::ZERO,
        };
        sights.send_replace(Some(Ok(Arc::new((facts, Instant::now())))));
        tokio::time::advance(Duration::from_millis(600)).await;
        assert_eq!(news.next().await.unwrap().now, Time(1_600));
    }

    #[tokio::test(start_paused = true)]
    async fn a_role_is_watched_by_one_task_while_somebody_waits_and_by_none_afterwards() {
        let roles = Roles::new(Arc::new(Memory::new(ManualClock::new(Time(1_000)))));
        let wait = Wait { what: WaitFor::Primary(Default::default()), time: Millis(1_000) };
        let waiters: Vec<_> = (0..3)
            .map(|_| {
                let roles = roles.clone();
                tokio::spawn(async move { roles.primary(&"r".into(), wait).await })
            })
            .collect();
        tokio::time::sleep(Duration::from_millis(10)).await;
        assert_eq!((roles.0.watchers.count(), roles.waiting()), (1, 3));
        for waiter in waiters {
            assert_eq!(waiter.await.unwrap().unwrap().primary, None);
        }
        while roles.0.watchers.count() > 0 {
            tokio::task::yield_now().await;
        }
        assert_eq!(roles.waiting(), 0);
    }
}
