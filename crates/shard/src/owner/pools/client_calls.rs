//! Calls of clients: put, look, cancel. A call that must wait is parked.

use wayleave_core::frontier::refusal::Refusal;
use wayleave_core::limits::ASK_TIME;
use wayleave_core::matches::{Answer, Call, Input, MatchStage, MatchView, State, Verdict};
use wayleave_core::names::PoolName;
use wayleave_core::time::Time;

use super::decide::{Pools, removed};
use super::parked::{ClientCall, WaitsFor};
use crate::matches::call::{QueuedBefore, Waited};
use crate::message::MatchReply;
use crate::routing::router::CallResult;

/// Calls whose waiting ends in one turn.
const CALLS_OVER_AT_ONCE: usize = 256;

impl Pools {
    /// A client puts or looks.
    pub(super) fn client_call(&mut self, call: ClientCall, now: Time) {
        let input = match call.purpose {
            Call::Put => Input::Put(call.asker.clone()),
            Call::Look => Input::Look(call.asker.clone()),
        };
        match self.apply(&call.pool, input, now) {
            Some(answer) => self.conclude(call, answer, now),
            None => {
                let refusal = self.unknown(&call.pool);
                self.turn.answer(call.reply, Err::<Waited, _>(refusal));
            }
        }
    }

    /// A call asks again. A put does not queue the client anew if its request was cancelled meanwhile, nor after a failure that another
    /// call of the client was told: (two puts wait) (the match fails) (the first asks again, and is told) (so does the second).
    pub(super) fn call_again(&mut self, call: ClientCall, before: QueuedBefore, now: Time) {
        let (state, client) = (self.states.get(&call.pool), &call.asker.client);
        if before == QueuedBefore::Yes && state.is_some_and(|state| state.view(client).is_none()) {
            return self.turn.answer(call.reply, Ok(Waited::Now(None)));
        }
        let failed = state.is_some_and(|state| state.failure_is_delivered(client));
        let purpose = if failed { Call::Look } else { call.purpose };
        self.client_call(ClientCall { purpose, ..call }, now);
    }

    /// Answers a call, or parks it.
    fn conclude(&mut self, call: ClientCall, answer: Answer, now: Time) {
        let told: CallResult<Waited> = match answer {
            Answer::Match(view) if is_waiting(&view) && call.wait_until > now && self.has_room(now) => {
                return self.park(call, WaitsFor::News);
            }
            Answer::Match(view) => Ok(Waited::Now(Some(Box::new(view)))),
            Answer::Verify(ask) if self.has_room(now) => {
                let what = WaitsFor::Check { token: ask.token, sent_at: ask.sent_at, until: ask.until };
                return self.park(call, what);
            }
            // It cannot wait for the worker, so nobody has confirmed the match.
            Answer::Verify(_) => {
                let view = self.states.get(&call.pool).and_then(|state| state.view(&call.asker.client));
                Ok(Waited::Now(view.map(|view| Box::new(MatchView { verified: false, ..view }))))
            }
            Answer::NoMatch => Ok(Waited::Now(None)),
            Answer::Refused(refusal) => Err(refusal.into()),
            Answer::Taken | Answer::Stale | Answer::Cancelled | Answer::Pool(_) => Err(odd_answer()),
        };
        self.turn.answer(call.reply, told);
    }

    fn park(&mut self, call: ClientCall, what: WaitsFor) {
        self.turn.answers.push(call.note_commit());
        self.parked.park(call, what);
    }

    fn has_room(&mut self, now: Time) -> bool {
        if self.parked.is_full() {
            self.parked.forget_closed(now);
        }
        !self.parked.is_full()
    }

    /// Resumes parked calls whose clients have news.
    pub(super) fn take_news(&mut self, now: Time) {
        while let Some((pool, client)) = self.news.pop_front() {
            let view = self.states.get(&pool).and_then(|state| state.view(&client));
            if view.as_ref().is_some_and(is_waiting) {
                continue;
            }
            if self.elsewhere.is_watched(self.shard, now) {
                self.elsewhere.tell(self.shard, Some((&pool, &client)));
            }
            if view.is_none() {
                // Cancelled: a put that waits for the worker's word must not queue the client again when that comes.
                let closing = self.states.get(&pool).is_some_and(State::is_closing);
                for call in self.parked.take_client(&pool, &client) {
                    let told = if closing { Err(removed(&pool)) } else { Ok(Waited::Now(None)) };
                    self.turn.answer(call.reply, told);
                }
                continue;
            }
            for call in self.parked.take_news(&pool, &client) {
                self.call_again(call, QueuedBefore::Yes, now);
            }
        }
    }

    /// Applies a worker's answer to a check. A late answer is ignored.
    pub(super) fn checked(&mut self, pool: &PoolName, input: Input, now: Time) {
        let Input::Checked { asker, token, sent_at, verdict, .. } = input else { return };
        for call in self.parked.take_checks(pool, &asker.client, (token, sent_at)) {
            let (asker, purpose, verdict) = (call.asker.clone(), call.present_purpose(), verdict.clone());
            let input = Input::Checked { asker, call: purpose, token, sent_at, verdict };
            match self.apply(pool, input, now) {
                Some(answer) => self.conclude(call, answer, now),
                None => {
                    let refusal = self.unknown(pool);
                    self.turn.answer(call.reply, Err::<Waited, _>(refusal));
                }
            }
        }
    }

    /// Answers parked calls that have expired, a bounded number per turn: thousands may expire together.
    pub(super) fn calls_over(&mut self, now: Time) {
        for _ in 0..CALLS_OVER_AT_ONCE {
            let Some((call, what)) = self.parked.take_expired(now) else { return };
            match what {
                WaitsFor::News => {
                    let view = self.states.get(&call.pool).and_then(|state| state.view(&call.asker.client));
                    self.turn.answer(call.reply, Ok(Waited::Now(view.map(Box::new))));
                }
                WaitsFor::Check { token, sent_at, .. } => {
                    let why = format!("no answer within {}", ASK_TIME.in_words());
                    let (asker, purpose) = (call.asker.clone(), call.present_purpose());
                    let verdict = Verdict::Unknown(why.into());
                    let input = Input::Checked { asker, call: purpose, token, sent_at, verdict };
                    match self.apply(&call.pool, input, now) {
                        Some(answer) => self.conclude(call, answer, now),
                        None => {
                            let refusal = self.unknown(&call.pool);
                            self.turn.answer(call.reply, Err::<Waited, _>(refusal));
                        }
                    }
                }
            }
            self.take_news(now);
        }
    }

    /// A client wants no worker any more. Tells whether it had a request.
    pub(super) fn cancel(&mut self, pool: &PoolName, input: Input, reply: MatchReply, now: Time) {
        let told: CallResult<bool> = match self.apply(pool, input, now) {
            None => Err(self.unknown(pool)),
            Some(Answer::Cancelled) => Ok(true),
            Some(Answer::NoMatch | Answer::Stale) => Ok(false),
            Some(Answer::Refused(refusal)) => Err(refusal.into()),
            Some(_) => Err(odd_answer()),
        };
        self.turn.answer(reply, told);
    }
}

/// Whether a call that waits for a worker goes on waiting.
const fn is_waiting(view: &MatchView) -> bool {
    matches!(view.stage, MatchStage::Queued | MatchStage::Making)
}

pub(super) fn odd_answer() -> Refusal {
    Refusal::Internal("the pool's answer does not match the call".to_owned())
}
