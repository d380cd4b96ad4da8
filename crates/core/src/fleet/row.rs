//! A machine's row: everything about it that must survive a restart.

use std::net::IpAddr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::ids::Token;
use crate::names::MachineId;
use crate::time::{Millis, Time};
use crate::words::words;

/// What a machine does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Kind {
    /// Fetches pages.
    Crawler,
    /// Builds index chunks.
    Builder,
    /// Serves index chunks.
    Server,
}

impl Kind {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Crawler, Self::Builder, Self::Server];
}

words!(Kind, name: Crawler "crawler", Builder "builder", Server "server");

/// The operator's column.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Desired {
    /// It should work.
    #[default]
    Online,
    /// It should take no new work.
    Paused,
    /// Its work should move elsewhere.
    Drain,
}

words!(Desired, name: Online "online", Paused "paused", Drain "drain");

/// The machine's column.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Reported {
    /// It works.
    Online,
    /// It waits for work.
    Waiting,
    /// It takes no work for now.
    Paused,
    /// It cannot work.
    Error,
}

words!(Reported, name: Online "online", Waiting "waiting", Paused "paused", Error "error");

/// Wayleave's column.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Judged {
    /// It gets work.
    Healthy,
    /// It gets no new work; what it has stays.
    Suspect,
    /// It is taken for dead.
    Failed,
    /// It is back after a failure, and must prove itself before it gets work.
    Probation,
}

words!(Judged, name: Healthy "healthy", Suspect "suspect", Failed "failed", Probation "probation");

/// Why a machine is judged as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Cause {
    /// It is new, or well again.
    Well,
    /// It does not report.
    Silent,
    /// It reported an error.
    SaidError,
    /// It reports, but does not answer probes.
    Probes,
    /// It reports again after a failure.
    Returned,
}

/// The row of an index server: each row holds one copy of every chunk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct RowNo(pub u8);

/// A registered machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MachineRow {
    /// What it does.
    pub kind: Kind,
    /// Where it is reached: host and port.
    pub address: Arc<str>,
    /// The address that its reports come from, if that is known. Probes may go there.
    pub from: Option<IpAddr>,
    /// Another one that its reports came from before, at the same address: they may alternate.
    pub also_from: Option<IpAddr>,
    /// Its share of the work, relative to others.
    pub capacity: u32,
    /// Its row; index servers have one.
    pub row: Option<RowNo>,
    /// Its version, as it gave it; for people.
    pub version: Option<Arc<str>>,
    /// What later reports must present.
    pub token: Token,
    /// Whether a report has presented the token.
    pub confirmed: bool,
    /// The operator's column.
    pub desired: Desired,
    /// The machine's column.
    pub reported: Reported,
    /// Wayleave's column.
    pub judged: Judged,
    /// Why.
    pub cause: Cause,
    /// Since when it is judged so.
    pub judged_at: Time,
    /// Whether it has failed, and nothing waits for it any more: it no longer counts in the mass-failure guard.
    pub written_off: bool,
    /// Failures that are not forgiven yet.
    pub failures: u32,
    /// The last report before this row was written. Later ones are known in memory only.
    pub seen_at: Time,
    /// When it registered.
    pub registered_at: Time,
    /// The interval at which it reports, as this owner or an earlier one has set it.
    pub report_interval: Millis,
}

/// A change of rows. Within a list, a later write to the same row wins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Write {
    /// The row of a machine; none removes it.
    Machine(MachineId, Option<MachineRow>),
}
