//! Explanations: why a client has no worker yet, and what a pool is doing, as values with a sentence each.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::row::{MatchState, Phase};
use super::state::State;
use crate::names::ClientName;
use crate::time::{Millis, Time};

/// Why a match is as it is.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
pub enum MatchWhy {
    /// It is being asked for.
    #[error("worker {worker} is asked to reserve a slot")]
    Asking {
        /// The worker.
        worker: String,
    },
    /// The worker has reserved a slot.
    #[error("worker {worker} has reserved a slot")]
    Reserved {
        /// The worker.
        worker: String,
    },
    /// A worker refused or did not answer.
    #[error("{last}; it is tried again in {}", left.told())]
    CoolingDown {
        /// What happened.
        last: Arc<str>,
        /// How long.
        left: Millis,
    },
    /// Its earlier reservation is not given back yet.
    #[error("worker {worker} has not given up an earlier reservation of this client")]
    GivingBack {
        /// The worker.
        worker: String,
    },
    /// A worker is being started.
    #[error("{} being started ({} ahead)", are(*workers, "worker"), are(*ahead, "client"))]
    Starting {
        /// How many.
        workers: usize,
        /// How many wait before it.
        ahead: usize,
    },
    /// Every Maker is busy.
    #[error("the pool's limit of {makers} Makers is reached ({} ahead)", are(*ahead, "client"))]
    MakersBusy {
        /// How many there may be.
        makers: u32,
        /// How many wait before it.
        ahead: usize,
    },
    /// Nothing can be started for now.
    #[error("starting a worker has failed ({failures} in a row), and is tried again in {}: {reason}", left.told())]
    BackingOff {
        /// How often.
        failures: u32,
        /// The last reason.
        reason: Arc<str>,
        /// How long.
        left: Millis,
    },
    /// No site can start workers.
    #[error("no node can start workers of runtime '{runtime}'; start a node that has it")]
    NoSite {
        /// The runtime.
        runtime: String,
    },
    /// The pool is full.
    #[error("all slots are taken: {} there, and the pool may have {max} ({} ahead)", are(*workers, "worker"), are(*ahead, "client"))]
    Full {
        /// How many there are.
        workers: usize,
        /// How many there may be.
        max: u32,
        /// How many wait before it.
        ahead: usize,
    },
    /// It is served next.
    #[error("it is served soon ({} ahead)", are(*ahead, "client"))]
    Next {
        /// How many wait before it.
        ahead: usize,
    },
    /// What happened last says it all.
    #[error("{0}")]
    Last(Arc<str>),
    /// The pool has as many workers as it may have, and some are ending.
    #[error("{} ending, and the pool may have {max} ({} ahead)", are(*workers, "worker"), are(*ahead, "client"))]
    Ending {
        /// How many are ending.
        workers: usize,
        /// How many there may be.
        max: u32,
        /// How many wait before it.
        ahead: usize,
    },
}

/// What a pool is doing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
pub enum PoolWhy {
    /// It is being deleted.
    #[error("it is being deleted: {} left", are(*workers, "worker"))]
    Closing {
        /// How many.
        workers: usize,
    },
    /// Nothing can be started for now.
    #[error("starting a worker has failed ({failures} in a row), and is tried again in {}: {reason}", left.told())]
    BackingOff {
        /// How often.
        failures: u32,
        /// The last reason.
        reason: Arc<str>,
        /// How long.
        left: Millis,
    },
    /// No site can start workers.
    #[error("{} waiting, and no node can start workers of runtime '{runtime}'; start a node that has it", are(*waiting, "client"))]
    NoSite {
        /// How many.
        waiting: usize,
        /// The runtime.
        runtime: String,
    },
    /// Workers are being started.
    #[error("{} being started, {} waiting", are(*making, "worker"), are(*waiting, "client"))]
    Starting {
        /// How many.
        making: usize,
        /// How many wait.
        waiting: usize,
    },
    /// All slots are taken.
    #[error("{} waiting: no slot is free, and the pool may have no more workers than {max}", are(*waiting, "client"))]
    Full {
        /// How many wait.
        waiting: usize,
        /// How many workers there may be.
        max: u32,
    },
    /// Nobody asks.
    #[error("it has no workers, because nobody asks for one")]
    AtRest,
    /// It serves.
    #[error("{} running, {free} free slots, {} waiting", are(*running, "worker"), are(*waiting, "client"))]
    Serving {
        /// How many run.
        running: usize,
        /// How many slots are free.
        free: u64,
        /// How many wait.
        waiting: usize,
    },
    /// It is deleted but for sites that are away.
    #[error("it is being deleted: {} still to say that nothing is left there ({names})", are(*sites, "site"))]
    Owed {
        /// How many.
        sites: usize,
        /// The first of them.
        names: String,
    },
}

