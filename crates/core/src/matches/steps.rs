//! A worker's steps: orders to its runtime, their outcomes, and what follows when a step's deadline passes.
//!
//! | step | order | done | failed, or at its deadline |
//! |---|---|---|---|
//! | Creating, Restarting | create, restart | Starting, with the instance in the row | counts as a failure; Removing |
//! | Starting | await | Running | counts as a failure; Removing |
//! | Stopping | stop | Removing | Removing, which uses force |
//! | Removing | remove | no row | again, later and later; forgotten if its site is silent, or lists that it is gone |
//! | Exited | none | Restarting, if there is demand | Removing |
//!
//! An order is sent again until its outcome is known. A runtime knows a worker by its name, so that a repeated order is
//! the same order.
//!
//! A worker that is removed before it was heard how its making ended has no instance. A list without it says nothing of
//! it, because its runtime may still be making it; and when it is forgotten, its site is owed.

use std::sync::Arc;

use super::apply::Reply;
use super::decision::{Effect, Make};
use super::input::{Exit, StepId};
use super::randomness::Randomness;
use super::row::{Instance, MatchState, Phase, WorkerNo, WorkerRow};
use super::state::State;
use crate::limits::{EARLY_EXIT, MAKING_STABLE, ORDER_RESENT, RECONCILE_INTERVAL, SITE_SILENT_AFTER, STOP_TIME};
use crate::time::{Millis, Time};

impl State {
    fn is_current(&self, step: StepId, phases: &[Phase]) -> bool {
        let row = self.workers.get(&step.worker).map(|worker| &worker.row);
        row.is_some_and(|row| row.step == step.step && phases.contains(&row.phase))
    }

    pub(super) fn made(
        &mut self,
        step: StepId,
        result: Result<Instance, Arc<str>>,
        random: &mut Randomness<'_>,
    ) -> Reply {
        if !self.is_current(step, &[Phase::Creating, Phase::Restarting]) {
            return Reply::Stale;
        }
        match result {
            Ok(instance) => self.adopt(step.worker, instance),
            Err(why) => self.fail_making(step.worker, &why, random),
        }
        Reply::Taken
    }

    /// What the runtime has started becomes durable; from then on it may be used.
    pub(super) fn adopt(&mut self, no: WorkerNo, instance: Instance) {
        if let Some(worker) = self.workers.get_mut(&no) {
            worker.row.instance = Some(instance);
            worker.row.reported_from = None;
        }
        self.enter_phase(no, Phase::Starting, "it was started and is awaited");
    }

    pub(super) fn listening(
        &mut self,
        step: StepId,
        result: Result<(), Arc<str>>,
        random: &mut Randomness<'_>,
    ) -> Reply {
        if !self.is_current(step, &[Phase::Starting]) {
            return Reply::Stale;
        }
        match result {
            Ok(()) => self.ready(step.worker),
            Err(why) => self.fail_started(step.worker, &why, random),
        }
        Reply::Taken
    }

    /// A new worker takes clients.
    pub(super) fn ready(&mut self, no: WorkerNo) {
        self.enter_phase(no, Phase::Running, "it takes clients");
        let Some(worker) = self.workers.get_mut(&no) else { return };
        worker.row.idle_since = Some(self.now);
        (worker.row.used_elsewhere, worker.row.reported_at) = (0, Time::ZERO);
        (worker.failed_calls, worker.call_failure, worker.call_failed_at, worker.quiet_until) =
            (0, None, Time::ZERO, Time::ZERO);
        let took = self.now.since(worker.row.making_since.max(self.listening_since));
        self.start_mean = Millis((self.start_mean.0 * 3 + took.0) / 4);
    }

    /// A worker could not be made. Whatever there is of it is removed.
    pub(super) fn fail_making(&mut self, no: WorkerNo, why: &str, random: &mut Randomness<'_>) {
        self.count_failure(no, why, random);
        self.enter_phase(no, Phase::Removing, why);
    }

    /// The same of one that its runtime has started, or may have: its name leads to its output.
    fn fail_started(&mut self, no: WorkerNo, why: &str, random: &mut Randomness<'_>) {
        self.blame_worker(no, why, random);
        self.enter_phase(no, Phase::Removing, why);
    }

    pub(super) fn stopped(&mut self, step: StepId, result: Result<(), Arc<str>>) -> Reply {
        if !self.is_current(step, &[Phase::Stopping]) {
            return Reply::Stale;
        }
        let before = self.workers.get(&step.worker).map(|worker| worker.row.reason.clone()).unwrap_or_default();
        let why = match result {
            Ok(()) => format!("it was stopped: {before}"),
            Err(why) => format!("it could not be stopped, so it is removed by force: {why}"),
        };
        self.enter_phase(step.worker, Phase::Removing, &why);
        Reply::Taken
    }

