//! One pool in memory: its rows, what was heard of workers and sites, the queue and timers.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use super::decision::{Effect, Labels, Order};
use super::input::{Lack, StepId};
use super::queue::Queue;
use super::row::{Booking, MatchRow, MatchState, Phase, PoolRow, WorkerNo, WorkerRow, Write};
use super::settings::{RuntimeKind, Settings};
use super::view::RemovedView;
use crate::ids::{ShardId, Token};
use crate::limits;
use crate::names::{ClientName, PoolName, SiteName};
use crate::time::{Millis, Time};

/// One pool.
#[derive(Clone, Debug)]
pub struct State {
    pub(super) shard: ShardId,
    pub(super) pool: PoolRow,
    /// The pool is deleted, and nothing of it is left.
    pub(super) gone: bool,
    pub(super) workers: BTreeMap<WorkerNo, Worker>,
    pub(super) matches: BTreeMap<ClientName, Match>,
    pub(super) queue: Queue,
    pub(super) next_queue_number: u64,
    /// Queued clients that have not given back a slot of the workers that have room.
    pub(super) blocked: BTreeSet<ClientName>,
    /// Workers that had room when clients were last assigned: only another one can help those that are blocked.
    pub(super) open: BTreeSet<WorkerNo>,
    /// One entry per match: when it must be looked at.
    pub(super) timers: BTreeSet<(Time, ClientName)>,
    pub(super) sites: BTreeMap<SiteName, Site>,
    /// Matches for which a worker is being asked.
    pub(super) asking: usize,
    /// Matches that have a worker.
    pub(super) matched: usize,
    /// Since when sites are heard.
    pub(super) listening_since: Time,
    /// How long workers took to start lately.
    pub(super) start_mean: Millis,
    pub(super) now: Time,
    pub(super) dirty: Dirty,
    pub(super) effects: Vec<Effect>,
    /// There was more to do than one decision takes.
    pub(super) more: bool,
    /// Workers that are gone, the last one last.
    pub(super) removed: VecDeque<RemovedView>,
}

/// Rows that this decision has changed.
#[derive(Clone, Debug, Default)]
pub(super) struct Dirty {
    pub pool: bool,
    pub workers: BTreeSet<WorkerNo>,
    pub matches: BTreeSet<ClientName>,
}

/// A worker.
#[derive(Clone, Debug)]
pub(super) struct Worker {
    pub row: WorkerRow,
    /// Clients that have a slot, or have not given it back.
    pub clients: BTreeSet<ClientName>,
    /// How many of them it is being asked for.
    pub asked: u32,
    /// It is not asked before.
    pub quiet_until: Time,
    /// Calls in a row that it refused or did not answer. Those that were under way together count once.
    pub failed_calls: u32,
    /// When the last of them was heard of.
    pub call_failed_at: Time,
    /// What it did instead of a yes; none after the next yes.
    pub call_failure: Option<Arc<str>>,
    /// When its order is sent.
    pub send_at: Time,
    /// Why it ended, once it is being removed: its row may by then say why that takes long.
    pub end: Option<Arc<str>>,
}

/// A client's request.
#[derive(Clone, Debug)]
pub(super) struct Match {
    pub row: MatchRow,
    /// When the worker is asked to reserve.
    pub send_at: Time,
    /// Calls to workers that may still arrive.
    pub calls: Vec<InFlight>,
    /// When leftovers are given back.
    pub release_at: Time,
    /// When the worker last answered yes.
    pub verified_at: Option<Time>,
    /// What the worker answered to a later check of this reservation, if it was no clear answer.
    pub uncertainty: Option<Arc<str>>,
    pub timer: Time,
}

/// A call to a worker, to reserve or to release, that may still arrive there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct InFlight {
    pub token: Token,
    /// When it was sent. [`Time::NEVER`] means a call of the former owner, whose outcome is unknown.
    pub sent_at: Time,
    /// It does not arrive later.
    pub until: Time,
    pub reserves: bool,
}

/// Where workers can be started.
#[derive(Clone, Debug)]
pub(super) struct Site {
    pub runtime: RuntimeKind,
    /// What its node should have besides, and has not.
    pub lack: Option<Lack>,
    pub heard: Time,
    pub list_at: Time,
}

