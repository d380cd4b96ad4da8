//! One role in a store made of a few variables, and candidates that remember their tokens.

use std::collections::BTreeMap;

use wayleave_core::invariants::{Span, Tenure, one_primary};
use wayleave_core::metadata::Metadata;
use wayleave_core::roles;
use wayleave_core::roles::{Decided, Facts, Origin, Released, RoleView, Writes};

use super::*;

pub struct World {
    pub facts: Facts,
    /// The last token of each candidate.
    pub tokens: BTreeMap<String, Token>,
    pub tenures: Vec<Tenure>,
    pub written: Vec<Writes>,
    /// The store before its last write.
    before: Facts,
    entropy: u128,
}

pub fn candidate(uuid: &str) -> Candidate {
    let metadata = Metadata::default();
    Candidate {
        uuid: uuid.into(),
        address: Some(format!("{uuid}:1").into()),
        metadata,
        ready: true,
        priority: 5,
        interval: None,
        peer: None,
    }
}

impl World {
    pub fn new() -> Self {
        Self::with(None)
    }

    /// A role with a primary.
    pub fn led(by: &str) -> Self {
        let mut world = Self::new();
        world.beat(by).unwrap();
        world
    }

    pub fn after_earlier_roles() -> Self {
        Self::with(Some(Origin::default()))
    }

    fn with(origin: Option<Origin>) -> Self {
        let facts = Facts {
            role: "r".into(),
            row: None,
            standbys: Vec::new(),
            origin,
            now: Time(1_000),
            incarnation: 0,
            steady_since: Time::ZERO,
        };
        let before = facts.clone();
        Self { facts, before, tokens: BTreeMap::new(), tenures: Vec::new(), written: Vec::new(), entropy: 0 }
    }

    pub fn pass(&mut self, ms: u64) {
        self.facts.now = self.facts.now.after(Millis(ms));
    }

    /// The store's clock steps forward, and the step is noticed.
    pub fn step(&mut self, ms: u64) {
        self.pass(ms);
        self.facts.steady_since = self.facts.now;
    }

    /// Applies writes as a store does; every transition is checked against the law.
    fn apply<A>(&mut self, decided: Decided<A>) -> A {
        let Decided { writes, answer } = decided;
        if writes != Writes::default() {
            self.before = self.facts.clone();
        }
        self.written.push(writes.clone());
        let before = self.facts.row.clone();
        match writes.row {
            Change::Keep => {}
            Change::Clear => self.facts.row = None,
            Change::Set(row) => self.facts.row = Some(row),
        }
        if before != self.facts.row {
            assert_eq!(lawful_step(before.as_ref(), self.facts.row.as_ref(), self.facts.now), Ok(()));
        }
        self.facts.origin = writes.origin.or(self.facts.origin);
        for (uuid, row) in writes.standbys {
            self.facts.standbys.retain(|standby| standby.candidate.uuid != uuid);
            self.facts.standbys.extend(row);
        }
        self.facts.standbys.sort_by(|a, b| a.candidate.uuid.cmp(&b.candidate.uuid));
        answer
    }

    /// Failover to a store that has not received the last write.
    pub fn fail_over_losing_the_last_write(&mut self) {
        let (now, incarnation) = (self.facts.now, self.facts.incarnation + 1);
        self.facts = Facts { now, incarnation, ..self.before.clone() };
        self.before = self.facts.clone();
    }

    pub fn beat_with(&mut self, candidate: Candidate, token: Option<Token>) -> Result<HeartbeatReply, Refusal> {
        self.ask(HeartbeatCall { candidate, token, heard: None, take_over: None, slot: None, from: None })
    }

    pub fn ask(&mut self, ask: HeartbeatCall) -> Result<HeartbeatReply, Refusal> {
        self.entropy += 1;
        let uuid = ask.candidate.uuid.clone();
        let answer = self.apply(roles::heartbeat(&self.facts, &ask, self.entropy)?);
        self.tokens.extend(answer.token.map(|token| (uuid.to_string(), token)));
        let end = self.facts.now.after(answer.remaining);
        match answer.outcome {
            Outcome::Acquired => self.tenures.push(Tenure {
                role: "r".into(),
                epoch: answer.epoch,
                holder: uuid,
                span: Span { start: self.facts.now, end },
            }),
            Outcome::Renewed => {
                let tenure = self.tenures.iter_mut().find(|t| t.epoch == answer.epoch).expect("it was granted");
                assert_eq!(tenure.holder, uuid, "an epoch has one holder");
                tenure.span.end = end;
            }
            Outcome::Standby => assert_eq!(answer.token, None, "a standby gets no secret"),
        }
        assert_eq!(one_primary(&self.tenures), Ok(()));
        assert!(!answer.reason.is_empty());
        Ok(answer)
    }

    /// The token that a candidate sends along; one that has released sends none.
    pub fn token_of(&self, uuid: &str) -> Option<Token> {
        let released = self.facts.row.as_ref().and_then(|row| row.released);
        self.tokens.get(uuid).copied().filter(|token| Some(*token) != released)
    }

    pub fn beat(&mut self, uuid: &str) -> Result<HeartbeatReply, Refusal> {
        self.beat_with(candidate(uuid), self.token_of(uuid))
    }

    pub fn release(&mut self, uuid: &str, token: Option<Token>) -> Result<Released, Refusal> {
        self.release_after(uuid, token, None)
    }

    /// The same for a candidate that has run a slot.
    pub fn release_after(&mut self, uuid: &str, token: Option<Token>, slot: Option<&str>) -> Result<Released, Refusal> {
        let slot = slot.map(Into::into);
        let held = self.facts.row.as_ref().and_then(|row| row.live(self.facts.now)).map(|term| term.epoch);
        let answer = self.apply(roles::release(&self.facts, &uuid.into(), token, slot.as_ref())?);
        let row = self.facts.row.as_ref();
        if row.is_some_and(|row| row.term.is_none())
            && let Some(tenure) = held.and_then(|epoch| self.tenures.iter_mut().find(|t| t.epoch == epoch))
        {
            tenure.span.end = self.facts.now;
        }
        Ok(answer)
    }

    pub fn set(&mut self, changes: &RoleChanges) -> Result<(), Refusal> {
        let decided = roles::set(&self.facts, changes)?;
        self.apply(decided);
        Ok(())
    }

    pub fn set_ttl(&mut self, ms: u64) -> Result<(), Refusal> {
        self.set(&RoleChanges { ttl: Change::Set(Millis(ms)), ..RoleChanges::default() })
    }

    pub fn step_down(&mut self) -> Result<(), Refusal> {
        let decided = roles::step_down(&self.facts)?;
        self.apply(decided);
        Ok(())
    }

    pub fn delete(&mut self) -> Result<(), Refusal> {
        let decided = roles::delete(&self.facts)?;
        self.apply(decided);
        Ok(())
    }

    pub fn look(&self) -> RoleView {
        roles::view(&self.facts)
    }

    /// The primary and its epoch.
    pub fn primary(&self) -> Option<(String, Epoch)> {
        self.look().primary.map(|primary| (primary.uuid.to_string(), primary.epoch))
    }
}
