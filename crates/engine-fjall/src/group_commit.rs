//! The group commit state machine, without threads or files: what is queued, what is in flight, and who is notified
//! when.
//!
//! Records and their waiters are one value, a [`Group`], from enqueue to notification, so they cannot be separated. A
//! rotation is a step between two groups. It begins only when nothing is in flight, and nothing begins until it has
//! ended. Groups may be written concurrently and complete in any order, but are acknowledged in order, each when all
//! before it are durable: recovery stops at the first missing record.

use std::collections::VecDeque;

use tokio::sync::oneshot;
use wayleave_engine::Error;

use crate::record;

/// Notified once its record is durable.
pub(crate) type Waiter = oneshot::Sender<Result<(), Error>>;

/// Records that are written together, with their waiters.
#[derive(Debug, Default)]
struct Group {
    records: Vec<u8>,
    waiters: Vec<Waiter>,
}

/// A queued step.
#[derive(Debug)]
enum Step {
    Write(Group),
    /// Continue the journal in the next file.
    Rotate(Vec<Waiter>),
}

/// A step that has begun.
#[derive(Debug)]
pub(crate) enum Begun {
    /// These records must be written; [`GroupCommit::end`] acknowledges the group under this number.
    Write {
        /// The step's number.
        number: u64,
        /// The records of the group.
        records: Vec<u8>,
        /// The number of waiters.
        waiters: usize,
        /// The offset below which the newest file is durable.
        durable: u64,
    },
    /// The journal must be rotated; also completed by [`GroupCommit::end`].
    Rotate {
        /// The step's number.
        number: u64,
    },
}

impl Begun {
    /// The step's number and its number of waiters.
    pub(crate) fn numbers(&self) -> (u64, usize) {
        match self {
            Self::Write { number, waiters, .. } => (*number, *waiters),
            Self::Rotate { number } => (*number, 0),
        }
    }
}

/// A step in flight, not yet acknowledged.
#[derive(Debug)]
struct InFlight {
    number: u64,
    /// Set when it has ended: the offset of the next write in the file.
    ended: Option<u64>,
    waiters: Vec<Waiter>,
}

/// The group commit queue.
#[derive(Debug)]
pub(crate) struct GroupCommit {
    steps: VecDeque<Step>,
    in_flight: VecDeque<InFlight>,
    rotating: bool,
    /// The number of the last step that began.
    begun: u64,
    /// The file that new records go to: the newest one after all queued steps.
    file: u64,
    /// The offset below which the newest file is durable.
    durable: u64,
    /// A buffer for reuse.
    spare: Vec<u8>,
    /// Why nothing can become durable any more. After a failed write or sync the content of the disk is unknown; a
    /// second sync that succeeds proves nothing. The store must be reopened.
    failed: Option<String>,
}

impl GroupCommit {
    /// A queue for a journal whose newest file is durable up to `durable`.
    pub(crate) fn new(file: u64, durable: u64) -> Self {
        let (steps, in_flight) = (VecDeque::new(), VecDeque::new());
        Self { steps, in_flight, rotating: false, begun: 0, file, durable, spare: Vec::new(), failed: None }
    }

    /// Why nothing can be made durable any more.
    pub(crate) fn failed(&self) -> Option<&String> {
        self.failed.as_ref()
    }

    /// Enqueues a record and returns the receiver of its acknowledgement.
    pub(crate) fn add(&mut self, body: &[u8]) -> oneshot::Receiver<Result<(), Error>> {
        if !matches!(self.steps.back(), Some(Step::Write(_))) {
            let records = std::mem::take(&mut self.spare);
            self.steps.push_back(Step::Write(Group { records, waiters: Vec::new() }));
        }
        let (waiter, durable) = oneshot::channel();
        if let Some(Step::Write(group)) = self.steps.back_mut() {
            group.records.extend_from_slice(&record::frame(self.file, body));
            group.records.extend_from_slice(body);
            group.waiters.push(waiter);
        }
        durable
    }

    /// Enqueues a rotation and returns the number of the current file.
    pub(crate) fn rotate(&mut self) -> u64 {
        self.steps.push_back(Step::Rotate(Vec::new()));
        let done = self.file;
        self.file += 1;
        done
    }

    /// Waits for everything enqueued so far, including rotations.
    pub(crate) fn wait_for_all(&mut self) -> oneshot::Receiver<Result<(), Error>> {
        let (waiter, durable) = oneshot::channel();
        let last = match self.steps.back_mut() {
            Some(Step::Write(group)) => Some(&mut group.waiters),
            Some(Step::Rotate(waiters)) => Some(waiters),
            None => self.in_flight.back_mut().map(|last| &mut last.waiters),
        };
        match last {
            Some(waiters) => waiters.push(waiter),
            // Nothing is pending.
            None => _ = waiter.send(self.outcome()),
        }
        durable
    }