impl Worker {
    pub fn new(row: WorkerRow, now: Time) -> Self {
        Self {
            row,
            clients: BTreeSet::new(),
            asked: 0,
            quiet_until: Time::ZERO,
            failed_calls: 0,
            call_failed_at: Time::ZERO,
            call_failure: None,
            send_at: now,
            end: None,
        }
    }

    /// Slots that others use, according to a fresh report.
    pub fn used_elsewhere(&self, now: Time) -> u32 {
        if now < self.row.reported_at.after(limits::SITE_LOST_AFTER) { self.row.used_elsewhere } else { 0 }
    }

    pub fn is_busy(&self, now: Time) -> bool {
        !self.clients.is_empty() || self.used_elsewhere(now) > 0
    }
}

impl State {
    /// A new pool of an installation. Its row is part of the first decision. The generation is random.
    #[must_use]
    pub fn create(
        shard: ShardId,
        name: PoolName,
        owner: Arc<str>,
        settings: Settings,
        generation: u64,
        now: Time,
    ) -> Self {
        let pool = PoolRow {
            name,
            owner,
            settings,
            generation,
            recipe_no: 1,
            next_worker: 1,
            next_making: 1,
            trouble: None,
            site_trouble: BTreeMap::new(),
            owed: BTreeMap::new(),
            closing: false,
            paused: false,
            created_at: now,
            version: 0,
        };
        let mut state = Self::load(shard, pool, [], [], now);
        state.dirty.pool = true;
        state
    }

    /// Loads a pool from its rows. A tick must follow at once: what was ordered before is ordered again.
    pub fn load(
        shard: ShardId,
        pool: PoolRow,
        workers: impl IntoIterator<Item = (WorkerNo, WorkerRow)>,
        matches: impl IntoIterator<Item = (ClientName, MatchRow)>,
        now: Time,
    ) -> Self {
        let mut state = Self {
            shard,
            pool,
            gone: false,
            workers: workers.into_iter().map(|(no, row)| (no, Worker::new(row, now))).collect(),
            matches: BTreeMap::new(),
            queue: Queue::default(),
            next_queue_number: 0,
            blocked: BTreeSet::new(),
            open: BTreeSet::new(),
            timers: BTreeSet::new(),
            sites: BTreeMap::new(),
            asking: 0,
            matched: 0,
            listening_since: now,
            start_mean: limits::ORDER_RESENT,
            now,
            dirty: Dirty::default(),
            effects: Vec::new(),
            more: false,
            removed: VecDeque::new(),
        };
        for (client, row) in matches {
            let calls = calls_before(&row, now);
            let known = Match {
                row,
                send_at: now,
                calls,
                release_at: now,
                verified_at: None,
                uncertainty: None,
                timer: Time::NEVER,
            };
            state.next_queue_number = state.next_queue_number.max(known.row.queue_number + 1);
            state.enter(client, known);
        }
        state
    }

    /// Whether the pool is deleted and nothing of it is left.
    #[must_use]
    pub const fn is_gone(&self) -> bool {
        self.gone
    }

    /// The rows, as they are after the last decision.
    #[must_use]
    pub fn rows(&self) -> Vec<Write> {
        let pool = (!self.gone).then(|| Write::Pool(Some(Box::new(self.pool.clone()))));
        let workers = self.workers.iter().map(|(no, w)| Write::Worker(*no, Some(Box::new(w.row.clone()))));
        let matches = self.matches.iter().map(|(c, m)| Write::Match(c.clone(), Some(Box::new(m.row.clone()))));
        pool.into_iter().chain(workers).chain(matches).collect()
    }

    /// Stores a client's request in every index, or forgets it.
    pub(super) fn store(&mut self, client: &ClientName, after: Option<Match>) {
        self.dirty.matches.insert(client.clone());
        let mut touched: Vec<WorkerNo> = Vec::new();
        if let Some(before) = self.matches.remove(client) {
            self.timers.remove(&(before.timer, client.clone()));
            if before.row.is_queued() {
                self.queue.remove(before.row.queue_number);
                self.blocked.remove(client);
            }
            self.count_asking(&before.row, false);
            self.matched -= usize::from(matches!(before.row.state, MatchState::Matched { .. }));
            touched.extend(before.row.booked().map(|booking| booking.worker));
            for no in &touched {
                if let Some(worker) = self.workers.get_mut(no) {
                    worker.clients.remove(client);
                }
            }
        }
        if let Some(after) = after {
            touched.extend(after.row.booked().map(|booking| booking.worker));
            self.enter(client.clone(), after);
        }
        touched.into_iter().for_each(|no| self.note_idleness(no));
    }

