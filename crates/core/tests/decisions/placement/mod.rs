//! Placement: transcripts, balance and movement in figures, and the laws against random histories.

mod balance;
mod history;
mod lost_servers;
mod reports;
mod story;
mod unready;
mod with_fleet;
mod world;

use std::collections::BTreeMap;

use wayleave_core::fleet::{Desired, Judged, RowNo};
use wayleave_core::ids::ChunkId;
use wayleave_core::limits::REPLACE_AFTER_DEFAULT;
use wayleave_core::names::MachineId;
use wayleave_core::pipeline::row::Artifact;
use wayleave_core::placement::{
    Config, CopyReport, CopyRole, Filter, GiveUpReason, Map, PlacementRow, PlacementState, Refusal, ServerRow, Write,
};
use wayleave_core::time::{Millis, Time};

use self::world::{World, artifact};
