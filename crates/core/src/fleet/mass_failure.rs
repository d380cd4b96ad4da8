//! The mass-failure guard: freezes a machine type while more than half of it looks dead, and ignores probes while
//! more than half of a type misses them.
//!
//! "At once" excludes machines that were written off. An index server is written off when it has failed and its chunks
//! are placed again, which does not happen during a freeze: in a partition copies stay put, and their servers count.

use serde::{Deserialize, Serialize};

use super::row::{Desired, Judged, Kind, Write};
use super::state::{Machine, State};
use crate::limits::FREEZE_MACHINES_MIN;
use crate::names::MachineId;

/// A type whose moves are frozen.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Frozen {
    /// The type.
    pub kind: Kind,
    /// How many look dead.
    pub dead: usize,
    /// Of how many that should be online.
    pub of: usize,
    /// Why, and what ends it.
    pub reason: String,
}

/// Machines that should be online, and those of them that look dead, per type.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Tallies([Tally; 3]);

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Tally {
    online: usize,
    dead: usize,
    /// Those that are alive and held to probes.
    probed: usize,
    /// Those of them that missed too many.
    missed: usize,
}

impl Tally {
    /// What one machine adds.
    fn of(machine: &Machine) -> Self {
        let row = &machine.row;
        let counts = row.desired == Desired::Online && !row.written_off;
        let dead = counts && row.judged == Judged::Failed;
        let probed = counts && !dead && machine.probes.count(row.kind);
        let missed = probed && machine.probes.look_bad(row.kind);
        Self { online: counts.into(), dead: dead.into(), probed: probed.into(), missed: missed.into() }
    }

    const fn distrusts_probes(self) -> bool {
        self.probed >= FREEZE_MACHINES_MIN && 2 * self.missed > self.probed
    }
}

impl Tallies {
    pub fn add(&mut self, machine: &Machine) {
        let (tally, one) = (self.of_mut(machine.row.kind), Tally::of(machine));
        tally.online += one.online;
        tally.dead += one.dead;
        tally.probed += one.probed;
        tally.missed += one.missed;
    }

    pub fn subtract(&mut self, machine: &Machine) {
        let (tally, one) = (self.of_mut(machine.row.kind), Tally::of(machine));
        tally.online -= one.online;
        tally.dead -= one.dead;
        tally.probed -= one.probed;
        tally.missed -= one.missed;
    }

    /// Whether probes of a type do not count now.
    pub const fn distrusts_probes(&self, kind: Kind) -> bool {
        self.of(kind).distrusts_probes()
    }

    const fn of_mut(&mut self, kind: Kind) -> &mut Tally {
        let [crawlers, builders, servers] = &mut self.0;
        match kind {
            Kind::Crawler => crawlers,
            Kind::Builder => builders,
            Kind::Server => servers,
        }
    }

    const fn of(&self, kind: Kind) -> Tally {
        let [crawlers, builders, servers] = self.0;
        match kind {
            Kind::Crawler => crawlers,
            Kind::Builder => builders,
            Kind::Server => servers,
        }
    }
}

impl State {
    /// Whether moves of a type are frozen, and why.
    #[must_use]
    pub fn frozen(&self, kind: Kind) -> Option<Frozen> {
        let Tally { online, dead, .. } = self.tallies.of(kind);
        (online >= FREEZE_MACHINES_MIN && 2 * dead > online).then(|| Frozen {
            kind,
            dead,
            of: online,
            reason: format!(
                "{dead} of {online} {}s that should be online look dead at once, so nothing moves: the fault may be between \
                 them and Wayleave. It ends when more of them report; if they are gone for good, drain or delete them",
                kind.name()
            ),
        })
    }

    /// Why probes of a type do not count now, if so.
    pub(super) fn distrust(&self, kind: Kind) -> Option<String> {
        let tally @ Tally { probed, missed, .. } = self.tallies.of(kind);
        tally.distrusts_probes().then(|| {
            format!(
                "probes do not count now: {missed} of {probed} {}s miss theirs at once, so the fault may be between them and \
                 the node that probes",
                kind.name()
            )
        })
    }

    /// Writes index servers off: they have failed, and placement has no wanted copy on them any more. Not while they are
    /// frozen: then they count.
    pub fn write_off(&mut self, servers: &[MachineId], out: &mut Vec<Write>) {
        if self.frozen(Kind::Server).is_some() {
            return;
        }
        for id in servers {
            let row = self.machines.get(id).map(|machine| &machine.row);
            let lost = row.filter(|row| row.kind == Kind::Server && row.judged == Judged::Failed && !row.written_off);
            if let Some(mut row) = lost.cloned() {
                row.written_off = true;
                self.write(id, row, out);
            }
        }
    }
}
