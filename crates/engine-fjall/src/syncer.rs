//! Group commit: all records that wait go to the journal in one write and one sync, then they are answered.
//!
//! Whoever waits for an answer writes and syncs itself if there is little to write: that spares two changes of threads,
//! which take as long as the sync. Whatever is large, and what finds too many at it, is the thread's. All hold the journal
//! from before they take the queue until what they took has its place there: so records stand in the order in which they
//! were added. They are then written and synced side by side, and answered in their order: each when all before it are
//! durable as well, for whoever reads the journal stops at the first that is missing.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::thread::JoinHandle;
use std::time::Duration;

use futures::FutureExt;
use tokio::sync::oneshot;
use wayleave_engine::{Commit, Error};

use crate::journal::{Segment, WRITES_MAX};
use crate::record;

/// How long a sync waits for company where there was much: less than it takes itself, about 0.2 ms on a good disk.
const GATHER: Duration = Duration::from_micros(100);

/// So many batches in one sync are much. With fewer, each of them waits for its own client and longer than it gains.
const COMPANY: usize = 6;

/// More than this is left to the thread: whoever waits for it has other work.
const LEAD_BYTES: usize = 64 << 10;

type Answer = oneshot::Sender<Result<(), Error>>;
/// Gives records their place in the journal; what is returned writes them there.
type Place = Box<dyn FnMut(&[Segment]) -> Result<Writing, String> + Send>;
/// Writes what has its place and makes it durable, or says why it could not.
pub(crate) type Writing = Box<dyn FnOnce() -> Result<(), String> + Send>;

/// Writes of those who wait that may be under way at once; the thread's comes on top.
const LEADS_MAX: usize = WRITES_MAX - 1;

/// The sync thread and its queue. Dropping it syncs what is left and ends the thread.
pub(crate) struct Syncer {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    /// Taken before the queue.
    journal: Mutex<Place>,
    queue: Mutex<Queue>,
    /// Told when the thread is called.
    called: Condvar,
    /// Told when nothing is under way.
    settled: Condvar,
}

/// Batches that are being written.
struct UnderWay {
    number: u64,
    /// Whether that has ended.
    ended: bool,
    batches: Vec<Answer>,
}

#[derive(Default)]
struct Queue {
    waiting: Vec<Answer>,
    /// What was taken and is not yet answered, in its order.
    under_way: VecDeque<UnderWay>,
    /// The number of what was taken last.
    taken: u64,
    /// What is to be written; the last one is the file that records go to now.
    segments: Vec<Segment>,
    /// A buffer that was written, to be used again.
    spare: Vec<u8>,
    /// Whether the thread is to take what waits.
    called: bool,
    /// Those who sync by themselves.
    leads: usize,
    closing: bool,
    /// Why nothing can be made durable any more. After a failed sync nobody knows what reached the disk, so neither
    /// a second sync nor another batch may pretend otherwise: the store must be opened again.
    failed: Option<String>,
}

impl Syncer {
    /// Starts the thread; records go to the file of this number, each to where `place` says.
    ///
    /// # Errors
    /// If the machine gives no thread.
    pub(crate) fn start(
        file: u64,
        place: impl FnMut(&[Segment]) -> Result<Writing, String> + Send + 'static,
    ) -> std::io::Result<Self> {
        let segments = vec![Segment { file, bytes: Vec::new() }];
        let queue = Mutex::new(Queue { segments, ..Queue::default() });
        let journal = Mutex::new(Box::new(place) as Place);
        let shared = Arc::new(Shared { journal, queue, called: Condvar::new(), settled: Condvar::new() });
        let theirs = Arc::clone(&shared);
        let thread = std::thread::Builder::new().name("wayleave-sync".into()).spawn(move || theirs.run())?;
        Ok(Self { shared, thread: Some(thread) })
    }

    /// Refuses if the store has failed.
    ///
    /// # Errors
    /// [`Error::Unavailable`] with the failure that came first.
    pub(crate) fn check(&self) -> Result<(), Error> {
        match &self.shared.lock().failed {
            Some(why) => Err(Error::Unavailable(why.clone())),
            None => Ok(()),
        }
    }

    /// Marks the store as failed; the first cause stays.
    pub(crate) fn fail(&self, why: String) {
        self.shared.lock().fail(why);
    }

    /// Adds a record to the journal; the answer comes once it is durable.
    ///
    /// # Errors
    /// [`Error::Unavailable`] if the store has failed.
    pub(crate) fn append(&self, body: &[u8]) -> Result<Commit, Error> {
        let mut queue = self.shared.lock();
        if let Some(why) = &queue.failed {
            return Err(Error::Unavailable(why.clone()));
        }
        queue.add(body);
        let answer = queue.enter();
        if queue.bytes() > LEAD_BYTES {
            self.shared.call(queue);
        }
        Ok(Durable { answer: Some(answer), shared: Arc::clone(&self.shared) }.boxed())
    }

    /// Lets the journal go on in a new file; returns the number of the old one.
    pub(crate) fn rotate(&self) -> u64 {
        let mut queue = self.shared.lock();
        queue.add(&record::encode_goes_on());
        let done = queue.segments.last().map_or(0, |segment| segment.file);
        queue.segments.push(Segment { file: done + 1, bytes: Vec::new() });
        done
    }

