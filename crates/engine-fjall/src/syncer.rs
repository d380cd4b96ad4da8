//! Drives the group commit: writes all queued records to the journal with one write and one sync, then acknowledges
//! them.
//!
//! A committer that waits for a small group writes and syncs it itself (leader-follower): that saves two context
//! switches, which take as long as the sync. The sync thread handles large groups, rotations that had to wait, and
//! groups that find too many leaders active. The journal lock is held from before a group is dequeued until it has its
//! place in the file, so records are in enqueue order. Writes and syncs then run concurrently.

use std::pin::Pin;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use futures::FutureExt;
use tokio::sync::oneshot;
use wayleave_engine::{Commit, Error};

use crate::group_commit::{Begun, GroupCommit};
use crate::journal::{Journal, UnwrittenRecords, WRITES_MAX};
use crate::trouble;

/// How long a sync waits for more batches under load: less than its own duration, about 0.2 ms on a good disk.
const GATHER: Duration = Duration::from_micros(100);

/// Above this batch count waiting for more pays off; below it, the batches would only delay their own clients.
const COMPANY: usize = 6;

/// Larger groups are left to the sync thread.
const LEAD_BYTES: usize = 64 << 10;

/// The maximum number of concurrent leaders; the sync thread's write comes on top.
const LEADS_MAX: usize = WRITES_MAX - 1;

/// Who drives the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Drive {
    /// The sync thread and leaders.
    Threads,
    /// The simulator, through [`Syncer::begin`] and [`Syncer::finish`].
    #[cfg(any(test, feature = "simulation"))]
    ByHand,
}

/// The group commit of a store. Dropping it writes the queue and ends the thread.
pub(crate) struct Syncer {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    /// Locked before the queue.
    journal: Mutex<Journal>,
    queue: Mutex<Queue>,
    /// Notified when the thread has work.
    called: Condvar,
    drive: Drive,
}

struct Queue {
    commits: GroupCommit,
    /// Whether the thread should take the queue.
    called: bool,
    /// The number of active leaders.
    leads: usize,
    /// Since when the disk has been busy without completing anything.
    busy_since: Option<Instant>,
    closing: bool,
}

/// A step in flight, to be carried out and then passed to [`Syncer::finish`].
#[must_use]
pub(crate) struct Flight {
    shared: Arc<Shared>,
    number: u64,
    waiters: usize,
    /// `None` if placing it failed, or if it was a rotation, which is already done.
    placed: Option<UnwrittenRecords>,
    /// The offset of the next write, or the error; `None` once it was reported.
    result: Option<Result<u64, String>>,
}

impl Flight {
    /// Writes and syncs it.
    pub(crate) fn write(&mut self) {
        if let Some(placed) = self.placed.take()
            && let Err(error) = placed.write()
        {
            self.result = Some(Err(describe(&error)));
        }
    }
}

impl Drop for Flight {
    fn drop(&mut self) {
        if self.result.is_some() {
            // The thread carrying it out panicked. Its waiters would hang, and recovery could not read past its
            // records.
            self.shared.fail("a thread panicked while it wrote the journal: see the log, then restart".into());
        }
    }
}

fn describe(error: &std::io::Error) -> String {
    trouble::describe_io(error)
}

impl Syncer {
    /// Starts the group commit of a journal that is durable up to its end.
    pub(crate) fn start(journal: Journal, drive: Drive) -> std::io::Result<Self> {
        let commits = GroupCommit::new(journal.number(), journal.end());
        let queue = Queue { commits, called: false, leads: 0, busy_since: None, closing: false };
        let (journal, queue, called) = (Mutex::new(journal), Mutex::new(queue), Condvar::new());
        let shared = Arc::new(Shared { journal, queue, called, drive });
        let theirs = Arc::clone(&shared);
        let thread = match drive {
            Drive::Threads => {
                Some(std::thread::Builder::new().name("wayleave-sync".into()).spawn(move || theirs.run())?)
            }
            #[cfg(any(test, feature = "simulation"))]
            Drive::ByHand => None,
        };
        Ok(Self { shared, thread })
    }

    /// Fails with [`Error::Unavailable`] and the first failure if the store has failed.
    pub(crate) fn check(&self) -> Result<(), Error> {
        self.shared.lock().check()
    }

