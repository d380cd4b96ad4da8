//! Group commit: one thread writes all records that wait to the journal, makes them durable in one sync, and answers.
//!
//! The thread takes the whole queue before it syncs: so a sync covers every batch whose answer it gives, and every batch
//! before those.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use futures::FutureExt;
use tokio::sync::oneshot;
use wayleave_engine::{Commit, Error};

use crate::journal::Segment;
use crate::record;

/// How long a sync waits for company where there was much: less than it takes itself, about 0.2 ms on a good disk.
const GATHER: Duration = Duration::from_micros(100);

/// So many batches in one sync are much. With fewer, each of them waits for its own client and longer than it gains.
const COMPANY: usize = 6;

type Answer = oneshot::Sender<Result<(), Error>>;

/// The sync thread and its queue. Dropping it syncs what is left and ends the thread.
pub(crate) struct Syncer {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    queue: Mutex<Queue>,
    changed: Condvar,
}

#[derive(Default)]
struct Queue {
    waiting: Vec<Answer>,
    /// What is to be written; the last one is the file that records go to now.
    segments: Vec<Segment>,
    /// A buffer that was written, to be used again.
    spare: Vec<u8>,
    closing: bool,
    /// Why nothing can be made durable any more. After a failed sync nobody knows what reached the disk, so neither
    /// a second sync nor another batch may pretend otherwise: the store must be opened again.
    failed: Option<String>,
}

impl Syncer {
    /// Starts the thread; records go to the file of this number, and `sync` makes them durable, or says why it could not.
    ///
    /// # Errors
    /// If the machine gives no thread.
    pub(crate) fn start(
        file: u64,
        mut sync: impl FnMut(&[Segment]) -> Result<(), String> + Send + 'static,
    ) -> std::io::Result<Self> {
        let shared = Arc::new(Shared::default());
        shared.lock().segments.push(Segment { file, bytes: Vec::new() });
        let theirs = Arc::clone(&shared);
        let thread = std::thread::Builder::new().name("wayleave-sync".into()).spawn(move || theirs.run(&mut sync))?;
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
        let durable = self.enter(queue);
        Ok(durable
            .map(|durable| durable.unwrap_or_else(|_| Err(Error::OutcomeUnknown("the store was closed".into()))))
            .boxed())
    }

    /// Lets the journal go on in a new file; returns the number of the old one.
    pub(crate) fn rotate(&self) -> u64 {
        let mut queue = self.shared.lock();
        queue.add(&record::encode_goes_on());
        let done = queue.segments.last().map_or(0, |segment| segment.file);
        queue.segments.push(Segment { file: done + 1, bytes: Vec::new() });
        done
    }

    /// Waits until all that was added is durable, or the store has failed.
    pub(crate) fn settle(&self) {
        let queue = self.shared.lock();
        if queue.failed.is_none() {
            let durable = self.enter(queue);
            _ = durable.blocking_recv();
        }
    }

