//! A pool in a store made of maps, with effects and their outcomes on the way, which may be lost, repeated and late.

use wayleave_core::matches::{Decision, MatchRow, MatchView, WorkerRow};

use super::runtime::Runtime;
use super::*;

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Store {
    pub pool: Option<PoolRow>,
    pub workers: BTreeMap<WorkerNo, WorkerRow>,
    pub matches: BTreeMap<ClientName, MatchRow>,
}

impl Store {
    pub fn commit(&mut self, writes: &[Write]) {
        for write in writes.iter().cloned() {
            match write {
                Write::Pool(row) => self.pool = row.map(|row| *row),
                Write::Worker(no, Some(row)) => _ = self.workers.insert(no, *row),
                Write::Worker(no, None) => _ = self.workers.remove(&no),
                Write::Match(client, Some(row)) => _ = self.matches.insert(client, *row),
                Write::Match(client, None) => _ = self.matches.remove(&client),
            }
        }
    }

    pub fn booked_on(&self, no: WorkerNo) -> usize {
        self.matches.values().flat_map(MatchRow::booked).filter(|booking| booking.worker == no).count()
    }
}

#[derive(Clone)]
pub struct World {
    pub state: State,
    pub store: Store,
    pub now: Time,
    pub runtime: Runtime,
    /// Effects on their way.
    pub effects: Vec<Effect>,
    /// Outcomes on their way.
    pub outcomes: Vec<Input>,
    /// What clients were granted: their token, and until when they may rely on it.
    pub granted: BTreeMap<ClientName, (Token, Time)>,
    pub last: Option<Decision>,
    /// Sites that announce themselves.
    pub alive: BTreeSet<SiteName>,
    /// What their nodes cannot start.
    pub lack: Option<Lack>,
    /// Random values per decision.
    pub values: usize,
    entropy: u128,
}

pub fn spec() -> PoolSpec {
    PoolSpec {
        runtime: Some(RuntimeKind::Docker),
        image: Some("game".into()),
        port: Some(80),
        slots: Some(2),
        max: Some(2),
        idle_ms: Some(10_000),
        start_ms_max: Some(8_000),
        match_ms_max: Some(120_000),
        reservation_ms: Some(20_000),
        ..PoolSpec::default()
    }
}

pub fn asker(client: &str) -> Asker {
    Asker { client: client.into(), principal: None }
}

pub fn cancel(client: &str) -> Input {
    Input::Cancel { asker: asker(client), token: None }
}

impl World {
    pub fn new(settings: Settings) -> Self {
        let now = Time(1_000);
        let mut world = Self {
            state: State::create(ShardId(3), "games".into(), "house".into(), settings, 77, now),
            store: Store::default(),
            now,
            runtime: Runtime::default(),
            effects: Vec::new(),
            outcomes: Vec::new(),
            granted: BTreeMap::new(),
            last: None,
            alive: ["site-1".into()].into(),
            lack: None,
            values: 9,
            entropy: 0,
        };
        world.apply(Input::Tick);
        world.announce();
        world
    }

    fn random(&self) -> Vec<u128> {
        (0..self.values).map(|i| (self.entropy + 1 + i as u128) << 8).collect()
    }

    /// Decides, commits, and sends the effects off; checks every rule.
    pub fn apply(&mut self, input: Input) -> Answer {
        let random = self.random();
        let decision = self.state.apply(input.clone(), self.now, &random);
        self.store.commit(&decision.writes);
        self.note_used(&decision);
        if let Input::Put(asker) | Input::Look(asker) | Input::Cancel { asker, .. } | Input::Checked { asker, .. } =
            &input
        {
            self.note_answer(&asker.client, &decision.answer);
        }
        self.check(&decision, &input);
        self.effects.extend(decision.effects.iter().cloned());
        let answer = decision.answer.clone();
        self.last = Some(decision);
        answer
    }

