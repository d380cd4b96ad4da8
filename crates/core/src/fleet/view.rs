//! Machines as callers see them: the three columns, why, and when that changes.

use std::net::IpAddr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::row::{Cause, Desired, Judged, Kind, MachineRow, Reported, RowNo};
use super::state::{Machine, State};
use crate::limits::{PROBES_KEPT, REPORTS_MISSED_FAILED, REPORTS_MISSED_SUSPECT};
use crate::names::MachineId;
use crate::placement::ServerRow;
use crate::time::{Millis, Time};

/// A machine, without its token.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MachineView {
    /// Its name.
    pub id: MachineId,
    /// What it does.
    pub kind: Kind,
    /// Where it is reached.
    pub address: Arc<str>,
    /// Where its reports come from, at its present address.
    pub from: Vec<IpAddr>,
    /// Its share of the work.
    pub capacity: u32,
    /// Its row, of an index server.
    pub row: Option<RowNo>,
    /// Its version.
    pub version: Option<Arc<str>>,
    /// The operator's column.
    pub desired: Desired,
    /// The machine's column.
    pub reported: Reported,
    /// Wayleave's column.
    pub judged: Judged,
    /// Why; never empty.
    pub reason: String,
    /// When the verdict changes by time alone, if nothing is heard until then.
    pub changes_at: Option<Time>,
    /// Since when it is judged so.
    pub since: Time,
    /// The last report that is known.
    pub seen_at: Time,
    /// When it registered.
    pub registered_at: Time,
    /// Failures that are not forgiven yet.
    pub failures: u32,
    /// Why moves of its type are frozen, if they are.
    pub frozen: Option<String>,
}

/// What placement needs to know of an index server.
pub(super) fn server_facts(row: &MachineRow) -> ServerRow {
    ServerRow {
        row: row.row.unwrap_or_default(),
        capacity: row.capacity,
        address: row.address.clone(),
        judged: row.judged,
        since: row.judged_at,
        desired: row.desired,
        accepts: matches!(row.reported, Reported::Online | Reported::Waiting),
        unanswered: row.judged == Judged::Suspect && row.cause == Cause::Probes,
        removed: false,
    }
}

impl State {
    /// One machine.
    #[must_use]
    pub fn view(&self, id: &MachineId, now: Time) -> Option<MachineView> {
        self.machines.get(id).map(|machine| self.view_of(id, machine, now))
    }

    /// All index servers.
    #[must_use]
    pub fn servers(&self) -> Vec<(MachineId, ServerRow)> {
        let servers = self.machines.iter().filter(|(_, machine)| machine.row.kind == Kind::Server);
        servers.map(|(id, machine)| (id.clone(), server_facts(&machine.row))).collect()
    }

    pub(super) fn view_of(&self, id: &MachineId, machine: &Machine, now: Time) -> MachineView {
        let row = &machine.row;
        MachineView {
            id: id.clone(),
            kind: row.kind,
            address: row.address.clone(),
            from: row.from.into_iter().chain(row.also_from).collect(),
            capacity: row.capacity,
            row: row.row,
            version: row.version.clone(),
            desired: row.desired,
            reported: row.reported,
            judged: row.judged,
            reason: self.explain(machine, now),
            changes_at: self.next_change(machine, now),
            since: row.judged_at,
            seen_at: row.seen_at.max(machine.heard.unwrap_or_default()),
            registered_at: row.registered_at,
            failures: row.failures,
            frozen: self.frozen(row.kind).map(|frozen| frozen.reason),
        }
    }

    /// Why a machine is judged as it is, and what changes that.
    pub(super) fn explain(&self, machine: &Machine, now: Time) -> String {
        let verdict = self.explain_verdict(machine, now);
        let kind = machine.row.kind;
        match (machine.probes.barred(), self.distrust(kind).filter(|_| machine.probes.look_bad(kind))) {
            (Some(why), _) => format!("{verdict}; it is not probed: {why}"),
            (None, Some(why)) => format!("{verdict}; {why}"),
            (None, None) => verdict,
        }
    }

    fn explain_verdict(&self, machine: &Machine, now: Time) -> String {
        let (row, config) = (&machine.row, self.config_of(machine));
        let silent_since = self.silent_since(machine);
        let silent = now.since(silent_since);
        // A new owner has not heard a machine yet; then the silence is not the machine's.
        let heard = match machine.heard {
            Some(at) if at == silent_since => format!("last reported {} ago", silent.in_words()),
            _ => format!("has not reported in the {} since this owner listens", silent.in_words()),
        };
        let left = |span: Millis| silent_since.after(span).since(now).in_words();
        match (row.judged, row.cause) {
            (Judged::Healthy, _) if row.failures > 0 => {
                format!(
                    "{heard}; suspect if silent for {} more; failures not forgiven yet: {}",
                    left(config.suspect_after()),
                    row.failures
                )
            }
            (Judged::Healthy, _) => {
                format!("{heard}; suspect if silent for {} more", left(config.suspect_after()))
            }
            (Judged::Suspect, Cause::Probes) => format!(
                "{heard}, but missed {} of the last {PROBES_KEPT} probes to {}: check its address and the network between",
                machine.probes.misses(),
                row.address
            ),
            (Judged::Suspect, _) => {
                format!(
                    "missed {} reports: {heard}; failed if silent for {} more",
                    REPORTS_MISSED_SUSPECT,
                    left(config.failed_after())
                )
            }
            (Judged::Failed, Cause::SaidError) => {
                "it reported an error itself; a report without one begins its probation".to_owned()
            }
            (Judged::Failed, _) => format!(
                "missed {} reports and was judged failed {} ago; its next report begins its probation",
                REPORTS_MISSED_FAILED,
                now.since(row.judged_at).in_words()
            ),
            (Judged::Probation, _) if now < self.config.probation_ends(row) => format!(
                "back after failure {}, {} for {}, {} left; {heard}",
                row.failures,
                if row.kind == Kind::Server { "it gets no new chunks" } else { "it is on probation" },
                self.config.hold_down(row.failures).in_words(),
                self.config.probation_ends(row).since(now).in_words()
            ),
            (Judged::Probation, _) => {
                format!(
                    "its probation is over, but it {heard}; healthy with its next report, failed if silent for {} more",
                    left(config.failed_after())
                )
            }
        }
    }
}
