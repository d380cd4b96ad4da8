//! The fleet: transcripts, bad input, and a naive model against random histories.

mod bad_input;
mod history;
mod lasting;
mod probing;
mod story;
pub mod world;

use std::collections::BTreeMap;

use wayleave_core::fleet::{
    Config, Desired, Filter, Holdings, Judged, Kind, MachineRow, Probe, ProbeOutcome, Refusal, Report, Reported, State,
    Write,
};
use wayleave_core::ids::{ShardId, Token};
use wayleave_core::limits::{FAILED_AFTER, MACHINES_MAX};
use wayleave_core::time::{Millis, Time};

use self::world::{World, report};
