//! Explanations: why a client has no worker yet, and what a pool is doing, as values with a sentence each.
//!
//! A *setback* is what went wrong last and has not been disproved since: a worker that answers something else than yes, or
//! a worker that could not be started. It comes first in every explanation that it may be the cause of, because numbers of
//! workers and slots alone would hide it.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::row::{self, MatchState, Phase, WorkerNo};
use super::state::State;
use crate::counted::{counted, counted_are};
use crate::limits::{FAILED_KEPT, SITE_SILENT_AFTER};
use crate::names::ClientName;
use crate::time::Millis;

/// Why a match is as it is.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[allow(missing_docs, reason = "the messages say it")]
pub enum MatchWhy {
    #[error("worker {worker} is asked to reserve a slot")]
    Asking { worker: String },
    #[error("worker {worker} has reserved a slot{}", unclear(uncertainty.as_deref()))]
    Reserved {
        worker: String,
        /// What it answered instead of a yes when it was asked for this reservation last.
        uncertainty: Option<Arc<str>>,
    },
    #[error("{last}; it is tried again in {}", left.in_words())]
    CoolingDown { last: Arc<str>, left: Millis },
    #[error("{setback}worker {worker} has not given up an earlier reservation of this client, which ends in {} at the latest", left.in_words())]
    GivingBack {
        worker: String,
        /// How long it may hold it.
        left: Millis,
        setback: Setback,
    },
    #[error("{setback}{} being started ({} ahead)", are(*workers, "worker"), are(*ahead, "client"))]
    Starting { workers: usize, ahead: usize, setback: Setback },
    #[error("the pool's limit of {} is reached ({} ahead)", counted(u64::from(*makers), "Maker"), are(*ahead, "client"))]
    MakersBusy { makers: u32, ahead: usize },
    #[error("starting a worker has failed ({failures} in a row), and is tried again in {}: {reason}", left.in_words())]
    BackingOff { failures: u32, reason: Arc<str>, left: Millis },
    #[error("no node can start workers of runtime '{runtime}'{}", remedy(lack.as_deref()))]
    NoSite {
        runtime: String,
        /// Why a node that should cannot.
        lack: Option<Arc<str>>,
    },
    #[error("{setback}{}: {} there, and the pool may have {max} ({} ahead)", no_slot(setback, held.as_ref()), are(*workers, "worker"), are(*ahead, "client"))]
    Full { workers: usize, max: u32, ahead: usize, setback: Setback, held: Option<Held> },
    #[error("it is served soon ({} ahead)", are(*ahead, "client"))]
    Next { ahead: usize },
    #[error("pool '{pool}' is paused and starts nothing ({} ahead): `wayleave pools resume {pool}` resumes it", are(*ahead, "client"))]
    Paused { pool: String, ahead: usize },
    #[error("{0}")]
    Last(Arc<str>),
    #[error("{setback}{}, and the pool may have {max} ({} ahead)", ending(*workers, setback, held.as_ref()), are(*ahead, "client"))]
    Ending { workers: usize, max: u32, ahead: usize, setback: Setback, held: Option<Held> },
}

/// What a pool is doing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[allow(missing_docs, reason = "the messages say it")]
pub enum PoolWhy {
    #[error("it is being deleted: {} left", are(*workers, "worker"))]
    Closing { workers: usize },
    #[error("it is paused and starts nothing ({} waiting): `wayleave pools resume {pool}` resumes it", are(*waiting, "client"))]
    Paused { pool: String, waiting: usize },
    #[error("starting a worker has failed ({failures} in a row), and is tried again in {}: {reason}", left.in_words())]
    BackingOff { failures: u32, reason: Arc<str>, left: Millis },
    #[error("{} waiting, and no node can start workers of runtime '{runtime}'{}", are(*waiting, "client"), remedy(lack.as_deref()))]
    NoSite {
        waiting: usize,
        runtime: String,
        /// Why a node that should cannot.
        lack: Option<Arc<str>>,
    },
    #[error("{setback}{} being started, {} waiting", are(*making, "worker"), are(*waiting, "client"))]
    Starting { making: usize, waiting: usize, setback: Setback },
    #[error("{setback}{} waiting: {}, and the pool may have no more than {}", are(*waiting, "client"), no_slot(setback, held.as_ref()), counted(u64::from(*max), "worker"))]
    Full {
        waiting: usize,
        /// How many workers there may be.
        max: u32,
        setback: Setback,
        held: Option<Held>,
    },
    #[error("{setback}it has no workers, because nobody asks for one")]
    AtRest { setback: Setback },
    #[error("{setback}{} running, {}, {} waiting", are(*running, "worker"), counted(*free, "free slot"), are(*waiting, "client"))]
    Serving { running: usize, free: u64, waiting: usize, setback: Setback },
    #[error("it is being deleted: {} still to say that nothing is left there ({names})", are(*sites, "site"))]
    Owed { sites: usize, names: String },
}