    fn enter(&mut self, client: ClientName, mut known: Match) {
        for booking in known.row.booked() {
            if let Some(worker) = self.workers.get_mut(&booking.worker) {
                worker.clients.insert(client.clone());
            }
        }
        self.count_asking(&known.row, true);
        self.matched += usize::from(matches!(known.row.state, MatchState::Matched { .. }));
        if let MatchState::Queued { not_before } = known.row.state {
            self.queue.insert(known.row.queue_number, client.clone());
            self.queue.set_ready(known.row.queue_number, not_before <= self.now);
        }
        known.timer = known.next_look(self.now);
        self.timers.insert((known.timer, client.clone()));
        self.matches.insert(client, known);
    }

    /// Counts a request for which a worker is being asked, or no longer is.
    fn count_asking(&mut self, row: &MatchRow, more: bool) {
        let MatchState::Making(booking) = &row.state else { return };
        self.asking = if more { self.asking + 1 } else { self.asking - 1 };
        if let Some(worker) = self.workers.get_mut(&booking.worker) {
            worker.asked = if more { worker.asked + 1 } else { worker.asked - 1 };
        }
    }

    fn note_idleness(&mut self, no: WorkerNo) {
        let Some(worker) = self.workers.get_mut(&no) else { return };
        let idle = worker.clients.is_empty();
        if idle != worker.row.idle_since.is_some() {
            worker.row.idle_since = idle.then_some(self.now);
            self.dirty.workers.insert(no);
        }
    }

    /// Moves a worker into another phase: a new step, not ordered yet.
    pub(super) fn enter_phase(&mut self, no: WorkerNo, phase: Phase, reason: &str) {
        let (now, start_max, idle) = (self.now, self.pool.settings.start_max, self.pool.settings.idle);
        let Some(worker) = self.workers.get_mut(&no) else { return };
        let row = &mut worker.row;
        if phase == Phase::Removing && matches!(row.phase, Phase::Creating | Phase::Restarting) {
            // It is unknown what its runtime has started, or will start.
            row.instance = None;
        }
        row.deadline = match phase {
            Phase::Creating | Phase::Restarting | Phase::Starting => now.after(start_max),
            Phase::Stopping | Phase::Removing => now.after(limits::STOP_TIME),
            // Not at once, or nothing would wake for it.
            Phase::Exited => now.after(idle.max(Millis(1))),
            Phase::Running | Phase::Draining => Time::NEVER,
        };
        if phase != Phase::Removing {
            worker.end = None;
        } else if row.phase != Phase::Removing {
            worker.end = Some(reason.into());
        }
        (row.phase, row.since, row.tries, row.reason) = (phase, now, 0, reason.into());
        row.step += 1;
        worker.send_at = now;
        self.dirty.workers.insert(no);
    }

    /// Forgets a worker that has left nothing behind.
    pub(super) fn forget_worker(&mut self, no: WorkerNo) {
        if let Some(Worker { row, end, .. }) = self.workers.remove(&no) {
            let (worker, labels, reason) = (self.worker_name(no), self.labels(no), end.unwrap_or(row.reason));
            self.removed.push_back(RemovedView { worker, labels, site: row.site, reason, removed_at: self.now });
            let surplus = self.removed.len().saturating_sub(limits::REMOVED_WORKERS_SHOWN);
            self.removed.drain(..surplus);
        }
        self.dirty.workers.insert(no);
    }

    /// The name by which people and runtimes know a worker.
    #[must_use]
    pub fn worker_name(&self, no: WorkerNo) -> String {
        worker_name(&self.pool.name, self.pool.generation, no)
    }

    /// The number of a worker of this name, whether there is one or not.
    #[must_use]
    pub fn worker_no(&self, name: &str) -> Option<WorkerNo> {
        let no = name.rsplit_once('-')?.1.parse().ok().map(WorkerNo)?;
        (self.worker_name(no) == name).then_some(no)
    }

    pub(super) fn labels(&self, worker: WorkerNo) -> Labels {
        Labels { owner: self.pool.owner.clone(), generation: self.pool.generation, worker }
    }

    pub(super) fn order(&self, no: WorkerNo, worker: &Worker) -> Order {
        let row = &worker.row;
        let step = StepId { worker: no, step: row.step };
        let (name, labels) = (self.worker_name(no).into(), self.labels(no));
        Order { step, name, labels, site: row.site.clone(), instance: row.instance.clone(), until: row.deadline }
    }