/// "1 client is", "2 clients are".
fn are(count: usize, what: &str) -> String {
    if count == 1 { format!("1 {what} is") } else { format!("{count} {what}s are") }
}

impl State {
    /// Why a match is as it is.
    pub(super) fn match_why(&self, client: &ClientName) -> Option<MatchWhy> {
        let row = &self.matches.get(client)?.row;
        Some(match &row.state {
            MatchState::Making(booking) => MatchWhy::Asking { worker: self.worker_name(booking.worker) },
            MatchState::Matched { booking, .. } => MatchWhy::Reserved { worker: self.worker_name(booking.worker) },
            MatchState::Queued { not_before } if *not_before > self.now => {
                MatchWhy::CoolingDown { last: row.reason.clone(), left: not_before.since(self.now) }
            }
            MatchState::Queued { .. } => {
                let held = row.leftovers.first().filter(|_| self.blocked.contains(client));
                match held {
                    Some(left) => MatchWhy::GivingBack { worker: self.worker_name(left.booking.worker) },
                    None => self.wait_why(self.queue.ahead(row.turn)),
                }
            }
            MatchState::Vacant { .. } | MatchState::Failed { .. } | MatchState::Ended => {
                MatchWhy::Last(row.reason.clone())
            }
        })
    }

    /// Why those that wait do so.
    fn wait_why(&self, ahead: usize) -> MatchWhy {
        let (settings, making) = (&self.pool.settings, self.making());
        let open = self.workers.values().any(|worker| self.room(worker) > 0);
        let (staying, ending) = self.headcount();
        match self.backs_off() {
            _ if open && self.jobs() >= settings.makers_max as usize => {
                MatchWhy::MakersBusy { makers: settings.makers_max, ahead }
            }
            _ if open => MatchWhy::Next { ahead },
            _ if making > 0 => MatchWhy::Starting { workers: making, ahead },
            _ if staying + ending >= settings.max as usize && ending > 0 => {
                MatchWhy::Ending { workers: ending, max: settings.max, ahead }
            }
            _ if staying >= settings.max as usize => MatchWhy::Full { workers: staying, max: settings.max, ahead },
            Some(trouble) => MatchWhy::BackingOff {
                failures: trouble.failures,
                reason: trouble.reason.clone(),
                left: trouble.until.since(self.now),
            },
            None if !self.has_site() => MatchWhy::NoSite { runtime: settings.recipe.runtime.name().into() },
            None => MatchWhy::Next { ahead },
        }
    }

    fn has_site(&self) -> bool {
        self.fit_sites().next().is_some()
    }

    /// Workers that take clients or will, and those that are ending and count against `max`. Those that exited and may be
    /// started again are neither: nothing but time is in their way.
    fn headcount(&self) -> (usize, usize) {
        let count = |phases: fn(Phase) -> bool| self.workers.values().filter(|w| phases(w.row.phase)).count();
        let staying = count(|phase| phase.is_making() || phase == Phase::Running);
        let exited = count(|phase| phase == Phase::Exited);
        (staying, self.occupying().saturating_sub(staying + exited))
    }