    /// Waits until all that was added is durable.
    ///
    /// # Errors
    /// If the store has failed: then it is not, and the file that was to go on may not be there.
    pub(crate) fn settle(&self) -> Result<(), String> {
        let mut queue = self.shared.lock();
        if let Some(why) = &queue.failed {
            return Err(why.clone());
        }
        let answer = queue.enter();
        self.shared.call(queue);
        let told = answer.blocking_recv().unwrap_or_else(|_| Err(Error::OutcomeUnknown("the store was closed".into())));
        told.map_err(|error| error.to_string())
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
        if !std::mem::replace(&mut queue.called, true) {
            drop(queue);
            self.called.notify_one();
        }
    }

    /// Makes what waits durable, unless it is much or many are at it: then that is left to the thread.
    fn lead(&self) {
        let mut queue = self.lock();
        if queue.waiting.is_empty() {
            // Whoever has taken it answers.
            return;
        }
        if queue.called || queue.leads >= LEADS_MAX || queue.bytes() > LEAD_BYTES {
            return self.call(queue);
        }
        queue.leads += 1;
        drop(queue);
        self.sync();
        self.lock().leads -= 1;
    }

    /// The thread's life: wait until it is called, then sync until nothing waits.
    fn run(&self) {
        let mut company = 0;
        while self.wait(company >= COMPANY) {
            company = self.sync();
        }
    }

    /// Takes all that waits, writes it, syncs once, answers all of which everything before is durable; says how many it took.
    fn sync(&self) -> usize {
        let mut journal = self.journal.lock().unwrap_or_else(PoisonError::into_inner);
        let mut queue = self.lock();
        if queue.waiting.is_empty() {
            return 0;
        }
        let mut segments = queue.take_segments();
        if segments.len() > 1 {
            // The mark that the next file goes on says that this one is whole.
            let busy = |queue: &mut Queue| !queue.under_way.is_empty();
            queue = self.settled.wait_while(queue, busy).unwrap_or_else(PoisonError::into_inner);
        }
        let (number, count) = queue.take_waiting();
        drop(queue);
        let placed = journal(&segments);
        if let Err(why) = &placed {
            // Before anybody else has a place: what comes after would stand where this is missing.
            self.lock().fail(why.clone());
        }
        drop(journal);
        if let Some(mut bytes) = segments.pop().map(|segment| segment.bytes) {
            bytes.clear();
            self.lock().spare = bytes;
        }
        let result = placed.and_then(|write| write());
        let mut queue = self.lock();
        if let Err(why) = result {
            tracing::error!(error = %why, "sync failed; the store must be opened again");
            queue.fail(why);
        }
        let done = queue.end(number);
        if queue.under_way.is_empty() {
            self.settled.notify_all();
        }
        // Whatever failed before these ended is missing below them.
        let result = queue.failed.clone().map_or(Ok(()), |why| Err(Error::OutcomeUnknown(why)));
        drop(queue);
        for batch in done {
            // Nobody may be listening any more; that is theirs to decide.
            let _ = batch.send(result.clone());
        }
        count
    }

    /// Waits until something waits and the thread is called; false when the store is closing and nothing waits. In company,
    /// where the last sync served many, it waits a moment for the others: a sync costs more than that.
    fn wait(&self, company: bool) -> bool {
        let mut queue = self.lock();
        queue.called &= !queue.waiting.is_empty();
        let idle = |queue: &mut Queue| !queue.called && !queue.closing;
        let queue = self.called.wait_while(queue, idle).unwrap_or_else(PoisonError::into_inner);
        let (waits, closing) = (!queue.waiting.is_empty(), queue.closing);
        drop(queue);
        if company && waits && !closing {
            std::thread::sleep(GATHER);
        }
        waits || !closing
    }
}

impl Queue {
    fn add(&mut self, body: &[u8]) {
        if let Some(segment) = self.segments.last_mut() {
            segment.bytes.extend_from_slice(&record::frame(segment.file, body));
            segment.bytes.extend_from_slice(body);
        }
    }

    fn enter(&mut self) -> oneshot::Receiver<Result<(), Error>> {
        let (answer, durable) = oneshot::channel();
        self.waiting.push(answer);
        durable
    }

    fn bytes(&self) -> usize {
        self.segments.iter().map(|segment| segment.bytes.len()).sum()
    }

    fn take_segments(&mut self) -> Vec<Segment> {
        let next = Segment {
            file: self.segments.last().map_or(0, |segment| segment.file),
            bytes: std::mem::take(&mut self.spare),
        };
        std::mem::replace(&mut self.segments, vec![next])
    }

    /// Takes what waits; says its number and how many batches it is.
    fn take_waiting(&mut self) -> (u64, usize) {
        self.taken += 1;
        let batches = std::mem::take(&mut self.waiting);
        let (number, count) = (self.taken, batches.len());
        self.under_way.push_back(UnderWay { number, ended: false, batches });
        (number, count)
    }

    /// The writing of this number has ended; returns the batches that can be answered now.
    fn end(&mut self, number: u64) -> Vec<Answer> {
        if let Some(mine) = self.under_way.iter_mut().find(|other| other.number == number) {
            mine.ended = true;
        }
        let mut done = Vec::new();
        while self.under_way.front().is_some_and(|first| first.ended) {
            done.extend(self.under_way.pop_front().into_iter().flat_map(|first| first.batches));
        }
        done
    }

    fn fail(&mut self, why: String) {
        let why = self.failed.get_or_insert(why).clone();
        for batch in self.waiting.drain(..) {
            let _ = batch.send(Err(Error::OutcomeUnknown(why.clone())));
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