    pub(super) fn removed(&mut self, step: StepId, result: Result<(), Arc<str>>, random: &mut Randomness<'_>) -> Reply {
        if !self.is_current(step, &[Phase::Removing]) {
            return Reply::Stale;
        }
        match result {
            Ok(()) => {
                // Nothing was there, but it was never heard how its making ended: a runtime that gave up at a deadline may
                // continue by itself.
                self.owe_unfinished(step.worker, self.now);
                self.forget_worker(step.worker);
            }
            Err(why) => self.remove_later(step.worker, &format!("it cannot be removed: {why}"), random),
        }
        Reply::Taken
    }

    /// A worker is forgotten. If it was never heard how its making ended, its site may have it by this time.
    fn owe_unfinished(&mut self, no: WorkerNo, by: Time) {
        let row = self.workers.get(&no).map(|worker| &worker.row);
        let site = row.filter(|row| row.instance.is_none()).map(|row| row.site.clone());
        site.into_iter().for_each(|site| self.owe(&site, by));
    }

    fn remove_later(&mut self, no: WorkerNo, why: &str, random: &mut Randomness<'_>) {
        let Some(tries) = self.workers.get(&no).map(|worker| worker.row.tries + 1) else { return };
        self.enter_phase(no, Phase::Removing, why);
        let doubled = ORDER_RESENT.0.saturating_mul(1 << tries.min(10));
        let wait = random.about(Millis(doubled.min(RECONCILE_INTERVAL.0)));
        let Some(worker) = self.workers.get_mut(&no) else { return };
        worker.row.tries = tries;
        worker.send_at = self.now.after(wait);
        worker.row.deadline = worker.send_at.after(STOP_TIME);
    }

    /// A runtime says that a worker has ended; that an earlier run has is old news.
    pub(super) fn on_exit(
        &mut self,
        no: WorkerNo,
        generation: u64,
        instance: &Instance,
        exit: &Exit,
        random: &mut Randomness<'_>,
    ) -> Reply {
        let row = self.workers.get(&no).map(|worker| &worker.row);
        let current = row.filter(|_| generation == self.pool.generation).is_some_and(|row| {
            let same = row.instance.as_ref().is_some_and(|own| own.is_run(instance));
            // While it is being made, the row has the run before, if any.
            same != matches!(row.phase, Phase::Creating | Phase::Restarting)
        });
        if current { self.exited(no, exit, random) } else { Reply::Stale }
    }

    /// A worker has ended by itself: a plain no to all its clients.
    pub(super) fn exited(&mut self, no: WorkerNo, exit: &Exit, random: &mut Randomness<'_>) -> Reply {
        let Some(worker) = self.workers.get(&no) else { return Reply::Stale };
        let phase = worker.row.phase;
        // A worker that has served is no evidence about the recipe; one that ends right away is a failed start.
        let early = phase == Phase::Running && self.now.since(worker.row.since) < EARLY_EXIT;
        let fails = !worker.row.proven && (*exit != Exit::Clean || early);
        let how = exit.to_string();
        match phase {
            Phase::Creating | Phase::Restarting | Phase::Starting => {
                let why = match exit {
                    Exit::Clean => "it ended before it listened, with exit code 0".to_owned(),
                    Exit::Error(why) => format!("it ended before it listened: {why}"),
                };
                self.fail_started(no, &why, random);
            }
            Phase::Running | Phase::Draining => {
                self.void_bookings(no, &how, random);
                if fails {
                    self.blame_worker(no, &how, random);
                }
                let again = phase == Phase::Running && *exit == Exit::Clean && self.may_run_again(no);
                self.enter_phase(no, if again { Phase::Exited } else { Phase::Removing }, &how);
            }
            Phase::Stopping => {
                let why = format!("it was stopped: {}", worker.row.reason);
                self.enter_phase(no, Phase::Removing, &why);
            }
            Phase::Exited | Phase::Removing => return Reply::Stale,
        }
        Reply::Taken
    }

    /// Whether age, uses and recipe allow another run or another client.
    pub(super) fn may_run_again(&self, no: WorkerNo) -> bool {
        self.workers.get(&no).is_some_and(|worker| self.may_run(&worker.row))
    }

    /// The same of a row.
    pub(super) fn may_run(&self, row: &WorkerRow) -> bool {
        let settings = &self.pool.settings;
        let young = settings.age_max.is_none_or(|max| self.now < row.created_at.after(max));
        let fresh = settings.uses_max.is_none_or(|max| row.uses < max);
        young && fresh && row.recipe_no == self.pool.recipe_no && !self.pool.closing
    }

    /// Takes the slots of a worker that is gone from all its clients. Calls to it may still be on their way: it is
    /// not started again before they are over, or they would reserve slots that no row knows of.
    fn void_bookings(&mut self, no: WorkerNo, how: &str, random: &mut Randomness<'_>) {
        let restart_at = self.calls_over(no);
        let Some(worker) = self.workers.get_mut(&no) else { return };
        worker.row.restart_at = restart_at;
        let Some(worker) = self.workers.get(&no) else { return };
        let why = format!("worker {}: {how}", self.worker_name(no));
        for client in worker.clients.clone() {
            let Some(mut known) = self.matches.get(&client).cloned() else { continue };
            known.row.leftovers.retain(|left| left.booking.worker != no);
            match &known.row.state {
                MatchState::Making(booking) if booking.worker == no => {
                    self.try_again(&client, known, &why, random);
                }
                MatchState::Matched { booking, expires_at } if booking.worker == no => {
                    known.row.state = MatchState::Vacant { until: *expires_at };
                    known.row.reason = why.as_str().into();
                    self.store(&client, Some(known));
                }
                _ => self.store(&client, Some(known)),
            }
        }
    }

