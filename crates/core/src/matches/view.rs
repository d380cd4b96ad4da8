//! Matches, workers and pools as callers see them.

use std::collections::BTreeMap;
use std::ops::Bound::{Excluded, Unbounded};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::decision::Labels;
use super::input::Asker;
use super::refusal::Refusal;
use super::row::{MatchRow, MatchState, Phase, WorkerNo};
use super::settings::{Recipe, RuntimeKind, Settings};
use super::state::{State, Worker};
use super::why::{MatchWhy, PoolWhy};
use crate::ids::Token;
use crate::limits::VERIFIED_FOR;
use crate::names::{ClientName, PoolName, SiteName};
use crate::time::{Millis, Time};
use crate::words::words;

/// How long a client waits before it asks again, if nothing better is known.
const ASK_AGAIN: Millis = Millis(2_000);
const ASK_AGAIN_MIN: Millis = Millis(500);
const ASK_AGAIN_MAX: Millis = Millis(30_000);

/// A match's state in the API.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum MatchStage {
    /// It waits for a slot.
    Queued,
    /// A worker is asked.
    Making,
    /// It has a worker.
    Matched,
    /// Its worker is gone; the next call queues it again.
    Vacant,
    /// It failed.
    Failed,
}

words!(MatchStage, name: Queued "queued", Vacant "vacant", Making "making", Matched "matched", Failed "failed");

/// A client's match.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MatchView {
    /// Where it is.
    pub stage: MatchStage,
    /// Why.
    pub why: MatchWhy,
    /// Its place in the queue, from 1.
    pub position: Option<usize>,
    /// When it may have a worker, if that can be estimated.
    pub estimate: Option<Millis>,
    /// When to ask again.
    pub retry_after: Option<Millis>,
    /// Its worker, if it is matched.
    pub matched: Option<Matched>,
    /// Whether the worker has just confirmed that it holds the reservation.
    pub verified: bool,
    /// Grows with every change.
    pub version: u64,
}

/// A client's worker.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Matched {
    /// The worker's name.
    pub worker: String,
    /// Where it is reached.
    pub address: Arc<str>,
    /// The reservation. Lists do not have it.
    pub token: Option<Token>,
    /// It ends then, unless it is confirmed.
    pub expires_at: Time,
}

/// A worker.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkerView {
    /// Its number.
    pub no: WorkerNo,
    /// Its name.
    pub worker: String,
    /// What its runtime finds it by.
    pub labels: Labels,
    /// Its state in the API.
    pub state: String,
    /// Where it runs.
    pub site: SiteName,
    /// Where it is reached.
    pub address: Option<Arc<str>>,
    /// Clients that it serves at once.
    pub slots: u32,
    /// Slots that are taken.
    pub used: u32,
    /// Clients that it has had.
    pub uses: u64,
    /// Why it is where it is.
    pub reason: Arc<str>,
}

/// A worker that is gone. A pool remembers the last few, as long as its owner lives.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RemovedView {
    /// Its name.
    pub worker: String,
    /// What its runtime found it by.
    pub labels: Labels,
    /// Where it ran.
    pub site: SiteName,
    /// Why it ended.
    pub reason: Arc<str>,
    /// When it was removed.
    pub removed_at: Time,
}

/// A pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolView {
    /// Its name.
    pub name: PoolName,
    /// A random label that distinguishes its workers from those of other pools of this name. Copies of the store
    /// repeat it.
    pub owner: Arc<str>,
    /// Its settings, without the environment of its workers.
    pub settings: Settings,
    /// Names of the variables of that environment. Their values are not shown.
    pub env: Vec<String>,
    /// Whether it is being deleted.
    pub closing: bool,
    /// Whether it is paused.
    pub paused: bool,
    /// When it was created.
    pub created_at: Time,
    /// Grows with every change.
    pub version: u64,
    /// What it is doing.
    pub why: PoolWhy,
    /// Clients that wait.
    pub waiting: usize,
    /// Clients that are matched.
    pub matched: usize,
    /// Slots that are free.
    pub free: u64,
    /// Slots of workers that are being made.
    pub coming: u64,
    /// Workers of every kind.
    pub workers: usize,
}

/// A pool, as lists show it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolSummary {
    /// Its name.
    pub name: PoolName,
    /// What starts its workers.
    pub runtime: RuntimeKind,
    /// What it is doing.
    pub why: PoolWhy,
    /// Whether it is being deleted.
    pub closing: bool,
    /// Whether it is paused.
    pub paused: bool,
    /// Workers that run even without clients.
    pub min: u32,
    /// Workers at most.
    pub max: u32,
    /// Workers of every kind.
    pub workers: usize,
    /// Clients that wait.
    pub waiting: usize,
    /// Clients that are matched.
    pub matched: usize,
    /// Slots that are free.
    pub free: u64,
}

