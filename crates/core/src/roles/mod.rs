//! Roles: who is the primary for a duty, under which epoch, and who stands by.
//!
//! This module decides. It must not know the time, where rows are stored, who asked, or how an answer is sent. In: what
//! the store says about one role at one instant ([`Facts`]), and a request. Out: rows to write and an answer, or a
//! refusal; all plain values. The caller writes by compare-and-swap: only if the rows read are unchanged, else it reads
//! and decides again.

pub mod continue_mode;
pub mod delete;
pub mod facts;
pub mod heartbeat;
pub mod raise_epoch;
pub mod refusal;
pub mod release;
pub mod row;
pub mod set;
pub mod slots;
pub mod step_down;
pub mod view;

pub use continue_mode::{Agreement, Bid, GoingOn, LastTerm, Member};
pub use delete::delete;
pub use facts::{Decided, Facts, Writes};
pub use heartbeat::{HeartbeatCall, HeartbeatReply, Outcome, heartbeat};
pub use raise_epoch::raise_epoch;
pub use refusal::Refusal;
pub use release::{Released, Was, release};
pub use row::{Candidate, Mode, Origin, Peer, RoleRow, RoleSettings, StandbyRow, Term};
pub use set::{RoleChanges, set};
pub use slots::{Run, Runs};
pub use step_down::step_down;
pub use view::{RoleView, view};
