//! A client's calls: put (it wants a worker), look, and cancel.

use super::apply::{Reply, WorkerAnswer};
use super::decision::{Caller, Effect, WorkerAsk};
use super::input::{Asker, Call, Verdict};
use super::randomness::Randomness;
use super::refusal::Refusal;
use super::row::{MatchRow, MatchState};
use super::state::{Match, State};
use super::view::MatchView;
use crate::ids::Token;
use crate::limits::{ASK_TIME, FAILED_KEPT, MATCHES_MAX, VERIFIED_FOR};
use crate::time::Time;

impl State {
    /// Idempotent: the same call again finds the same request.
    pub(super) fn put(&mut self, asker: &Asker) -> Reply {
        if let Err(refusal) = self.check_principal(asker) {
            return Reply::Refused(refusal);
        }
        let Some(known) = self.matches.get_mut(&asker.client) else { return self.queue_anew(asker, "it was queued") };
        let client = asker.client.clone();
        match &mut known.row.state {
            MatchState::Queued { .. } | MatchState::Making(_) => Reply::View(client),
            MatchState::Matched { .. } => self.matched(asker, Call::Put),
            MatchState::Vacant { .. } => {
                let reason = format!("{}; it was queued again", known.row.reason);
                self.queue_anew(asker, &reason)
            }
            MatchState::Ended => self.queue_anew(asker, "it was queued"),
            MatchState::Failed { delivered, .. } if !*delivered => {
                *delivered = true;
                self.dirty.matches.insert(client.clone());
                Reply::View(client)
            }
            MatchState::Failed { retry_at, .. } if self.now < *retry_at => Reply::View(client),
            MatchState::Failed { .. } => self.queue_anew(asker, "it was queued again after a failure"),
        }
    }

    pub(super) fn look(&mut self, asker: &Asker) -> Reply {
        if let Err(refusal) = self.check_principal(asker) {
            return Reply::Refused(refusal);
        }
        match self.matches.get(&asker.client).map(|known| &known.row.state) {
            None | Some(MatchState::Ended) => Reply::NoMatch,
            Some(MatchState::Matched { .. }) => self.matched(asker, Call::Look),
            Some(_) => Reply::View(asker.client.clone()),
        }
    }

    pub(super) fn cancel(&mut self, asker: &Asker, token: Option<Token>) -> Reply {
        if let Err(refusal) = self.check_principal(asker) {
            return Reply::Refused(refusal);
        }
        let Some(known) = self.matches.get(&asker.client) else { return Reply::NoMatch };
        if token.is_some_and(|token| known.row.booked().all(|booking| booking.token != token)) {
            return Reply::Refused(Refusal::OldToken(asker.client.to_string()));
        }
        if token.is_some_and(|token| known.row.booking().is_none_or(|booking| booking.token != token)) {
            // It is being given back already.
            return Reply::Cancelled;
        }
        let mut known = known.clone();
        self.give_back(&mut known);
        known.row.state = MatchState::Ended;
        known.row.reason = "it was cancelled".into();
        self.store(&asker.client, Some(known));
        Reply::Cancelled
    }

    /// Matched if a worker has just confirmed the reservation; otherwise the worker is asked.
    fn matched(&mut self, asker: &Asker, call: Call) -> Reply {
        let client = asker.client.clone();
        let Some(known) = self.matches.get(&client) else { return Reply::NoMatch };
        if known.verified_at.is_some_and(|at| self.now < at.after(VERIFIED_FOR)) {
            return Reply::View(client);
        }
        let ask = known.row.booking().and_then(|booking| self.ask(&client, booking, self.now.after(ASK_TIME)));
        let Some(ask) = ask else { return Reply::View(client) };
        let ask = WorkerAsk { caller: Some(Caller { principal: asker.principal.clone(), call }), ..ask };
        self.effects.push(Effect::Check(ask.clone()));
        Reply::Verify(Box::new(ask))
    }

