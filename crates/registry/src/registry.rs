//! The handle: every update looks, lets a pure function decide, writes if nothing has changed meanwhile, and
//! otherwise starts over.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use wayleave_core::limits;
use wayleave_engine::{Batch, Engine, Error, Key, Look, Scan};

use crate::config::Config;
use crate::hints::Hints;
use crate::locks::Locks;
use crate::subject::{self, Decision, News, Subject};
use crate::watch::{Watch, Watchers};

/// The records of one kind in a store; cheap to clone.
#[derive(Clone)]
pub struct Registry(pub(crate) Arc<Inner>);

pub(crate) struct Inner {
    engine: Arc<dyn Engine>,
    pub config: Config,
    locks: Locks,
    pub watchers: Watchers,
    conflicts: AtomicU64,
}

impl Registry {
    /// The records of a store.
    #[must_use]
    pub fn new(engine: Arc<dyn Engine>) -> Self {
        Self::with(engine, Config::default())
    }

    /// The records of a store, run in another way than usual.
    #[must_use]
    pub fn with(engine: Arc<dyn Engine>, config: Config) -> Self {
        let (locks, watchers) = (Locks::default(), Watchers::default());
        Self(Arc::new(Inner { engine, config, locks, watchers, conflicts: AtomicU64::new(0) }))
    }

    /// The hints of this process.
    #[must_use]
    pub fn hints(&self) -> &Hints {
        &self.0.config.hints
    }

    /// Decisions that were made again because of a concurrent update, since the start of the process.
    #[must_use]
    pub fn conflicts(&self) -> u64 {
        self.0.conflicts.load(Ordering::Relaxed)
    }

    /// Reads rows with the store's time. Writes of this process that are in flight may be missing.
    pub async fn look(&self, scans: &[Scan]) -> Result<Look, Error> {
        self.0.engine.look(scans).await
    }

    /// Reads a record, after the writes of this process that are in flight.
    pub async fn look_at(&self, subject: &Subject) -> Result<Look, Error> {
        let _settled = self.0.locks.read(&subject.key).await;
        self.look(&subject.scans).await
    }

    /// Reads several records, in their order. Those with a write in flight are each read after it, and wait side by side; all
    /// others together, and only those are locked meanwhile: one record that is held up holds up no other.
    pub async fn look_at_each(&self, subjects: &[Subject]) -> Result<Vec<Look>, Error> {
        let reading: Vec<_> = subjects.iter().map(|subject| self.0.locks.try_read(&subject.key)).collect();
        let free = || subjects.iter().zip(&reading).filter(|(_, reading)| reading.is_some());
        let scans: Vec<Scan> = free().flat_map(|(subject, _)| subject.scans.clone()).collect();
        let mut together: Option<Look> = match scans.is_empty() {
            true => None,
            false => Some(self.look(&scans).await?),
        };
        let settled: Vec<bool> = reading.iter().map(Option::is_some).collect();
        drop(reading);
        let looks = subjects.iter().zip(settled).map(|(subject, settled)| {
            let settled = together.as_mut().filter(|_| settled).map(|look| {
                let rest = look.rows.split_off(subject.scans.len().min(look.rows.len()));
                Look { rows: std::mem::replace(&mut look.rows, rest), ..*look }
            });
            async move {
                match settled {
                    Some(look) => Ok(look),
                    None => self.look_at(subject).await,
                }
            }
        });
        futures::future::try_join_all(looks).await
    }

    /// The keys of a range in order, up to its limit, and whether there are more. Rows that are being written may be
    /// missing from the store, or only seem to be deleted: their keys are included.
    pub async fn keys(&self, scan: Scan) -> Result<(Vec<Key>, bool), Error> {
        let mut written = self.0.locks.being_written();
        let one_more = Scan { limit: scan.limit.saturating_add(1), ..scan.clone() };
        let look = self.look(&[one_more]).await?;
        written.extend(self.0.locks.being_written());
        let mut keys: Vec<Key> = look.rows.into_iter().flatten().map(|row| row.key).collect();
        let more = keys.len() > scan.limit;
        keys.truncate(scan.limit);
        let last = keys.last().filter(|_| more).cloned();
        let within = |key: &Key| scan.from <= *key && last.as_ref().map_or(*key < scan.to, |last| key <= last);
        keys.extend(written.into_iter().filter(within));
        keys.sort_unstable();
        keys.dedup();
        Ok((keys, more))
    }

