//! The rows of a role. A row is replaced as a whole, by compare-and-swap.

use std::net::IpAddr;
use std::sync::Arc;

use super::continue_mode::Agreement;
use super::slots::Runs;
use crate::ids::{Epoch, Token};
use crate::limits;
use crate::metadata::Metadata;
use crate::names::Uuid;
use crate::time::{Millis, Time};
use crate::words::words;

/// What a primary does that cannot reach the store before its term ends. The store only keeps and distributes this;
/// candidates act on it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// It stops.
    #[default]
    Strict,
    /// It continues for a while, as long as every standby that could take over has just promised not to.
    Continue,
}

words!(Mode, as_str: Strict "strict", Continue "continue");

/// Operator settings of a role.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RoleSettings {
    /// Time to live: how long a term lasts without a heartbeat. Set in the store and sent to every candidate.
    pub ttl: Millis,
    /// What a primary does that cannot reach the store.
    pub mode: Mode,
    /// How long it continues after its term at most, where the mode allows it.
    pub continue_for: Millis,
}

impl Default for RoleSettings {
    fn default() -> Self {
        Self { ttl: limits::ROLE_TTL_DEFAULT, mode: Mode::Strict, continue_for: limits::ROLE_CONTINUE_DEFAULT }
    }
}

impl RoleSettings {
    /// How long a primary may continue after its term: not at all in strict mode.
    #[must_use]
    pub const fn goes_on(&self) -> Millis {
        match self.mode {
            Mode::Strict => Millis(0),
            Mode::Continue => self.continue_for,
        }
    }

    /// The longest heartbeat interval for which a term survives three missed heartbeats and two slow operations.
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

/// Where a candidate accepts the primary's questions, and the secret that authenticates them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// The address.
    pub address: Arc<str>,
    /// The secret; sent to the primary only.
    pub secret: Token,
}

/// A candidate for a role, as it describes itself with each heartbeat.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// The name it gave itself when it started.
    pub uuid: Uuid,
    /// Where it is reached.
    pub address: Option<Arc<str>>,
    /// Metadata for callers.
    pub metadata: Metadata,
    /// Whether it could do the work now. A candidate that is not ready is never granted a role.
    pub ready: bool,
    /// 0 to 9; of several ready candidates, 9 goes first.
    pub priority: u8,
    /// Its heartbeat interval, if it names one; else the one in its answers.
    pub interval: Option<Millis>,
    /// Where it accepts the primary's questions, if it does.
    pub peer: Option<Peer>,
}

impl Candidate {
    /// Its heartbeat interval under these settings.
    #[must_use]
    pub fn interval_under(&self, settings: &RoleSettings) -> Millis {
        self.interval.unwrap_or_else(|| settings.interval_default())
    }
}

/// A term: the lease of one primary. It may have expired.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Term {
    /// The primary.
    pub holder: Candidate,
    /// The secret that renews and releases it; known to the primary only.
    pub token: Token,
    /// Its epoch.
    pub epoch: Epoch,
    /// When it began.
    pub granted_at: Time,
    /// When it was last renewed.
    pub renewed_at: Time,
    /// When it expires.
    pub expires_at: Time,
    /// Whether an operator asks the holder to step down.
    pub step_down: bool,
    /// The agreement by which it may continue after its end.
    pub agreement: Agreement,
}

/// The row of one role.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RoleRow {
    /// Grows with every change, so that no two states are the same row.
    pub version: u64,
    /// Operator settings.
    pub settings: RoleSettings,
    /// The last epoch granted or ruled out.
    pub epoch: Epoch,
    /// The last term, until it is released.
    pub term: Option<Term>,
    /// While there is no term: since when.
    pub vacant_since: Time,
    /// The token of the last released term, which makes a release idempotent.
    pub released: Option<Token>,
    /// The candidate that was asked to step down and did: others go first for a moment.
    pub avoided: Option<Uuid>,
    /// The store that wrote this.
    pub incarnation: u64,
    /// Quiet period: until then only a live term is renewed and nothing is granted, because the store was replaced.
    pub quiet_until: Time,
    /// How long it lasts at least, from its start. Settings that change meanwhile do not shorten it.
    pub quiet_for: Millis,
    /// The slots that were run.
    pub runs: Runs,
}

impl RoleRow {
    /// The live term, if any. A term whose deadline has passed is over, whether or not anyone noticed.
    #[must_use]
    pub fn live(&self, now: Time) -> Option<&Term> {
        self.term.as_ref().filter(|term| term.expires_at > now)
    }

    /// The longest term that a primary may rely on after its last renewal, by its own clock: one time to live, or a
    /// longer one granted before that was shortened.
    pub(super) fn longest_term(&self) -> Millis {
        let current = self.term.as_ref().map_or(Millis(0), |term| term.expires_at.since(term.renewed_at));
        self.settings.ttl.max(current)
    }

    /// Handles a change of store. The new store may have lost what was granted last: so for one time to live nothing
    /// new is granted, and epochs that may have been granted are skipped. Where a primary may continue after its term
    /// the quiet period is that much longer, and earlier acknowledgements no longer count.
    pub fn notice(&mut self, incarnation: u64, now: Time) {
        if self.incarnation != incarnation {
            self.incarnation = incarnation;
            let goes_on = self.longest_to_go_on();
            // A quiet period from an earlier change of store is not cut short by another one.
            let most = Millis(self.longest_term().0.saturating_add(goes_on.0));
            self.quiet_for = self.quiet_for.max(most);
            self.quiet_until = self.quiet_until.max(now.after(most));
            if goes_on > Millis(0) {
                // Above every version that earlier stores may have issued: each of them started at its own, earlier
                // time and advanced more slowly than time does.
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

/// A standby: from its last heartbeat until it has missed one time to live of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StandbyRow {
    /// As it described itself.
    pub candidate: Candidate,
    /// The address that its last heartbeat came from, if that is known.
    pub from: Option<IpAddr>,
    /// When its last heartbeat came.
    pub seen_at: Time,
    /// When it no longer counts.
    pub expires_at: Time,
    /// The version of the role's row with which it became a member that the primary must ask; zero if it has not. While
    /// its row exists, every list issued from that version on contains it.
    pub joined: u64,
}

impl StandbyRow {
    /// Whether it still counts.
    #[must_use]
    pub fn is_fresh(&self, now: Time) -> bool {
        self.expires_at > now
    }
}

/// What new roles start from: one row for the whole store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Origin {
    /// No new role grants this epoch or a lower one: the highest epoch of all deleted roles.
    pub epoch: Epoch,
    /// Number of roles.
    pub roles: u64,
    /// The store that wrote this.
    pub incarnation: u64,
    /// When this store was found to have replaced another; zero if it has not.
    pub noticed_at: Time,
}
