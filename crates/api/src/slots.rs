//! Slots on the wire: work that a schedule wants done once, and the record that it was done.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use wayleave_core::names;
use wayleave_core::roles::Run;

use crate::Timestamp;
use crate::bad_value::BadValue;

/// A slot that was run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SlotRun {
    /// Its name.
    pub slot: String,
    /// The epoch of the term in which it was run.
    pub epoch: u64,
    /// When that was recorded.
    pub at: Timestamp,
}

impl From<Run> for SlotRun {
    fn from(run: Run) -> Self {
        Self { slot: run.slot.to_string(), epoch: run.epoch.0, at: Timestamp(run.at) }
    }
}

pub(crate) fn slot(text: Option<&str>) -> Result<Option<names::Slot>, BadValue> {
    text.map(names::slot).transpose().map_err(|error| BadValue::new("slot", error))
}