    /// Counts the random values that became tokens, so that equal histories draw equal values.
    fn note_used(&mut self, decision: &Decision) {
        let number = |token: Token| (u128::from_be_bytes(token.0) & (u128::MAX >> 16)) >> 8;
        for write in &decision.writes {
            let used: Vec<u128> = match write {
                Write::Match(_, Some(row)) => row.booked().map(|booking| number(booking.token)).collect(),
                Write::Worker(_, Some(row)) => vec![number(row.secret.0)],
                _ => Vec::new(),
            };
            self.entropy = used.into_iter().fold(self.entropy, u128::max);
        }
    }

    /// Decides, but the commit fails: the owner drops its memory.
    pub fn apply_in_vain(&mut self, input: Input) {
        let random = self.random();
        self.state.apply(input, self.now, &random);
        self.reload();
    }

    /// A crash or takeover: only rows survive.
    pub fn reload(&mut self) {
        let Store { pool: Some(pool), workers, matches } = self.store.clone() else { return };
        self.state = State::load(ShardId(3), pool, workers, matches, self.now);
        self.apply(Input::Tick);
    }

    fn note_answer(&mut self, client: &ClientName, answer: &Answer) {
        match answer {
            Answer::Match(MatchView { matched: Some(matched), .. }) => {
                self.granted.insert(client.clone(), (matched.token.unwrap(), matched.expires_at));
            }
            Answer::Verify(_) | Answer::Refused(_) => {}
            _ => _ = self.granted.remove(client),
        }
    }

    fn check(&self, decision: &Decision, input: &Input) {
        let say = || format!("after {input:?}: {decision:?}\n{:?}", self.store);
        self.state.self_check().unwrap_or_else(|why| panic!("{why} {}", say()));
        let mut rows = Store::default();
        rows.commit(&self.state.rows());
        assert!(rows == self.store, "the store has other rows than the state {}", say());
        let Some(pool) = &self.store.pool else { return };
        let making = |row: &WorkerRow| row.phase.is_making();
        let asking = |row: &MatchRow| matches!(row.state, MatchState::Making(_));
        let jobs = self.store.workers.values().filter(|row| making(row)).count()
            + self.store.matches.values().filter(|row| asking(row)).count();
        assert!(jobs <= pool.settings.makers_max as usize, "{jobs} jobs {}", say());
        for effect in &decision.effects {
            // An owner that was replaced must not order it: the commit of its write fails.
            let unknown = matches!(effect, Effect::RemoveUnknown { .. });
            assert!(!unknown || !decision.writes.is_empty(), "removed without a write {}", say());
            self.check_durable(effect, &say);
        }
        for effect in &self.effects {
            self.check_in_flight(effect, &say);
        }
        assert!(decision.wake_at.is_none_or(|at| at >= self.now), "it wakes in the past {}", say());
        if let Answer::Match(view) = &decision.answer {
            assert!(!view.why.to_string().is_empty(), "no reason {}", say());
        }
        assert!(!self.state.pool_why().to_string().is_empty());
        self.check_granted(&say);
    }

    /// A slot stays booked while a call that asks for it may arrive, and no client has a reservation that a late call
    /// may end.
    fn check_in_flight(&self, effect: &Effect, say: &dyn Fn() -> String) {
        let (Effect::Reserve(ask) | Effect::Release(ask)) = effect else { return };
        let serves = self.store.workers.get(&ask.worker).is_some_and(|row| row.phase.is_serving());
        if ask.until <= self.now || !serves {
            return;
        }
        let booked: Vec<Token> = self.store.matches.get(&ask.client).map_or_else(Vec::new, |row| {
            row.booked().filter(|booking| booking.worker == ask.worker).map(|booking| booking.token).collect()
        });
        match effect {
            Effect::Reserve(_) => assert_eq!(booked, [ask.token], "a slot is free that {ask:?} may take {}", say()),
            _ => assert!(booked.iter().all(|token| *token == ask.token), "{ask:?} may end {booked:?} {}", say()),
        }
    }

