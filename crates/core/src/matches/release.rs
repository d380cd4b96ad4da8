//! Time and matches: deadlines, the end of leases, and slots that are given back.

use super::apply::{Reply, WorkerAnswer};
use super::decision::Effect;
use super::input::Verdict;
use super::randomness::Randomness;
use super::row::MatchState;
use super::state::{Match, State};
use crate::limits::{ASK_TIME, RELEASE_RESENT};
use crate::names::ClientName;
use crate::time::Time;

impl State {
    /// Looks at a match whose time has come. It ends with a later timer, or without a row.
    pub(super) fn match_due(&mut self, client: &ClientName, random: &mut Randomness<'_>) {
        let Some(mut known) = self.matches.get(client).cloned() else { return };
        let now = self.now;
        known.row.leftovers.retain(|left| left.until > now);
        let deadline = known.row.deadline;
        match &known.row.state {
            MatchState::Queued { .. } if deadline <= now => {
                let waited = deadline.since(known.row.queued_at).in_words();
                let why = format!("no worker was free within {waited}: {}", self.wait_why(client));
                return self.fail_match(client, known, &why);
            }
            MatchState::Making(booking) if booking.asked_until <= now => {
                let worker = self.worker_name(booking.worker);
                let why = format!("nothing was heard within {} of the call to worker {worker}", ASK_TIME.in_words());
                self.give_back(&mut known);
                // A Maker reports an unanswered call before the call's deadline. So the order or its outcome was
                // lost, which is no evidence against the worker and no attempt of the client.
                return self.queue_again(client, known, &why, random);
            }
            MatchState::Making(booking) if known.send_at <= now => {
                let (token, until) = (booking.token, booking.asked_until);
                let ask = self.ask(client, booking, until);
                self.effects.extend(ask.map(Effect::Reserve));
                known.sent(token, now, until, true);
                known.send_at = Time::NEVER;
            }
            MatchState::Matched { expires_at, .. } if *expires_at <= now => {
                self.give_back(&mut known);
                known.row.state = MatchState::Ended;
                known.row.reason = "it was not confirmed in time".into();
            }
            MatchState::Vacant { until } | MatchState::Failed { until, .. } if *until <= now => {
                known.row.state = MatchState::Ended;
            }
            _ => {}
        }
        self.send_releases(client, &mut known, random);
        let empty = matches!(known.row.state, MatchState::Ended) && known.row.leftovers.is_empty();
        self.store_if_changed(client, (!empty).then_some(known));
    }

    fn send_releases(&mut self, client: &ClientName, known: &mut Match, random: &mut Randomness<'_>) {
        if known.row.leftovers.is_empty() || known.release_at > self.now {
            return;
        }
        for left in known.row.leftovers.clone() {
            // None may arrive after the slot was given to another one.
            let until = self.now.after(ASK_TIME).min(left.until);
            let ask = self.ask(client, &left.booking, until);
            self.effects.extend(ask.map(Effect::Release));
            known.sent(left.booking.token, self.now, until, false);
        }
        known.release_at = self.now.after(random.about(RELEASE_RESENT));
    }

    /// Stores a match; its row is written only if it differs.
    fn store_if_changed(&mut self, client: &ClientName, after: Option<Match>) {
        let before = self.matches.get(client).map(|known| &known.row);
        let same = before == after.as_ref().map(|known| &known.row);
        let noted = self.dirty.matches.contains(client);
        self.store(client, after);
        if same && !noted {
            self.dirty.matches.remove(client);
        }
    }

    /// A worker's answer to the release of a reservation.
    pub(super) fn released(&mut self, client: &ClientName, heard: &WorkerAnswer, random: &mut Randomness<'_>) -> Reply {
        let WorkerAnswer { token, sent_at, verdict } = heard;
        let Some(known) = self.matches.get_mut(client) else { return Reply::Stale };
        if !matches!(verdict, Verdict::Unknown(_)) {
            known.answered(*token, *sent_at, false);
        }
        let mut known = known.clone();
        let Some(at) = known.row.leftovers.iter().position(|left| left.booking.token == *token) else {
            return Reply::Stale;
        };
        if let Verdict::Unknown(why) = verdict {
            let worker = known.row.leftovers.get(at).map(|left| left.booking.worker);
            worker.into_iter().for_each(|worker| self.on_call_failure(worker, *sent_at, why, random));
            return Reply::Taken;
        }
        if let Some(until) = known.in_flight(*token, self.now) {
            // Another call may still arrive: one that asks for the slot, or one that would release the client's next
            // reservation on this worker. It is released once more after that.
            known.release_at = until;
            self.store_if_changed(client, Some(known));
        } else {
            known.row.leftovers.swap_remove(at);
            self.store(client, Some(known));
        }
        Reply::Taken
    }
}