impl MatchView {
    /// A failure that has no row.
    pub(super) fn failed(why: String, retry_after: Millis) -> Self {
        Self {
            stage: MatchStage::Failed,
            why: MatchWhy::Last(why.into()),
            position: None,
            estimate: None,
            retry_after: Some(retry_after.max(ASK_AGAIN_MIN)),
            matched: None,
            verified: false,
            version: 0,
        }
    }
}

impl State {
    /// Moves the clock on for what is shown: ages, remaining times and silence are those of the call. Nothing is decided.
    /// The next decision begins with what has become due, by the same timers as without the look.
    pub fn look_at(&mut self, now: Time) {
        self.now = self.now.max(now);
    }

    /// A client's match; none if it has no request.
    #[must_use]
    pub fn view(&self, client: &ClientName) -> Option<MatchView> {
        let known = self.matches.get(client)?;
        let row = &known.row;
        let stage = match row.state {
            MatchState::Queued { .. } => MatchStage::Queued,
            MatchState::Making(_) => MatchStage::Making,
            MatchState::Matched { .. } => MatchStage::Matched,
            MatchState::Vacant { .. } => MatchStage::Vacant,
            MatchState::Failed { .. } => MatchStage::Failed,
            MatchState::Ended => return None,
        };
        let ahead = row.is_queued().then(|| self.queue.ahead(row.queue_number));
        let estimate =
            ahead.and_then(|ahead| self.estimate(ahead)).map(|soonest| soonest.max(self.refused_for(client, row)));
        let retry_after = match row.state {
            MatchState::Queued { .. } | MatchState::Making(_) | MatchState::Vacant { .. } => {
                Some(estimate.unwrap_or(ASK_AGAIN).clamp(ASK_AGAIN_MIN, ASK_AGAIN_MAX))
            }
            MatchState::Failed { retry_at, .. } => Some(retry_at.since(self.now).max(ASK_AGAIN_MIN)),
            _ => None,
        };
        let matched = match &row.state {
            MatchState::Matched { booking, expires_at } => {
                let worker = self.workers.get(&booking.worker)?;
                let address = worker.row.instance.as_ref()?.address.clone();
                let (worker, token) = (self.worker_name(booking.worker), Some(booking.token));
                Some(Matched { worker, address, token, expires_at: *expires_at })
            }
            _ => None,
        };
        let heard = known.verified_at.is_some_and(|at| self.now < at.after(VERIFIED_FOR));
        let verified = matched.is_some() && heard;
        let position = ahead.map(|ahead| ahead + 1);
        let (why, version) = (self.match_why(client)?, row.version);
        Some(MatchView { stage, why, position, estimate, retry_after, matched, verified, version })
    }

    /// Whether a client's match has failed and a call of the client has returned that.
    #[must_use]
    pub fn failure_is_delivered(&self, client: &ClientName) -> bool {
        matches!(
            self.matches.get(client).map(|known| &known.row.state),
            Some(MatchState::Failed { delivered: true, .. })
        )
    }

    /// A client's match as its own call may see it, without asking its worker: nothing is confirmed or changed. Fails
    /// if the client belongs to another caller.
    pub fn show(&self, asker: &Asker) -> Result<Option<MatchView>, Refusal> {
        self.check_principal(asker)?;
        Ok(self.view(&asker.client).map(|view| MatchView { verified: false, ..view }))
    }

    /// How long a queued client gets no worker even if one is free: one has refused it, or those with room have not
    /// released its earlier reservations.
    fn refused_for(&self, client: &ClientName, row: &MatchRow) -> Millis {
        let MatchState::Queued { not_before } = row.state else { return Millis(0) };
        let held = row.leftovers.iter().filter(|_| self.blocked.contains(client)).map(|left| left.until).min();
        not_before.max(held.unwrap_or(Time::ZERO)).since(self.now)
    }

