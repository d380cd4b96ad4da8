//! Group commit: all records that wait go to the journal in one write and one sync, then they are answered.
//!
//! Whoever waits for an answer writes and syncs itself if there is little to write: that spares two changes of threads,
//! which take as long as the sync. Whatever is large, and what finds too many at it, is the thread's. All hold the journal
//! from before they take the queue until it is written: so records are written in the order in which they were added. The
//! syncs then overlap. Each begins after its write, so it covers every batch whose answer it gives, and every batch before
//! those.

use std::pin::Pin;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::thread::JoinHandle;
use std::time::Duration;

use futures::FutureExt;
use tokio::sync::oneshot;
use wayleave_engine::{Commit, Error};

use crate::journal::{SYNCS_MAX, Segment};
use crate::record;

/// How long a sync waits for company where there was much: less than it takes itself, about 0.2 ms on a good disk.
const GATHER: Duration = Duration::from_micros(100);

/// So many batches in one sync are much. With fewer, each of them waits for its own client and longer than it gains.
const COMPANY: usize = 6;

/// More than this is left to the thread: whoever waits for it has other work.
const LEAD_BYTES: usize = 64 << 10;

type Answer = oneshot::Sender<Result<(), Error>>;
/// Writes to the journal; what is returned makes it durable.
type Write = Box<dyn FnMut(&[Segment]) -> Result<Sync, String> + Send>;
/// Makes durable what was written, or says why it could not.
pub(crate) type Sync = Box<dyn FnOnce() -> Result<(), String> + Send>;

/// Syncs of those who wait that may be under way at once; the thread's comes on top.
const LEADS_MAX: usize = SYNCS_MAX - 1;

/// The sync thread and its queue. Dropping it syncs what is left and ends the thread.
pub(crate) struct Syncer {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    /// Taken before the queue.
    journal: Mutex<Write>,
    queue: Mutex<Queue>,
    /// Told when the thread is called.
    called: Condvar,
}

#[derive(Default)]
struct Queue {
    waiting: Vec<Answer>,
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
    /// Starts the thread; records go to the file of this number by `write`.
    ///
    /// # Errors
    /// If the machine gives no thread.
    pub(crate) fn start(
        file: u64,
        write: impl FnMut(&[Segment]) -> Result<Sync, String> + Send + 'static,
    ) -> std::io::Result<Self> {
        let segments = vec![Segment { file, bytes: Vec::new() }];
        let queue = Mutex::new(Queue { segments, ..Queue::default() });
        let shared = Arc::new(Shared { journal: Mutex::new(Box::new(write)), queue, called: Condvar::new() });
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

    /// Takes all that waits, writes it, syncs once, answers all; says how many.
    fn sync(&self) -> usize {
        let mut journal = self.journal.lock().unwrap_or_else(PoisonError::into_inner);
        let mut queue = self.lock();
        let batches = std::mem::take(&mut queue.waiting);
        if batches.is_empty() {
            return 0;
        }
        let mut segments = queue.take_segments();
        drop(queue);
        let written = journal(&segments);
        if let Err(why) = &written {
            // Before anybody else writes: what comes after would stand where this is missing.
            self.lock().fail(why.clone());
        }
        drop(journal);
        if let Some(mut bytes) = segments.pop().map(|segment| segment.bytes) {
            bytes.clear();
            self.lock().spare = bytes;
        }
        let result = written.and_then(|sync| sync());
        if let Err(why) = &result {
            tracing::error!(error = %why, "sync failed; the store must be opened again");
            self.lock().fail(why.clone());
        }
        // Whatever failed before this ended is missing below what it has made durable.
        let result = self.lock().failed.clone().map_or(Ok(()), |why| Err(Error::OutcomeUnknown(why)));
        let count = batches.len();
        for batch in batches {
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
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::mpsc;

    use super::*;

    fn append(syncer: &Syncer) -> Commit {
        syncer.append(b"body").unwrap()
    }

    /// What was written is durable at once.
    fn at_once() -> Result<Sync, String> {
        Ok(Box::new(|| Ok(())))
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 3)]
    async fn batches_that_wait_share_one_sync_and_syncs_overlap() {
        let (begun, syncs) = mpsc::channel();
        let (go, gate) = mpsc::channel::<()>();
        let gate = Arc::new(Mutex::new(gate));
        let write = move |segments: &[Segment]| -> Result<Sync, String> {
            let bytes: usize = segments.iter().map(|segment| segment.bytes.len()).sum();
            let (begun, gate) = (begun.clone(), Arc::clone(&gate));
            Ok(Box::new(move || {
                begun.send(bytes).unwrap();
                gate.lock().unwrap().recv().unwrap();
                Ok(())
            }))
        };
        let syncer = Syncer::start(1, write).unwrap();
        let first = tokio::spawn(append(&syncer));
        let one = syncs.recv().unwrap();
        let rest = tokio::spawn(futures::future::join_all((0..100).map(|_| append(&syncer)).collect::<Vec<_>>()));
        assert_eq!(syncs.recv().unwrap(), 100 * one, "in one sync, and while the first is under way");
        assert!(!first.is_finished() && !rest.is_finished(), "nothing is durable before its sync has ended");
        go.send(()).unwrap();
        go.send(()).unwrap();
        first.await.unwrap().unwrap();
        assert!(rest.await.unwrap().iter().all(Result::is_ok));
        assert!(syncs.try_recv().is_err());
    }

    /// Waits until so many write or sync by themselves.
    async fn until_leads(syncer: &Syncer, count: usize) {
        while syncer.shared.lock().leads < count {
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 3)]
    async fn nothing_is_written_after_a_write_that_failed() {
        let writes = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&writes);
        let (go, gate) = mpsc::channel::<()>();
        let write = move |_: &[Segment]| -> Result<Sync, String> {
            counted.fetch_add(1, Ordering::SeqCst);
            // The first waits to be let go; another would not wait.
            let _ = gate.recv();
            Err("no room".into())
        };
        let syncer = Syncer::start(1, write).unwrap();
        let first = tokio::spawn(append(&syncer));
        while writes.load(Ordering::SeqCst) == 0 {
            tokio::task::yield_now().await;
        }
        let second = tokio::spawn(append(&syncer));
        until_leads(&syncer, 2).await;
        drop(go);
        assert_eq!(first.await.unwrap(), Err(Error::OutcomeUnknown("no room".into())));
        assert_eq!(second.await.unwrap(), Err(Error::OutcomeUnknown("no room".into())));
        assert_eq!(syncer.append(b"more").err(), Some(Error::Unavailable("no room".into())));
        assert_eq!(writes.load(Ordering::SeqCst), 1);
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 3)]
    async fn a_sync_that_ends_after_another_failed_answers_nobody_that_it_is_done() {
        let (to_first, first_gate) = mpsc::channel::<Result<(), String>>();
        let (to_second, second_gate) = mpsc::channel();
        let mut gates = vec![second_gate, first_gate];
        let write = move |_: &[Segment]| -> Result<Sync, String> {
            let gate = gates.pop().unwrap();
            Ok(Box::new(move || gate.recv().unwrap()))
        };
        let syncer = Syncer::start(1, write).unwrap();
        let first = tokio::spawn(append(&syncer));
        until_leads(&syncer, 1).await;
        let second = tokio::spawn(append(&syncer));
        until_leads(&syncer, 2).await;
        to_first.send(Err("the disk is gone".into())).unwrap();
        let failed = Err(Error::OutcomeUnknown("the disk is gone".into()));
        assert_eq!(first.await.unwrap(), failed);
        to_second.send(Ok(())).unwrap();
        assert_eq!(second.await.unwrap(), failed, "its record stands behind one that may be missing");
    }

