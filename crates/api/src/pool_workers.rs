//! Workers of a pool on the wire: views, reports, output.

use std::fmt;

use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use wayleave_core::ids::Token;
use wayleave_core::limits;
use wayleave_core::matches::{self as core, Secret};

use crate::BadValue;
use crate::Timestamp;
use crate::bounds::{Bounded, LOG, PEER_ADDRESS, SHORT, TOKEN, bounds, whole};
use crate::continue_mode::is_host_and_port;
use crate::roles::address;

/// The state of a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum WorkerState {
    /// It is being started, and takes no clients yet.
    Starting,
    /// It takes clients.
    Running,
    /// It gets no more clients, and is stopped once it has none.
    Draining,
    /// It has ended: it may be started again, or is being removed.
    Exited,
}

impl WorkerState {
    /// Its name on the wire.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Starting => "starting",
            Self::Running => "running",
            Self::Draining => "draining",
            Self::Exited => "exited",
        }
    }

    fn of(phase: &str) -> Self {
        [Self::Starting, Self::Running, Self::Draining].into_iter().find(|s| s.name() == phase).unwrap_or(Self::Exited)
    }
}

/// A worker of a pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Worker {
    /// Its name.
    pub worker: String,
    /// Its state.
    pub state: WorkerState,
    /// The runtime that has it.
    pub site: String,
    /// Where it is reached; null while that is not known.
    pub address: Option<String>,
    /// Clients that it serves at once.
    pub slots: u32,
    /// Slots that are taken.
    pub used: u32,
    /// Clients that it has had.
    pub uses: u64,
    /// Why it is in this state; never empty.
    pub reason: String,
}

impl From<core::WorkerView> for Worker {
    fn from(view: core::WorkerView) -> Self {
        Self {
            worker: view.worker,
            state: WorkerState::of(&view.state),
            site: view.site.to_string(),
            address: view.address.map(|address| address.to_string()),
            slots: view.slots,
            used: view.used,
            uses: view.uses,
            reason: view.reason.to_string(),
        }
    }
}

/// The workers of a pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ListWorkersResponse {
    /// The workers, the oldest first.
    pub workers: Vec<Worker>,
    /// The last workers that were removed, at most 8, the last one first. A pool remembers them until the node that decides
    /// for it changes or restarts; after that, those are listed whose output is kept by the node that is asked.
    pub removed: Vec<RemovedWorker>,
}

/// A worker that is gone. Its output is kept for a while where it ran.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RemovedWorker {
    /// Its name.
    pub worker: String,
    /// The runtime that had it.
    pub site: String,
    /// Why it ended; never empty.
    pub reason: String,
    /// When it was removed.
    pub removed_at: Timestamp,
}

impl From<core::RemovedView> for RemovedWorker {
    fn from(view: core::RemovedView) -> Self {
        let (site, reason) = (view.site.to_string(), view.reason.to_string());
        Self { worker: view.worker, site, reason, removed_at: Timestamp(view.removed_at) }
    }
}

/// The report of a worker: where it is, and how many more clients it takes.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ReportWorkerRequest {
    /// Where clients reach it, as `host:port`; at most 512 bytes.
    pub address: String,
    /// How many more clients it takes, 0 to 1,000.
    pub free: u64,
    /// `WAYLEAVE_RUN` of its environment.
    pub run: u64,
    /// `WAYLEAVE_SECRET` of its environment.
    pub secret: String,
}

bounds!(ReportWorkerRequest { free: whole(0, limits::WORKER_SLOTS_MAX), run: SHORT } { secret: TOKEN, address: PEER_ADDRESS });

// The secret stays out of logs.
impl fmt::Debug for ReportWorkerRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("ReportWorkerRequest");
        shown.field("address", &self.address).field("free", &self.free).field("run", &self.run);
        shown.finish_non_exhaustive()
    }
}

/// A worker's report with every field checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckedReport {
    /// Where it is reached.
    pub address: String,
    /// How many more clients it takes.
    pub free: u32,
    /// Which of its runs.
    pub run: u32,
    /// Its secret.
    pub secret: Secret,
}

impl ReportWorkerRequest {
    /// The report, checked.
    pub fn check(self) -> Result<CheckedReport, BadValue> {
        let address = address(&self.address)?;
        if !is_host_and_port(address) {
            let reason = format!("'{address}' is not a host and a port; write it like 10.0.0.7:9000, without a scheme");
            return Err(BadValue::new("address", reason));
        }
        self.check_bounds()?;
        let secret = Token::parse(&self.secret)
            .map_err(|_| BadValue::new("secret", "is not one; send WAYLEAVE_SECRET of the worker's environment"))?;
        let narrow = |value| u32::try_from(value).unwrap_or(u32::MAX);
        Ok(CheckedReport {
            address: address.to_owned(),
            free: narrow(self.free),
            run: narrow(self.run),
            secret: Secret(secret),
        })
    }
}

/// How much of a worker's output to show.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct GetWorkerLogQuery {
    /// The last so many bytes, 1 to 262,144; 65,536 if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
}

impl GetWorkerLogQuery {
    /// How many bytes.
    pub fn bytes(self) -> Result<usize, BadValue> {
        Ok(LOG.check_or_default("bytes", self.bytes)? as usize)
    }
}

/// The end of a worker's output.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct GetWorkerLogResponse {
    /// The worker.
    pub worker: String,
    /// What it wrote last to stdout and stderr.
    pub log: String,
}
