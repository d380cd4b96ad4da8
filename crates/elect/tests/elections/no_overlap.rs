//! Candidates against the core's own decisions, with losses, delays, pauses of their work and clock drift: at no
//! instant do two of them believe that they are primary.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    reason = "a test fails by panicking"
)]

use proptest::prelude::*;
use wayleave_api::roles::HeartbeatResponse;
use wayleave_core::ids::Token;
use wayleave_core::metadata::Metadata;
use wayleave_core::roles::{self, Facts, HeartbeatCall, RoleChanges};
use wayleave_core::settings::Change;
use wayleave_core::time::{Millis, Time};
use wayleave_elect::{Call, Candidate, Effect, Heartbeat, HeartbeatReply, Moment, Question, Then, Wish};

const T: Millis = Millis(2_000);
const END_US: u64 = 60_000_000;

/// The fate of one heartbeat.
#[derive(Clone, Debug)]
enum Fate {
    Lost,
    AnswerLost { there_ms: u64 },
    Answered { there_ms: u64, back_ms: u64 },
}

fn fate() -> impl Strategy<Value = Fate> {
    prop_oneof![
        2 => Just(Fate::Lost),
        1 => (0_u64..3_000).prop_map(|there_ms| Fate::AnswerLost { there_ms }),
        5 => (0_u64..3, 0_u64..3).prop_map(|(there_ms, back_ms)| Fate::Answered { there_ms, back_ms }),
        2 => (0_u64..3_000, 0_u64..3_000).prop_map(|(there_ms, back_ms)| Fate::Answered { there_ms, back_ms }),
    ]
}

/// A candidate and its clock: its rate, in millionths, and its reading at the beginning.
struct Runner {
    candidate: Candidate,
    rate: u64,
    zero_ms: u64,
}

impl Runner {
    fn local(&self, real_us: u64) -> Moment {
        Moment(self.zero_ms + real_us * self.rate / 1_000_000 / 1_000)
    }

    /// The first microsecond at which its clock shows that moment.
    fn real(&self, at: Moment) -> u64 {
        let us = u128::from(at.0.saturating_sub(self.zero_ms)) * 1_000;
        u64::try_from((us * 1_000_000).div_ceil(u128::from(self.rate))).unwrap()
    }
}

enum Mail {
    Request(usize, Heartbeat, Option<u64>),
    Answer(usize, Call, HeartbeatReply),
    /// From one to another.
    Question(usize, usize, Question, Option<u64>),
    Promise(usize, Question),
}

struct World {
    runners: Vec<Runner>,
    facts: Facts,
    mail: Vec<(u64, Mail)>,
    fates: Vec<Fate>,
    /// When no server answers.
    outages: Vec<(u64, u64)>,
    sent: usize,
    now_us: u64,
    grants: u128,
    led: Vec<(u64, usize)>,
}

impl World {
    fn new(rates: &[u64], fates: Vec<Fate>) -> Self {
        let runner = |(index, rate): (usize, &u64)| Runner {
            // No grace period: it would mask clocks that drift further apart than the margin allows.
            candidate: Candidate::new(Wish { interval: None, grace: Millis(0) }),
            rate: *rate,
            zero_ms: index as u64 * 1_000_000,
        };
        let mut facts = Facts {
            role: "role".into(),
            row: None,
            standbys: Vec::new(),
            origin: None,
            now: Time(1_000_000),
            incarnation: 0,
            steady_since: Time::ZERO,
        };
        let set = roles::set(&facts, &RoleChanges { ttl: Change::Set(T), ..RoleChanges::default() }).unwrap();
        let Change::Set(row) = set.writes.row else { panic!("a role is made") };
        (facts.row, facts.origin) = (Some(row), set.writes.origin);
        let runners = rates.iter().enumerate().map(runner).collect();
        let (mail, led, outages) = (Vec::new(), Vec::new(), Vec::new());
        Self { runners, facts, mail, fates, outages, sent: 0, now_us: 0, grants: 0, led }
    }

