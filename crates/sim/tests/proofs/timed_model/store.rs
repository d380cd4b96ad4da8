//! The store of the model: the core's real decisions on one role, a clock that may step, and a standby to fail over to.

use std::hash::Hasher;

use wayleave_api::roles::HeartbeatResponse;
use wayleave_core::metadata::Metadata;
use wayleave_core::roles::{
    Candidate, Facts, HeartbeatCall, Mode, Origin, Outcome, Peer, RoleChanges, RoleRow, RoleSettings, StandbyRow,
    Writes, heartbeat, release, set,
};
use wayleave_elect::{Heartbeat, HeartbeatReply};

use crate::prelude::*;

/// The store's clock shows this much when the model begins.
const NOON: u64 = 1_000_000;
/// The maximum lag of an asynchronous standby, in writes.
const LAG: usize = 2;

/// What is durable.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Kept {
    row: Option<RoleRow>,
    origin: Option<Origin>,
    /// Empty where all candidates have the same priority and none may continue: then the standbys decide nothing.
    standbys: Vec<StandbyRow>,
    /// The last committed time: the store's time never goes below it.
    floor: Time,
}

/// Rows are hashed by what decisions read: not by versions, where no candidate joins, nor by times that are only
/// displayed.
impl Hash for Kept {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.floor.hash(state);
        let Some(row) = &self.row else { return };
        let term = row.term.as_ref().map(|t| (t.holder.uuid.clone(), t.token, t.epoch, t.expires_at, t.step_down));
        (term, row.epoch, row.incarnation, row.quiet_until, row.quiet_for, row.released, row.settings.ttl).hash(state);
        if row.settings.mode == Mode::Continue || !self.standbys.is_empty() {
            let agreement = row.term.as_ref().map(|t| t.agreement);
            let agreement = agreement.map(|a| (a.goes_on, a.announced, a.announced_at, a.heard, a.counts_from));
            (row.version, row.settings.goes_on(), agreement).hash(state);
            let standby = |s: &StandbyRow| (s.candidate.uuid.clone(), s.expires_at, s.joined);
            self.standbys.iter().map(standby).collect::<Vec<_>>().hash(state);
        }
        self.origin.map(|o| (o.epoch, o.roles, o.incarnation, o.noticed_at)).hash(state);
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Store {
    kept: Kept,
    /// Older durable states, the latest last: where an asynchronous standby may be.
    older: Vec<Kept>,
    /// By how much its clock is off.
    offset_ms: i64,
    /// Since when the server that decides knows that its clock runs evenly.
    pub steady_since: Time,
    incarnation: u64,
    /// Terms granted so far, for tokens that never repeat.
    grants: u64,
    /// What it gets wrong.
    fault: Fault,
}

/// Parts of the rule that a store may omit, for the checker to break.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Fault {
    #[default]
    None,
    /// A candidate that has joined may take over, whatever the primary has learned.
    JoinedIsEnough,
    /// Any standby may take over.
    AnybodyTakesOver,
}

/// A grant or renewal, as the laws see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Granted {
    pub epoch: u64,
    pub uuid: String,
    pub new: bool,
}

impl Store {
    pub fn new(ttl_ms: u64) -> Self {
        let row = RoleRow {
            version: 1,
            settings: RoleSettings { ttl: Millis(ttl_ms), mode: Mode::Strict, continue_for: Millis(0) },
            epoch: Default::default(),
            term: None,
            vacant_since: Time(NOON),
            released: None,
            avoided: None,
            incarnation: 1,
            quiet_until: Time::ZERO,
            quiet_for: Millis(0),
            runs: Default::default(),
        };
        let origin = Origin { roles: 1, incarnation: 1, ..Origin::default() };
        let kept = Kept { row: Some(row), origin: Some(origin), standbys: Vec::new(), floor: Time(NOON) };
        Self {
            kept,
            older: Vec::new(),
            offset_ms: 0,
            steady_since: Time::ZERO,
            incarnation: 1,
            grants: 0,
            fault: Fault::None,
        }
    }

    /// One whose role lets its primary continue for so long.
    pub fn going_on(ttl_ms: u64, continue_for_ms: u64, fault: Fault) -> Self {
        let mut store = Self { fault, ..Self::new(ttl_ms) };
        if let Some(row) = &mut store.kept.row {
            (row.settings.mode, row.settings.continue_for) = (Mode::Continue, Millis(continue_for_ms));
        }
        store
    }

    /// Whether the last term has run out.
    pub fn has_expired(&self, real_ms: u64) -> bool {
        let term = self.kept.row.as_ref().and_then(|row| row.term.as_ref());
        term.is_some_and(|term| term.expires_at <= self.now(real_ms))
    }

    /// An operator sets the mode.
    pub fn set_mode(&mut self, real_ms: u64, mode: Mode) {
        let facts = self.facts(real_ms);
        let changes = RoleChanges { mode: Change::Set(mode), ..RoleChanges::default() };
        let decided = set(&facts, &changes).expect("a change that is allowed");
        self.commit(decided.writes, facts.now);
    }