    /// Why a client that waits had to.
    pub(super) fn queue_reason(&self, client: &ClientName) -> String {
        let Some(known) = self.matches.get(client) else { return String::new() };
        match &known.row.state {
            // Both matter: what goes wrong now, and what went wrong with it.
            MatchState::Queued { .. } if known.row.attempts > 0 => {
                format!("{}; {}", self.wait_why(self.queue.ahead(known.row.turn)), known.row.reason)
            }
            _ => self.wait_why(self.queue.ahead(known.row.turn)).to_string(),
        }
    }

    /// What the pool is doing.
    #[must_use]
    pub fn pool_why(&self) -> PoolWhy {
        let (waiting, making, supply) = (self.queue.len(), self.making(), self.supply());
        let running = self.workers.values().filter(|worker| worker.row.phase == Phase::Running).count();
        let wants = self.demand(&supply) > 0;
        let (staying, ending) = self.headcount();
        match self.backs_off() {
            _ if self.pool.closing && self.workers.is_empty() && !self.pool.owed.is_empty() => {
                let names: Vec<&str> = self.pool.owed.keys().take(3).map(AsRef::as_ref).collect();
                PoolWhy::Owed { sites: self.pool.owed.len(), names: names.join(", ") }
            }
            _ if self.pool.closing => PoolWhy::Closing { workers: self.workers.len() },
            Some(trouble) => PoolWhy::BackingOff {
                failures: trouble.failures,
                reason: trouble.reason.clone(),
                left: trouble.until.since(self.now),
            },
            None if wants && staying + ending >= self.pool.settings.max as usize && making == 0 => {
                PoolWhy::Full { waiting, max: self.pool.settings.max }
            }
            None if wants && making == 0 && !self.has_site() => {
                PoolWhy::NoSite { waiting, runtime: self.pool.settings.recipe.runtime.name().into() }
            }
            None if making > 0 => PoolWhy::Starting { making, waiting },
            None if self.workers.is_empty() && waiting == 0 => PoolWhy::AtRest,
            None => PoolWhy::Serving { running, free: supply.free, waiting },
        }
    }

    /// When to tick, at the latest.
    #[must_use]
    pub fn next_wake(&self) -> Option<Time> {
        use crate::limits::{MAKING_STABLE, OWED_KEPT, SITE_LOST_AFTER, SITE_SILENT_AFTER};
        let settings = &self.pool.settings;
        let (now, mut wake) = (self.now, Time::NEVER);
        let mut at = |time: Time| {
            if time > now {
                wake = wake.min(time);
            }
        };
        self.timers.first().into_iter().for_each(|(time, _)| at(*time));
        let mut site_before = None;
        for worker in self.workers.values() {
            let row = &worker.row;
            [row.deadline, worker.send_at, worker.quiet_until].into_iter().for_each(&mut at);
            at(row.reported_at.after(SITE_LOST_AFTER));
            if row.phase == Phase::Exited {
                at(row.restart_at);
            }
            settings.age_max.into_iter().for_each(|max| at(row.created_at.after(max)));
            if row.phase == Phase::Running && !row.proven {
                at(row.since.after(MAKING_STABLE));
            }
            self.idle_until(worker).into_iter().for_each(&mut at);
            // Neighbours are often of one site: what it brings is looked up once.
            if site_before != Some(&row.site) {
                let heard = now.before(self.silence(&row.site));
                [heard.after(SITE_SILENT_AFTER), heard.after(SITE_LOST_AFTER)].into_iter().for_each(&mut at);
                site_before = Some(&row.site);
            }
        }
        let troubles = self.pool.trouble.iter().chain(self.pool.site_trouble.values());
        troubles.for_each(|trouble| at(trouble.until));
        if self.pool.closing {
            self.pool.owed.values().for_each(|since| at(since.after(OWED_KEPT)));
        }
        let alive = self.sites.values().filter(|site| now < site.heard.after(SITE_SILENT_AFTER));
        alive.for_each(|site| at(site.list_at));
        (wake < Time::NEVER).then_some(wake)
    }
}
