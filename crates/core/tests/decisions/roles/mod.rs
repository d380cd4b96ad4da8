//! Roles: transcripts, and a naive model against random histories.

mod agreement;
mod history;
mod slots;
mod story;
mod traps;
mod world;

use wayleave_core::ids::{Epoch, Token};
use wayleave_core::invariants::lawful_step;
use wayleave_core::limits;
use wayleave_core::roles::{Candidate, HeartbeatCall, HeartbeatReply, Mode, Outcome, Refusal, RoleChanges, Was};
use wayleave_core::settings::Change;
use wayleave_core::time::{Millis, Time};

use self::world::{World, candidate};
