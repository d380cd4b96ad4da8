//! Asks for a role and runs work only while it is primary: the client side of roles, as a library.
//!
//! It sends heartbeats, and starts, stops and ends the guarded work in time. It must not know how a server decides or
//! stores roles; it relies on nothing but acknowledged heartbeats, its own clock (which includes suspend) and random
//! bits.
//!
//! Three lines of defence, each for the case that the one before it fails:
//!
//! 1. [`Candidate`] counts the term from the *sending* of the last acknowledged heartbeat and asks the work to stop in
//!    time; [`Election`] carries that out.
//! 2. [`Watchdog`], a separate thread, ends the process if the work has not stopped by the end of the term.
//! 3. The *epoch* is a fencing token: every guarded write carries it ([`Fenced`]), and its receiver refuses an epoch
//!    lower than one it has seen ([`Guard`]). Only this still holds when a whole machine is paused between a check and a
//!    write.

mod alarm;
mod candidate;
mod clock;
mod election;
mod fenced;
mod guard;
mod identity;
mod options;
mod plan;
mod term;
mod watchdog;

pub use alarm::Alarm;
pub use candidate::{Call, Candidate, Decline, Effect, Heartbeat, HeartbeatReply, Question, Reason, Then};
pub use clock::{BootClock, Clock, Moment};
pub use election::{Election, Error, State, Stopper};
pub use fenced::Fenced;
pub use guard::{Guard, Stale};
pub use identity::Identity;
pub use options::{Options, PeerDoor};
pub use plan::{Plan, TooTight, Wish};
pub use term::{Hold, Over, Permit, Term};
pub use watchdog::{LastLine, Watch, Watchdog};
