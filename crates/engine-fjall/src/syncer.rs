//! Carries out a group commit: all records that wait go to the journal in one write and one sync, then they are answered.
//!
//! Whoever waits for an answer writes and syncs itself if there is little to write: that spares two context switches, which
//! take as long as the sync. Whatever is large, a rotation that had to wait, and what finds too many at it, is the thread's.
//! The journal is locked from before a group is taken off the queue until it has its place in the file: so records stand in
//! the order in which they were added. Writes and syncs then go on side by side.

use std::pin::Pin;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use futures::FutureExt;
use tokio::sync::oneshot;
use wayleave_engine::{Commit, Error};

use crate::group_commit::{Begun, GroupCommit};
use crate::journal::{Journal, Placed, WRITES_MAX};
use crate::trouble;

/// How long a sync waits for company where there was much: less than it takes itself, about 0.2 ms on a good disk.
const GATHER: Duration = Duration::from_micros(100);

/// Above this batch count, waiting for more pays; with fewer, each batch waits for its own client and longer than it gains.
const COMPANY: usize = 6;

/// More than this is left to the thread: whoever waits for it has other work.
const LEAD_BYTES: usize = 64 << 10;

/// Writes of those who wait that may be in flight at once; the thread's comes on top.
const LEADS_MAX: usize = WRITES_MAX - 1;

/// Who carries out what waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Drive {
    /// A thread, and those who wait.
    Threads,
    /// The caller of [`Syncer::begin`] and [`Syncer::finish`] alone: a simulator.
    #[cfg(any(test, feature = "simulation"))]
    ByHand,
}

/// The group commit of a store. Dropping it writes what is left and ends the thread.
pub(crate) struct Syncer {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    /// Taken before the queue.
    journal: Mutex<Journal>,
    queue: Mutex<Queue>,
    /// Told when the thread has something to do.
    called: Condvar,
    drive: Drive,
}

struct Queue {
    commits: GroupCommit,
    /// Whether the thread is to take what waits.
    called: bool,
    /// Those who sync by themselves.
    leads: usize,
    /// Since when the disk has had something to do and nothing has ended.
    busy_since: Option<Instant>,
    closing: bool,
}

/// A step that has begun and is to be carried out, then handed to [`Syncer::finish`].
#[must_use]
pub(crate) struct Flight {
    shared: Arc<Shared>,
    number: u64,
    waiters: usize,
    /// None if placing it has failed, or if it was a rotation, which is over.
    placed: Option<Placed>,
    /// Where the next write begins, or why it failed; none once somebody was told.
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
            // Whoever carried it out panicked. Nobody would be told, and nothing behind it could be read back.
            self.shared.fail("a thread panicked while it wrote the journal: see the log, then start again".into());
        }
    }
}

fn describe(error: &std::io::Error) -> String {
    trouble::describe_io(error)
}

impl Syncer {
    /// Starts the group commit of a journal that is durable up to its end.
    ///
    /// # Errors
    /// If the machine gives no thread.
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

    /// Refuses if the store has failed.
    ///
    /// # Errors
    /// [`Error::Unavailable`] with the failure that came first.
    pub(crate) fn check(&self) -> Result<(), Error> {
        self.shared.lock().check()
    }

    /// Marks the store as failed; the first cause stays.
    pub(crate) fn fail(&self, why: String) {
        self.shared.fail(why);
    }

    /// Since when the disk has had something to do and nothing has ended.
    pub(crate) fn busy_since(&self) -> Option<Instant> {
        self.shared.lock().busy_since
    }

    /// Adds a record to the journal; the answer comes once it is durable.
    ///
    /// # Errors
    /// [`Error::Unavailable`] if the store has failed.
    pub(crate) fn append(&self, body: &[u8]) -> Result<Commit, Error> {
        let mut queue = self.shared.lock();
        queue.check()?;
        let answer = queue.commits.add(body);
        if queue.commits.waiting_bytes() > LEAD_BYTES {
            self.shared.call(queue);
        }
        Ok(Durable { answer: Some(answer), shared: Arc::clone(&self.shared) }.boxed())
    }

    /// Lets the journal go on in a new file; returns the number of the old one.
    pub(crate) fn rotate(&self) -> u64 {
        self.shared.lock().commits.rotate()
    }

    /// Resolves when all that was added is durable, rotations too.
    ///
    /// # Errors
    /// If the store has failed: then it is not, and the file that was to go on may not be there.
    pub(crate) fn settled(&self) -> Result<oneshot::Receiver<Result<(), Error>>, String> {
        let mut queue = self.shared.lock();
        if let Some(why) = queue.commits.failed() {
            return Err(why.clone());
        }
        let answer = queue.commits.wait_for_all();
        self.shared.call(queue);
        Ok(answer)
    }