    /// A role whose primary may continue for this long, and whose server is away from time to time.
    fn going_on(mut self, goes_on: Millis, outages_ms: &[(u64, u64)]) -> Self {
        let (mode, continue_for) = (Change::Set(roles::Mode::Continue), Change::Set(goes_on));
        let changes = RoleChanges { mode, continue_for, ..RoleChanges::default() };
        let Change::Set(row) = roles::set(&self.facts, &changes).unwrap().writes.row else { panic!("it changes") };
        self.facts.row = Some(row);
        let mut end = 0;
        for (after, long) in outages_ms {
            let start = end + after * 1_000;
            end = start + long * 1_000;
            self.outages.push((start, end));
        }
        self
    }

    /// The next instant at which anything happens.
    fn next_us(&self) -> u64 {
        let wakes = self.runners.iter().filter_map(|runner| Some(runner.real(runner.candidate.wake_at()?)));
        wakes.chain(self.mail.iter().map(|(at, _)| *at)).min().unwrap().max(self.now_us)
    }

    fn step(&mut self, entropy: u64) {
        self.now_us = self.next_us();
        // A deadline precedes whatever else happens at the same instant.
        for index in 0..self.runners.len() {
            let local = self.runners[index].local(self.now_us);
            if self.runners[index].candidate.wake_at().is_some_and(|at| at <= local) {
                let effects = self.runners[index].candidate.on_wake(local, entropy);
                self.carry_out(index, effects);
            }
        }
        while let Some(next) = self.mail.iter().position(|(at, _)| *at <= self.now_us) {
            match self.mail.swap_remove(next).1 {
                Mail::Request(index, beat, back_us) => self.serve(index, &beat, back_us),
                Mail::Question(from, to, question, back) => {
                    let local = self.runners[to].local(self.now_us);
                    let asked = self.runners[to].candidate.on_question(local, question.epoch, question.span);
                    if let (Ok(()), Some(back)) = (asked, back) {
                        self.mail.push((self.now_us + back, Mail::Promise(from, question)));
                    }
                }
                Mail::Promise(index, question) => {
                    let effects = self.runners[index].candidate.on_promise(&question);
                    self.carry_out(index, effects);
                }
                Mail::Answer(index, call, answer) => {
                    let local = self.runners[index].local(self.now_us);
                    let effects = self.runners[index].candidate.on_answer(local, call, answer, entropy);
                    self.carry_out(index, effects);
                }
            }
        }
    }

    fn carry_out(&mut self, index: usize, effects: Vec<Effect>) {
        let local = self.runners[index].local(self.now_us);
        for effect in effects {
            match effect {
                Effect::Send(beat) => self.send(index, beat),
                Effect::StepDown { .. } => {
                    let effects = self.runners[index].candidate.on_stopped(local, Then::StandAgain(Millis(0)));
                    self.carry_out(index, effects);
                }
                // It never arrives: the term must expire.
                Effect::Release { .. } => {
                    let effects = self.runners[index].candidate.on_released(local);
                    self.carry_out(index, effects);
                }
                Effect::Lead { epoch, .. } => self.led.push((epoch, index)),
                Effect::Ask(question) => {
                    let to = question.peer.address.parse().unwrap();
                    if let Some((there, back)) = self.fate() {
                        self.mail.push((self.now_us + there, Mail::Question(index, to, question, back)));
                    }
                }
                Effect::Extend { .. } | Effect::Finished(_) => {}
            }
        }
    }

    /// The latency of the next message and its response; `None` if it is lost.
    fn fate(&mut self) -> Option<(u64, Option<u64>)> {
        let fate = &self.fates[self.sent % self.fates.len()];
        self.sent += 1;
        match fate {
            Fate::Lost => None,
            Fate::AnswerLost { there_ms } => Some((there_ms * 1_000, None)),
            Fate::Answered { there_ms, back_ms } => Some((there_ms * 1_000, Some(back_ms * 1_000))),
        }
    }

    fn send(&mut self, index: usize, beat: Heartbeat) {
        if let Some((there, back)) = self.fate() {
            self.mail.push((self.now_us + there, Mail::Request(index, beat, back)));
        }
    }

