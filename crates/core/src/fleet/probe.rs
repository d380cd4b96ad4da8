//! Probes: which machines to ask, and what their answers say. Results live in memory; only a verdict is durable.

use std::net::IpAddr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::row::{Kind, Write};
use super::state::{Machine, State};
use crate::limits::{PROBE_MISSES, PROBES_AT_ONCE_MAX, PROBES_KEPT};
use crate::names::MachineId;
use crate::time::Time;

/// A probe to be sent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Probe {
    /// The machine.
    pub id: MachineId,
    /// Where to.
    pub address: Arc<str>,
    /// Where the machine's reports come from: a probe may go there without being allowed by a setting.
    pub from: Option<IpAddr>,
    /// The same, if they alternate between two addresses.
    pub also_from: Option<IpAddr>,
}

/// What became of a probe.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ProbeOutcome {
    /// The machine answered.
    Answered,
    /// It did not.
    Missed,
    /// The probe was not sent, because its address is not allowed; says why.
    NotAllowed(Box<str>),
}

/// What is known of a machine's answers at its present address.
#[derive(Debug)]
pub(super) struct Probes {
    /// When it is probed next.
    pub next: Time,
    /// The last results, the latest one lowest; a set bit is a miss.
    missed: u32,
    /// Whether it ever answered.
    answered: bool,
    /// Why it is not probed.
    barred: Option<Box<str>>,
}

impl Probes {
    pub const fn new(next: Time) -> Self {
        Self { next, missed: 0, answered: false, barred: None }
    }

    /// Forgets the results: the address has changed.
    pub fn forget(&mut self) {
        *self = Self::new(self.next);
    }

    /// Why it is not probed, if it is not.
    pub fn barred(&self) -> Option<&str> {
        self.barred.as_deref()
    }

    /// Misses among the last results.
    pub const fn misses(&self) -> u32 {
        self.missed.count_ones()
    }

    /// Whether a machine is held to probes, and there are results.
    pub fn count(&self, kind: Kind) -> bool {
        self.answered || (kind == Kind::Server && self.missed > 0)
    }

    /// Whether enough were missed. A crawler or builder may have nothing that answers probes: it is held to them only
    /// after it has answered one.
    pub fn look_bad(&self, kind: Kind) -> bool {
        self.misses() >= PROBE_MISSES && (self.answered || kind == Kind::Server)
    }
}

impl State {
    /// The probes to send now; each machine is due again after an interval, whether or not a result comes.
    pub fn probes_due(&mut self, now: Time) -> Vec<Probe> {
        let mut due = Vec::new();
        while due.len() < PROBES_AT_ONCE_MAX {
            let Some((at, id)) = self.probes.first().cloned() else { break };
            if at > now {
                break;
            }
            self.probes.remove(&(at, id.clone()));
            let Some(machine) = self.machines.get_mut(&id) else { continue };
            machine.probes.next = now.after(self.config.probe_interval);
            self.probes.insert((machine.probes.next, id.clone()));
            let row = &machine.row;
            due.push(Probe { id, address: row.address.clone(), from: row.from, also_from: row.also_from });
        }
        due
    }

    /// When [`State::probes_due`] has more.
    #[must_use]
    pub fn next_probe(&self) -> Option<Time> {
        self.probes.first().map(|(at, _)| *at)
    }

    /// Takes the result of a probe. A result for a machine that is gone, or for an address that it has left, is
    /// ignored. A probe that was not sent is no evidence of the machine's health, but its reason is shown.
    pub fn probed(&mut self, probe: &Probe, outcome: &ProbeOutcome, now: Time, out: &mut Vec<Write>) {
        // Before it judges: after a stall the reports that were missed may be read only after this.
        self.called(now);
        let Some(Machine { row, .. }) = self.machines.get(&probe.id) else { return };
        let barred = matches!(outcome, ProbeOutcome::NotAllowed(_));
        // Whether a probe is allowed depends on where reports come from, what it meets does not.
        if row.address != probe.address || (barred && (row.from, row.also_from) != (probe.from, probe.also_from)) {
            return;
        }
        self.update(&probe.id, |Machine { probes, .. }| match outcome {
            ProbeOutcome::NotAllowed(why) => *probes = Probes { barred: Some(why.clone()), ..Probes::new(probes.next) },
            ProbeOutcome::Answered | ProbeOutcome::Missed => {
                let (kept, missed) = ((1 << PROBES_KEPT) - 1, *outcome == ProbeOutcome::Missed);
                probes.missed = ((probes.missed << 1) | u32::from(missed)) & kept;
                probes.answered |= !missed;
                probes.barred = None;
            }
        });
        self.judge(&probe.id, now, out);
    }
}
