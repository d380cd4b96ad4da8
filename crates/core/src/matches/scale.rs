//! Scaling: which workers are drained, stopped, restarted or created. Demand is counted in slots:
//! waiting + buffer − free − being made.

use super::randomness::Randomness;
use super::row::{Phase, WorkerNo, WorkerRow};
use super::settings::RuntimeKind;
use super::state::{Site, State, Worker};
use crate::limits::{SITE_LOST_AFTER, SITE_SILENT_AFTER};
use crate::names::SiteName;
use crate::time::Time;

/// What the pool has, in slots and workers.
pub(super) struct Supply {
    /// Slots that may be booked now.
    pub free: u64,
    /// Slots of workers that are being made.
    pub coming: u64,
    /// Workers that take clients, or will.
    pub good: usize,
}

impl State {
    pub(super) fn supply(&self) -> Supply {
        let mut supply = Supply { free: 0, coming: 0, good: 0 };
        for worker in self.workers.values() {
            if worker.row.phase.is_making() {
                supply.coming += self.uses_left(u64::from(worker.row.slots), worker.row.uses);
            } else {
                supply.free += u64::from(self.room(worker));
            }
            supply.good += usize::from(is_good(worker));
        }
        supply
    }

    /// Workers that are wanted besides those that are there or being made.
    pub(super) fn demand(&self, supply: &Supply) -> u64 {
        if self.pool.closing {
            return 0;
        }
        let settings = &self.pool.settings;
        let wanted = self.queue.len() as u64 + u64::from(settings.buffer);
        let each = self.uses_left(u64::from(settings.recipe.slots), 0).max(1);
        let slots = wanted.saturating_sub(supply.free + supply.coming).div_ceil(each);
        slots.max(u64::from(settings.min).saturating_sub(supply.good as u64))
    }

    /// Slots, and how many of them the limit of uses still allows.
    fn uses_left(&self, slots: u64, uses: u64) -> u64 {
        self.pool.settings.uses_max.map_or(slots, |most| slots.min(most.saturating_sub(uses)))
    }

    /// Workers that count against `max`. What has ended on a site that is silent neither runs nor can be started.
    pub(super) fn occupying(&self) -> usize {
        let over = |row: &WorkerRow| {
            matches!(row.phase, Phase::Exited | Phase::Removing) && self.silence(&row.site) >= SITE_SILENT_AFTER
        };
        self.workers.values().filter(|worker| !over(&worker.row)).count()
    }

    pub(super) fn scale(&mut self, random: &mut Randomness<'_>) {
        self.drain();
        self.stop_idle();
        self.stop_drained();
        self.make(random);
    }

    /// Workers that shall get no more clients.
    fn drain(&mut self) {
        let mut drained = Vec::new();
        for (no, worker) in &self.workers {
            let row = &worker.row;
            let why = match () {
                () if self.pool.closing => "the pool is being deleted",
                () if row.recipe_no != self.pool.recipe_no => "the pool starts its workers in another way now",
                () if row.phase.is_making() => continue,
                () if !self.may_run(row) => "it has reached its maximum of age or uses",
                () if row.phase == Phase::Running && self.silence(&row.site) >= SITE_LOST_AFTER => {
                    "its site has not been heard of for a minute"
                }
                () => continue,
            };
            drained.push((*no, why));
        }
        for (no, why) in drained {
            self.retire(no, why);
        }
        let most = self.pool.settings.max as usize;
        if self.workers.len() <= most {
            return;
        }
        let exited = self.workers.iter().filter(|(_, worker)| worker.row.phase == Phase::Exited);
        let exited: Vec<WorkerNo> = exited.map(|(no, _)| *no).take(self.occupying().saturating_sub(most)).collect();
        exited.into_iter().for_each(|no| self.retire(no, "the pool has more workers than `max`"));
        let mut good: Vec<_> = self.workers.iter().filter(|(_, worker)| is_good(worker)).collect();
        let surplus = good.len().saturating_sub(most);
        if surplus > 0 {
            good.sort_by_key(|(no, worker)| (!worker.row.phase.is_making(), worker.clients.len(), **no));
            let surplus: Vec<WorkerNo> = good.iter().take(surplus).map(|(no, _)| **no).collect();
            surplus.into_iter().for_each(|no| self.retire(no, "the pool has more workers than `max`"));
        }
    }

    /// Takes a worker out of service; one that is being made has no clients and is removed at once.
    fn retire(&mut self, no: WorkerNo, why: &str) {
        match self.workers.get(&no).map(|worker| worker.row.phase) {
            Some(Phase::Running) => self.enter_phase(no, Phase::Draining, why),
            Some(Phase::Creating | Phase::Restarting | Phase::Starting | Phase::Exited) => {
                self.enter_phase(no, Phase::Removing, why);
            }
            _ => {}
        }
    }

    fn stop_idle(&mut self) {
        let mut idle: Vec<_> = self.idle().filter(|(at, _)| *at <= self.now).collect();
        if idle.is_empty() || !self.queue.is_empty() {
            return;
        }
        idle.sort_unstable();
        let mut supply = self.supply();
        for (_, no) in idle {
            let Some(worker) = self.workers.get(&no) else { continue };
            let slots = u64::from(self.room(worker));
            let kept = supply.free.saturating_sub(slots) >= u64::from(self.pool.settings.buffer);
            let spare = supply.good > self.pool.settings.min as usize;
            if kept && spare {
                self.enter_phase(no, Phase::Stopping, "it was idle");
                supply.free -= slots;
                supply.good -= 1;
            }
        }
    }

    /// Workers without clients, and when their idle time ends, first that.
    fn idle(&self) -> impl Iterator<Item = (Time, WorkerNo)> {
        self.workers.iter().filter_map(|(no, worker)| Some((self.idle_until(worker)?, *no)))
    }

