//! What is kept of a role. A row is replaced whole, and only by who has read its present value.

use std::sync::Arc;

use super::continue_mode::Agreement;
use super::slots::Runs;
use crate::ids::{Epoch, Token};
use crate::limits;
use crate::metadata::Metadata;
use crate::names::Uuid;
use crate::time::{Millis, Time};

/// What a primary does that cannot reach the store before its term ends. The store keeps it and hands it out; candidates
/// act on it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// It stops.
    #[default]
    Strict,
    /// It goes on for a while as long as every standby that could take over has just promised not to.
    Continue,
}

impl Mode {
    /// The word for it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Strict => "strict",
            Self::Continue => "continue",
        }
    }
}

/// What operators set on a role.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RoleSettings {
    /// How long a term lasts without a heartbeat: the store's, told to every candidate.
    pub ttl: Millis,
    /// What a primary does that cannot reach the store.
    pub mode: Mode,
    /// How long at most it goes on after its term, where the mode lets it.
    pub continue_for: Millis,
}

impl Default for RoleSettings {
    fn default() -> Self {
        Self { ttl: limits::ROLE_TTL_DEFAULT, mode: Mode::Strict, continue_for: limits::ROLE_CONTINUE_DEFAULT }
    }
}

impl RoleSettings {
    /// How long a primary may go on after its term: not at all where the mode is strict.
    #[must_use]
    pub const fn goes_on(&self) -> Millis {
        match self.mode {
            Mode::Strict => Millis(0),
            Mode::Continue => self.continue_for,
        }
    }

    /// The longest interval between heartbeats that a term outlasts by three misses and two slow operations.
    #[must_use]
    pub const fn interval_max(&self) -> Millis {
        Millis(self.ttl.0 / limits::ROLE_INTERVALS_MIN)
    }

    /// The interval for candidates that name none.
    #[must_use]
    pub const fn interval_default(&self) -> Millis {
        Millis(self.ttl.0 / limits::ROLE_INTERVALS_DEFAULT)
    }
}

/// Where a candidate takes the primary's questions, and the secret that proves them to be the primary's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// The address.
    pub address: Arc<str>,
    /// The secret; told to the primary alone.
    pub secret: Token,
}

/// One who wants a role, as it describes itself with each heartbeat.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// The name it gave itself when it started.
    pub uuid: Uuid,
    /// Where it is reached.
    pub address: Option<Arc<str>>,
    /// Whatever else callers should know.
    pub metadata: Metadata,
    /// Whether it could do the work now. One that could not is never given a role.
    pub ready: bool,
    /// 0 to 9; where several are ready, 9 comes first.
    pub priority: u8,
    /// How often it sends heartbeats, if it says so; else as often as it is told to.
    pub interval: Option<Millis>,
    /// Where it takes the primary's questions, if it does.
    pub peer: Option<Peer>,
}

impl Candidate {
    /// How often it sends heartbeats under these settings.
    #[must_use]
    pub fn interval_under(&self, settings: &RoleSettings) -> Millis {
        self.interval.unwrap_or_else(|| settings.interval_default())
    }
}

/// A time under one primary. It may be over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Term {
    /// The primary.
    pub holder: Candidate,
    /// The secret that renews and releases it; the primary alone knows it.
    pub token: Token,
    /// Its number.
    pub epoch: Epoch,
    /// When it began.
    pub granted_at: Time,
    /// When the last heartbeat counted.
    pub renewed_at: Time,
    /// From this time on the holder is nobody.
    pub expires_at: Time,
    /// Whether an operator wants the holder to let go.
    pub step_down: bool,
    /// By what it may go on after its end.
    pub agreement: Agreement,
}