/// What went wrong last, if something did: the first part of a sentence.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename = "PoolSetback")]
pub struct Setback(pub Option<Arc<str>>);

impl fmt::Display for Setback {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|what| write!(f, "{what}; "))
    }
}

/// A slot that is booked although no client has it: its worker gave no clear answer when it was to reserve it, or to give it
/// up.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename = "PoolHeldSlot")]
pub struct Held {
    /// The worker.
    pub worker: String,
    /// The client that the slot was for.
    pub client: ClientName,
    /// How long the worker may hold the reservation: then it must have dropped it by itself.
    pub left: Millis,
}

impl Held {
    /// After a setback that names the worker, its name is not repeated.
    fn after(&self, setback: &Setback) -> String {
        let named = setback.0.as_deref().is_some_and(|setback| setback.contains(self.worker.as_str()));
        if named { self.explain("it") } else { self.explain(&format!("worker {}", self.worker)) }
    }

    /// As a sentence about the worker.
    pub(super) fn explain(&self, worker: &str) -> String {
        let Self { client, left, .. } = self;
        format!("{worker} may still hold the reservation of client '{client}', for {} at most", left.in_words())
    }
}

/// Why no slot is free.
fn no_slot(setback: &Setback, held: Option<&Held>) -> String {
    held.map_or_else(|| "no slot is free".to_owned(), |held| held.after(setback))
}

/// Why workers that take no more clients are in the way.
fn ending(workers: usize, setback: &Setback, held: Option<&Held>) -> String {
    held.map_or_else(|| format!("{} ending", are(workers, "worker")), |held| held.after(setback))
}

/// What is not known of a reservation.
fn unclear(uncertainty: Option<&str>) -> String {
    uncertainty.map_or_else(String::new, |why| format!("; whether it still holds it is not known: {why}"))
}

/// "1 client is", "2 clients are".
fn are(number: usize, what: &str) -> String {
    counted_are(number as u64, what)
}

/// Why no node can start workers, or what to do about it.
fn remedy(lack: Option<&str>) -> String {
    lack.map_or_else(|| "; start a node that has it".to_owned(), |why| format!(": {why}"))
}

impl State {
    /// Why a match is as it is.
    pub(super) fn match_why(&self, client: &ClientName) -> Option<MatchWhy> {
        let known = self.matches.get(client)?;
        let row = &known.row;
        Some(match &row.state {
            MatchState::Making(booking) => MatchWhy::Asking { worker: self.worker_name(booking.worker) },
            MatchState::Matched { booking, .. } => {
                MatchWhy::Reserved { worker: self.worker_name(booking.worker), uncertainty: known.uncertainty.clone() }
            }
            MatchState::Queued { not_before } if *not_before > self.now => {
                MatchWhy::CoolingDown { last: row.reason.clone(), left: not_before.since(self.now) }
            }
            MatchState::Queued { .. } => {
                let held = row.leftovers.first().filter(|_| self.blocked.contains(client));
                match held {
                    Some(left) => MatchWhy::GivingBack {
                        worker: self.worker_name(left.booking.worker),
                        left: left.until.since(self.now),
                        setback: self.setback_of(client),
                    },
                    None => self.wait_why(client),
                }
            }
            MatchState::Vacant { .. } | MatchState::Failed { .. } | MatchState::Ended => {
                MatchWhy::Last(row.reason.clone())
            }
        })
    }

    /// Why a client that waits does so.
    pub(super) fn wait_why(&self, client: &ClientName) -> MatchWhy {
        let ahead = self.matches.get(client).map_or(0, |known| self.queue.ahead(known.row.queue_number));
        let (settings, making) = (&self.pool.settings, self.making());
        let open = self.workers.values().any(|worker| self.room(worker) > 0);
        let (staying, ending) = self.headcount();
        let setback = || self.setback_of(client);
        match self.backs_off() {
            _ if self.is_held() => MatchWhy::Paused { pool: self.pool.name.to_string(), ahead },
            _ if open && self.jobs() >= settings.makers_max as usize => {
                MatchWhy::MakersBusy { makers: settings.makers_max, ahead }
            }
            _ if open => MatchWhy::Next { ahead },
            _ if making > 0 => MatchWhy::Starting { workers: making, ahead, setback: setback() },
            _ if staying + ending >= settings.max as usize && ending > 0 => {
                MatchWhy::Ending { workers: ending, max: settings.max, ahead, setback: setback(), held: self.held() }
            }
            _ if staying >= settings.max as usize => {
                MatchWhy::Full { workers: staying, max: settings.max, ahead, setback: setback(), held: self.held() }
            }
            Some(trouble) => MatchWhy::BackingOff {
                failures: trouble.failures,
                reason: trouble.reason.clone(),
                left: trouble.until.since(self.now),
            },
            None if !self.has_site() => {
                MatchWhy::NoSite { runtime: settings.recipe.runtime.name().into(), lack: self.lack() }
            }
            None => MatchWhy::Next { ahead },
        }
    }

