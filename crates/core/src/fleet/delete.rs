//! The operator deletes a machine. Its row goes; its name may register again.

use super::refusal::Refusal;
use super::row::{Desired, Write};
use super::state::State;
use crate::names::MachineId;

/// The copies of chunks that a server has, as placement knows them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Holdings {
    /// Copies that its row needs.
    pub needed: usize,
    /// Copies that are no longer wanted, and not reported gone yet.
    pub surplus: usize,
}

impl State {
    /// Deletes a machine that has no placements, or that is drained: then it may still have copies that are no longer
    /// needed. Fails if the machine is not known, or its row needs its copies.
    pub fn delete(&mut self, id: &MachineId, holds: Holdings, out: &mut Vec<Write>) -> Result<(), Refusal> {
        let machine = self.machines.get(id).ok_or_else(|| Refusal::UnknownMachine(id.to_string()))?;
        let drained = machine.row.desired == Desired::Drain;
        let (needed, remedy) = match holds {
            Holdings { needed: 0, surplus: 0 } => (0, ""),
            Holdings { needed: 0, .. } if drained => (0, ""),
            Holdings { needed, .. } if drained => (needed, "it is being drained; wait until they have moved"),
            Holdings { needed, surplus } => (needed + surplus, "drain it first"),
        };
        if needed > 0 {
            return Err(Refusal::HasPlacements { id: id.to_string(), needed, remedy: remedy.into() });
        }
        self.remove(id);
        out.push(Write::Machine(id.clone(), None));
        Ok(())
    }
}