    /// The store's time: its clock, but never less than what it has committed.
    pub fn now(&self, real_ms: u64) -> Time {
        Time((NOON + real_ms).saturating_add_signed(self.offset_ms)).max(self.kept.floor)
    }

    fn facts(&self, real_ms: u64) -> Facts {
        Facts {
            role: "role".into(),
            row: self.kept.row.clone(),
            standbys: self.kept.standbys.clone(),
            origin: self.kept.origin,
            now: self.now(real_ms),
            incarnation: self.incarnation,
            steady_since: self.steady_since,
        }
    }

    /// A heartbeat arrives and is decided, committed and answered.
    pub fn heartbeat(
        &mut self,
        real_ms: u64,
        uuid: &str,
        beat: &Heartbeat,
        (interval_ms, peer): (u64, Option<Peer>),
    ) -> (HeartbeatReply, Option<Granted>) {
        let candidate = Candidate {
            uuid: uuid.into(),
            address: None,
            metadata: Metadata::default(),
            ready: true,
            priority: 5,
            interval: Some(Millis(interval_ms)),
            peer,
        };
        let token = beat.token.as_deref().map(|token| Token::parse(token).expect("a token of this store"));
        let mut facts = self.facts(real_ms);
        let take_over = beat.take_over.map(|bid| bid.try_into().expect("numbers that a reader can hold"));
        let ask = HeartbeatCall { candidate, token, heard: beat.heard, take_over, slot: None, from: None };
        self.fault.spoil(&mut facts, &ask);
        let decided = match heartbeat(&facts, &ask, u128::from(self.grants) + 1) {
            Ok(decided) => decided,
            Err(_) => return (HeartbeatReply::NotCurrent, None),
        };
        self.commit(decided.writes, facts.now);
        let new = decided.answer.outcome == Outcome::Acquired;
        self.grants += u64::from(new);
        let granted = (decided.answer.outcome != Outcome::Standby).then(|| Granted {
            epoch: decided.answer.epoch.0,
            uuid: uuid.to_owned(),
            new,
        });
        let answer =
            HeartbeatReply::read(&HeartbeatResponse::from(decided.answer), uuid).expect("an answer that makes sense");
        (answer, granted)
    }

    /// A release arrives.
    pub fn release(&mut self, real_ms: u64, uuid: &str, token: Option<&str>) {
        let token = token.map(|token| Token::parse(token).expect("a token of this store"));
        let facts = self.facts(real_ms);
        if let Ok(decided) = release(&facts, &uuid.into(), token, None) {
            self.commit(decided.writes, facts.now);
        }
    }

    fn commit(&mut self, writes: Writes, now: Time) {
        let before = self.kept.clone();
        match writes.row {
            Change::Keep => {}
            Change::Clear => self.kept.row = None,
            Change::Set(row) => self.kept.row = Some(row),
        }
        self.kept.origin = writes.origin.or(self.kept.origin);
        if self.kept.row.as_ref().is_some_and(|row| row.settings.continue_for > Millis(0)) {
            for (uuid, row) in writes.standbys {
                self.kept.standbys.retain(|standby| standby.candidate.uuid != uuid);
                self.kept.standbys.extend(row);
            }
            self.kept.standbys.sort_by(|a, b| a.candidate.uuid.cmp(&b.candidate.uuid));
        }
        self.kept.floor = now;
        self.older.push(before);
        if self.older.len() > LAG {
            self.older.remove(0);
        }
    }

    /// It restarts, with all that it committed, and its clock has been set.
    pub fn restart(&mut self, step_ms: i64) {
        self.offset_ms += step_ms;
    }

    /// A standby is promoted that has not seen the last writes. `known`: it has a new incarnation.
    pub fn fail_over(&mut self, lost: usize, known: bool) {
        for _ in 0..lost {
            if let Some(older) = self.older.pop() {
                self.kept = older;
            }
        }
        self.older.clear();
        self.incarnation += u64::from(known);
    }

    /// How many of the last writes can be lost.
    pub fn losable(&self) -> usize {
        self.older.len()
    }
}

impl Fault {
    /// Makes the core decide as if it had that fault.
    fn spoil(self, facts: &mut Facts, ask: &HeartbeatCall) {
        let Some(term) = facts.row.as_mut().and_then(|row| row.term.as_mut()) else { return };
        if term.expires_at > facts.now || term.holder.uuid == ask.candidate.uuid {
            return;
        }
        match self {
            Self::None => {}
            Self::JoinedIsEnough => term.agreement.heard = u64::MAX,
            Self::AnybodyTakesOver => {
                term.agreement.heard = u64::MAX;
                let (candidate, seen_at) = (ask.candidate.clone(), facts.now);
                facts.standbys.retain(|standby| standby.candidate.uuid != candidate.uuid);
                facts.standbys.push(StandbyRow { candidate, from: None, seen_at, expires_at: facts.now, joined: 1 });
            }
        }
    }
}
