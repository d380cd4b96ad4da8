//! Sets a machine's desired state, at the operator's request.

use super::refusal::Refusal;
use super::row::{Desired, Write};
use super::state::State;
use super::view::MachineView;
use crate::names::MachineId;
use crate::time::Time;

impl State {
    /// Sets the operator's column.
    pub fn set_desired(
        &mut self,
        id: &MachineId,
        desired: Desired,
        now: Time,
        out: &mut Vec<Write>,
    ) -> Result<MachineView, Refusal> {
        let unknown = || Refusal::UnknownMachine(id.to_string());
        let mut row = self.machines.get(id).ok_or_else(unknown)?.row.clone();
        row.desired = desired;
        self.write(id, row, out);
        self.view(id, now).ok_or_else(unknown)
    }
}
