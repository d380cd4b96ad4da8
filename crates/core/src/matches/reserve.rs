//! Reservations: a slot is booked, which is durable before its worker is asked; the worker's answer decides.

use std::collections::BTreeSet;

use super::apply::{Reply, WorkerAnswer};
use super::decision::WorkerAsk;
use super::input::Verdict;
use super::randomness::Randomness;
use super::row::{Booking, Leftover, MatchRow, MatchState, Phase, WorkerNo};
use super::state::{Match, State};
use crate::ids::Token;
use crate::limits::{
    ASK_TIME, FAILED_KEPT, LEFTOVERS_MAX, LOOKUP_COOLDOWN, MATCH_ATTEMPTS_MAX, MATCHES_AT_ONCE_MAX, SITE_SILENT_AFTER,
    WORKER_CALL_FAILURES_MAX, WORKER_CLOCK_MARGIN,
};
use crate::names::ClientName;
use crate::time::Time;

/// Which worker a client gets.
enum Pick {
    Worker(WorkerNo),
    /// Those with room have not yet given up an earlier reservation of this client.
    Blocked,
    /// None has room.
    Nobody,
}

impl State {
    /// Books slots for those that wait, first come, first served.
    pub(super) fn assign(&mut self, random: &mut Randomness<'_>) {
        // Those that are blocked are tried again only if another worker has room than when they were tried: otherwise
        // a long run of them at the head of the queue would starve the clients behind it.
        if !self.blocked.is_empty() && !self.with_room().is_subset(&self.open) {
            for client in std::mem::take(&mut self.blocked) {
                if let Some(known) = self.matches.get(&client) {
                    self.queue.set_ready(known.row.queue_number, true);
                }
            }
        }
        self.assign_some(random);
        self.open = if self.blocked.is_empty() { BTreeSet::new() } else { self.with_room() };
    }

    fn with_room(&self) -> BTreeSet<WorkerNo> {
        self.workers.iter().filter(|(_, worker)| self.room(worker) > 0).map(|(no, _)| *no).collect()
    }

    fn assign_some(&mut self, random: &mut Randomness<'_>) {
        for _ in 0..MATCHES_AT_ONCE_MAX {
            let Some((queue_number, client)) = self.queue.first_ready() else { return };
            if self.jobs() >= self.pool.settings.makers_max as usize {
                return;
            }
            let Some(known) = self.matches.get(&client) else { return };
            match self.choose(&known.row, random) {
                Pick::Nobody => return,
                Pick::Blocked => {
                    self.queue.set_ready(queue_number, false);
                    self.blocked.insert(client);
                }
                Pick::Worker(worker) => {
                    let Some(token) = random.token() else {
                        self.more = true;
                        return;
                    };
                    self.book(&client, worker, token);
                }
            }
        }
        self.more = true;
    }

    /// The fullest worker that has room, so that others become idle and can be stopped; at random among equals. One whose
    /// runtime is silent comes last.
    fn choose(&self, row: &MatchRow, random: &mut Randomness<'_>) -> Pick {
        let (mut best, mut equals, mut blocked) = (None, 0, false);
        for (no, worker) in &self.workers {
            let room = self.room(worker);
            if room == 0 {
                continue;
            }
            if row.leftovers.len() >= LEFTOVERS_MAX || row.booked().any(|booking| booking.worker == *no) {
                blocked = true;
                continue;
            }
            let rank = (self.silence(&worker.row.site) >= SITE_SILENT_AFTER, room);
            match best {
                Some((least, _)) if least < rank => {}
                Some((least, _)) if least == rank => {
                    equals += 1;
                    if random.number().is_multiple_of(equals) {
                        best = Some((rank, *no));
                    }
                }
                _ => (best, equals) = (Some((rank, *no)), 1),
            }
        }
        match best {
            Some((_, no)) => Pick::Worker(no),
            None if blocked => Pick::Blocked,
            None => Pick::Nobody,
        }
    }