    /// How long a site has been silent.
    pub(super) fn silence(&self, site: &SiteName) -> Millis {
        let heard = self.sites.get(site).map_or(self.listening_since, |site| site.heard.max(self.listening_since));
        self.now.since(heard)
    }

    /// How many clients may be given to a worker now.
    pub(super) fn room(&self, worker: &Worker) -> u32 {
        if worker.row.phase != Phase::Running || worker.quiet_until > self.now {
            return 0;
        }
        let used = worker.clients.len() as u32 + worker.used_elsewhere(self.now);
        let free = worker.row.slots.saturating_sub(used);
        let Some(most) = self.pool.settings.uses_max else { return free };
        // Clients for which it is being asked may become uses.
        let uses = worker.row.uses + u64::from(worker.asked);
        free.min(u32::try_from(most.saturating_sub(uses)).unwrap_or(u32::MAX))
    }

    /// Requests and workers that Makers work on.
    pub(super) fn jobs(&self) -> usize {
        self.asking + self.making()
    }

    pub(super) fn making(&self) -> usize {
        self.workers.values().filter(|worker| worker.row.phase.is_making()).count()
    }
}

/// Calls that the owner before may have sent, until it was replaced.
fn calls_before(row: &MatchRow, now: Time) -> Vec<InFlight> {
    let call = |token, until, reserves| InFlight { token, sent_at: Time::NEVER, until, reserves };
    let asked = row.booked().map(|booking| call(booking.token, booking.asked_until, true));
    let released = row.leftovers.iter().map(|left| {
        let until = now.after(limits::ASK_TIME).min(left.until);
        call(left.booking.token, until, false)
    });
    asked.chain(released).filter(|call| call.until > now).collect()
}

/// The name of a worker: its pool's name, and a suffix that is unique among the workers of that name.
#[must_use]
pub fn worker_name(pool: &PoolName, generation: u64, no: WorkerNo) -> String {
    format!("{pool}-{}", worker_suffix(generation, no))
}

/// The end of a worker's name. It has all digits of the generation, so that names, and the folders that end alike, have one
/// form.
#[must_use]
pub fn worker_suffix(generation: u64, no: WorkerNo) -> String {
    format!("{generation:016x}-{}", no.0)
}

impl Match {
    /// A call has been sent.
    pub fn sent(&mut self, token: Token, sent_at: Time, until: Time, reserves: bool) {
        self.calls.retain(|call| call.until > sent_at);
        self.calls.push(InFlight { token, sent_at, until, reserves });
    }

    /// A call was answered plainly, so it arrives no more. One that broke may still.
    pub fn answered(&mut self, token: Token, sent_at: Time, reserves: bool) {
        let answered = |call: &InFlight| (call.token, call.sent_at, call.reserves) == (token, sent_at, reserves);
        // Two may have been sent in the same millisecond: only one of them was answered.
        if let Some(at) = self.calls.iter().position(answered) {
            self.calls.swap_remove(at);
        }
    }

    /// Until when a call about a reservation may arrive, if one may.
    pub fn in_flight(&self, token: Token, now: Time) -> Option<Time> {
        let calls = self.calls.iter().filter(|call| call.token == token && call.until > now);
        calls.map(|call| call.until).max()
    }

    /// Whether a call may arrive that asks for a reservation.
    pub fn is_asked(&self, token: Token, now: Time) -> bool {
        self.calls.iter().any(|call| call.reserves && call.token == token && call.until > now)
    }

    /// When it must be looked at.
    fn next_look(&self, now: Time) -> Time {
        let own = match &self.row.state {
            MatchState::Queued { not_before } if *not_before > now => self.row.deadline.min(*not_before),
            MatchState::Queued { .. } => self.row.deadline,
            MatchState::Making(Booking { asked_until, .. }) => (*asked_until).min(self.send_at),
            MatchState::Matched { expires_at, .. } => *expires_at,
            MatchState::Vacant { until } | MatchState::Failed { until, .. } => *until,
            MatchState::Ended => Time::NEVER,
        };
        let left = self.row.leftovers.iter().map(|left| left.until.min(self.release_at)).min();
        let ended = matches!(self.row.state, MatchState::Ended) && left.is_none();
        if ended { now } else { own.min(left.unwrap_or(Time::NEVER)) }
    }
}
