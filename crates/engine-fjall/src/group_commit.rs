//! The order of a group commit, free of threads and files: what waits to be written, what is in flight, and who is told when.
//!
//! Records and those who wait for them are one value, a [`Group`], from the moment they are added until they are told: they
//! cannot be taken apart. A rotation is a step of its own between two groups. It begins only when nothing is in flight, and
//! nothing begins before it has ended. Groups may be written side by side and end in any order; they are told in their
//! order, each when all before it are durable, for whoever reads the journal stops at the first record that is missing.

use std::collections::VecDeque;

use tokio::sync::oneshot;
use wayleave_engine::Error;

use crate::record;

/// Told once what it waits for is durable.
pub(crate) type Waiter = oneshot::Sender<Result<(), Error>>;

/// Records that are written together, and those who wait for them.
#[derive(Debug, Default)]
struct Group {
    records: Vec<u8>,
    waiters: Vec<Waiter>,
}

/// What is to be done next, in its order.
#[derive(Debug)]
enum Step {
    Write(Group),
    /// The journal goes on in the next file.
    Rotate(Vec<Waiter>),
}

/// What was begun.
#[derive(Debug)]
pub(crate) enum Begun {
    /// These records are to be written; the group is told by [`GroupCommit::end`], under this number.
    Write {
        /// The number.
        number: u64,
        /// The records of the group.
        records: Vec<u8>,
        /// How many wait for them.
        waiters: usize,
        /// The offset below which the newest file is durable.
        durable: u64,
    },
    /// The journal is to go on in the next file; ended by [`GroupCommit::end`] as well.
    Rotate {
        /// The number.
        number: u64,
    },
}

impl Begun {
    /// Its number, and how many wait for it.
    pub(crate) fn numbers(&self) -> (u64, usize) {
        match self {
            Self::Write { number, waiters, .. } => (*number, *waiters),
            Self::Rotate { number } => (*number, 0),
        }
    }
}

/// A step that has begun and of which nobody was told yet.
#[derive(Debug)]
struct InFlight {
    number: u64,
    /// Once it has ended: where the next write in the file begins.
    ended: Option<u64>,
    waiters: Vec<Waiter>,
}

/// The queue of a group commit.
#[derive(Debug)]
pub(crate) struct GroupCommit {
    steps: VecDeque<Step>,
    in_flight: VecDeque<InFlight>,
    rotating: bool,
    /// The number of the step that began last.
    begun: u64,
    /// The file that records are added for: the newest one after all steps.
    file: u64,
    /// The offset below which the newest file is durable.
    durable: u64,
    /// A buffer that was written, to be used again.
    spare: Vec<u8>,
    /// Why nothing can be made durable any more. After a failed write or sync nobody knows what reached the disk, so neither
    /// a second sync nor another group may pretend otherwise: the store must be opened again.
    failed: Option<String>,
}

impl GroupCommit {
    /// A queue for a journal whose newest file is durable up to an offset.
    pub(crate) fn new(file: u64, durable: u64) -> Self {
        let (steps, in_flight) = (VecDeque::new(), VecDeque::new());
        Self { steps, in_flight, rotating: false, begun: 0, file, durable, spare: Vec::new(), failed: None }
    }

    /// Why nothing can be made durable any more.
    pub(crate) fn failed(&self) -> Option<&String> {
        self.failed.as_ref()
    }

    /// Adds a record; whoever adds it waits by what is returned.
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

    /// Lets the journal go on in the next file, behind all that was added; returns the number of the old one.
    pub(crate) fn rotate(&mut self) -> u64 {
        self.steps.push_back(Step::Rotate(Vec::new()));
        let done = self.file;
        self.file += 1;
        done
    }

    /// Waits for everything that was added, rotations too.
    pub(crate) fn wait_for_all(&mut self) -> oneshot::Receiver<Result<(), Error>> {
        let (waiter, durable) = oneshot::channel();
        let last = match self.steps.back_mut() {
            Some(Step::Write(group)) => Some(&mut group.waiters),
            Some(Step::Rotate(waiters)) => Some(waiters),
            None => self.in_flight.back_mut().map(|last| &mut last.waiters),
        };
        match last {
            Some(waiters) => waiters.push(waiter),
            // Nothing is left to wait for.
            None => _ = waiter.send(self.outcome()),
        }
        durable
    }

    /// The bytes that wait to be written.
    pub(crate) fn waiting_bytes(&self) -> usize {
        let bytes = |step: &Step| if let Step::Write(group) = step { group.records.len() } else { 0 };
        self.steps.iter().map(bytes).sum()
    }

    /// Whether something waits to be begun.
    pub(crate) fn waits(&self) -> bool {
        !self.steps.is_empty()
    }

    /// Whether something can begin now: a rotation waits for all that is in flight, and everything else for a rotation.
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

    /// Whether something has begun and not ended.
    pub(crate) fn in_flight(&self) -> bool {
        !self.in_flight.is_empty()
    }

    /// Begins the next step, if one can begin.
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

    /// A step has ended, its write at `end` of the newest file (for a rotation: at its beginning). Returns those who can be
    /// told now, and what.
    pub(crate) fn end(&mut self, number: u64, result: Result<u64, String>) -> Told {
        match result {
            Ok(end) => {
                if let Some(mine) = self.in_flight.iter_mut().find(|other| other.number == number) {
                    mine.ended = Some(end);
                }
            }
            Err(why) => self.fail(why),
        }
        if self.failed.is_some() {
            // What is missing stands before all that has not been told: the rest of what is in flight cannot be read back.
            return Told { waiters: self.take_all(), result: self.outcome() };
        }
        let mut waiters = Vec::new();
        while let Some(end) = self.in_flight.front().and_then(|first| first.ended) {
            self.durable = end;
            waiters.extend(self.in_flight.pop_front().into_iter().flat_map(|first| first.waiters));
        }
        // Nothing begins before a rotation has ended, so what ended was it.
        self.rotating = false;
        Told { waiters, result: Ok(()) }
    }

    /// Marks the store as failed; the first cause stays.
    pub(crate) fn fail(&mut self, why: String) {
        self.failed.get_or_insert(why);
    }

    /// Everybody who waits, if the store has failed.
    pub(crate) fn give_up(&mut self) -> Told {
        let waiters = if self.failed.is_some() { self.take_all() } else { Vec::new() };
        Told { waiters, result: self.outcome() }
    }

    /// Takes back a buffer that was written.
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

/// Those who are to be told, and what: outside of any lock.
#[must_use]
pub(crate) struct Told {
    waiters: Vec<Waiter>,
    result: Result<(), Error>,
}

impl Told {
    /// Whether it is anybody at all.
    pub(crate) fn is_empty(&self) -> bool {
        self.waiters.is_empty()
    }

    /// Tells them. Some may not listen any more; that is theirs to decide.
    pub(crate) fn tell(self) {
        for waiter in self.waiters {
            _ = waiter.send(self.result.clone());
        }
    }
}

#[cfg(test)]
#[path = "group_commit_tests.rs"]
mod tests;