    fn enter(&self, mut queue: MutexGuard<'_, Queue>) -> oneshot::Receiver<Result<(), Error>> {
        let (answer, durable) = oneshot::channel();
        let first = queue.waiting.is_empty();
        queue.waiting.push(answer);
        drop(queue);
        if first {
            self.shared.changed.notify_one();
        }
        durable
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The thread's life: wait, take all, sync once, answer all.
    fn run(&self, sync: &mut impl FnMut(&[Segment]) -> Result<(), String>) {
        let mut company = 0;
        while let Some((batches, mut segments)) = self.take(company >= COMPANY) {
            company = batches.len();
            let result = sync(&segments);
            if let Some(mut bytes) = segments.pop().map(|segment| segment.bytes) {
                bytes.clear();
                self.lock().spare = bytes;
            }
            if let Err(why) = &result {
                tracing::error!(error = %why, "sync failed; the store must be opened again");
                self.lock().fail(why.clone());
            }
            let result = result.map_err(Error::OutcomeUnknown);
            for batch in batches {
                // Nobody may be listening any more; that is theirs to decide.
                let _ = batch.send(result.clone());
            }
        }
    }

    /// All that waits, as soon as something does; none when the store is closing and nothing waits. In company, where
    /// the last sync served several, it waits a moment for the others: a sync costs more than that.
    fn take(&self, company: bool) -> Option<(Vec<Answer>, Vec<Segment>)> {
        let idle = |queue: &mut Queue| queue.waiting.is_empty() && !queue.closing;
        let mut queue = self.changed.wait_while(self.lock(), idle).unwrap_or_else(PoisonError::into_inner);
        if company && !queue.closing {
            drop(queue);
            std::thread::sleep(GATHER);
            queue = self.lock();
        }
        let batches = std::mem::take(&mut queue.waiting);
        (!batches.is_empty()).then(|| (batches, queue.take_segments()))
    }
}

impl Queue {
    fn add(&mut self, body: &[u8]) {
        if let Some(segment) = self.segments.last_mut() {
            segment.bytes.extend_from_slice(&record::frame(segment.file, body));
            segment.bytes.extend_from_slice(body);
        }
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
        self.shared.changed.notify_one();
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

    #[tokio::test]
    async fn batches_that_wait_share_one_sync() {
        let syncs = Arc::new(AtomicUsize::new(0));
        let (begun, first_sync) = mpsc::channel();
        let (go, gate) = mpsc::channel::<()>();
        let counted = Arc::clone(&syncs);
        let sync = move |segments: &[Segment]| {
            counted.fetch_add(1, Ordering::SeqCst);
            begun.send(segments.iter().map(|segment| segment.bytes.len()).sum::<usize>()).unwrap();
            gate.recv().unwrap();
            Ok(())
        };
        let syncer = Syncer::start(1, sync).unwrap();
        let first = append(&syncer);
        let one = first_sync.recv().unwrap();
        let mut rest: Vec<_> = (0..100).map(|_| append(&syncer)).collect();
        assert!(rest[99].as_mut().now_or_never().is_none(), "not durable before a sync that began after it");
        go.send(()).unwrap();
        first.await.unwrap();
        go.send(()).unwrap();
        for answer in rest {
            answer.await.unwrap();
        }
        assert_eq!((syncs.load(Ordering::SeqCst), first_sync.recv().unwrap()), (2, 100 * one));
    }

    #[tokio::test]
    async fn a_record_after_a_rotation_goes_to_the_next_file() {
        let (written, files) = mpsc::channel();
        let sync = move |segments: &[Segment]| {
            segments.iter().for_each(|segment| written.send((segment.file, segment.bytes.len())).unwrap());
            Ok(())
        };
        let syncer = Syncer::start(4, sync).unwrap();
        assert_eq!(syncer.rotate(), 4);
        append(&syncer).await.unwrap();
        let mark = record::FRAME_BYTES + record::encode_goes_on().len();
        assert_eq!(files.try_iter().collect::<Vec<_>>(), [(4, mark), (5, record::FRAME_BYTES + 4)]);
    }

    #[tokio::test]
    async fn a_failed_sync_leaves_outcomes_unknown_and_the_store_closed() {
        let syncer = Syncer::start(1, |_| Err("the disk is gone".into())).unwrap();
        assert_eq!(syncer.check(), Ok(()));
        assert_eq!(append(&syncer).await, Err(Error::OutcomeUnknown("the disk is gone".into())));
        assert_eq!(syncer.check(), Err(Error::Unavailable("the disk is gone".into())));
        assert_eq!(syncer.append(b"more").err(), Some(Error::Unavailable("the disk is gone".into())));
    }

    #[tokio::test]
    async fn the_first_failure_is_the_one_that_is_told() {
        let syncer = Syncer::start(1, |_| Ok(())).unwrap();
        syncer.fail("first".into());
        syncer.fail("second".into());
        assert_eq!(syncer.check(), Err(Error::Unavailable("first".into())));
    }

    #[tokio::test]
    async fn closing_syncs_what_is_left() {
        let syncer = Syncer::start(1, |_| Ok(())).unwrap();
        let answers: Vec<_> = (0..10).map(|_| append(&syncer)).collect();
        drop(syncer);
        for answer in answers {
            assert_eq!(answer.await, Ok(()));
        }
    }
}
