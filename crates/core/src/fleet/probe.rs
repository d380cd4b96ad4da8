//! Probes: which machines to ask, and what their answers say. Results live in memory; only a verdict is durable.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::row::{Kind, Write};
use super::state::State;
use crate::limits::{PROBE_INTERVAL, PROBE_MISSES, PROBES_AT_ONCE_MAX, PROBES_KEPT};
use crate::names::MachineId;
use crate::time::Time;

/// A probe to be sent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Probe {
    /// The machine.
    pub id: MachineId,
    /// Where to.
    pub address: Arc<str>,
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
}

impl Probes {
    pub const fn new(next: Time) -> Self {
        Self { next, missed: 0, answered: false }
    }

    /// Forgets the results: the address has changed.
    pub const fn forget(&mut self) {
        (self.missed, self.answered) = (0, false);
    }

    /// Misses among the last results.
    pub const fn misses(&self) -> u32 {
        self.missed.count_ones()
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
            machine.probes.next = now.after(PROBE_INTERVAL);
            self.probes.insert((machine.probes.next, id.clone()));
            due.push(Probe { id, address: machine.row.address.clone() });
        }
        due
    }

    /// When [`State::probes_due`] has more.
    #[must_use]
    pub fn next_probe(&self) -> Option<Time> {
        self.probes.first().map(|(at, _)| *at)
    }

    /// Takes the result of a probe. One of a machine that is gone, or of an address that it has left, says nothing.
    pub fn probed(&mut self, probe: &Probe, ok: bool, now: Time, out: &mut Vec<Write>) {
        let Some(machine) = self.machines.get_mut(&probe.id) else { return };
        if machine.row.address != probe.address {
            return;
        }
        let kept = (1 << PROBES_KEPT) - 1;
        machine.probes.missed = ((machine.probes.missed << 1) | u32::from(!ok)) & kept;
        machine.probes.answered |= ok;
        self.judge(&probe.id, now, out);
    }
}