    fn book(&mut self, client: &ClientName, worker: WorkerNo, token: Token) {
        let Some(mut known) = self.matches.get(client).cloned() else { return };
        let (reservation, asked_until) = (self.pool.settings.reservation, self.now.after(ASK_TIME));
        let booking = Booking { worker, token, reservation, asked_until };
        known.row.state = MatchState::Making(booking);
        known.row.reason = format!("worker {} is asked", self.worker_name(worker)).into();
        known.send_at = self.now;
        self.store(client, Some(known));
    }

    pub(super) fn ask(&self, client: &ClientName, booking: &Booking, until: Time) -> Option<WorkerAsk> {
        let worker = self.workers.get(&booking.worker)?;
        let address = worker.row.instance.as_ref()?.address.clone();
        Some(WorkerAsk {
            client: client.clone(),
            caller: None,
            worker: booking.worker,
            name: self.worker_name(booking.worker).into(),
            site: worker.row.site.clone(),
            address,
            reported_from: worker.row.reported_from,
            token: booking.token,
            reservation: booking.reservation,
            sent_at: self.now,
            until,
        })
    }

    /// A worker's answer to a reservation.
    pub(super) fn reserved(&mut self, client: &ClientName, heard: &WorkerAnswer, random: &mut Randomness<'_>) -> Reply {
        let WorkerAnswer { token, sent_at, verdict } = heard;
        let Some(known) = self.matches.get_mut(client) else { return Reply::Stale };
        let plain = !matches!(verdict, Verdict::Unknown(_));
        if plain {
            known.answered(*token, *sent_at, true);
        }
        let mut known = known.clone();
        let quiet = plain && !known.is_asked(*token, self.now);
        let MatchState::Making(booking) = &mut known.row.state else {
            return self.reserved_late(known, client, *token, quiet);
        };
        if booking.token != *token {
            return self.reserved_late(known, client, *token, quiet);
        }
        if quiet {
            booking.asked_until = self.now;
        }
        let booking = booking.clone();
        let worker = booking.worker;
        match verdict {
            Verdict::Yes => {
                self.on_confirmed(worker);
                self.count_use(worker);
                known.row.reason = format!("worker {} has reserved a slot", self.worker_name(worker)).into();
                known.row.attempts = 0;
                (known.verified_at, known.uncertainty) = (Some(self.now), None);
                // The worker counts from when the call arrived, which is no earlier than when it was sent.
                let expires_at = sent_at.after(booking.reservation);
                known.row.state = MatchState::Matched { booking, expires_at };
                self.store(client, Some(known));
            }
            Verdict::No => {
                self.drop_booking(&mut known);
                let why = format!("worker {} refused the reservation (404 or 409)", self.worker_name(worker));
                self.try_again(client, known, &why, random);
                self.refused(worker, *sent_at, random);
            }
            Verdict::Unknown(why) => {
                self.give_back(&mut known);
                self.try_again(client, known, &format!("worker {}: {why}", self.worker_name(worker)), random);
                self.on_call_failure(worker, *sent_at, why, random);
            }
        }
        Reply::Taken
    }

    /// An answer for a slot that is being given back: the slot need not be kept for a call that is on its way.
    fn reserved_late(&mut self, mut known: Match, client: &ClientName, token: Token, quiet: bool) -> Reply {
        let now = self.now;
        match known.row.leftovers.iter_mut().find(|left| left.booking.token == token) {
            Some(left) if quiet && left.booking.asked_until > now => {
                left.booking.asked_until = now;
                known.release_at = now;
                self.store(client, Some(known));
                Reply::Taken
            }
            _ => Reply::Stale,
        }
    }

    /// Queues a client again in its old place, or fails it after too many attempts.
    pub(super) fn try_again(&mut self, client: &ClientName, mut known: Match, why: &str, random: &mut Randomness<'_>) {
        known.row.attempts += 1;
        if known.row.attempts >= MATCH_ATTEMPTS_MAX {
            let why = format!("{} attempts to reserve a slot failed, the last one: {why}", known.row.attempts);
            return self.fail_match(client, known, &why);
        }
        self.queue_again(client, known, why, random);
    }