    #[tokio::test]
    async fn a_batch_is_synced_though_nobody_waits_for_it() {
        let (synced, seen) = mpsc::channel();
        let sync = move |_: &[Segment]| {
            synced.send(std::thread::current().name().map(str::to_owned)).unwrap();
            at_once()
        };
        let syncer = Syncer::start(1, sync).unwrap();
        append(&syncer).await.unwrap();
        assert_ne!(seen.recv().unwrap().as_deref(), Some("wayleave-sync"), "whoever waits syncs what is small");
        syncer.append(&vec![0; LEAD_BYTES]).unwrap().await.unwrap();
        assert_eq!(seen.recv().unwrap().as_deref(), Some("wayleave-sync"), "what is large is left to the thread");
        drop(append(&syncer));
        assert_eq!(seen.recv().unwrap().as_deref(), Some("wayleave-sync"));
    }

    #[tokio::test]
    async fn a_record_after_a_rotation_goes_to_the_next_file() {
        let (written, files) = mpsc::channel();
        let sync = move |segments: &[Segment]| {
            segments.iter().for_each(|segment| written.send((segment.file, segment.bytes.len())).unwrap());
            at_once()
        };
        let syncer = Syncer::start(4, sync).unwrap();
        assert_eq!(syncer.rotate(), 4);
        append(&syncer).await.unwrap();
        let mark = record::FRAME_BYTES + record::encode_goes_on().len();
        assert_eq!(files.try_iter().collect::<Vec<_>>(), [(4, mark), (5, record::FRAME_BYTES + 4)]);
    }

    #[tokio::test]
    async fn a_failed_sync_leaves_outcomes_unknown_and_the_store_closed() {
        let syncer = Syncer::start(1, |_| Ok(Box::new(|| Err("the disk is gone".into())))).unwrap();
        assert_eq!(syncer.check(), Ok(()));
        assert_eq!(append(&syncer).await, Err(Error::OutcomeUnknown("the disk is gone".into())));
        assert_eq!(syncer.check(), Err(Error::Unavailable("the disk is gone".into())));
        assert_eq!(syncer.append(b"more").err(), Some(Error::Unavailable("the disk is gone".into())));
    }

    #[tokio::test]
    async fn the_first_failure_is_the_one_that_is_told() {
        let syncer = Syncer::start(1, |_| at_once()).unwrap();
        syncer.fail("first".into());
        syncer.fail("second".into());
        assert_eq!(syncer.check(), Err(Error::Unavailable("first".into())));
    }

    #[tokio::test]
    async fn closing_syncs_what_is_left() {
        let syncer = Syncer::start(1, |_| at_once()).unwrap();
        let answers: Vec<_> = (0..10).map(|_| append(&syncer)).collect();
        drop(syncer);
        for answer in answers {
            assert_eq!(answer.await, Ok(()));
        }
    }
}