    /// A worker's answer to a check for a client's call. Only a plain no ends the match, and only a call for a worker
    /// queues the client again.
    pub(super) fn checked(
        &mut self,
        asker: &Asker,
        call: Call,
        heard: &WorkerAnswer,
        random: &mut Randomness<'_>,
    ) -> Reply {
        if let Err(refusal) = self.check_principal(asker) {
            return Reply::Refused(refusal);
        }
        let known = self.matches.get(&asker.client);
        let Some(mut known) = known.filter(|known| is_matched(&known.row, heard.token)).cloned() else {
            // The match has changed while its worker was asked.
            return self.call(asker, call);
        };
        let MatchState::Matched { booking, expires_at } = &mut known.row.state else { return self.call(asker, call) };
        let worker = booking.worker;
        match &heard.verdict {
            Verdict::Yes => {
                self.on_confirmed(worker);
                (known.verified_at, known.uncertainty) = (Some(self.now), None);
                let span = booking.reservation;
                // The worker counts from when the call arrived, which is no earlier than when it was sent.
                let extended = heard.sent_at.after(span).max(*expires_at);
                // Not every call is worth a write: while most of the time is left, it stays as it is.
                let is_long = expires_at.since(self.now).0 > span.0 / 4 * 3;
                if self.pool.closing || is_long || extended == *expires_at {
                    self.matches.insert(asker.client.clone(), known);
                } else {
                    *expires_at = extended;
                    self.store(&asker.client, Some(known));
                }
                Reply::View(asker.client.clone())
            }
            Verdict::No => {
                self.drop_booking(&mut known);
                let reason = format!("worker {} no longer held the reservation", self.worker_name(worker));
                known.row.state = MatchState::Vacant { until: self.now.after(FAILED_KEPT) };
                known.row.reason = reason.into();
                self.store(&asker.client, Some(known));
                self.call(asker, call)
            }
            Verdict::Unknown(why) => {
                // (check)(check)(yes to the second)(no clear answer to the first): the yes is the later word.
                if known.verified_at.is_none_or(|at| at < heard.sent_at) {
                    known.uncertainty = Some(why.clone());
                    self.matches.insert(asker.client.clone(), known);
                }
                // What comes at the deadline is the owner's own: the order or its outcome was lost, and the worker was
                // perhaps never asked.
                if self.now < heard.sent_at.after(ASK_TIME) {
                    self.on_call_failure(worker, heard.sent_at, why, random);
                }
                Reply::Unverified(asker.client.clone())
            }
        }
    }

    fn call(&mut self, asker: &Asker, call: Call) -> Reply {
        match call {
            Call::Put => self.put(asker),
            Call::Look => self.look(asker),
        }
    }

    /// Queues a client at the end.
    fn queue_anew(&mut self, asker: &Asker, reason: &str) -> Reply {
        if self.pool.closing {
            return Reply::Refused(Refusal::Closing(self.pool.name.to_string()));
        }
        if let Some(view) = self.refuse_unstartable() {
            return Reply::Told(view);
        }
        if self.queue.len() >= self.pool.settings.queue_max as usize {
            let pool = self.pool.name.to_string();
            return Reply::Refused(Refusal::QueueFull { pool, waiting: self.queue.len() });
        }
        let before = self.matches.get(&asker.client);
        if before.is_none() && self.matches.len() >= MATCHES_MAX {
            return Reply::Refused(Refusal::TooMany(self.pool.name.to_string()));
        }
        let queue_number = self.next_queue_number;
        self.next_queue_number += 1;
        let row = MatchRow {
            principal: asker.principal.clone(),
            queue_number,
            queued_at: self.now,
            deadline: self.now.after(self.pool.settings.match_max),
            attempts: 0,
            state: MatchState::Queued { not_before: Time::ZERO },
            leftovers: before.map(|known| known.row.leftovers.clone()).unwrap_or_default(),
            reason: reason.into(),
            version: before.map_or(0, |known| known.row.version),
        };
        let (calls, release_at) =
            before.map_or_else(|| (Vec::new(), self.now), |known| (known.calls.clone(), known.release_at));
        let known = Match {
            row,
            send_at: Time::NEVER,
            calls,
            release_at,
            verified_at: None,
            uncertainty: None,
            timer: Time::NEVER,
        };
        self.store(&asker.client, Some(known));
        Reply::View(asker.client.clone())
    }

    /// While the breaker is open and no worker is left, a call fails at once, and leaves no row behind.
    fn refuse_unstartable(&self) -> Option<MatchView> {
        let trouble = self.pool.trouble.as_ref().filter(|_| self.cannot_start_workers())?;
        Some(MatchView::failed(self.unstartable_reason(), trouble.until.since(self.now)))
    }
}

fn is_matched(row: &MatchRow, token: Token) -> bool {
    matches!(&row.state, MatchState::Matched { booking, .. } if booking.token == token)
}