    /// What an effect relies on is in the store before it is sent off.
    fn check_durable(&self, effect: &Effect, say: &dyn Fn() -> String) {
        let phase = |no: &WorkerNo| self.store.workers.get(no).map(|row| row.phase);
        match effect {
            Effect::Reserve(ask) => {
                let row = &self.store.matches[&ask.client];
                let own = matches!(&row.state, MatchState::Making(booking) if booking.token == ask.token);
                assert!(own, "asked before it is durable {}", say());
            }
            Effect::Release(ask) => {
                let row = &self.store.matches[&ask.client];
                assert!(row.leftovers.iter().any(|left| left.booking.token == ask.token), "{}", say());
            }
            Effect::Create(make) | Effect::Restart(make) => {
                let now = phase(&make.step.worker);
                assert!(matches!(now, Some(Phase::Creating | Phase::Restarting)), "{now:?} {}", say());
                let pool = self.store.pool.as_ref().unwrap();
                assert!(make.step.worker.0 < pool.next_worker, "{}", say());
            }
            Effect::Await(order) => assert_eq!(phase(&order.step.worker), Some(Phase::Starting), "{}", say()),
            Effect::Stop(order) => {
                assert_eq!(phase(&order.step.worker), Some(Phase::Stopping), "{}", say());
                assert_eq!(self.store.booked_on(order.step.worker), 0, "a busy worker is stopped {}", say());
            }
            Effect::Remove(order) => {
                assert_eq!(phase(&order.step.worker), Some(Phase::Removing), "{}", say());
                assert_eq!(self.store.booked_on(order.step.worker), 0, "a busy worker is removed {}", say());
            }
            Effect::RemoveUnknown { labels, .. } => {
                let own = self.store.pool.as_ref().is_some_and(|pool| pool.generation == labels.generation);
                assert!(!own || phase(&labels.worker).is_none(), "a known worker is removed {}", say());
            }
            Effect::Check(ask) => {
                let booking = self.store.matches[&ask.client].booking();
                assert!(booking.is_some_and(|booking| booking.token == ask.token), "{}", say());
            }
            Effect::List { .. } => {}
        }
    }

    /// A client is not matched elsewhere while a worker holds the reservation that it was granted.
    fn check_granted(&self, say: &dyn Fn() -> String) {
        for (client, (token, until)) in &self.granted {
            let holder = self.runtime.containers.values().find(|c| c.holds(client, *token, self.now));
            if *until <= self.now || holder.is_none() {
                continue;
            }
            let row = self.store.matches.get(client);
            let current = row.and_then(|row| row.booking()).map(|booking| booking.token);
            assert_eq!(current, Some(*token), "'{client}' was granted a worker that still holds it {}", say());
        }
    }

    /// Carries out an effect; its outcome.
    pub fn run(&mut self, effect: &Effect) -> Option<Input> {
        let now = self.now;
        let late = |until: Time| now >= until;
        // What is for a site that is not there is lost.
        if !self.alive.contains(effect.site()) {
            return None;
        }
        Some(match effect {
            // Nothing of a call arrives after its deadline.
            Effect::Reserve(ask) if late(ask.until) => ask.reserved(Verdict::Unknown("timeout".into())),
            Effect::Check(ask) if late(ask.until) => ask.checked(Verdict::Unknown("timeout".into())),
            Effect::Release(ask) if late(ask.until) => ask.released(Verdict::Unknown("timeout".into())),
            Effect::Reserve(ask) => ask.reserved(self.runtime.call(&Call::Reserve, ask, now)),
            Effect::Check(ask) => ask.checked(self.runtime.call(&Call::Check, ask, now)),
            Effect::Release(ask) => ask.released(self.runtime.call(&Call::Release, ask, now)),
            // A runtime may finish long after the deadline.
            Effect::Create(make) | Effect::Restart(make) => {
                Input::Made { step: make.step, result: self.runtime.make(make) }
            }
            Effect::Await(order) => {
                let container = self.runtime.containers.get(&order.step.worker);
                let listens = container.is_some_and(|container| container.running);
                Input::Listening { step: order.step, result: if listens { Ok(()) } else { Err("refused".into()) } }
            }
            Effect::Stop(order) => {
                self.check_not_used(order.step.worker);
                if let Some(container) = self.runtime.containers.get_mut(&order.step.worker) {
                    container.running = false;
                }
                Input::Stopped { step: order.step, result: Ok(()) }
            }
            Effect::Remove(order) => {
                self.check_not_used(order.step.worker);
                self.runtime.containers.remove(&order.step.worker);
                Input::Removed { step: order.step, result: Ok(()) }
            }
            Effect::RemoveUnknown { labels, .. } => {
                self.check_not_used(labels.worker);
                self.runtime.containers.remove(&labels.worker);
                return None;
            }
            Effect::List { site, since, .. } => {
                Input::Listed { site: site.clone(), since: *since, found: self.runtime.list(site) }
            }
        })
    }

