//! Machines of the fleet on the wire: reports, the operator's wishes, listings.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use wayleave_core::{fleet as core, limits};

use crate::BadValue;
use crate::Timestamp;
use crate::bounds::{Bounded, PEER_ADDRESS, ROW, TOKEN, VERSION, bounds, whole};
use crate::continue_mode::is_host_and_port;
use crate::roles::{address, token};
use crate::words::words;

words! {
    /// What a machine does.
    MachineType = core::Kind {
        /// Fetches pages.
        Crawler,
        /// Builds index chunks.
        Builder,
        /// Serves index chunks.
        Server,
    }
}
words! {
    /// How a machine says that it is.
    MachineState = core::Reported {
        /// It works.
        Online,
        /// It is well and has nothing to do.
        Waiting,
        /// It takes no new work.
        Paused,
        /// It cannot work; it is judged failed at once.
        Error,
    }
}
words! {
    /// What the operator wants of a machine.
    Desired = core::Desired {
        /// It should work.
        Online,
        /// It should take no new work; what it has stays.
        Paused,
        /// Its work should move elsewhere, so that it can be deleted.
        Drain,
    }
}
words! {
    /// How Wayleave judges a machine.
    Judged = core::Judged {
        /// It gets work.
        Healthy,
        /// It gets no new work; what it has stays.
        Suspect,
        /// It is taken for dead.
        Failed,
        /// It is back after a failure, and gets no work until it has proved itself.
        Probation,
    }
}

const fn capacity_default() -> u64 {
    1
}

/// The report of a machine. The first one under a name registers it.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ReportMachineRequest {
    /// What it does. It cannot change while the name is registered.
    #[serde(rename = "type")]
    pub kind: MachineType,
    /// Where others reach it, as `host:port`; at most 512 bytes. Probes go to `http://{address}/healthz`.
    pub address: String,
    /// Its share of the work relative to others, 1 to 1,000,000.
    #[serde(default = "capacity_default")]
    pub capacity: u64,
    /// The row of an index server, 0 to 63; 0 if absent. The servers of a row together hold one copy of every chunk. It
    /// cannot change while the name is registered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub row: Option<u64>,
    /// How it is.
    pub state: MachineState,
    /// The token that its first report was answered with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
    /// Its version, for people; at most 128 bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
}

bounds! {
    ReportMachineRequest { capacity: whole(1, limits::CAPACITY_MAX).or(capacity_default()), row: ROW }
        { address: PEER_ADDRESS, token: TOKEN, version: VERSION }
}

// The token stays out of logs.
impl std::fmt::Debug for ReportMachineRequest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut shown = f.debug_struct("ReportMachineRequest");
        shown.field("kind", &self.kind).field("address", &self.address).field("state", &self.state);
        shown.finish_non_exhaustive()
    }
}

impl ReportMachineRequest {
    /// The first report of a machine that is online, with all other fields at their defaults.
    #[must_use]
    pub fn new(kind: MachineType, address: impl Into<String>) -> Self {
        Self {
            kind,
            address: address.into(),
            capacity: capacity_default(),
            row: None,
            state: MachineState::Online,
            token: None,
            version: None,
        }
    }

    /// The report in the core's form, with the address that it came from.
    pub fn report(&self, from: Option<IpAddr>) -> Result<core::Report, BadValue> {
        let address = address(&self.address)?;
        if !is_host_and_port(address) {
            let reason = format!(
                "'{address}' is not a host and a port; write it like 10.0.0.7:9000, index-1.example:9000 or [fd00::7]:9000, \
                 without a scheme or path"
            );
            return Err(BadValue::new("address", reason));
        }
        if self.kind != MachineType::Server && self.row.is_some() {
            let kind = core::Kind::from(self.kind).name();
            let reason = format!("a {kind} has no row: leave it out, rows are for index servers");
            return Err(BadValue::contradiction("row", reason));
        }
        self.check_bounds()?;
        let version = self.version.as_deref().map(version).transpose()?;
        Ok(core::Report {
            kind: self.kind.into(),
            address: address.into(),
            from,
            capacity: self.capacity,
            row: self.row,
            state: self.state.into(),
            version: version.map(Into::into),
            token: token(self.token.as_deref())?,
        })
    }
}

fn version(text: &str) -> Result<&str, BadValue> {
    let most = limits::MACHINE_VERSION_BYTES_MAX;
    if text.len() > most {
        return Err(BadValue::new("version", format!("has {} bytes; the limit is {most}", text.len())));
    }
    if text.chars().any(char::is_control) {
        return Err(BadValue::new("version", "must not contain control characters"));
    }
    Ok(text)
}

