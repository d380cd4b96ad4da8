//! What a pool is told: calls of clients and operators, outcomes of what it ordered, and news of runtimes.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::row::{Instance, WorkerNo};
use super::settings::{RuntimeKind, Settings};
use crate::ids::Token;
use crate::names::{ClientName, SiteName};
use crate::time::Time;

/// An input. The caller gives *now* and random values with each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input {
    /// A client wants a worker.
    Put(Asker),
    /// A client looks, which confirms its match if it has one.
    Look(Asker),
    /// A worker was asked whether it still holds a client's reservation, on behalf of a call of that client.
    Checked {
        /// The call.
        asker: Asker,
        /// The reservation that was asked about.
        token: Token,
        /// What the worker said.
        verdict: Verdict,
    },
    /// A client wants no worker any more.
    Cancel(Asker),
    /// A worker was asked to reserve.
    Reserved {
        /// The client.
        client: ClientName,
        /// The reservation.
        token: Token,
        /// What the worker said.
        verdict: Verdict,
    },
    /// A worker was told to give a reservation up. Yes: it had it, and has given it up; no: it did not have it.
    Released {
        /// The client.
        client: ClientName,
        /// The reservation.
        token: Token,
        /// What the worker said.
        verdict: Verdict,
    },
    /// A runtime was told to create or to restart a worker.
    Made {
        /// The step.
        step: StepId,
        /// What it has started, or why not.
        result: Result<Instance, Arc<str>>,
    },
    /// A new worker was awaited.
    Listening {
        /// The step.
        step: StepId,
        /// Whether it listens, or why not.
        result: Result<(), Arc<str>>,
    },
    /// A runtime was told to stop a worker.
    Stopped {
        /// The step.
        step: StepId,
        /// Whether it did, or why not.
        result: Result<(), Arc<str>>,
    },
    /// A runtime was told to remove a worker.
    Removed {
        /// The step.
        step: StepId,
        /// Whether nothing is left of it, or why not.
        result: Result<(), Arc<str>>,
    },
    /// A runtime says that a worker has ended.
    Exited {
        /// The worker.
        worker: WorkerNo,
        /// Which of its runs.
        run: u32,
        /// How.
        exit: Exit,
    },
    /// A site says that it is there. Repeated every 5 s.
    SiteAlive {
        /// The site.
        site: SiteName,
        /// What it can start.
        runtime: RuntimeKind,
    },
    /// A site lists what it has of this pool.
    Listed {
        /// The site.
        site: SiteName,
        /// As the order to list said: the list is no older.
        since: Time,
        /// What there is.
        found: Vec<Found>,
    },
    /// A worker reports itself.
    Report {
        /// The worker.
        worker: WorkerNo,
        /// Where it is reached.
        address: Arc<str>,
        /// How many more clients it takes.
        free: u32,
    },
    /// An operator changes the settings.
    Set(Box<Settings>),
    /// An operator deletes the pool.
    Delete,
    /// Nothing but the time.
    Tick,
}

/// A client's call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Asker {
    /// The client.
    pub client: ClientName,
    /// Who speaks for it, if callers are known by name.
    pub principal: Option<Arc<str>>,
}

/// What a worker said to a question: there is a third answer, and it is not a no.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Verdict {
    /// 200.
    Yes,
    /// 404 or another plain refusal; or its runtime says that it has exited.
    No,
    /// Anything else: a timeout, a connection that broke, a 500.
    Unknown(Arc<str>),
}

/// A step of a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct StepId {
    /// The worker.
    pub worker: WorkerNo,
    /// The step's number.
    pub step: u32,
}

/// How a worker ended.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Exit {
    /// By itself, without an error.
    Clean,
    /// With an error: code, signal, out of memory.
    Error(Arc<str>),
}

/// What a runtime has under a label of this pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Found {
    /// The worker's number, by its label.
    pub worker: WorkerNo,
    /// The pool's generation, by its label.
    pub generation: u64,
    /// Which of its runs, by its label or record.
    pub run: u32,
    /// What it is, and whether it runs: the error tells how it ended.
    pub state: Result<Instance, Exit>,
}