    /// When a client with this many ahead may have a worker: estimated only if slots for it are free or being made.
    fn estimate(&self, ahead: usize) -> Option<Millis> {
        let supply = self.supply();
        let ahead = ahead as u64;
        if ahead < supply.free {
            return Some(Millis(0));
        }
        // Earlier starts say nothing about one that follows a failure, or takes longer than they did.
        let made = || self.workers.values().map(|worker| &worker.row).filter(|row| row.phase.is_making());
        let failed = self.pool.trouble.is_some() || made().any(|row| self.pool.site_trouble.contains_key(&row.site));
        if failed || ahead >= supply.free + supply.coming {
            return None;
        }
        let since = made().map(|row| row.making_since).min()?;
        Some(Millis(self.start_mean.0.saturating_sub(self.now.since(since).0))).filter(|left| left.0 > 0)
    }

    /// Matches after this one in the order of names, at most this many.
    pub fn matches(&self, after: Option<&ClientName>, most: usize) -> Vec<(ClientName, MatchView)> {
        let from = (after.map_or(Unbounded, Excluded), Unbounded);
        let names = self.matches.range::<ClientName, _>(from).map(|(client, _)| client);
        let view = |client: &ClientName| {
            let mut view = self.view(client)?;
            // The right to list matches is not the right to use another client's worker.
            view.matched.iter_mut().for_each(|matched| matched.token = None);
            Some((client.clone(), view))
        };
        names.filter_map(view).take(most).collect()
    }

    /// The workers.
    #[must_use]
    pub fn workers(&self) -> Vec<WorkerView> {
        let view = |no: &WorkerNo| {
            let worker = self.workers.get(no)?;
            let row = &worker.row;
            Some(WorkerView {
                no: *no,
                worker: self.worker_name(*no),
                labels: Labels { owner: self.pool.owner.clone(), generation: self.pool.generation, worker: *no },
                state: row.phase.name().into(),
                site: row.site.clone(),
                address: row.instance.as_ref().map(|instance| instance.address.clone()),
                slots: row.slots,
                used: worker.clients.len() as u32,
                uses: row.uses,
                reason: self.worker_reason(*no, worker),
            })
        };
        self.workers.keys().filter_map(view).collect()
    }

    /// Why a worker is where it is; of one that runs, whether it takes clients now.
    fn worker_reason(&self, no: WorkerNo, worker: &Worker) -> Arc<str> {
        let row = &worker.row;
        let held = || self.held_by(no).filter(|_| worker.call_failure.is_some());
        match row.phase {
            Phase::Running if worker.quiet_until > self.now => {
                let left = worker.quiet_until.since(self.now).in_words();
                let why = worker.call_failure.as_deref().unwrap_or("it gave no clear answer");
                format!("it is left alone for {left}: {why}").into()
            }
            Phase::Running if self.room(worker) == 0 => {
                let taken = "it has no free slot";
                held().map_or_else(|| taken.into(), |held| format!("{taken}: {}", held.explain("it")).into())
            }
            Phase::Draining => {
                let reason = &row.reason;
                held().map_or_else(|| reason.clone(), |held| format!("{reason}; {}", held.explain("it")).into())
            }
            _ => row.reason.clone(),
        }
    }

    /// The last workers that were removed, the last one first.
    #[must_use]
    pub fn removed_workers(&self) -> Vec<RemovedView> {
        self.removed.iter().rev().cloned().collect()
    }

    /// Whether the pool is being deleted.
    #[must_use]
    pub const fn is_closing(&self) -> bool {
        self.pool.closing
    }

    /// The pool.
    #[must_use]
    pub fn pool_view(&self) -> PoolView {
        let (supply, settings) = (self.supply(), &self.pool.settings);
        PoolView {
            name: self.pool.name.clone(),
            owner: Arc::clone(&self.pool.owner),
            env: settings.recipe.env.keys().cloned().collect(),
            settings: Settings {
                recipe: Recipe { env: BTreeMap::new(), ..settings.recipe.clone() },
                ..settings.clone()
            },
            closing: self.pool.closing,
            paused: self.pool.paused,
            created_at: self.pool.created_at,
            version: self.pool.version,
            why: self.pool_why(),
            waiting: self.queue.len(),
            matched: self.matched,
            free: supply.free,
            coming: supply.coming,
            workers: self.workers.len(),
        }
    }

    /// The pool, as lists show it.
    #[must_use]
    pub fn summary(&self) -> PoolSummary {
        let settings = &self.pool.settings;
        PoolSummary {
            name: self.pool.name.clone(),
            runtime: settings.recipe.runtime,
            why: self.pool_why(),
            closing: self.pool.closing,
            paused: self.pool.paused,
            min: settings.min,
            max: settings.max,
            workers: self.workers.len(),
            waiting: self.queue.len(),
            matched: self.matched,
            free: self.supply().free,
        }
    }
}