    /// When the idle time of a worker without clients ends.
    pub(super) fn idle_until(&self, worker: &Worker) -> Option<Time> {
        let idle = worker.row.phase == Phase::Running && !worker.is_busy(self.now);
        let since = worker.row.idle_since.filter(|_| idle)?;
        Some(since.after(self.pool.settings.idle))
    }

    /// A drained worker stops once it has no clients, never before.
    fn stop_drained(&mut self) {
        let empty = |worker: &Worker| worker.row.phase == Phase::Draining && !worker.is_busy(self.now);
        let empty: Vec<_> = self.workers.iter().filter(|(_, w)| empty(w)).map(|(no, _)| *no).collect();
        for no in empty {
            let why = self.workers.get(&no).map(|worker| worker.row.reason.clone()).unwrap_or_default();
            self.enter_phase(no, Phase::Stopping, &why);
        }
    }

    fn make(&mut self, random: &mut Randomness<'_>) {
        while self.may_make() && self.demand(&self.supply()) > 0 {
            if let Some(no) = self.to_restart() {
                if !self.restart_worker(no, random) {
                    return;
                }
            } else if self.occupying() < self.pool.settings.max as usize
                && let Some(site) = self.site_for_new(random)
            {
                if !self.create_worker(site, random) {
                    return;
                }
            } else {
                return;
            }
        }
    }

    /// Whether a Maker is free to make a worker. One is kept for clients, if there are several; while the breaker is
    /// open, one worker is tried.
    pub(super) fn may_make(&self) -> bool {
        let (making, most) = (self.making(), self.pool.settings.makers_max as usize);
        let share = most.saturating_sub(1).max(1);
        let trial = !self.is_broken() || making == 0;
        self.backs_off().is_none() && trial && making < share && self.jobs() < most
    }

    fn to_restart(&self) -> Option<WorkerNo> {
        let fit = |(no, worker): &(&WorkerNo, &Worker)| {
            worker.row.phase == Phase::Exited
                && self.may_run_again(**no)
                && worker.row.restart_at <= self.now
                && self.silence(&worker.row.site) < SITE_SILENT_AFTER
                && self.site_backs_off(&worker.row.site).is_none()
        };
        self.workers.iter().find(fit).map(|(no, _)| *no)
    }

    /// Sites that are there and can start what the recipe says.
    pub(super) fn fit_sites(&self) -> impl Iterator<Item = &SiteName> {
        let runtime = self.pool.settings.recipe.runtime;
        let fits =
            move |name: &SiteName, site: &Site| site.runtime == runtime && self.silence(name) < SITE_SILENT_AFTER;
        self.sites.iter().filter(move |(name, site)| fits(name, site)).map(|(name, _)| name)
    }

    /// The site with the fewest workers of those that do not back off; at random among equals.
    fn site_for_new(&self, random: &mut Randomness<'_>) -> Option<SiteName> {
        let there = |name: &SiteName| self.workers.values().filter(|worker| worker.row.site == *name).count();
        let sites = self.fit_sites().filter(|name| self.site_backs_off(name).is_none());
        sites.map(|name| (there(name), random.number(), name)).min().map(|(_, _, name)| name.clone())
    }

    /// Starts a worker again; false if there are no random values left for its secret.
    fn restart_worker(&mut self, no: WorkerNo, random: &mut Randomness<'_>) -> bool {
        // A container keeps its environment, and with it the secret.
        let renew = self.pool.settings.recipe.runtime == RuntimeKind::Process;
        let secret = if renew { random.secret() } else { None };
        if renew && secret.is_none() {
            self.more = true;
            return false;
        }
        let making = self.next_making();
        let now = self.now;
        if let Some(worker) = self.workers.get_mut(&no) {
            let row = &mut worker.row;
            (row.run, row.making, row.making_since, row.proven) = (row.run + 1, making, now, false);
            (row.used_elsewhere, row.reported_at) = (0, Time::ZERO);
            if let Some(secret) = secret {
                (row.secret, row.secret_run) = (secret, row.run);
            }
        }
        self.enter_phase(no, Phase::Restarting, "it is started again");
        true
    }

    fn next_making(&mut self) -> u64 {
        let making = self.pool.next_making;
        self.pool.next_making += 1;
        self.dirty.pool = true;
        making
    }

    /// Creates a worker; false if there are no random values left for its secret.
    fn create_worker(&mut self, site: SiteName, random: &mut Randomness<'_>) -> bool {
        let Some(secret) = random.secret() else {
            self.more = true;
            return false;
        };
        let making = self.next_making();
        let no = WorkerNo(self.pool.next_worker);
        self.pool.next_worker += 1;
        self.dirty.pool = true;
        let row = WorkerRow {
            site,
            recipe_no: self.pool.recipe_no,
            slots: self.pool.settings.recipe.slots,
            phase: Phase::Creating,
            since: self.now,
            deadline: Time::NEVER,
            step: 0,
            tries: 0,
            run: 1,
            making,
            making_since: self.now,
            proven: false,
            secret,
            secret_run: 1,
            instance: None,
            reported_from: None,
            used_elsewhere: 0,
            reported_at: Time::ZERO,
            restart_at: Time::ZERO,
            uses: 0,
            created_at: self.now,
            idle_since: Some(self.now),
            reason: "".into(),
            version: 0,
        };
        self.workers.insert(no, Worker::new(row, self.now));
        self.enter_phase(no, Phase::Creating, "it is created");
        true
    }
}

/// Whether a worker takes clients, or will.
fn is_good(worker: &Worker) -> bool {
    worker.row.phase.is_making() || worker.row.phase == Phase::Running
}
