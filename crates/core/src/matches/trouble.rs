//! Failures to make workers: back-off per site, and a breaker of the recipe that opens after several in a row.

use super::randomness::{Randomness, spread};
use super::row::{Phase, Trouble, WorkerNo};
use super::set::make_place;
use super::state::State;
use crate::limits::{
    BREAKER_FAILURES, FAILED_KEPT, MAKING_BACKOFF_BASE, MAKING_BACKOFF_MAX, MATCHES_AT_ONCE_MAX, SITE_SILENT_AFTER,
};
use crate::names::SiteName;
use crate::time::Millis;

impl State {
    /// Counts a failure to make a worker by the present recipe, against its site and against the recipe. Workers that
    /// were made at the same time fail for the same reason, and count once.
    pub(super) fn count_failure(&mut self, no: WorkerNo, why: &str, random: &mut Randomness<'_>) {
        let Some(row) = self.workers.get(&no).map(|worker| &worker.row) else { return };
        if row.recipe_no != self.pool.recipe_no {
            return;
        }
        let (making, site, number) = (row.making, row.site.clone(), random.number());
        let next = |before: Option<&Trouble>| {
            let together = before.is_some_and(|trouble| making < trouble.next_making);
            (!together).then(|| self.one_more(before, why, number))
        };
        // A recipe cannot be blamed for a site that has gone silent.
        let silent = self.silence(&site) >= SITE_SILENT_AFTER;
        let of_pool = if silent { None } else { next(self.pool.trouble.as_ref()) };
        let of_site = next(self.pool.site_trouble.get(&site));
        self.dirty.pool |= of_pool.is_some() || of_site.is_some();
        if let Some(trouble) = of_pool {
            self.pool.trouble = Some(trouble);
        }
        if let Some(trouble) = of_site {
            let now = self.now;
            self.pool.site_trouble.retain(|_, trouble| now < trouble.until.after(FAILED_KEPT));
            make_place(&mut self.pool.site_trouble, &site, |trouble| trouble.at);
            self.pool.site_trouble.insert(site, trouble);
        }
    }

    /// Counts a failure that a worker itself has shown.
    pub(super) fn blame_worker(&mut self, no: WorkerNo, why: &str, random: &mut Randomness<'_>) {
        self.count_failure(no, &format!("worker {}: {why}", self.worker_name(no)), random);
    }

    fn one_more(&self, before: Option<&Trouble>, why: &str, number: u64) -> Trouble {
        let failures = before.map_or(0, |trouble| trouble.failures).saturating_add(1);
        let doubled = MAKING_BACKOFF_BASE.0.saturating_mul(1 << (failures - 1).min(20));
        let until = self.now.after(spread(Millis(doubled.min(MAKING_BACKOFF_MAX.0)), number));
        Trouble { failures, reason: why.into(), at: self.now, next_making: self.pool.next_making, until }
    }

    /// A worker works. If it was made by the present recipe after the last failure, so does the recipe, and so does its
    /// site. One that was made before proves nothing, because the image may have been deleted since.
    pub(super) fn prove(&mut self, no: WorkerNo) {
        let Some(worker) = self.workers.get_mut(&no) else { return };
        if !worker.row.proven {
            worker.row.proven = true;
            self.dirty.workers.insert(no);
        }
        let row = &worker.row;
        if row.recipe_no != self.pool.recipe_no {
            return;
        }
        let disproved = |trouble: &Trouble| row.making >= trouble.next_making;
        if self.pool.trouble.as_ref().is_some_and(disproved) {
            self.pool.trouble = None;
            self.dirty.pool = true;
        }
        if self.pool.site_trouble.get(&row.site).is_some_and(disproved) {
            self.pool.site_trouble.remove(&row.site);
            self.dirty.pool = true;
        }
    }

    /// Whether nothing may be made now: the breaker is open, or every site that could is left alone for a while.
    pub(super) fn backs_off(&self) -> Option<&Trouble> {
        let of_pool = self.pool.trouble.as_ref().filter(|trouble| self.is_broken() && self.now < trouble.until);
        if of_pool.is_some() {
            return of_pool;
        }
        let mut soonest: Option<&Trouble> = None;
        for site in self.fit_sites() {
            let trouble = self.site_backs_off(site)?;
            soonest = soonest.filter(|least| least.until <= trouble.until).or(Some(trouble));
        }
        soonest
    }

    /// Whether nothing may be made at a site now.
    pub(super) fn site_backs_off(&self, site: &SiteName) -> Option<&Trouble> {
        self.pool.site_trouble.get(site).filter(|trouble| self.now < trouble.until)
    }

    /// Whether the breaker has opened. Once the back-off is over, one worker is tried.
    pub(super) fn is_broken(&self) -> bool {
        self.pool.trouble.as_ref().is_some_and(|trouble| trouble.failures >= BREAKER_FAILURES)
    }

    /// Whether those that wait need not wait: the breaker is open, and no worker is there or awaited.
    pub(super) fn cannot_start_workers(&self) -> bool {
        let lives = |phase: Phase| phase.is_making() || phase == Phase::Running;
        let open = self.pool.trouble.as_ref().is_some_and(|trouble| self.is_broken() && self.now < trouble.until);
        open && !self.workers.values().any(|worker| lives(worker.row.phase))
    }

    pub(super) fn unstartable_reason(&self) -> String {
        let Some(trouble) = &self.pool.trouble else { return String::new() };
        format!("no worker can be started; {} attempts failed, the last one: {}", trouble.failures, trouble.reason)
    }

    /// Fails those that wait for nothing.
    pub(super) fn fail_unstartable_matches(&mut self) {
        let why = match () {
            () if self.pool.closing => "the pool was removed".to_owned(),
            () if self.cannot_start_workers() => self.unstartable_reason(),
            () => return,
        };
        for _ in 0..MATCHES_AT_ONCE_MAX {
            let Some(client) = self.queue.first() else { return };
            let Some(known) = self.matches.get(&client).cloned() else { return };
            self.fail_match(&client, known, &why);
        }
        self.more |= !self.queue.is_empty();
    }
}
