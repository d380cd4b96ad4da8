//! The judge: derives a machine's health from its silence, self-reported errors and probes.

use super::config::Config;
use super::row::{Cause, Judged, Kind, MachineRow, Reported, Write};
use super::state::{Machine, State};
use crate::limits::{FORGIVEN_AFTER, FORGOTTEN_AFTER, SLICE_ROWS, WRITTEN_OFF_AFTER};
use crate::names::MachineId;
use crate::time::{Millis, Time};

/// What a tick did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ticked {
    /// Machines whose verdict changed.
    pub changed: Vec<MachineId>,
    /// Whether more is due: tick again.
    pub more: bool,
}

impl State {
    /// Judges machines whose time has come, at most a slice of them.
    pub fn tick(&mut self, now: Time, out: &mut Vec<Write>) -> Ticked {
        self.called(now);
        let mut ticked = Ticked::default();
        for _ in 0..SLICE_ROWS {
            let Some((at, id)) = self.timers.first().cloned() else { break };
            if at > now {
                break;
            }
            if self.judge(&id, now, out) {
                ticked.changed.push(id);
            }
        }
        let buried = self.forget_dead(now, out);
        ticked.more = buried || self.timers.first().is_some_and(|(at, _)| *at <= now);
        ticked
    }

    /// Forgets machines that have failed long ago, at most a slice of them; whether there are more. Each had the time
    /// to report to this owner.
    fn forget_dead(&mut self, now: Time, out: &mut Vec<Write>) -> bool {
        let due = |state: &Self| {
            let (at, _) = state.graves.first()?;
            (now >= at.after(FORGOTTEN_AFTER).max(state.listening_since.after(state.config.failed_after())))
                .then_some(())
        };
        for _ in 0..SLICE_ROWS {
            if due(self).is_none() || !self.forget_one(out) {
                return false;
            }
        }
        due(self).is_some()
    }

    /// Forgets the machine that failed first of those that may be forgotten; whether there was one.
    pub(super) fn forget_one(&mut self, out: &mut Vec<Write>) -> bool {
        let Some((_, id)) = self.graves.first().cloned() else { return false };
        self.remove(&id);
        out.push(Write::Machine(id, None));
        true
    }

    /// Judges one machine and sets its timer; whether the verdict changed.
    pub(super) fn judge(&mut self, id: &MachineId, now: Time, out: &mut Vec<Write>) -> bool {
        let Some(machine) = self.machines.get(id) else { return false };
        let before = machine.row.judged;
        let mut row = machine.row.clone();
        if let Some((judged, cause)) = self.verdict(machine, now) {
            if judged != before {
                row.judged_at = now;
                row.failures = row.failures.saturating_add(u32::from(judged == Judged::Failed));
                row.written_off = false;
            }
            (row.judged, row.cause) = (judged, cause);
        }
        if row.failures > 0 && row.judged == Judged::Healthy && now >= row.judged_at.after(FORGIVEN_AFTER) {
            row.failures = 0;
        }
        row.written_off |= written_off_at(&row).is_some_and(|at| at <= now);
        let changed = row.judged != before;
        self.write(id, row, out);
        // Strictly later than now: a timer that has fired must not be due again in the same tick.
        let next = self.machines.get(id).map(|machine| {
            let off = written_off_at(&machine.row).filter(|_| !machine.row.written_off);
            self.next_change(machine, now).or(off).unwrap_or(Time::NEVER)
        });
        let next = next.unwrap_or(Time::NEVER);
        self.set_timer(id, next.max(now.after(Millis(1))));
        changed
    }

    /// The verdict, if it or its cause changes.
    fn verdict(&self, machine: &Machine, now: Time) -> Option<(Judged, Cause)> {
        let (row, config) = (&machine.row, self.config_of(machine));
        let silent = now.since(self.silent_since(machine));
        // A report that this state has received itself: no machine is promoted because the owner was stalled or is
        // new.
        let reports = machine.heard.is_some_and(|at| now.since(at) < config.suspect_after());
        let verdict = match row.judged {
            // Only a report brings it back.
            Judged::Failed if reports && row.reported != Reported::Error => (Judged::Probation, Cause::Returned),
            Judged::Failed => return None,
            _ if row.reported == Reported::Error => (Judged::Failed, Cause::SaidError),
            _ if silent >= config.failed_after() => (Judged::Failed, Cause::Silent),
            Judged::Probation if now < self.config.probation_ends(row) || !reports => return None,
            _ if silent >= config.suspect_after() => (Judged::Suspect, Cause::Silent),
            _ if machine.probes.look_bad(row.kind) && !self.tallies.distrusts_probes(row.kind) => {
                (Judged::Suspect, Cause::Probes)
            }
            Judged::Healthy => return None,
            Judged::Suspect | Judged::Probation if reports => (Judged::Healthy, Cause::Well),
            Judged::Suspect | Judged::Probation => return None,
        };
        (verdict != (row.judged, row.cause)).then_some(verdict)
    }

    /// The settings that a machine is judged by. A machine that got a longer interval, from this owner before a
    /// restart or from another one, is judged by that until a report has brought it the present one.
    pub(super) fn config_of(&self, machine: &Machine) -> Config {
        Config { report_interval: self.config.report_interval.max(machine.row.report_interval), ..self.config }
    }

    /// From when its silence counts: its last report, unless this state could not hear it since.
    pub(super) fn silent_since(&self, machine: &Machine) -> Time {
        machine.heard.unwrap_or_default().max(self.listening_since)
    }

    /// When its verdict changes by time alone.
    pub(super) fn next_change(&self, machine: &Machine, now: Time) -> Option<Time> {
        let (row, heard, config) = (&machine.row, self.silent_since(machine), self.config_of(machine));
        match row.judged {
            Judged::Failed => None,
            Judged::Healthy if row.failures > 0 => {
                Some(heard.after(config.suspect_after()).min(row.judged_at.after(FORGIVEN_AFTER)))
            }
            Judged::Healthy => Some(heard.after(config.suspect_after())),
            Judged::Suspect => Some(heard.after(config.failed_after())),
            Judged::Probation if self.config.probation_ends(row) > now => {
                Some(self.config.probation_ends(row).min(heard.after(config.failed_after())))
            }
            Judged::Probation => Some(heard.after(config.failed_after())),
        }
    }
}

/// When a failed crawler or builder is written off. Of index servers placement says when.
fn written_off_at(row: &MachineRow) -> Option<Time> {
    let failed = row.kind != Kind::Server && row.judged == Judged::Failed;
    failed.then(|| row.judged_at.after(WRITTEN_OFF_AFTER))
}
