//! What the models of candidates share: messages on their way, and how a candidate's effects are carried out.

use wayleave_elect::{Call, Heartbeat, HeartbeatReply, Question, Then};

use crate::prelude::*;

/// A message that is slower than this is lost. Longer than T: it may arrive in another term.
const SLOWEST_MS: u64 = 6_000;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Message {
    pub client: usize,
    pub sent: u64,
    pub what: What,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum What {
    Beat(Heartbeat),
    /// Arrived at a server, which sent its look at the store at this moment.
    Looking(Heartbeat, u64),
    Answer(Call, HeartbeatReply),
    Release {
        identity: u32,
        token: Option<String>,
    },
    /// From `client` to the one with this number.
    Question(usize, Question),
    /// To `client`, from the one with this number.
    Promise(usize, Question),
}

/// The messages of all candidates.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Messages {
    /// Sent, and its fate not yet decided.
    pub fresh: Vec<Message>,
    /// On its way, slowly.
    pub slow: Vec<Message>,
}

impl Messages {
    /// Slow messages are kept in order of sending: their order in the list means nothing else.
    pub fn put_slow(&mut self, message: Message) {
        self.slow.push(message);
        self.slow.sort_by_key(|message| (message.sent, message.client));
    }

    /// Loses those that are too slow.
    pub fn lose(&mut self, now: u64) {
        self.slow.retain(|message| now - message.sent <= SLOWEST_MS);
    }

    /// A candidate's moment has come.
    pub fn wake(&mut self, now: u64, client: usize, candidate: &mut Candidate) {
        let effects = candidate.on_wake(Moment(now), 0);
        self.carry_out(now, client, candidate, effects);
    }

    /// The work of a candidate has ended, and it asks for the role again at once.
    pub fn end_work(&mut self, now: u64, client: usize, candidate: &mut Candidate) {
        let effects = candidate.on_stopped(Moment(now), Then::StandAgain(Millis(0)));
        self.carry_out(now, client, candidate, effects);
    }

    pub fn carry_out(&mut self, now: u64, client: usize, candidate: &mut Candidate, effects: Vec<Effect>) {
        for effect in effects {
            let what = match effect {
                Effect::Send(beat) => What::Beat(beat),
                Effect::Ask(question) => What::Question(index_of(&question.peer.address), question),
                Effect::Release { identity, token } => {
                    self.fresh.push(Message { client, sent: now, what: What::Release { identity, token } });
                    // Abandoned or acknowledged: the candidate continues either way, and sooner is worse.
                    let effects = candidate.on_released(Moment(now));
                    self.carry_out(now, client, candidate, effects);
                    continue;
                }
                // The work of a running client stops as soon as it is asked to.
                Effect::StepDown { .. } => {
                    self.end_work(now, client, candidate);
                    continue;
                }
                Effect::Lead { .. } | Effect::Extend { .. } | Effect::Finished(_) => continue,
            };
            self.fresh.push(Message { client, sent: now, what });
        }
    }
}

/// The epoch that a candidate would write with now: what [`wayleave_elect::Term::check`] asks.
pub fn believes(candidate: &Candidate, now: u64) -> Option<u64> {
    candidate.working().filter(|(_, until)| now < until.0).map(|(epoch, _)| epoch)
}

/// Candidates have their names as addresses.
fn index_of(address: &str) -> usize {
    usize::from(address.as_bytes()[0] - b'A')
}