    /// Marks the store as failed; the first cause is kept.
    pub(crate) fn fail(&self, why: String) {
        self.shared.fail(why);
    }

    /// Since when the disk has been busy without completing anything.
    pub(crate) fn busy_since(&self) -> Option<Instant> {
        self.shared.lock().busy_since
    }

    /// Appends a record to the journal; the future resolves when it is durable. Fails with [`Error::Unavailable`] if
    /// the store has failed.
    pub(crate) fn append(&self, body: &[u8]) -> Result<Commit, Error> {
        let mut queue = self.shared.lock();
        queue.check()?;
        let answer = queue.commits.add(body);
        if queue.commits.waiting_bytes() > LEAD_BYTES {
            self.shared.call(queue);
        }
        Ok(Durable { answer: Some(answer), shared: Arc::clone(&self.shared) }.boxed())
    }

    /// Rotates the journal; returns the number of the old file.
    pub(crate) fn rotate(&self) -> u64 {
        self.shared.lock().commits.rotate()
    }

    /// Resolves when everything enqueued is durable, including rotations. Fails if the store has failed. The next file
    /// may then not exist.
    pub(crate) fn settled(&self) -> Result<oneshot::Receiver<Result<(), Error>>, String> {
        let mut queue = self.shared.lock();
        if let Some(why) = queue.commits.failed() {
            return Err(why.clone());
        }
        let answer = queue.commits.wait_for_all();
        self.shared.call(queue);
        Ok(answer)
    }

    /// Begins the next step, if it can begin.
    #[cfg(any(test, feature = "simulation"))]
    pub(crate) fn begin(&self) -> Option<Flight> {
        self.shared.begin()
    }

    /// Ends a step: acknowledges all records that are durable together with everything before them.
    #[cfg(any(test, feature = "simulation"))]
    pub(crate) fn finish(&self, flight: Flight) {
        self.shared.finish(flight);
    }

    /// Seals the journal: records that everything is durable.
    #[cfg(any(test, feature = "simulation"))]
    pub(crate) fn seal(&self) {
        self.shared.seal();
    }
}

/// Waits for a batch to become durable, as leader if needed.
struct Durable {
    answer: Option<oneshot::Receiver<Result<(), Error>>>,
    shared: Arc<Shared>,
}

impl Durable {
    fn look(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        let Some(answer) = &mut self.answer else { return Poll::Pending };
        let answer = std::task::ready!(answer.poll_unpin(cx));
        self.answer = None;
        Poll::Ready(answer.unwrap_or_else(|_| Err(Error::OutcomeUnknown("the store was closed".into()))))
    }
}

impl Future for Durable {
    type Output = Result<(), Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        if let Poll::Ready(answer) = self.look(cx) {
            return Poll::Ready(answer);
        }
        self.shared.lead();
        self.look(cx)
    }
}

