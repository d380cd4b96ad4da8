//! The mass-failure guard: when more than half of a type looks dead at once, nothing moves.

use serde::{Deserialize, Serialize};

use super::row::{Desired, Judged, Kind, MachineRow};
use super::state::State;
use crate::limits::FREEZE_MACHINES_MIN;

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
}

impl Tallies {
    pub fn add(&mut self, row: &MachineRow) {
        if row.desired == Desired::Online {
            let tally = self.of_mut(row.kind);
            tally.online += 1;
            tally.dead += usize::from(row.judged == Judged::Failed);
        }
    }

    pub fn subtract(&mut self, row: &MachineRow) {
        if row.desired == Desired::Online {
            let tally = self.of_mut(row.kind);
            tally.online -= 1;
            tally.dead -= usize::from(row.judged == Judged::Failed);
        }
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
        let Tally { online, dead } = self.tallies.of(kind);
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
}
