//! The inputs of a pool: calls of clients and operators, outcomes of its orders, and events of runtimes.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::row::{Instance, Secret, WorkerNo};
use super::settings::{RuntimeKind, Settings};
use crate::ids::Token;
use crate::names::{ClientName, SiteName};
use crate::time::Time;

/// An input. The caller gives *now* and random values with each.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename = "MatchInput")]
pub enum Input {
    /// A client wants a worker.
    Put(Asker),
    /// A client looks, which confirms its match if it has one.
    Look(Asker),
    /// A worker was asked whether it still holds a client's reservation, on behalf of a call of that client.
    Checked {
        /// Whose call.
        asker: Asker,
        /// What it asked for: a look queues no client.
        call: Call,
        /// The reservation that was asked about.
        token: Token,
        /// When the question was sent: the worker keeps the reservation no shorter than from then on.
        sent_at: Time,
        /// The worker's answer.
        verdict: Verdict,
    },
    /// A client wants no worker any more.
    Cancel {
        /// The call.
        asker: Asker,
        /// The reservation that it means, so that a late call does not end a later match.
        token: Option<Token>,
    },
    /// A worker was asked to reserve.
    Reserved {
        /// The client.
        client: ClientName,
        /// The reservation.
        token: Token,
        /// When the question was sent.
        sent_at: Time,
        /// The worker's answer.
        verdict: Verdict,
    },
    /// The outcome of releasing a reservation at a worker. Yes: it had it, and has released it; no: it did not have
    /// it.
    Released {
        /// The client.
        client: ClientName,
        /// The reservation.
        token: Token,
        /// When the question was sent.
        sent_at: Time,
        /// The worker's answer.
        verdict: Verdict,
    },
    /// The outcome of an order to create or restart a worker.
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
    /// The outcome of an order to stop a worker.
    Stopped {
        /// The step.
        step: StepId,
        /// Whether it did, or why not.
        result: Result<(), Arc<str>>,
    },
    /// The outcome of an order to remove a worker.
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
        /// The pool's generation, by its label.
        generation: u64,
        /// What has ended. The time of its start distinguishes its runs; its address does not matter.
        instance: Instance,
        /// How.
        exit: Exit,
    },
    /// A site says that it is there. Repeated every few seconds; see [`State::note_alive`](super::State::note_alive).
    SiteAlive {
        /// The site.
        site: SiteName,
        /// What it can start.
        runtime: RuntimeKind,
        /// What its node should be able to start besides, and cannot.
        lack: Option<Lack>,
    },
    /// A site lists what it has of this pool.
    Listed {
        /// The site.
        site: SiteName,
        /// The time in the order to list: the list is no older.
        since: Time,
        /// What there is.
        found: Vec<WorkerFound>,
    },
    /// A worker reports itself.
    Report {
        /// The worker.
        worker: WorkerNo,
        /// Which of its runs, as its environment says.
        run: u32,
        /// The secret in its environment.
        secret: Secret,
        /// Where it is reached.
        address: Arc<str>,
        /// Where the report came from.
        from: IpAddr,
        /// How many more clients it takes.
        free: u32,
    },
    /// An operator changes the settings.
    Set(Box<Settings>),
    /// An operator pauses the pool, or resumes it.
    Pause(bool),
    /// An operator deletes the pool.
    Delete,
    /// Nothing but the time.
    Tick,
}

/// A runtime that a node cannot use.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename = "RuntimeLack")]
pub struct Lack {
    /// Which.
    pub runtime: RuntimeKind,
    /// Why, with the remedy.
    pub why: Arc<str>,
}

/// What a client's call asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename = "MatchCall")]
pub enum Call {
    /// A worker.
    Put,
    /// How its match is.
    Look,
}

/// A client's call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename = "MatchAsker")]
pub struct Asker {
    /// The client.
    pub client: ClientName,
    /// Who speaks for it, if callers are known by name.
    pub principal: Option<Arc<str>>,
}

/// A worker's answer to a question: there is a third one, and it is not a no.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename = "WorkerVerdict")]
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
#[serde(rename = "WorkerStepId")]
pub struct StepId {
    /// The worker.
    pub worker: WorkerNo,
    /// The step's number.
    pub step: u32,
}

/// How a worker ended.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename = "WorkerExit")]
pub enum Exit {
    /// By itself, without an error.
    Clean,
    /// With an error: code, signal, out of memory.
    Error(Arc<str>),
}

impl fmt::Display for Exit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Clean => f.write_str("it ended by itself, with exit code 0"),
            Self::Error(why) => f.write_str(why),
        }
    }
}

/// What a runtime has under a label of this pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkerFound {
    /// The worker's number, by its label.
    pub worker: WorkerNo,
    /// The pool's generation, by its label.
    pub generation: u64,
    /// What was started last; none if it was created and never started. The time of its start distinguishes its runs,
    /// because the labels of a container survive a restart.
    pub instance: Option<Instance>,
    /// How that ended; none if it runs.
    pub exit: Option<Exit>,
}