    /// What went wrong with a client that waits; else with its pool.
    fn setback_of(&self, client: &ClientName) -> Setback {
        let tried = self.matches.get(client).filter(|known| known.row.attempts > 0);
        tried.map_or_else(|| self.last_setback(), |known| Setback(Some(known.row.reason.clone())))
    }

    /// What went wrong last in the pool.
    fn last_setback(&self) -> Setback {
        let serving = self.workers.iter().filter(|(_, worker)| worker.row.phase.is_serving());
        let failures =
            serving.filter_map(|(no, worker)| Some((worker.call_failed_at, *no, worker.call_failure.as_ref()?)));
        if let Some((_, no, why)) = failures.max_by_key(|(at, no, _)| (*at, *no)) {
            return Setback(Some(format!("worker {}: {why}", self.worker_name(no)).into()));
        }
        // A site that failed long ago has nothing to do with a recipe that works elsewhere.
        let fresh = |trouble: &&row::Trouble| self.now < trouble.at.after(FAILED_KEPT);
        let failures = self.pool.trouble.iter().chain(self.pool.site_trouble.values().filter(fresh));
        Setback(failures.max_by_key(|trouble| trouble.at).map(|trouble| {
            let ago = self.now.since(trouble.at).in_words();
            format!("the last attempt to start a worker failed {ago} ago: {}", trouble.reason).into()
        }))
    }

    /// The first slot to be free of those that workers which gave no clear answer may hold.
    fn held(&self) -> Option<Held> {
        let unclear =
            self.workers.iter().filter(|(_, worker)| worker.call_failure.is_some() && worker.row.phase.is_serving());
        unclear.filter_map(|(no, _)| self.held_by(*no)).min_by_key(|held| held.left)
    }

    /// The first slot to become free of those that a worker may hold without a client.
    pub(super) fn held_by(&self, no: WorkerNo) -> Option<Held> {
        let clients = self.workers.get(&no)?.clients.iter();
        let held = clients.filter_map(|client| {
            let leftovers = self.matches.get(client)?.row.leftovers.iter();
            let until = leftovers.filter(|left| left.booking.worker == no).map(|left| left.until).max()?;
            Some((until, client))
        });
        let (until, client) = held.min()?;
        Some(Held { worker: self.worker_name(no), client: client.clone(), left: until.since(self.now) })
    }

    fn has_site(&self) -> bool {
        self.fit_sites().next().is_some()
    }

    /// Why a node that is there cannot start what the recipe needs.
    fn lack(&self) -> Option<Arc<str>> {
        let alive = self.sites.iter().filter(|(name, _)| self.silence(name) < SITE_SILENT_AFTER);
        let lacks = alive.filter_map(|(_, site)| site.lack.as_ref());
        lacks.filter(|lack| lack.runtime == self.pool.settings.recipe.runtime).map(|lack| lack.why.clone()).next()
    }

    /// Workers that take clients or will, and those that are ending and count against `max`. Those that exited and may be
    /// started again are neither: nothing but time is in their way.
    fn headcount(&self) -> (usize, usize) {
        let count = |phases: fn(Phase) -> bool| self.workers.values().filter(|w| phases(w.row.phase)).count();
        let staying = count(|phase| phase.is_making() || phase == Phase::Running);
        let exited = count(|phase| phase == Phase::Exited);
        (staying, self.occupying().saturating_sub(staying + exited))
    }

    /// What the pool is doing.
    #[must_use]
    pub fn pool_why(&self) -> PoolWhy {
        let (waiting, making, supply) = (self.queue.len(), self.making(), self.supply());
        let running = self.workers.values().filter(|worker| worker.row.phase == Phase::Running).count();
        let wants = self.demand(&supply) > 0;
        let (staying, ending) = self.headcount();
        let setback = || self.last_setback();
        match self.backs_off() {
            _ if self.is_held() => PoolWhy::Paused { pool: self.pool.name.to_string(), waiting },
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
                PoolWhy::Full { waiting, max: self.pool.settings.max, setback: setback(), held: self.held() }
            }
            None if wants && making == 0 && !self.has_site() => {
                let runtime = self.pool.settings.recipe.runtime.name().into();
                PoolWhy::NoSite { waiting, runtime, lack: self.lack() }
            }
            None if making > 0 => PoolWhy::Starting { making, waiting, setback: setback() },
            None if self.workers.is_empty() && waiting == 0 => PoolWhy::AtRest { setback: setback() },
            None => PoolWhy::Serving { running, free: supply.free, waiting, setback: setback() },
        }
    }
}