impl Drop for Durable {
    fn drop(&mut self) {
        if self.answer.is_some() {
            // The future was dropped, but the batch must still become durable.
            self.shared.call(self.shared.lock());
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn call(&self, mut queue: MutexGuard<'_, Queue>) {
        queue.called = true;
        let wake = queue.commits.can_begin();
        drop(queue);
        if wake {
            self.called.notify_one();
        }
    }

    /// Writes the queue as leader, unless it is large or enough leaders are active: then the thread takes it.
    fn lead(self: &Arc<Self>) {
        let mut queue = self.lock();
        if self.drive != Drive::Threads || !queue.commits.waits() {
            // Its leader answers.
            return;
        }
        let much = queue.commits.waiting_bytes() > LEAD_BYTES;
        if queue.called || much || queue.leads >= LEADS_MAX || !queue.commits.can_begin() {
            return self.call(queue);
        }
        queue.leads += 1;
        drop(queue);
        self.step();
        self.lock().leads -= 1;
    }

    /// The thread's main loop: waits until it is called, then carries out steps until the queue is empty. At shutdown
    /// it writes the rest and seals the journal.
    fn run(self: &Arc<Self>) {
        let mut company = 0;
        while self.wait(company >= COMPANY) {
            company = self.step();
        }
        self.seal();
    }

    /// Seals the journal if everything is durable.
    fn seal(&self) {
        let mut journal = self.journal.lock().unwrap_or_else(PoisonError::into_inner);
        if self.lock().commits.failed().is_none()
            && let Err(error) = journal.seal()
        {
            tracing::warn!(error = %error, "cannot seal the journal; everything acknowledged is durable");
        }
    }

    /// Carries out the next step, if it can begin; returns its number of waiters.
    fn step(self: &Arc<Self>) -> usize {
        let Some(mut flight) = self.begin() else { return 0 };
        let waiters = flight.waiters;
        flight.write();
        self.finish(flight);
        waiters
    }

    /// Begins the next step: places a group in the journal, or carries out a whole rotation.
    fn begin(self: &Arc<Self>) -> Option<Flight> {
        let mut journal = self.journal.lock().unwrap_or_else(PoisonError::into_inner);
        let mut queue = self.lock();
        let begun = queue.commits.begin()?;
        queue.busy_since.get_or_insert_with(Instant::now);
        drop(queue);
        let (number, waiters) = begun.numbers();
        let result = Some(Err("it was not carried out".to_owned()));
        let mut flight = Flight { shared: Arc::clone(self), number, waiters, placed: None, result };
        let result = match begun {
            Begun::Rotate { .. } => journal.rotate().map(|()| 0),
            Begun::Write { records, durable, .. } => {
                let placed = journal.place(&records, durable);
                self.lock().commits.put_back(records);
                placed.map(|placed| flight.placed.insert(placed).end())
            }
        };
        if let Err(error) = &result {
            // Before the journal lock is released: later records would follow a gap.
            self.lock().commits.fail(describe(error));
        }
        flight.result = Some(result.map_err(|error| describe(&error)));
        Some(flight)
    }

    fn fail(&self, why: String) {
        let mut queue = self.lock();
        queue.commits.fail(why);
        let notification = queue.commits.give_up();
        drop(queue);
        notification.send();
    }

    fn finish(&self, mut flight: Flight) {
        let Some(result) = flight.result.take() else { return };
        let number = flight.number;
        if let Err(why) = &result {
            tracing::error!(error = %why, "cannot write the journal; restart to reopen the store");
        }
        let mut queue = self.lock();
        let notification = queue.commits.end(number, result);
        if !notification.is_empty() || !queue.commits.in_flight() {
            // Completions behind a write that hangs are no progress: they cannot be acknowledged.
            queue.busy_since = queue.commits.in_flight().then(Instant::now);
        }
        if queue.commits.rotation_can_begin() {
            // The rotation waited for what was in flight, and its waiters may have checked already.
            queue.called = true;
        }
        let wake = queue.called && queue.commits.can_begin() || queue.closing;
        drop(queue);
        if wake {
            self.called.notify_one();
        }
        notification.send();
    }

    /// Waits until the thread is called and a step can begin; false when the store is closing and the queue is empty.
    /// If the last sync served many batches, it waits briefly for more: that costs less than another sync.
    fn wait(&self, company: bool) -> bool {
        let mut queue = self.lock();
        queue.called &= queue.commits.waits();
        let idle = |queue: &mut Queue| {
            // Leaders' writes in flight must complete first: the seal states that they are durable.
            let nothing = !queue.commits.waits() && !queue.commits.in_flight();
            let over = queue.closing && (nothing || queue.commits.failed().is_some());
            !over && !((queue.called || queue.closing) && queue.commits.can_begin())
        };
        let queue = self.called.wait_while(queue, idle).unwrap_or_else(PoisonError::into_inner);
        let (begins, closing) = (queue.commits.can_begin(), queue.closing);
        drop(queue);
        if company && begins && !closing {
            std::thread::sleep(GATHER);
        }
        begins || !closing
    }
}

impl Queue {
    fn check(&self) -> Result<(), Error> {
        match self.commits.failed() {
            Some(why) => Err(Error::Unavailable(why.clone())),
            None => Ok(()),
        }
    }
}

impl Drop for Syncer {
    fn drop(&mut self) {
        self.shared.lock().closing = true;
        self.shared.called.notify_one();
        if let Some(thread) = self.thread.take() {
            // A panicked thread has dropped its senders, so its waiters were notified.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
#[path = "syncer_tests.rs"]
mod tests;
