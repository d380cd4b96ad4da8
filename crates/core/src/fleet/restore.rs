//! A machine is restored from an export of another store: what it registered, and what the operator wants of it. Its token
//! is not carried.
//!
//! Until its first report it is *suspect*: it gets no new work, keeps what it has, and has more time than others before it
//! has failed, because it may still have to learn of its new server. Its first report registers it again, without a
//! token, as that of a new machine would, and gets a fresh one. A machine that has registered itself before the import
//! came stays as it is; only the operator's column is set.

use serde::{Deserialize, Serialize};

use super::refusal::Refusal;
use super::report::{Report, check};
use super::row::{Cause, Desired, Judged, MachineRow, Write};
use super::state::{Machine, State};
use super::view::MachineView;
use crate::ids::{ShardId, Token};
use crate::limits::{self, RESTORED_SILENCE_MAX};
use crate::names::MachineId;
use crate::time::Time;

/// A machine outside of any store.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CarriedMachine {
    /// What it last said of itself, without a token.
    pub report: Report,
    /// What the operator wants of it.
    pub desired: Desired,
    /// Failures that are not forgiven yet.
    pub failures: u32,
    /// Its last report.
    pub seen_at: Time,
    /// When it registered.
    pub registered_at: Time,
}

impl State {
    /// Restores a machine. `shard` and `entropy` make a token that nobody knows.
    ///
    /// # Errors
    /// If it is malformed, there are too many machines, or the name belongs to one of another type or row.
    pub fn restore(
        &mut self,
        id: &MachineId,
        carried: &CarriedMachine,
        (shard, entropy): (ShardId, u128),
        now: Time,
        out: &mut Vec<Write>,
    ) -> Result<MachineView, Refusal> {
        let report = &carried.report;
        let facts = check(report)?;
        if let Some(Machine { row, .. }) = self.machines.get(id) {
            row.check_same(id, report.kind, facts.row)?;
            return self.set_desired(id, carried.desired, now, out);
        }
        if self.machines.len() >= limits::MACHINES_MAX {
            let max = limits::MACHINES_MAX;
            return Err(Refusal::OverLimit(format!(
                "there are {max} machines, which is the limit; delete those that are gone before '{id}' is restored"
            )));
        }
        self.called(now);
        let row = MachineRow {
            kind: report.kind,
            address: report.address.clone(),
            from: None,
            also_from: None,
            capacity: facts.capacity,
            row: facts.row,
            version: report.version.clone(),
            token: Token::new(shard, entropy),
            confirmed: false,
            desired: carried.desired,
            reported: report.state,
            judged: Judged::Suspect,
            cause: Cause::Restored,
            judged_at: now,
            written_off: false,
            failures: carried.failures,
            seen_at: carried.seen_at.min(now),
            registered_at: carried.registered_at.min(now),
            told: self.config.report_interval,
        };
        out.push(Write::Machine(id.clone(), Some(row.clone())));
        self.insert(id.clone(), row, None, now);
        self.view(id, now).ok_or_else(|| Refusal::UnknownMachine(id.to_string()))
    }

    /// When a restored machine has failed, if it has not reported by then; none for others.
    pub(super) fn awaited_until(&self, machine: &Machine) -> Option<Time> {
        let MachineRow { cause, judged, .. } = machine.row;
        let awaited = cause == Cause::Restored && judged == Judged::Suspect && machine.heard.is_none();
        awaited.then(|| machine.row.judged_at.max(self.listening_since).after(RESTORED_SILENCE_MAX))
    }
}
