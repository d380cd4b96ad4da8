//! Rows of a pool: everything about it, its workers and its matches that must survive a restart.

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::settings::Settings;
use crate::ids::Token;
use crate::names::{ClientName, PoolName, SiteName};
use crate::time::{Millis, Time};

/// A worker's number within its pool. Numbers are never used again while the pool exists.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct WorkerNo(pub u64);

/// What a worker proves itself with when it reports. It is not printed.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename = "WorkerSecret")]
pub struct Secret(pub Token);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

/// A pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolRow {
    /// Its name.
    pub name: PoolName,
    /// The installation that it belongs to: a label of what is started, because another one may use the same runtime.
    pub owner: Arc<str>,
    /// Its settings.
    pub settings: Settings,
    /// Random at creation. A label of what is started, which distinguishes workers of a deleted pool of this name.
    pub generation: u64,
    /// Grows whenever the recipe changes.
    pub recipe_no: u32,
    /// The number of the next worker.
    pub next_worker: u64,
    /// The number of the next attempt to make a worker, by creation or restart.
    pub next_making: u64,
    /// Failures to make workers, wherever that was.
    pub trouble: Option<Trouble>,
    /// Failures to make workers, by site.
    pub site_trouble: BTreeMap<SiteName, Trouble>,
    /// Sites that may have something left of this pool, since when; or until when they may be making it. They keep a
    /// deleted pool until they have listed after that that nothing is left.
    pub owed: BTreeMap<SiteName, Time>,
    /// It is being deleted: workers are drained, nothing is started.
    pub closing: bool,
    /// An operator holds it, or the store is a copy: nothing is started, booked, stopped or removed.
    pub paused: bool,
    /// When it was created.
    pub created_at: Time,
    /// Grows with every write.
    pub version: u64,
}

/// Failures in a row to make workers by the present recipe.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trouble {
    /// How many.
    pub failures: u32,
    /// The last one's reason.
    pub reason: Arc<str>,
    /// When that was.
    pub at: Time,
    /// The next attempt at that time: attempts before it ran at the same time as the one that failed.
    pub next_making: u64,
    /// Nothing is made before.
    pub until: Time,
}

/// Where a worker is on its way from nothing to nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Phase {
    /// The runtime is to create and start it. It may exist or not.
    Creating,
    /// The runtime is to start it again.
    Restarting,
    /// It runs; it does not listen yet.
    Starting,
    /// It takes clients.
    Running,
    /// It keeps its clients and gets no more.
    Draining,
    /// It has no clients; the runtime is to stop it.
    Stopping,
    /// It ended cleanly by itself and may be started again.
    Exited,
    /// The runtime is to remove all that exists of it.
    Removing,
}

impl Phase {
    /// Its name in the API.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Creating | Self::Restarting | Self::Starting => "starting",
            Self::Running => "running",
            Self::Draining | Self::Stopping => "draining",
            Self::Exited | Self::Removing => "exited",
        }
    }

    /// Whether a Maker is making it: its slots are awaited.
    #[must_use]
    pub const fn is_making(self) -> bool {
        matches!(self, Self::Creating | Self::Restarting | Self::Starting)
    }

    /// Whether it may have clients.
    #[must_use]
    pub const fn is_serving(self) -> bool {
        matches!(self, Self::Running | Self::Draining)
    }
}

/// What a runtime has started: enough to find it again, and not to mistake another one for it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Instance {
    /// Process id or container id.
    pub id: Arc<str>,
    /// When it was started, in the runtime's own unit: a process id alone may be used again.
    pub started: u64,
    /// Where it is reached: host and port.
    pub address: Arc<str>,
}

