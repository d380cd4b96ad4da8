//! Sites, where workers run: which are there, and what they have. Rows and lists are compared when a site comes, and
//! every minute: what is known is adopted, what is not known is removed, what is missing has ended. One runtime may have
//! several names; what a row knows at another site is never removed.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

use super::apply::Reply;
use super::decision::{Effect, Labels};
use super::input::{Exit, Lack, WorkerFound};
use super::randomness::Randomness;
use super::refusal::Refusal;
use super::row::{Phase, Secret, WorkerNo};
use super::settings::RuntimeKind;
use super::state::{Site, State};
use crate::limits::{ADDRESS_BYTES_MAX, SITE_LOST_AFTER, SITE_SILENT_AFTER, SITES_MAX};
use crate::names::SiteName;
use crate::time::{Millis, Time};

/// How far the label of an unknown worker may move the numbers on: one that is further off is not ours.
const NUMBERS_SKIPPED_MAX: u64 = 1_000_000;

impl State {
    /// Notes that a site is there, if nothing else follows from it; false if it must be decided as
    /// [`Input::SiteAlive`](super::Input::SiteAlive), because the site is new, was silent, has changed, or is to be listed.
    ///
    /// This is what a sign of life costs per pool, so it decides nothing. The caller need not wake the pool at another time: a
    /// later sign of life only moves the end of the site's silence, so the wake that was asked for comes early, not late.
    pub fn note_alive(&mut self, site: &SiteName, runtime: RuntimeKind, lack: Option<&Lack>, now: Time) -> bool {
        let Some(known) = self.sites.get_mut(site) else { return false };
        let same = known.runtime == runtime;
        let quiet = now < known.heard.after(SITE_SILENT_AFTER) && now < known.list_at;
        if same && quiet {
            known.heard = known.heard.max(now);
            // Only shown: nodes that share a site may lack different things, and each poll would be a decision.
            if known.lack.as_ref() != lack {
                known.lack = lack.cloned();
            }
        }
        same && quiet
    }

    pub(super) fn site_alive(&mut self, site: SiteName, runtime: RuntimeKind, lack: Option<Lack>) -> Reply {
        let now = self.now;
        if !self.sites.contains_key(&site) && self.sites.len() >= SITES_MAX {
            self.sites.retain(|_, site| now < site.heard.after(SITE_LOST_AFTER));
            if self.sites.len() >= SITES_MAX {
                return Reply::Refused(Refusal::TooManySites(site.to_string()));
            }
        }
        let known = self.sites.get(&site);
        let returns = known.is_none_or(|known| now >= known.heard.after(SITE_SILENT_AFTER));
        let list_at = known.filter(|_| !returns).map_or(now, |known| known.list_at);
        if returns {
            let there = self.workers.values_mut().filter(|worker| worker.row.site == site);
            there.for_each(|worker| worker.send_at = worker.send_at.min(now));
        }
        self.sites.insert(site, Site { runtime, lack, heard: now, list_at });
        Reply::Taken
    }

    pub(super) fn listed(
        &mut self,
        site: &SiteName,
        since: Time,
        found: Vec<WorkerFound>,
        random: &mut Randomness<'_>,
    ) -> Reply {
        let (mut seen, mut unknown) = (BTreeSet::new(), false);
        for found in found {
            let row = self.workers.get(&found.worker).map(|worker| &worker.row);
            let Some(row) = row.filter(|_| found.generation == self.pool.generation) else {
                self.remove_unknown(site, &found);
                unknown = true;
                continue;
            };
            let (later, elsewhere) = (row.since < since, row.site != *site);
            if elsewhere && !self.move_worker(found.worker, site) {
                continue;
            }
            seen.insert(found.worker);
            self.compare(&found, later, random);
        }
        let missing = |(no, worker): (&WorkerNo, &super::state::Worker)| {
            let row = &worker.row;
            // A list says nothing about what was started after it.
            (row.site == *site && row.since < since && !seen.contains(no)).then_some((
                *no,
                row.phase,
                row.instance.is_some(),
            ))
        };
        let missing: Vec<_> = self.workers.iter().filter_map(missing).collect();
        for (no, phase, is_made) in missing {
            match phase {
                Phase::Starting | Phase::Running | Phase::Draining => {
                    self.exited(no, &Exit::Error("its runtime no longer has it".into()), random);
                }
                // Its runtime may still be making it; only its answer to the order says that nothing will be left.
                Phase::Removing if !is_made => {}
                Phase::Exited | Phase::Stopping | Phase::Removing => self.forget_worker(no),
                // It is being made; the order is repeated.
                Phase::Creating | Phase::Restarting => {}
            }
        }
        if !unknown && self.pool.owed.get(site).is_some_and(|owed| *owed <= since) {
            self.pool.owed.remove(site);
            self.dirty.pool = true;
        }
        Reply::Taken
    }

