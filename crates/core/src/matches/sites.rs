//! Sites, where workers run: which are there, and what they have. Rows and lists are compared when a site comes, and
//! every minute: what is known is adopted, what is not known is removed, what is missing has ended.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::apply::Reply;
use super::chance::Chance;
use super::decision::{Effect, Labels};
use super::input::{Exit, Found};
use super::refusal::Refusal;
use super::row::{Phase, Secret, WorkerNo};
use super::settings::RuntimeKind;
use super::state::{Site, State};
use crate::limits::{ADDRESS_BYTES_MAX, SITE_LOST_AFTER, SITE_SILENT_AFTER, SITES_MAX};
use crate::names::SiteName;
use crate::time::Time;

impl State {
    pub(super) fn site_alive(&mut self, site: SiteName, runtime: RuntimeKind) -> Reply {
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
        self.sites.insert(site, Site { runtime, heard: now, list_at });
        Reply::Taken
    }

    pub(super) fn listed(&mut self, site: &SiteName, since: Time, found: Vec<Found>, chance: &mut Chance<'_>) -> Reply {
        let mut seen = BTreeSet::new();
        for found in found {
            let row = self.workers.get(&found.worker).map(|worker| &worker.row);
            let known = row.filter(|row| row.site == *site && found.generation == self.pool.generation);
            let Some(row) = known else {
                let (site, worker, generation) = (site.clone(), found.worker, found.generation);
                let labels = Labels { owner: self.pool.owner.clone(), generation, worker };
                self.effects.push(Effect::RemoveUnknown { site, labels });
                continue;
            };
            seen.insert(found.worker);
            let later = row.since < since;
            self.compare(&found, later, chance);
        }
        let missing = |(no, worker): (&WorkerNo, &super::state::Worker)| {
            let row = &worker.row;
            // A list says nothing about what was started after it.
            (row.site == *site && row.since < since && !seen.contains(no)).then_some((*no, row.phase))
        };
        let missing: Vec<_> = self.workers.iter().filter_map(missing).collect();
        for (no, phase) in missing {
            match phase {
                Phase::Starting | Phase::Running | Phase::Draining => {
                    self.exited(no, &Exit::Error("its runtime no longer has it".into()), chance);
                }
                Phase::Exited | Phase::Stopping | Phase::Removing => self.forget_worker(no),
                // It is being made; the order is repeated.
                Phase::Creating | Phase::Restarting => {}
            }
        }
        Reply::Taken
    }

    /// Compares a worker with what its runtime has; `later` if that is certainly not older than its phase.
    fn compare(&mut self, found: &Found, later: bool, chance: &mut Chance<'_>) {
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
                self.exited(no, &exit, chance);
            }
            // A process id may be used again: then another one has its place.
            (Phase::Starting | Phase::Running | Phase::Draining, _, None) if !same && later => {
                self.exited(no, &Exit::Error("another instance has its place".into()), chance);
            }
            _ => {}
        }
    }

    /// A worker says where it is and how many more clients it takes, so that it need not be asked in vain.
    pub(super) fn report(&mut self, no: WorkerNo, proof: (u32, Secret), address: Arc<str>, free: u32) -> Reply {
        let is_address = address.rsplit_once(':').is_some_and(|(host, port)| {
            !host.is_empty() && port.parse::<u16>().is_ok_and(|port| port > 0) && address.len() <= ADDRESS_BYTES_MAX
        });
        if !is_address || address.chars().any(|c| c.is_control() || c.is_whitespace() || c == '/') {
            return Reply::Refused(Refusal::BadAddress(address.chars().take(80).collect()));
        }
        let unknown = Refusal::UnknownWorker { pool: self.pool.name.to_string(), worker: no.0 };
        let now = self.now;
        let Some(worker) = self.workers.get_mut(&no) else { return Reply::Refused(unknown) };
        let _ = proof;
        match (worker.row.phase, &mut worker.row.instance) {
            (Phase::Starting | Phase::Running | Phase::Draining, Some(instance)) => {
                if instance.address != address {
                    instance.address = address;
                    self.dirty.workers.insert(no);
                }
                if worker.row.phase == Phase::Starting {
                    self.ready(no);
                }
                let Some(worker) = self.workers.get_mut(&no) else { return Reply::Refused(unknown) };
                let own = worker.clients.len() as u32;
                worker.elsewhere = (worker.row.slots.saturating_sub(own).saturating_sub(free), now);
                (worker.misses, worker.quiet_until) = (0, Time::ZERO);
                Reply::Taken
            }
            // What started it has not been recorded yet: it is awaited as usual.
            _ => Reply::Stale,
        }
    }
}