/// A worker.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkerRow {
    /// The runtime that has it.
    pub site: SiteName,
    /// Which recipe it was started by.
    pub recipe_no: u32,
    /// Clients that it serves at once.
    pub slots: u32,
    /// Where it is.
    pub phase: Phase,
    /// Since when.
    pub since: Time,
    /// When the step ends that Makers work on. [`Time::NEVER`] if there is none.
    pub deadline: Time,
    /// Counts steps, so that a late outcome of an earlier one is recognised.
    pub step: u32,
    /// Tries of this step.
    pub tries: u32,
    /// Counts its starts.
    pub run: u32,
    /// The number of the attempt that made it, or makes it.
    pub making: u64,
    /// When that attempt began.
    pub making_since: Time,
    /// Whether this run has reserved a slot, or lasted: then its image or command works.
    pub proven: bool,
    /// What it proves itself with when it reports.
    pub secret: Secret,
    /// The run whose environment has the secret: a container keeps its environment when it is restarted.
    pub secret_run: u32,
    /// What the runtime has started last; while it is restarted, the run before. Durable before it is used. None while it
    /// is removed means that it was never heard how its making ended.
    pub instance: Option<Instance>,
    /// Where the report came from that named the instance's address; none if its runtime did.
    pub reported_from: Option<IpAddr>,
    /// Slots that it reported as used by others.
    pub used_elsewhere: u32,
    /// When it did.
    pub reported_at: Time,
    /// It is not started again before: calls to its last run may be on their way.
    pub restart_at: Time,
    /// Clients that it has had.
    pub uses: u64,
    /// When it was created.
    pub created_at: Time,
    /// Since when it has no client, if it has none.
    pub idle_since: Option<Time>,
    /// Why it is where it is.
    pub reason: Arc<str>,
    /// Grows with every write.
    pub version: u64,
}

/// A slot of a worker, booked for a client.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Booking {
    /// The worker.
    pub worker: WorkerNo,
    /// The reservation's token, which worker and client know.
    pub token: Token,
    /// How long the worker keeps it without a confirmation, as sent with the reservation; later settings do not
    /// change it.
    pub reservation: Millis,
    /// No call that asks for this reservation arrives at the worker later. While it is being asked for, also the end of
    /// the Maker's lease.
    pub asked_until: Time,
}

/// A reservation that is being given back. Its slot stays booked until the worker says so, or must have dropped it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Leftover {
    /// What was booked.
    pub booking: Booking,
    /// By then the worker has dropped it by itself.
    pub until: Time,
}

/// Where a request is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum MatchState {
    /// It waits for a slot.
    Queued {
        /// It is not tried before.
        not_before: Time,
    },
    /// A slot is booked; the worker is asked to reserve it.
    Making(Booking),
    /// The worker has reserved it.
    Matched {
        /// The slot.
        booking: Booking,
        /// It ends then, unless it is confirmed.
        expires_at: Time,
    },
    /// Its worker is gone. The client's next call queues it again.
    Vacant {
        /// It is forgotten then.
        until: Time,
    },
    /// It failed; the row has the reason.
    Failed {
        /// It is forgotten then.
        until: Time,
        /// It is not queued again before.
        retry_at: Time,
        /// Whether a call of the client has returned the failure.
        delivered: bool,
    },
    /// It was cancelled or not confirmed. The row lasts while there are leftovers.
    Ended,
}

/// The request of a client.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MatchRow {
    /// Who may speak for the client, if callers are known by name.
    pub principal: Option<Arc<str>>,
    /// Its place in the queue.
    pub queue_number: u64,
    /// When it was queued.
    pub queued_at: Time,
    /// It fails then, unless it is matched.
    pub deadline: Time,
    /// Workers that have failed this request.
    pub attempts: u32,
    /// Where it is.
    pub state: MatchState,
    /// Reservations that are being given back.
    pub leftovers: Vec<Leftover>,
    /// What happened to it last.
    pub reason: Arc<str>,
    /// Grows with every write.
    pub version: u64,
}

impl Instance {
    /// Whether both are the same run.
    #[must_use]
    pub fn is_run(&self, other: &Self) -> bool {
        (&self.id, self.started) == (&other.id, other.started)
    }
}

impl MatchRow {
    /// The slot that is booked for it, without leftovers.
    #[must_use]
    pub const fn booking(&self) -> Option<&Booking> {
        match &self.state {
            MatchState::Making(booking) | MatchState::Matched { booking, .. } => Some(booking),
            _ => None,
        }
    }

    /// Everything that is booked under its name.
    pub fn booked(&self) -> impl Iterator<Item = &Booking> {
        self.booking().into_iter().chain(self.leftovers.iter().map(|left| &left.booking))
    }

    /// Whether it waits for a slot.
    #[must_use]
    pub const fn is_queued(&self) -> bool {
        matches!(self.state, MatchState::Queued { .. })
    }
}

/// A change of a row; `None` removes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Write {
    /// The pool.
    Pool(Option<Box<PoolRow>>),
    /// A worker.
    Worker(WorkerNo, Option<Box<WorkerRow>>),
    /// A client's request.
    Match(ClientName, Option<Box<MatchRow>>),
}
