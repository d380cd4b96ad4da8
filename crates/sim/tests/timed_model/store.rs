//! The store of the model: the real decisions of the core on one role, a clock that may step, and a standby to fail over to.

use std::hash::{Hash, Hasher};

use wayleave_api::roles::HeartbeatResponse;
use wayleave_core::ids::Token;
use wayleave_core::metadata::Metadata;
use wayleave_core::roles::{Ask, Candidate, Facts, Mode, Origin, Outcome, RoleRow, RoleSettings, heartbeat, release};
use wayleave_core::settings::Change;
use wayleave_core::time::{Millis, Time};
use wayleave_elect::Answer;

/// The store's clock shows this much when the model begins.
const NOON: u64 = 1_000_000;
/// So many writes an asynchronous standby may lag behind.
const LAG: usize = 2;

/// What is durable.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Kept {
    row: Option<RoleRow>,
    origin: Option<Origin>,
    /// The last committed time: the store's time never goes below it.
    floor: Time,
}

/// Rows are told apart by what decisions look at: not by versions, nor by times that are only shown.
impl Hash for Kept {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.floor.hash(state);
        let Some(row) = &self.row else { return };
        let term = row.term.as_ref().map(|t| (t.holder.uuid.clone(), t.token, t.epoch, t.expires_at, t.step_down));
        (term, row.epoch, row.incarnation, row.quiet_until, row.released, row.settings.ttl).hash(state);
        self.origin.map(|o| (o.epoch, o.roles, o.incarnation, o.noticed_at)).hash(state);
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Store {
    kept: Kept,
    /// Older durable states, the latest last: where an asynchronous standby may stand.
    older: Vec<Kept>,
    /// By how much its clock is off.
    offset_ms: i64,
    incarnation: u64,
    /// Terms granted so far, for tokens that never repeat.
    grants: u64,
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
            settings: RoleSettings { ttl: Millis(ttl_ms), mode: Mode::Strict },
            epoch: Default::default(),
            term: None,
            vacant_since: Time(NOON),
            released: None,
            avoided: None,
            incarnation: 1,
            quiet_until: Time::ZERO,
        };
        let origin = Origin { roles: 1, incarnation: 1, ..Origin::default() };
        let kept = Kept { row: Some(row), origin: Some(origin), floor: Time(NOON) };
        Self { kept, older: Vec::new(), offset_ms: 0, incarnation: 1, grants: 0 }
    }

    /// The store's time: its clock, but never less than what it has committed.
    fn now(&self, real_ms: u64) -> Time {
        Time((NOON + real_ms).saturating_add_signed(self.offset_ms)).max(self.kept.floor)
    }

    fn facts(&self, real_ms: u64) -> Facts {
        Facts {
            role: "role".into(),
            row: self.kept.row.clone(),
            // All candidates have the same priority, so who stands by decides nothing.
            standbys: Vec::new(),
            origin: self.kept.origin,
            now: self.now(real_ms),
            incarnation: self.incarnation,
        }
    }

    /// A heartbeat arrives and is decided, committed and answered.
    pub fn heartbeat(
        &mut self,
        real_ms: u64,
        uuid: &str,
        token: Option<&str>,
        interval_ms: u64,
    ) -> (Answer, Option<Granted>) {
        let candidate = Candidate {
            uuid: uuid.into(),
            address: None,
            metadata: Metadata::default(),
            ready: true,
            priority: 5,
            interval: Some(Millis(interval_ms)),
        };
        let token = token.map(|token| Token::parse(token).expect("a token of this store"));
        let facts = self.facts(real_ms);
        let decided = match heartbeat(&facts, &Ask { candidate, token }, u128::from(self.grants) + 1) {
            Ok(decided) => decided,
            Err(_) => return (Answer::NotCurrent, None),
        };
        self.commit(decided.writes.row, decided.writes.origin, facts.now);
        let new = decided.answer.outcome == Outcome::Acquired;
        self.grants += u64::from(new);
        let granted = (decided.answer.outcome != Outcome::Standby).then(|| Granted {
            epoch: decided.answer.epoch.0,
            uuid: uuid.to_owned(),
            new,
        });
        let answer = Answer::read(&HeartbeatResponse::from(decided.answer), uuid).expect("an answer that makes sense");
        (answer, granted)
    }

    /// A release arrives.
    pub fn release(&mut self, real_ms: u64, uuid: &str, token: Option<&str>) {
        let token = token.map(|token| Token::parse(token).expect("a token of this store"));
        let facts = self.facts(real_ms);
        if let Ok(decided) = release(&facts, &uuid.into(), token) {
            self.commit(decided.writes.row, decided.writes.origin, facts.now);
        }
    }

    fn commit(&mut self, row: Change<RoleRow>, origin: Option<Origin>, now: Time) {
        let before = self.kept.clone();
        match row {
            Change::Keep => {}
            Change::Clear => self.kept.row = None,
            Change::Set(row) => self.kept.row = Some(row),
        }
        self.kept.origin = origin.or(self.kept.origin);
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

    /// A standby takes over that has not seen the last writes. `known`: it knows that it is another store.
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