    /// No client that was granted this worker still relies on it.
    fn check_not_used(&self, no: WorkerNo) {
        let Some(container) = self.runtime.containers.get(&no) else { return };
        for (client, (token, until)) in &self.granted {
            let used = *until > self.now && container.holds(client, *token, self.now);
            assert!(!used, "worker {} is ended while '{client}' uses it: {:#?}", no.0, self.store);
        }
    }

    /// Every site says that it is there.
    pub fn announce(&mut self) {
        for site in self.alive.clone() {
            let runtime = self.store.pool.as_ref().map_or(RuntimeKind::Docker, |pool| pool.settings.recipe.runtime);
            self.apply(Input::SiteAlive { site, runtime, lack: self.lack.clone() });
        }
    }

    /// A client's call, as a node handles it: a matched one is verified with its worker.
    pub fn put(&mut self, client: &str) -> Answer {
        let answer = self.apply(Input::Put(asker(client)));
        self.verified(answer)
    }

    /// Verifies at once, as far as a call can be answered at once.
    fn verified(&mut self, answer: Answer) -> Answer {
        let Answer::Verify(ask) = answer else { return answer };
        let check = Effect::Check(ask.clone());
        self.effects.retain(|effect| *effect != check);
        match self.run(&check) {
            Some(outcome) => self.apply(outcome),
            // The order was lost: at its deadline the call is answered as it was not confirmed.
            None => match self.state.view(&ask.client) {
                Some(view) => Answer::Match(MatchView { verified: false, ..view }),
                None => Answer::NoMatch,
            },
        }
    }

    pub fn look(&mut self, client: &str) -> Answer {
        let answer = self.apply(Input::Look(asker(client)));
        self.verified(answer)
    }

    pub fn cancel(&mut self, client: &str) -> Answer {
        self.apply(cancel(client))
    }

    pub fn stage(&self, client: &str) -> Option<MatchStage> {
        self.state.view(&client.into()).map(|view| view.stage)
    }

    /// Delivers everything, in order, until nothing is on its way.
    pub fn deliver(&mut self) {
        for _ in 0..10_000 {
            if let Some(outcome) = (!self.outcomes.is_empty()).then(|| self.outcomes.remove(0)) {
                self.apply(outcome);
            } else if let Some(effect) = (!self.effects.is_empty()).then(|| self.effects.remove(0)) {
                let outcome = self.run(&effect);
                self.outcomes.extend(outcome);
            } else {
                return;
            }
        }
        panic!("it never rests");
    }

    /// Passes time as an owner does: sites announce themselves, these clients ask every second, everything arrives.
    pub fn pass(&mut self, ms: u64, clients: &[&str]) {
        let end = self.now.after(Millis(ms));
        self.deliver();
        while self.now < end {
            let wake = self.last.as_ref().and_then(|last| last.wake_at).unwrap_or(end);
            let second = Time((self.now.0 / 1_000 + 1) * 1_000);
            self.now = wake.max(self.now.after(Millis(u64::from(wake <= self.now)))).min(second).min(end);
            self.apply(Input::Tick);
            self.deliver();
            if self.now == second {
                if second.0.is_multiple_of(5_000) {
                    self.announce();
                }
                for client in clients {
                    self.put(client);
                }
                self.deliver();
            }
        }
    }
}