/// The answer to a report.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ReportMachineResponse {
    /// What the operator wants of it: `paused`, take no new work; `drain`, finish and expect to be deleted.
    pub desired: Desired,
    /// How Wayleave judges it.
    pub judged: Judged,
    /// When to report again.
    pub interval_ms: u64,
    /// Why it is judged so; never empty.
    pub reason: String,
    /// What later reports must present. Nobody else is told.
    pub token: String,
}

// The token stays out of logs.
impl std::fmt::Debug for ReportMachineResponse {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut shown = f.debug_struct("ReportMachineResponse");
        shown.field("desired", &self.desired).field("judged", &self.judged).field("reason", &self.reason);
        shown.finish_non_exhaustive()
    }
}

impl From<core::ReportReply> for ReportMachineResponse {
    fn from(answer: core::ReportReply) -> Self {
        Self {
            desired: answer.desired.into(),
            judged: answer.judged.into(),
            interval_ms: answer.interval.0,
            reason: answer.reason,
            token: answer.token.to_string(),
        }
    }
}

/// The operator says what a machine should do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SetMachineRequest {
    /// What it should do. It learns of this with its next report.
    pub desired: Desired,
}

/// A machine: what is wanted of it, what it says, how it is judged, and why. Without its token.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Machine {
    /// Its name.
    pub id: String,
    /// What it does.
    #[serde(rename = "type")]
    pub kind: MachineType,
    /// Where others reach it.
    pub address: String,
    /// Where its reports come from, as the server saw them: others may call it there even if that is a private address.
    #[serde(default)]
    pub from: Vec<String>,
    /// Its share of the work relative to others.
    pub capacity: u32,
    /// Its row; null if it is no index server.
    pub row: Option<u8>,
    /// Its version, as it gave it.
    pub version: Option<String>,
    /// What the operator wants of it.
    pub desired: Desired,
    /// How it says that it is.
    pub state: MachineState,
    /// How Wayleave judges it.
    pub judged: Judged,
    /// Why it is judged so, and what changes that; also why it is not probed, if it is not. Never empty.
    pub reason: String,
    /// When the verdict changes by time alone, if nothing is heard until then; null if it does not.
    pub changes_at: Option<Timestamp>,
    /// Since when it has been judged so.
    pub since: Timestamp,
    /// The last report that is known.
    pub seen_at: Timestamp,
    /// When it registered.
    pub registered_at: Timestamp,
    /// Failures that are not forgiven yet; each makes its next probation longer.
    pub failures: u32,
    /// Why no work of machines of its type moves, if so many look dead at once that the fault may be elsewhere; else
    /// null.
    pub frozen: Option<String>,
}

impl From<core::MachineView> for Machine {
    fn from(view: core::MachineView) -> Self {
        Self {
            id: view.id.to_string(),
            kind: view.kind.into(),
            address: view.address.to_string(),
            from: view.from.iter().map(ToString::to_string).collect(),
            capacity: view.capacity,
            row: view.row.map(|row| row.0),
            version: view.version.map(|version| version.to_string()),
            desired: view.desired.into(),
            state: view.reported.into(),
            judged: view.judged.into(),
            reason: view.reason,
            changes_at: view.changes_at.map(Timestamp),
            since: Timestamp(view.since),
            seen_at: Timestamp(view.seen_at),
            registered_at: Timestamp(view.registered_at),
            failures: view.failures,
            frozen: view.frozen,
        }
    }
}

/// Which machines to list.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ListMachinesQuery {
    /// Only those of this type: `crawler`, `builder` or `server`.
    #[serde(default, rename = "type", skip_serializing_if = "Option::is_none")]
    #[param(inline)]
    pub kind: Option<MachineType>,
    /// Only those that are judged so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[param(inline)]
    pub judged: Option<Judged>,
    /// The `next` of the previous page; absent for the first page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<String>,
    /// Rows per page, 1 to 1,000; 100 if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u64>,
}

impl ListMachinesQuery {
    /// The filter.
    #[must_use]
    pub fn filter(&self) -> core::Filter {
        core::Filter { kind: self.kind.map(Into::into), judged: self.judged.map(Into::into) }
    }
}

/// One page of machines.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ListMachinesResponse {
    /// The machines, by name.
    pub machines: Vec<Machine>,
    /// Pass it as `after` to get the next page; null at the end.
    pub next: Option<String>,
}

#[cfg(test)]
#[path = "fleet_tests.rs"]
mod tests;