/// All that is kept of one role.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RoleRow {
    /// Grows with every change, so that two states are never the same row.
    pub version: u64,
    /// What operators set.
    pub settings: RoleSettings,
    /// The last epoch that was granted, or is not to be granted any more.
    pub epoch: Epoch,
    /// The last term, until it is released.
    pub term: Option<Term>,
    /// While there is no term: since when.
    pub vacant_since: Time,
    /// The token of the term that was released last, so that a repeated release is known as such.
    pub released: Option<Token>,
    /// Who was asked to step down and let go: others come first for a moment.
    pub avoided: Option<Uuid>,
    /// The store that wrote this.
    pub incarnation: u64,
    /// Until then only a living term is renewed and nothing is granted, because another store has stepped in or its clock has
    /// stepped forward.
    pub quiet_until: Time,
    /// The slots that were run.
    pub runs: Runs,
}

impl RoleRow {
    /// The term that holds now, if one does. A term whose time has come is over, whether or not somebody noticed.
    #[must_use]
    pub fn live(&self, now: Time) -> Option<&Term> {
        self.term.as_ref().filter(|term| term.expires_at > now)
    }

    /// Since when nobody has the role, if nobody has; a quiet time does not count.
    #[must_use]
    pub fn vacant_since(&self) -> Time {
        self.term.as_ref().map_or(self.vacant_since, |term| term.expires_at).max(self.quiet_until)
    }

    /// Until when nothing is granted because the store's clock stepped forward at `stepped_at`. A term that was renewed
    /// before may have run out by the step alone: its holder counts on it for up to one term's length more, and for as long
    /// again as it may go on. A term that was renewed since is counted by the new time on both sides.
    #[must_use]
    pub fn quiet_after_step(&self, stepped_at: Time) -> Time {
        match &self.term {
            Some(term) if term.renewed_at < stepped_at => {
                stepped_at.after(self.settings.ttl).after(self.longest_to_go_on())
            }
            _ => Time::ZERO,
        }
    }

    /// Notes that another store has stepped in. It may have lost what was granted last: so for one term's length nothing
    /// new is granted, and epochs that may have been granted are left out. Where a primary may go on after its term, it is
    /// that much longer, and nothing counts that the primary has heard before.
    pub fn notice(&mut self, incarnation: u64, now: Time) {
        if self.incarnation != incarnation {
            self.incarnation = incarnation;
            let goes_on = self.longest_to_go_on();
            // What an earlier change of store made wait for is not over because there was another one.
            self.quiet_until = self.quiet_until.max(now.after(self.settings.ttl).after(goes_on));
            if goes_on > Millis(0) {
                // Above all that the stores before may have told: each of them began with its own, earlier time, and went on
                // from there more slowly than time does.
                let since =
                    now.0.saturating_mul(limits::ROLE_VERSIONS_A_MS).saturating_add(limits::ROLE_VERSIONS_SKIPPED);
                self.version = self.version.saturating_add(1).max(since);
                let version = self.version;
                if let Some(term) = &mut self.term {
                    term.agreement.forget(version);
                }
            }
            self.epoch = Epoch(self.epoch.0.saturating_add(limits::ROLE_EPOCHS_SKIPPED));
        }
    }
}

/// One who stands by: from its last heartbeat until it has missed a term's length of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StandbyRow {
    /// As it described itself.
    pub candidate: Candidate,
    /// When its last heartbeat came.
    pub seen_at: Time,
    /// From this time on it is not counted on.
    pub expires_at: Time,
    /// The version of the role's row with which it joined those whom the primary must ask; zero if it has not. As long as its
    /// row is there, every list that a primary was told from that version on has it.
    pub joined: u64,
}

impl StandbyRow {
    /// Whether it is still counted on.
    #[must_use]
    pub fn is_fresh(&self, now: Time) -> bool {
        self.expires_at > now
    }
}

/// What new roles begin with: one row for the whole store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Origin {
    /// No role that is made from now on grants this epoch or a lower one: the highest of all roles that were deleted.
    pub epoch: Epoch,
    /// How many roles there are.
    pub roles: u64,
    /// The store that wrote this.
    pub incarnation: u64,
    /// When it was noticed that this store has stepped in for another; zero if it has not.
    pub noticed_at: Time,
}
