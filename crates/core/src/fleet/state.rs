//! The machines in memory: their rows, their reports and probes, and timers.

use std::collections::{BTreeMap, BTreeSet};

use super::config::Config;
use super::mass_failure::Tallies;
use super::probe::Probes;
use super::row::{Desired, Judged, Kind, MachineRow, Write};
use super::view::server_facts;
use crate::names::MachineId;
use crate::time::Time;

/// All machines.
#[derive(Debug)]
pub struct State {
    pub(super) config: Config,
    pub(super) machines: BTreeMap<MachineId, Machine>,
    /// One entry per machine, no later than its verdict can next change. A report moves that time but not the entry: the
    /// timer fires, finds nothing to do, and is set again.
    pub(super) timers: BTreeSet<(Time, MachineId)>,
    pub(super) probes: BTreeSet<(Time, MachineId)>,
    pub(super) tallies: Tallies,
    /// Machines that may be forgotten, by when they failed.
    pub(super) graves: BTreeSet<(Time, MachineId)>,
    /// Since when reports are heard without a gap.
    pub(super) listening_since: Time,
    last_call: Time,
    servers_changed: bool,
}

/// A machine.
#[derive(Debug)]
pub(super) struct Machine {
    /// As it is durable.
    pub row: MachineRow,
    /// Its last report to this state.
    pub heard: Option<Time>,
    pub timer: Time,
    pub probes: Probes,
    /// When this state last noted another address that its reports come from.
    pub sender_at: Option<Time>,
}

impl Machine {
    /// When it failed, if it may be forgotten: it can have no copies, and no operator has paused or drained it.
    fn grave(&self) -> Option<Time> {
        let row = &self.row;
        let empty = row.kind != Kind::Server || row.written_off;
        let gone = row.judged == Judged::Failed && empty && row.desired == Desired::Online;
        gone.then_some(row.judged_at)
    }
}

impl State {
    /// Loads the machines from their rows. Silence counts from now on.
    pub fn load(config: Config, rows: impl IntoIterator<Item = (MachineId, MachineRow)>, now: Time) -> Self {
        let mut state = Self {
            config,
            machines: BTreeMap::new(),
            timers: BTreeSet::new(),
            probes: BTreeSet::new(),
            tallies: Tallies::default(),
            graves: BTreeSet::new(),
            listening_since: now,
            last_call: now,
            servers_changed: true,
        };
        for (id, row) in rows {
            state.insert(id, row, None, now);
        }
        state
    }

    /// The settings.
    #[must_use]
    pub const fn config(&self) -> &Config {
        &self.config
    }

    /// The rows, as they are durable.
    pub fn rows(&self) -> impl Iterator<Item = (&MachineId, &MachineRow)> {
        self.machines.iter().map(|(id, machine)| (id, &machine.row))
    }

    /// Number of machines.
    #[must_use]
    pub fn len(&self) -> usize {
        self.machines.len()
    }

    /// Whether there are no machines.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.machines.is_empty()
    }

    /// Whether [`State::servers`] or the freeze of servers may have changed since the last call. The owner then passes
    /// them to placement.
    pub const fn take_servers_changed(&mut self) -> bool {
        std::mem::replace(&mut self.servers_changed, false)
    }

    /// When to call [`State::tick`] next, at the latest.
    #[must_use]
    pub fn next_tick(&self) -> Option<Time> {
        let (first, _) = self.timers.first()?;
        Some((*first).min(self.last_call.after(self.config.report_interval)))
    }

    /// Notes that the owner is awake. After a gap it may have missed reports.
    pub(super) fn called(&mut self, now: Time) {
        if now.since(self.last_call) > self.config.stalled_after() {
            self.listening_since = now;
        }
        self.last_call = self.last_call.max(now);
    }

    pub(super) fn insert(&mut self, id: MachineId, row: MachineRow, heard: Option<Time>, now: Time) {
        let machine = Machine { row, heard, timer: now, probes: Probes::new(now), sender_at: None };
        self.tallies.add(&machine);
        self.graves.extend(machine.grave().map(|at| (at, id.clone())));
        self.servers_changed |= machine.row.kind == Kind::Server;
        self.timers.insert((now, id.clone()));
        self.probes.insert((now, id.clone()));
        self.machines.insert(id, machine);
    }

    pub(super) fn remove(&mut self, id: &MachineId) {
        if let Some(machine) = self.machines.remove(id) {
            self.tallies.subtract(&machine);
            machine.grave().map(|at| self.graves.remove(&(at, id.clone())));
            self.servers_changed |= machine.row.kind == Kind::Server;
            self.timers.remove(&(machine.timer, id.clone()));
            self.probes.remove(&(machine.probes.next, id.clone()));
        }
    }

    /// Replaces a row if it differs, and writes it.
    pub(super) fn write(&mut self, id: &MachineId, mut row: MachineRow, out: &mut Vec<Write>) {
        let Some(machine) = self.machines.get_mut(id) else { return };
        if machine.row == row {
            return;
        }
        row.seen_at = row.seen_at.max(machine.heard.unwrap_or_default());
        // The freeze of servers changes with these too.
        self.servers_changed |= row.kind == Kind::Server
            && (server_facts(&row) != server_facts(&machine.row) || row.written_off != machine.row.written_off);
        self.update(id, |machine| machine.row.clone_from(&row));
        out.push(Write::Machine(id.clone(), Some(row)));
    }

    /// Changes a machine, with everything that is counted from it.
    pub(super) fn update(&mut self, id: &MachineId, change: impl FnOnce(&mut Machine)) {
        let Some(machine) = self.machines.get_mut(id) else { return };
        let kind = machine.row.kind;
        let distrusted = self.tallies.distrusts_probes(kind);
        self.tallies.subtract(machine);
        machine.grave().map(|at| self.graves.remove(&(at, id.clone())));
        change(machine);
        self.tallies.add(machine);
        self.graves.extend(machine.grave().map(|at| (at, id.clone())));
        if self.tallies.distrusts_probes(kind) != distrusted {
            self.judge_probes_again(kind);
        }
    }

    /// Has the next tick judge all machines of a type that missed probes.
    fn judge_probes_again(&mut self, kind: Kind) {
        let missed =
            self.machines.iter_mut().filter(|(_, machine)| machine.row.kind == kind && machine.probes.look_bad(kind));
        for (id, machine) in missed {
            self.timers.remove(&(machine.timer, id.clone()));
            machine.timer = Time::ZERO;
            self.timers.insert((Time::ZERO, id.clone()));
        }
    }

    /// Sets a machine's timer.
    pub(super) fn set_timer(&mut self, id: &MachineId, at: Time) {
        let Some(machine) = self.machines.get_mut(id) else { return };
        if machine.timer != at {
            self.timers.remove(&(machine.timer, id.clone()));
            machine.timer = at;
            self.timers.insert((at, id.clone()));
        }
    }
}