    /// The number of queued bytes.
    pub(crate) fn waiting_bytes(&self) -> usize {
        let bytes = |step: &Step| if let Step::Write(group) = step { group.records.len() } else { 0 };
        self.steps.iter().map(bytes).sum()
    }

    /// Whether a step is queued.
    pub(crate) fn waits(&self) -> bool {
        !self.steps.is_empty()
    }

    /// Whether the next step can begin: a rotation waits for everything in flight, everything else waits for a
    /// rotation.
    pub(crate) fn can_begin(&self) -> bool {
        match self.steps.front() {
            None => false,
            _ if self.rotating || self.failed.is_some() => false,
            Some(Step::Write(_)) => true,
            Some(Step::Rotate(_)) => self.in_flight.is_empty(),
        }
    }

    /// Whether a rotation is next and can begin now.
    pub(crate) fn rotation_can_begin(&self) -> bool {
        matches!(self.steps.front(), Some(Step::Rotate(_))) && self.can_begin()
    }

    /// Whether a step is in flight.
    pub(crate) fn in_flight(&self) -> bool {
        !self.in_flight.is_empty()
    }

    /// Begins the next step, if it can begin.
    pub(crate) fn begin(&mut self) -> Option<Begun> {
        if !self.can_begin() {
            return None;
        }
        let step = self.steps.pop_front()?;
        self.begun += 1;
        let number = self.begun;
        let (begun, waiters) = match step {
            Step::Write(group) => {
                let waiters = group.waiters.len();
                let begun = Begun::Write { number, records: group.records, waiters, durable: self.durable };
                (begun, group.waiters)
            }
            Step::Rotate(waiters) => {
                self.rotating = true;
                (Begun::Rotate { number }, waiters)
            }
        };
        self.in_flight.push_back(InFlight { number, ended: None, waiters });
        Some(begun)
    }

    /// Ends a step whose write ends at offset `end` of the newest file (for a rotation: the start of the new file).
    /// Returns the waiters to notify, and the result.
    pub(crate) fn end(&mut self, number: u64, result: Result<u64, String>) -> Notification {
        match result {
            Ok(end) => {
                if let Some(mine) = self.in_flight.iter_mut().find(|other| other.number == number) {
                    mine.ended = Some(end);
                }
            }
            Err(why) => self.fail(why),
        }
        if self.failed.is_some() {
            // The failed write leaves a gap before everything unacknowledged: recovery could not read what is in flight
            // behind it.
            return Notification { waiters: self.take_all(), result: self.outcome() };
        }
        let mut waiters = Vec::new();
        while let Some(end) = self.in_flight.front().and_then(|first| first.ended) {
            self.durable = end;
            waiters.extend(self.in_flight.pop_front().into_iter().flat_map(|first| first.waiters));
        }
        // Nothing begins during a rotation, so the step that ended is the rotation.
        self.rotating = false;
        Notification { waiters, result: Ok(()) }
    }

    /// Marks the store as failed; the first cause is kept.
    pub(crate) fn fail(&mut self, why: String) {
        self.failed.get_or_insert(why);
    }

    /// All waiters, if the store has failed.
    pub(crate) fn give_up(&mut self) -> Notification {
        let waiters = if self.failed.is_some() { self.take_all() } else { Vec::new() };
        Notification { waiters, result: self.outcome() }
    }

    /// Returns a written buffer for reuse.
    pub(crate) fn put_back(&mut self, mut buffer: Vec<u8>) {
        buffer.clear();
        self.spare = buffer;
    }

    fn take_all(&mut self) -> Vec<Waiter> {
        let waiting = self.steps.drain(..).flat_map(|step| match step {
            Step::Write(group) => group.waiters,
            Step::Rotate(waiters) => waiters,
        });
        let in_flight = self.in_flight.drain(..).flat_map(|flight| flight.waiters);
        in_flight.chain(waiting).collect()
    }

    fn outcome(&self) -> Result<(), Error> {
        self.failed.clone().map_or(Ok(()), |why| Err(Error::OutcomeUnknown(why)))
    }
}

/// Waiters to notify and their result; notified outside all locks.
#[must_use]
pub(crate) struct Notification {
    waiters: Vec<Waiter>,
    result: Result<(), Error>,
}

impl Notification {
    /// Whether there are none.
    pub(crate) fn is_empty(&self) -> bool {
        self.waiters.is_empty()
    }

    /// Notifies them. Receivers that are gone are ignored.
    pub(crate) fn send(self) {
        for waiter in self.waiters {
            _ = waiter.send(self.result.clone());
        }
    }
}

#[cfg(test)]
#[path = "group_commit_tests.rs"]
mod tests;
