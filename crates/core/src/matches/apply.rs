//! Turns one input into one decision: first the timers that are due, then the input, then everything that follows
//! from both.

use super::decision::{Answer, Decision, Effect, WorkerAsk};
use super::input::{Asker, Input, Verdict};
use super::randomness::Randomness;
use super::refusal::Refusal;
use super::row::Write;
use super::state::State;
use super::view::MatchView;
use crate::ids::Token;
use crate::limits::MATCHES_AT_ONCE_MAX;
use crate::names::ClientName;
use crate::time::Time;

/// A worker's answer to a question.
pub(super) struct WorkerAnswer {
    pub token: Token,
    pub sent_at: Time,
    pub verdict: Verdict,
}

/// What an input is answered with, once everything that follows from it is decided.
pub(super) enum Reply {
    Taken,
    Stale,
    /// The client's match as it is then.
    View(ClientName),
    /// A view that has no row.
    Told(MatchView),
    /// The client's match, once its worker was asked.
    Verify(Box<WorkerAsk>),
    /// The client's match, which its worker neither confirmed nor denied.
    Unverified(ClientName),
    NoMatch,
    Cancelled,
    Pool,
    Refused(Refusal),
}

impl State {
    /// Decides. `random` holds a value for every client that may be given a worker now, and one more; with too few, the
    /// others wait for the next call, which [`Decision::wake_at`] asks for at once.
    pub fn apply(&mut self, input: Input, now: Time, random: &[u128]) -> Decision {
        // Time does not go back: a deadline that was seen to be over stays over.
        self.now = self.now.max(now);
        self.more = false;
        let mut random = Randomness::new(self.shard, random);
        self.matches_due(&mut random);
        self.workers_due(&mut random);
        let reply = self.handle(input, &mut random);
        self.fail_unstartable_matches();
        if !self.is_held() {
            self.assign(&mut random);
            self.scale(&mut random);
        }
        self.matches_due(&mut random);
        if self.is_held() {
            // The matches may be those of the original, whose clients confirm them there.
            self.effects.retain(|effect| !matches!(effect, Effect::Reserve(_) | Effect::Release(_)));
        } else {
            self.send_orders();
        }
        self.close_if_empty();
        let answer = self.answer(reply);
        let (writes, news) = self.take_writes();
        let effects = std::mem::take(&mut self.effects);
        let wake_at = if self.more { Some(self.now) } else { self.next_wake() };
        Decision { answer, writes, effects, news, wake_at }
    }

    fn handle(&mut self, input: Input, random: &mut Randomness<'_>) -> Reply {
        match input {
            Input::Put(asker) => self.put(&asker),
            Input::Look(asker) => self.look(&asker),
            Input::Checked { asker, call, token, sent_at, verdict } => {
                self.checked(&asker, call, &WorkerAnswer { token, sent_at, verdict }, random)
            }
            Input::Cancel { asker, token } => self.cancel(&asker, token),
            Input::Reserved { client, token, sent_at, verdict } => {
                self.reserved(&client, &WorkerAnswer { token, sent_at, verdict }, random)
            }
            Input::Released { client, token, sent_at, verdict } => {
                self.released(&client, &WorkerAnswer { token, sent_at, verdict }, random)
            }
            Input::Made { step, result } => self.made(step, result, random),
            Input::Listening { step, result } => self.listening(step, result, random),
            Input::Stopped { step, result } => self.stopped(step, result),
            Input::Removed { step, result } => self.removed(step, result, random),
            Input::Exited { worker, generation, instance, exit } => {
                self.on_exit(worker, generation, &instance, &exit, random)
            }
            Input::SiteAlive { site, runtime, lack } => self.site_alive(site, runtime, lack),
            Input::Listed { site, since, found } => self.listed(&site, since, found, random),
            Input::Report { worker, run, secret, address, from, free } => {
                self.report(worker, (run, secret), (address, from), free)
            }
            Input::Set(settings) => self.set(*settings, random),
            Input::Pause(paused) => self.pause(paused),
            Input::Delete => self.delete(),
            Input::Tick => Reply::Taken,
        }
    }

    fn answer(&self, reply: Reply) -> Answer {
        match reply {
            Reply::Taken => Answer::Taken,
            Reply::Stale => Answer::Stale,
            Reply::View(client) => self.view(&client).map_or(Answer::NoMatch, Answer::Match),
            Reply::Told(view) => Answer::Match(view),
            Reply::Verify(ask) => Answer::Verify(*ask),
            Reply::Unverified(client) => {
                let unverified = |view| MatchView { verified: false, ..view };
                self.view(&client).map(unverified).map_or(Answer::NoMatch, Answer::Match)
            }
            Reply::NoMatch => Answer::NoMatch,
            Reply::Cancelled => Answer::Cancelled,
            Reply::Pool => Answer::Pool(Box::new(self.pool_view())),
            Reply::Refused(refusal) => Answer::Refused(refusal),
        }
    }

    /// Looks at matches whose time has come.
    fn matches_due(&mut self, random: &mut Randomness<'_>) {
        for _ in 0..MATCHES_AT_ONCE_MAX {
            let Some((at, client)) = self.timers.first().cloned() else { return };
            if at > self.now {
                return;
            }
            self.match_due(&client, random);
        }
        self.more |= self.timers.first().is_some_and(|(at, _)| *at <= self.now);
    }

    fn take_writes(&mut self) -> (Vec<Write>, Vec<ClientName>) {
        let dirty = std::mem::take(&mut self.dirty);
        let mut writes = Vec::new();
        if self.gone {
            if dirty.pool {
                writes.push(Write::Pool(None));
            }
        } else if dirty.pool {
            self.pool.version += 1;
            writes.push(Write::Pool(Some(Box::new(self.pool.clone()))));
        }
        for no in dirty.workers {
            let row = self.workers.get_mut(&no).map(|worker| {
                worker.row.version += 1;
                Box::new(worker.row.clone())
            });
            writes.push(Write::Worker(no, row));
        }
        for client in &dirty.matches {
            let row = self.matches.get_mut(client).map(|known| {
                known.row.version += 1;
                Box::new(known.row.clone())
            });
            writes.push(Write::Match(client.clone(), row));
        }
        (writes, dirty.matches.into_iter().collect())
    }

    /// Whether a caller may speak for a client.
    pub(super) fn check_principal(&self, asker: &Asker) -> Result<(), Refusal> {
        let owner = self.matches.get(&asker.client).and_then(|known| known.row.principal.as_ref());
        match owner {
            Some(owner) if asker.principal.as_ref() != Some(owner) => {
                Err(Refusal::AnothersClient(asker.client.to_string()))
            }
            _ => Ok(()),
        }
    }
}
