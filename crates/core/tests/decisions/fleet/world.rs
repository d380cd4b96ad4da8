//! A fleet in a store made of a map, and machines that remember their tokens.

use wayleave_core::fleet::ReportReply;
use wayleave_core::names::MachineId;

use super::*;

pub struct World {
    pub state: State,
    pub store: BTreeMap<MachineId, MachineRow>,
    pub now: Time,
    /// The last token of each name.
    pub tokens: BTreeMap<String, Token>,
    /// The writes of the last command.
    pub written: Vec<Write>,
    entropy: u128,
}

pub fn report(kind: Kind) -> Report {
    Report {
        kind,
        address: "10.0.0.1:80".into(),
        from: None,
        capacity: 1,
        row: None,
        state: Reported::Online,
        version: None,
        token: None,
    }
}

impl World {
    pub fn new() -> Self {
        let (now, store) = (Time(0), BTreeMap::new());
        let state = State::load(Config::default(), Vec::new(), now);
        Self { state, store, now, tokens: BTreeMap::new(), written: Vec::new(), entropy: 0 }
    }

    /// Applies writes as a store does, and checks that memory and store agree.
    pub fn commit(&mut self, out: Vec<Write>) {
        for Write::Machine(id, row) in out.clone() {
            match row {
                Some(row) => self.store.insert(id, row),
                None => self.store.remove(&id),
            };
        }
        self.written = out;
        assert!(self.state.rows().eq(&self.store), "the store has other rows than the state");
    }

    /// A takeover: only rows survive.
    pub fn reload(&mut self) {
        self.state = State::load(Config::default(), self.store.clone(), self.now);
    }

    /// A report with the machine's own token.
    pub fn beat(&mut self, id: &str, report: &Report) -> Result<ReportReply, Refusal> {
        let token = self.tokens.get(id).copied();
        self.report(id, &Report { token, ..report.clone() })
    }

    pub fn report(&mut self, id: &str, report: &Report) -> Result<ReportReply, Refusal> {
        self.entropy += 1;
        let mut out = Vec::new();
        let secret = (ShardId(7), self.entropy);
        let answer = self.state.report(&id.into(), report, secret, self.now, &mut out);
        assert!(answer.is_ok() || out.is_empty(), "a refusal changes nothing");
        self.commit(out);
        let answer = answer?;
        assert!(!answer.reason.is_empty());
        self.tokens.insert(id.into(), answer.token);
        Ok(answer)
    }

    /// Passes time as an owner does, which ticks when it should; the changed verdicts.
    pub fn pass(&mut self, ms: u64) -> Vec<(Time, MachineId)> {
        let end = self.now.after(Millis(ms));
        let mut changed = Vec::new();
        let mut written = Vec::new();
        while self.now < end {
            let next = self.state.next_tick().unwrap_or(end);
            self.now = next.clamp(self.now.after(Millis(1)), end);
            changed.extend(self.tick().into_iter().map(|id| (self.now, id)));
            written.append(&mut self.written);
        }
        self.written = written;
        changed
    }

    pub fn tick(&mut self) -> Vec<MachineId> {
        let mut out = Vec::new();
        let ticked = self.state.tick(self.now, &mut out);
        self.commit(out);
        assert!(!ticked.more);
        ticked.changed
    }

    pub fn probed(&mut self, id: &str, ok: bool) {
        self.probed_as(id, &if ok { ProbeOutcome::Answered } else { ProbeOutcome::Missed });
    }

    pub fn probed_as(&mut self, id: &str, outcome: &ProbeOutcome) {
        let row = self.store.get(id).map(|row| (row.address.clone(), row.from, row.also_from));
        let (address, from, also_from) = row.unwrap_or_default();
        let mut out = Vec::new();
        self.state.probed(&Probe { id: id.into(), address, from, also_from }, outcome, self.now, &mut out);
        self.commit(out);
    }

    pub fn desire(&mut self, id: &str, desired: Desired) -> Result<(), Refusal> {
        let mut out = Vec::new();
        let answer = self.state.set_desired(&id.into(), desired, self.now, &mut out);
        self.commit(out);
        answer.map(drop)
    }

    pub fn write_off(&mut self, id: &str) {
        let mut out = Vec::new();
        self.state.write_off(&[id.into()], &mut out);
        self.commit(out);
    }

    pub fn delete(&mut self, id: &str, holds: Holdings) -> Result<(), Refusal> {
        let mut out = Vec::new();
        let answer = self.state.delete(&id.into(), holds, &mut out);
        self.commit(out);
        answer
    }
}