    /// A site lists a worker of another one: both are names of one runtime, or its machine has a new name. The worker stays
    /// with its site while that is there. If it is silent, the worker moves to the site that lists it; false if it stays.
    fn move_worker(&mut self, no: WorkerNo, site: &SiteName) -> bool {
        let now = self.now;
        let Some(before) = self.workers.get(&no).map(|worker| worker.row.site.clone()) else { return false };
        let silent_at = now.before(self.silence(&before)).after(SITE_SILENT_AFTER);
        if silent_at > now {
            // It is looked at again when the other site could be silent: its clients must not wait for the next list.
            if let Some(known) = self.sites.get_mut(site) {
                known.list_at = known.list_at.min(silent_at);
            }
            return false;
        }
        if self.silence(site) >= SITE_SILENT_AFTER {
            return false;
        }
        let Some(worker) = self.workers.get_mut(&no) else { return false };
        worker.row.site = site.clone();
        // What was ordered from the other site is ordered from this one.
        worker.send_at = worker.send_at.min(now);
        self.dirty.workers.insert(no);
        true
    }

    /// Orders the removal of what no row knows. An owner that was replaced does not know its successor's workers, so the
    /// order follows a write, whose commit fails for such an owner. What this owner does not know by then is not
    /// known later either: its number is not given out again, so the order does no harm however late it is.
    fn remove_unknown(&mut self, site: &SiteName, found: &WorkerFound) {
        if self.is_held() {
            return;
        }
        let (worker, generation) = (found.worker, found.generation);
        let near = worker.0 < self.pool.next_worker.saturating_add(NUMBERS_SKIPPED_MAX);
        if generation == self.pool.generation && near {
            self.pool.next_worker = self.pool.next_worker.max(worker.0 + 1);
        }
        self.owe(site, self.now);
        let labels = Labels { owner: self.pool.owner.clone(), generation, worker };
        self.effects.push(Effect::RemoveUnknown { site: site.clone(), labels });
    }

    /// Compares a worker with what its runtime has; `later` if that is certainly not older than its phase.
    fn compare(&mut self, found: &WorkerFound, later: bool, random: &mut Randomness<'_>) {
        let Some(row) = self.workers.get(&found.worker).map(|worker| &worker.row) else { return };
        let no = found.worker;
        let same = match (&row.instance, &found.instance) {
            (Some(own), Some(found)) => own.is_run(found),
            _ => false,
        };
        match (row.phase, &found.instance, &found.exit) {
            (Phase::Creating | Phase::Restarting, Some(instance), None) if !same => {
                let instance = instance.clone();
                self.adopt(no, instance);
            }
            // It was created and not started, or its last run has ended: the order is repeated.
            (Phase::Creating | Phase::Restarting, None, _) => {}
            (Phase::Restarting, Some(_), Some(_)) if same => {}
            (_, _, Some(exit)) if same || later || row.phase.is_making() => {
                let exit = exit.clone();
                self.exited(no, &exit, random);
            }
            // A process id may be used again: then another one has its place.
            (Phase::Starting | Phase::Running | Phase::Draining, _, None) if !same && later => {
                self.exited(no, &Exit::Error("another instance has its place".into()), random);
            }
            _ => {}
        }
    }

    /// A worker says where it is and how many more clients it takes, so that it is not asked when it must refuse. An address
    /// that a report names is called only where the report came from, or where the operator allows; see `reported_from`.
    pub(super) fn report(
        &mut self,
        no: WorkerNo,
        proof: (u32, Secret),
        (address, from): (Arc<str>, IpAddr),
        free: u32,
    ) -> Reply {
        let is_address = address.rsplit_once(':').is_some_and(|(host, port)| {
            !host.is_empty() && port.parse::<u16>().is_ok_and(|port| port > 0) && address.len() <= ADDRESS_BYTES_MAX
        });
        if !is_address || address.chars().any(|c| c.is_control() || c.is_whitespace() || c == '/') {
            return Reply::Refused(Refusal::BadAddress(address.chars().take(80).collect()));
        }
        let unknown = Refusal::UnknownWorker { pool: self.pool.name.to_string(), worker: no.0 };
        let (now, name) = (self.now, self.worker_name(no));
        let Some(worker) = self.workers.get_mut(&no) else { return Reply::Refused(unknown) };
        if proof != (worker.row.secret_run, worker.row.secret) {
            return Reply::Refused(Refusal::WrongSecret { worker: name });
        }
        match (worker.row.phase, &mut worker.row.instance) {
            (Phase::Starting | Phase::Running | Phase::Draining, Some(instance)) => {
                let known = worker.row.reported_from;
                if instance.address != address || known.is_some_and(|known| known != from) {
                    instance.address = address;
                    worker.row.reported_from = Some(from);
                    self.dirty.workers.insert(no);
                }
                if worker.row.phase == Phase::Starting {
                    self.ready(no);
                }
                let Some(worker) = self.workers.get_mut(&no) else { return Reply::Refused(unknown) };
                let own = worker.clients.len() as u32;
                let used = worker.row.slots.saturating_sub(own).saturating_sub(free);
                // It is durable, so that a worker which others use is not stopped after a crash. A report that says the
                // same is written only before the last one is too old to be believed.
                let old = now >= worker.row.reported_at.after(Millis(SITE_LOST_AFTER.0 / 2));
                if used != worker.row.used_elsewhere || (used > 0 && old) {
                    (worker.row.used_elsewhere, worker.row.reported_at) = (used, now);
                    self.dirty.workers.insert(no);
                }
                Reply::Taken
            }
            // What started it has not been recorded yet: it is awaited as usual.
            _ => Reply::Stale,
        }
    }
}