    fn serve(&mut self, index: usize, beat: &Heartbeat, back_us: Option<u64>) {
        if self.outages.iter().any(|(start, end)| (*start..*end).contains(&self.now_us)) {
            return;
        }
        let uuid = format!("{index}-{}", beat.call.identity);
        let candidate = roles::Candidate {
            uuid: uuid.as_str().into(),
            address: None,
            metadata: Metadata::default(),
            ready: true,
            priority: 5,
            interval: None,
            peer: Some(roles::Peer { address: index.to_string().into(), secret: Token([index as u8; 16]) }),
        };
        let token = beat.token.as_deref().map(|token| Token::parse(token).unwrap());
        self.facts.now = Time(1_000_000 + self.now_us / 1_000);
        self.grants += 1;
        let answer = match roles::heartbeat(
            &self.facts,
            &HeartbeatCall {
                candidate,
                token,
                heard: beat.heard,
                take_over: beat.take_over.map(|bid| bid.try_into().unwrap()),
                slot: None,
                from: None,
            },
            self.grants,
        ) {
            Ok(decided) => {
                if let Change::Set(row) = decided.writes.row {
                    self.facts.row = Some(row);
                }
                for (uuid, row) in decided.writes.standbys {
                    self.facts.standbys.retain(|standby| standby.candidate.uuid != uuid);
                    self.facts.standbys.extend(row);
                }
                HeartbeatReply::read(&HeartbeatResponse::from(decided.answer), &uuid).unwrap()
            }
            Err(_) => HeartbeatReply::NotCurrent,
        };
        if let Some(back_us) = back_us {
            self.mail.push((self.now_us + back_us, Mail::Answer(index, beat.call, answer)));
        }
    }

    fn believers(&self) -> Vec<usize> {
        let believes =
            |runner: &Runner| runner.candidate.working().is_some_and(|(_, until)| runner.local(self.now_us) < until);
        (0..self.runners.len()).filter(|index| believes(&self.runners[*index])).collect()
    }
}

/// Runs a world to its end; at no instant do two candidates believe to be primary, and epochs grow.
fn one_primary_at_any_instant(mut world: World, entropy: u64) -> Result<(), TestCaseError> {
    while world.now_us < END_US {
        world.step(entropy);
        prop_assert!(world.believers().len() <= 1, "{:?} at {} us", world.believers(), world.now_us);
    }
    let grown = world.led.windows(2).all(|pair| pair[0].0 < pair[1].0);
    prop_assert!(grown, "epochs grow: {:?}", world.led);
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    /// Clocks are off by up to half a percent either way, so two of them by one: the margin.
    #[test]
    fn at_no_instant_do_two_candidates_believe_to_be_primary(
        rates in proptest::collection::vec(995_000_u64..=1_005_000, 2..4),
        fates in proptest::collection::vec(fate(), 1..60),
        entropy: u64,
    ) {
        one_primary_at_any_instant(World::new(&rates, fates), entropy)?;
    }

    /// The same where a primary may continue by agreement of the others, with a server that is away for long.
    #[test]
    fn nor_do_two_while_one_of_them_goes_on_by_agreement(
        rates in proptest::collection::vec(995_000_u64..=1_005_000, 2..4),
        fates in proptest::collection::vec(fate(), 1..60),
        goes_on in prop_oneof![Just(1_000_u64), Just(5_000), Just(20_000)],
        outages in proptest::collection::vec((0_u64..8_000, 0_u64..16_000), 1..6),
        entropy: u64,
    ) {
        one_primary_at_any_instant(World::new(&rates, fates).going_on(Millis(goes_on), &outages), entropy)?;
    }

    #[test]
    fn an_outage_that_is_not_too_long_changes_no_hands(
        entropy: u64, there_ms in 0_u64..30, back_ms in 0_u64..30, start in 3_000_u64..6_000, long in 0_u64..19_000,
    ) {
        let fates = vec![Fate::Answered { there_ms, back_ms }];
        let mut world = World::new(&[1_000_000, 999_000, 1_001_000], fates).going_on(Millis(20_000), &[(start, long)]);
        while world.now_us < END_US {
            world.step(entropy);
            prop_assert!(world.now_us < 1_000_000 || world.believers().len() == 1, "at {} us", world.now_us);
        }
        prop_assert_eq!(world.led.len(), 1);
    }

    #[test]
    fn with_a_server_that_answers_somebody_leads_nearly_always(entropy: u64, there_ms in 0_u64..30, back_ms in 0_u64..30) {
        let mut world = World::new(&[1_000_000, 999_000], vec![Fate::Answered { there_ms, back_ms }]);
        while world.now_us < END_US {
            world.step(entropy);
            prop_assert!(world.now_us < 1_000_000 || world.believers().len() == 1);
        }
        prop_assert_eq!(world.led.len(), 1, "no change of hands without a reason");
    }
}