    /// Begins the next step, if one can begin now.
    #[cfg(any(test, feature = "simulation"))]
    pub(crate) fn begin(&self) -> Option<Flight> {
        self.shared.begin()
    }

    /// Ends a step: answers all whose records are durable with everything before them.
    #[cfg(any(test, feature = "simulation"))]
    pub(crate) fn finish(&self, flight: Flight) {
        self.shared.finish(flight);
    }

    /// Notes in the journal that everything is durable.
    #[cfg(any(test, feature = "simulation"))]
    pub(crate) fn seal(&self) {
        self.shared.seal();
    }
}

/// Waits for a batch to become durable, and sees to it where nobody else does.
struct Durable {
    answer: Option<oneshot::Receiver<Result<(), Error>>>,
    shared: Arc<Shared>,
}

impl Durable {
    fn look(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        let Some(answer) = &mut self.answer else { return Poll::Pending };
        let told = std::task::ready!(answer.poll_unpin(cx));
        self.answer = None;
        Poll::Ready(told.unwrap_or_else(|_| Err(Error::OutcomeUnknown("the store was closed".into()))))
    }
}

impl Future for Durable {
    type Output = Result<(), Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        if let Poll::Ready(told) = self.look(cx) {
            return Poll::Ready(told);
        }
        self.shared.lead();
        self.look(cx)
    }
}

impl Drop for Durable {
    fn drop(&mut self) {
        if self.answer.is_some() {
            // Nobody waits for it any more, and it is to be durable all the same.
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

    /// Makes what waits durable, unless it is much or many are at it: then that is left to the thread.
    fn lead(self: &Arc<Self>) {
        let mut queue = self.lock();
        if self.drive != Drive::Threads || !queue.commits.waits() {
            // Whoever has begun it answers.
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

    /// The thread's life: wait until it is called, then carry out steps until nothing waits. What is left at the end is
    /// written, and the journal sealed.
    fn run(self: &Arc<Self>) {
        let mut company = 0;
        while self.wait(company >= COMPANY) {
            company = self.step();
        }
        self.seal();
    }

    /// Notes in the journal that everything is durable, if it is.
    fn seal(&self) {
        let mut journal = self.journal.lock().unwrap_or_else(PoisonError::into_inner);
        if self.lock().commits.failed().is_none()
            && let Err(error) = journal.seal()
        {
            tracing::warn!(error = %error, "the journal could not be sealed; everything acknowledged is durable");
        }
    }

    /// Carries out the next step, if one can begin; says how many waited for it.
    fn step(self: &Arc<Self>) -> usize {
        let Some(mut flight) = self.begin() else { return 0 };
        let waiters = flight.waiters;
        flight.write();
        self.finish(flight);
        waiters
    }

    /// Begins the next step: a group gets its place in the journal, a rotation is carried out whole.
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
            // Before the journal is free: what came after would stand where this is missing.
            self.lock().commits.fail(describe(error));
        }
        flight.result = Some(result.map_err(|error| describe(&error)));
        Some(flight)
    }

    fn fail(&self, why: String) {
        let mut queue = self.lock();
        queue.commits.fail(why);
        let told = queue.commits.give_up();
        drop(queue);
        told.tell();
    }

    fn finish(&self, mut flight: Flight) {
        let Some(result) = flight.result.take() else { return };
        let number = flight.number;
        if let Err(why) = &result {
            tracing::error!(error = %why, "the journal cannot be written; the store must be opened again");
        }
        let mut queue = self.lock();
        let told = queue.commits.end(number, result);
        if !told.is_empty() || !queue.commits.in_flight() {
            // Others that end behind one that hangs are no progress: nobody is told of them.
            queue.busy_since = queue.commits.in_flight().then(Instant::now);
        }
        if queue.commits.rotation_can_begin() {
            // It waited for what was in flight, and those who wait for it may have looked already.
            queue.called = true;
        }
        let wake = queue.called && queue.commits.can_begin() || queue.closing;
        drop(queue);
        if wake {
            self.called.notify_one();
        }
        told.tell();
    }

    /// Waits until the thread is called and can begin something; false when the store is closing and nothing is left. In
    /// company, where the last sync served many, it waits a moment for the others: a sync costs more than that.
    fn wait(&self, company: bool) -> bool {
        let mut queue = self.lock();
        queue.called &= queue.commits.waits();
        let idle = |queue: &mut Queue| {
            // What others write is not over while it is in flight: the seal behind it says that it is durable.
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
            // A thread that panicked has dropped its answers: their callers have been told.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
#[path = "syncer_tests.rs"]
mod tests;