    /// Queues a client again in its old place. It is not tried at once.
    pub(super) fn queue_again(
        &mut self,
        client: &ClientName,
        mut known: Match,
        why: &str,
        random: &mut Randomness<'_>,
    ) {
        known.row.reason = why.into();
        known.row.state = MatchState::Queued { not_before: self.now.after(random.about(LOOKUP_COOLDOWN)) };
        self.store(client, Some(known));
    }

    pub(super) fn fail_match(&mut self, client: &ClientName, mut known: Match, why: &str) {
        let retry_at = self.pool.trouble.as_ref().map_or(self.now, |trouble| trouble.until);
        known.row.state = MatchState::Failed { until: self.now.after(FAILED_KEPT), retry_at, delivered: false };
        known.row.reason = why.into();
        self.store(client, Some(known));
    }

    /// Has a booked slot given back: the worker may hold the reservation.
    pub(super) fn give_back(&self, known: &mut Match) {
        let Some(booking) = known.row.booking().cloned() else { return };
        // A check may be on its way, and makes the worker count anew.
        let heard = booking.asked_until.max(self.now.after(ASK_TIME));
        let until = heard.after(booking.reservation).after(WORKER_CLOCK_MARGIN);
        known.row.leftovers.push(Leftover { booking, until });
        known.release_at = self.now;
    }

    /// Drops a booked slot that the worker does not hold, unless a call is on its way that could still reserve it.
    pub(super) fn drop_booking(&self, known: &mut Match) {
        if known.row.booking().is_some_and(|booking| booking.asked_until > self.now) {
            self.give_back(known);
        }
    }

    /// A worker said yes to a reservation or a check. Nothing else proves that it serves: a worker that refuses every
    /// client may still report itself, and release what it does not have.
    pub(super) fn on_confirmed(&mut self, no: WorkerNo) {
        let Some(worker) = self.workers.get_mut(&no) else { return };
        (worker.failed_calls, worker.call_failure, worker.quiet_until) = (0, None, Time::ZERO);
        self.prove(no);
    }

    fn count_use(&mut self, no: WorkerNo) {
        let Some(worker) = self.workers.get_mut(&no) else { return };
        worker.row.uses += 1;
        self.dirty.workers.insert(no);
    }

    /// A worker refused although it should have room.
    fn refused(&mut self, no: WorkerNo, sent_at: Time, random: &mut Randomness<'_>) {
        let Some(worker) = self.workers.get(&no) else { return };
        let slots = worker.row.slots;
        if !worker.row.proven && worker.clients.is_empty() {
            let why = "it answered 404 or 409 to its first reservation, although it has no clients: it must answer 200 to \
                       POST /reservation/{client} while a slot is free";
            self.give_up_worker(no, why, random);
        } else {
            let used = worker.clients.len();
            let why = format!(
                "it answered 404 or 409 to a reservation, although only {used} of its {slots} slots are taken: set `slots` \
                 to what it serves, or let it report its free slots"
            );
            self.on_call_failure(no, sent_at, &why, random);
        }
    }

    /// A worker did not say yes: it is left alone for a while, and gets no more clients when that repeats. Calls that
    /// were under way when the last miss was heard of failed for the same reason, and do not count again.
    pub(super) fn on_call_failure(&mut self, no: WorkerNo, sent_at: Time, why: &str, random: &mut Randomness<'_>) {
        let (now, quiet_until) = (self.now, self.now.after(random.about(LOOKUP_COOLDOWN)));
        let Some(worker) = self.workers.get_mut(&no) else { return };
        worker.quiet_until = quiet_until;
        worker.call_failure = Some(why.into());
        if sent_at <= worker.call_failed_at {
            return;
        }
        worker.failed_calls += 1;
        worker.call_failed_at = now;
        if worker.failed_calls >= WORKER_CALL_FAILURES_MAX {
            self.give_up_worker(no, why, random);
        }
    }

    /// A worker gets no more clients. If it never had one, its image or command is to blame.
    fn give_up_worker(&mut self, no: WorkerNo, why: &str, random: &mut Randomness<'_>) {
        let Some(worker) = self.workers.get(&no).filter(|worker| worker.row.phase == Phase::Running) else { return };
        if !worker.row.proven {
            self.blame_worker(no, why, random);
        }
        self.enter_phase(no, Phase::Draining, why);
    }
}