    /// By when no call to a worker can arrive any more.
    fn calls_over(&self, no: WorkerNo) -> Time {
        let mut over = self.now;
        for client in self.workers.get(&no).map(|worker| &worker.clients).into_iter().flatten() {
            let Some(known) = self.matches.get(client) else { continue };
            for booking in known.row.booked().filter(|booking| booking.worker == no) {
                let in_flight = known.in_flight(booking.token, self.now).unwrap_or(self.now);
                over = over.max(in_flight).max(booking.asked_until);
            }
        }
        over
    }

    /// Ends steps whose deadline has passed.
    pub(super) fn workers_due(&mut self, random: &mut Randomness<'_>) {
        let due = |(no, worker): (&WorkerNo, &super::state::Worker)| {
            let unproven = worker.row.phase == Phase::Running && !worker.row.proven;
            let stable = unproven && worker.row.since.after(MAKING_STABLE) <= self.now;
            (worker.row.deadline <= self.now || stable).then_some(*no)
        };
        let due: Vec<WorkerNo> = self.workers.iter().filter_map(due).collect();
        for no in due {
            let Some(row) = self.workers.get(&no).map(|worker| worker.row.clone()) else { continue };
            let within = row.deadline.since(row.since).in_words();
            match row.phase {
                Phase::Creating | Phase::Restarting => {
                    self.fail_started(no, &format!("its runtime did not start it within {within}"), random);
                }
                Phase::Starting => self.fail_started(no, &mute_start(&row, &within), random),
                Phase::Stopping => {
                    self.enter_phase(no, Phase::Removing, &format!("it did not stop within {within}"));
                }
                Phase::Exited => self.enter_phase(no, Phase::Removing, "it was not needed again"),
                // If the site comes back, the worker is unknown to its list and is removed then.
                Phase::Removing if self.silence(&row.site) >= SITE_SILENT_AFTER => {
                    self.owe(&row.site, self.now);
                    // No order has cancelled its creation at the site.
                    self.owe_unfinished(no, row.making_since.after(self.pool.settings.start_max));
                    self.forget_worker(no);
                }
                Phase::Removing => self.remove_later(no, &row.reason, random),
                Phase::Running => self.prove(no),
                Phase::Draining => {}
            }
        }
    }

    /// Sends orders whose time has come.
    pub(super) fn send_orders(&mut self) {
        let due = self.workers.iter().filter(|(_, worker)| worker.send_at <= self.now);
        let due: Vec<WorkerNo> = due.map(|(no, _)| *no).collect();
        for no in due {
            let Some(worker) = self.workers.get(&no) else { continue };
            let row = &worker.row;
            let make = || Make {
                step: StepId { worker: no, step: row.step },
                name: self.worker_name(no).into(),
                site: row.site.clone(),
                labels: self.labels(no),
                run: row.secret_run,
                secret: row.secret,
                pull: self.pool.settings.pull,
                last: row.instance.clone(),
                recipe: self.pool.settings.recipe.clone(),
                until: row.deadline,
            };
            let effect = match row.phase {
                Phase::Creating => Some(Effect::Create(make())),
                Phase::Restarting => Some(Effect::Restart(make())),
                Phase::Starting => Some(Effect::Await(self.order(no, worker))),
                Phase::Stopping => Some(Effect::Stop(self.order(no, worker))),
                Phase::Removing => Some(Effect::Remove(self.order(no, worker))),
                Phase::Running | Phase::Draining | Phase::Exited => None,
            };
            let send_at = if effect.is_some() { self.now.after(ORDER_RESENT) } else { Time::NEVER };
            self.effects.extend(effect);
            if let Some(worker) = self.workers.get_mut(&no) {
                worker.send_at = send_at;
            }
        }
        // A site that was never heard may have a new name, under which it lists its workers once the old one is silent.
        let renamed = self.workers.values().any(|worker| !self.sites.contains_key(&worker.row.site));
        let again = if renamed { SITE_SILENT_AFTER } else { RECONCILE_INTERVAL };
        for (site, known) in &mut self.sites {
            if known.list_at <= self.now && self.now < known.heard.after(SITE_SILENT_AFTER) {
                known.list_at = self.now.after(again);
                let (site, owner) = (site.clone(), self.pool.owner.clone());
                self.effects.push(Effect::List { site, owner, since: self.now });
            }
        }
    }
}

/// A worker that did not answer HTTP by the deadline of its start.
fn mute_start(row: &WorkerRow, within: &str) -> String {
    let at = row.instance.as_ref().map_or_else(String::new, |instance| format!(" on {}", instance.address));
    format!("it did not answer HTTP{at} within {within}: it must listen on HOST and PORT of its environment")
}