    /// Changes a record, and continues to its end also if the caller goes away: a write without a waiter could be
    /// seen before it is durable. `decide` is called with each look, and whether an earlier write of this call may
    /// have been applied. Fails with "Unavailable" if there were too many concurrent updates, or as the store fails.
    pub async fn update<T, D>(&self, subject: Subject, decide: D) -> Result<T, Error>
    where
        T: Send + 'static,
        D: FnMut(&Look, bool) -> Decision<T> + Send + 'static,
    {
        let registry = self.clone();
        let runtime = self.0.config.runtime.clone().unwrap_or_else(tokio::runtime::Handle::current);
        let done = runtime.spawn(async move { registry.update_here(&subject, decide).await }).await;
        done.unwrap_or_else(|error| Err(Error::OutcomeUnknown(format!("the change was cut off: {error}"))))
    }

    /// The same within the caller's own task, for callers that no reader of this process waits for. If it is dropped,
    /// its outcome is unknown. Fails as [`Registry::update`] does.
    pub async fn update_here<T>(
        &self,
        subject: &Subject,
        decide: impl FnMut(&Look, bool) -> Decision<T>,
    ) -> Result<T, Error> {
        let mut news = News::NOBODY;
        let answer = self.run_update(subject, decide, &mut news).await;
        // The lock is released by now: a woken waiter can look.
        self.spread(news, std::slice::from_ref(&subject.key));
        answer
    }

    /// Writes once what was decided on an earlier look, for callers that cannot simply decide again. Fails with
    /// "Conflict" if a row that the batch expects has changed, or as the store fails.
    pub async fn write(&self, batch: Batch, news: News) -> Result<(), Error> {
        let keys: Vec<Key> = batch.writes.iter().map(|write| write.key.clone()).collect();
        let written = self.0.engine.commit(batch).await;
        // Others may see a write whose outcome is unknown; a hint too many costs one look.
        if matches!(written, Ok(()) | Err(Error::OutcomeUnknown(_))) {
            self.spread(news, &keys);
        }
        written
    }

    /// Watches a record, which is looked at once now. All watchers of a key share one task; the first one's subject
    /// counts.
    #[must_use]
    pub fn watch(&self, subject: &Subject) -> Watch {
        Watchers::subscribe(self, subject)
    }

    fn spread(&self, news: News, keys: &[Key]) {
        if news.here {
            keys.iter().for_each(|key| self.hints().wake(key));
        }
        if news.others {
            self.hints().send(keys);
        }
    }

    async fn run_update<T>(
        &self,
        subject: &Subject,
        mut decide: impl FnMut(&Look, bool) -> Decision<T>,
        news: &mut News,
    ) -> Result<T, Error> {
        let _turn = self.0.locks.write(&subject.key).await;
        let mut unknown_outcome: Option<String> = None;
        for attempt in 0..limits::UPDATE_TRIES_MAX {
            self.pause(attempt).await;
            let look = self.look(&subject.scans).await.map_err(|error| in_doubt(error, unknown_outcome.is_some()))?;
            let Decision { writes, mut depends_on, news: new_news, answer } = decide(&look, unknown_outcome.is_some());
            if writes.is_empty() {
                return Ok(answer);
            }
            depends_on.push(subject.key.clone());
            let batch = subject::batch(&look, writes, depends_on);
            if let Some((key, _)) = batch.expects.iter().find(|(key, _)| !subject.reads(key)) {
                // Expecting it absent would be a guess.
                tracing::error!(row.key = ?key, "a decision was not written: it depends on an unread row");
                return Err(Error::Corrupt(format!("an update to {} depends on an unread row", subject.name)));
            }
            match self.0.engine.commit(batch).await {
                Ok(()) => {
                    *news = news.and(new_news);
                    return Ok(answer);
                }
                Err(Error::Conflict) => _ = self.0.conflicts.fetch_add(1, Ordering::Relaxed),
                Err(Error::OutcomeUnknown(what)) => {
                    *news = news.and(new_news);
                    unknown_outcome = Some(what);
                }
                Err(error) => return Err(in_doubt(error, unknown_outcome.is_some())),
            }
        }
        let refused = || Error::Unavailable(format!("too many concurrent updates to {}", subject.name));
        Err(unknown_outcome.map_or_else(refused, Error::OutcomeUnknown))
    }

    /// Those whom another node overtook come back at different times.
    async fn pause(&self, attempt: usize) {
        if attempt > 1 {
            let most = 1_u128 << attempt.min(6);
            let ms = (self.0.config.entropy)() % most;
            tokio::time::sleep(Duration::from_millis(u64::try_from(ms).unwrap_or(0))).await;
        }
    }
}

/// "Unavailable" would say that nothing was changed.
fn in_doubt(error: Error, unknown_outcome: bool) -> Error {
    match error {
        Error::Unavailable(what) if unknown_outcome => Error::OutcomeUnknown(what),
        error => error,
    }
}
