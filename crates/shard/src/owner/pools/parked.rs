//! Parked client calls: they wait for a change of their match, or for a worker to confirm a reservation.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use wayleave_core::ids::Token;
use wayleave_core::limits::PARKED_MATCHES_MAX;
use wayleave_core::matches::{Asker, Call};
use wayleave_core::names::{ClientName, PoolName};
use wayleave_core::time::{Millis, Time};

use crate::message::{Deferred, MatchReply};

/// A call of a client.
pub(super) struct ClientCall {
    pub pool: PoolName,
    pub asker: Asker,
    pub purpose: Call,
    /// When it stops waiting for a worker.
    pub wait_until: Time,
    pub reply: MatchReply,
    pub durable: Arc<AtomicBool>,
}

impl ClientCall {
    pub fn new(pool: PoolName, asker: Asker, (purpose, wait_until): (Call, Time), reply: MatchReply) -> Self {
        Self { pool, asker, purpose, wait_until, reply, durable: Arc::default() }
    }

    /// Whether a commit has succeeded since it was parked first, with all that it has changed by then.
    pub fn is_durable(&self) -> bool {
        self.durable.load(Ordering::Acquire)
    }

    /// Takes note of the commit of the turn in which it is parked.
    pub fn note_commit(&self) -> Deferred {
        let mark = self.durable.clone();
        Box::new(move |durable| _ = mark.fetch_or(durable.is_ok(), Ordering::AcqRel))
    }

    /// What it asks for now. If the caller has disconnected, the worker's answer is still recorded, but the client is not
    /// queued again.
    pub fn present_purpose(&self) -> Call {
        if self.reply.is_closed() { Call::Look } else { self.purpose }
    }
}

/// What a parked call waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WaitsFor {
    /// News of its client.
    News,
    /// What the worker says about this reservation.
    Check { token: Token, sent_at: Time, until: Time },
}

/// The parked calls of a shard.
#[derive(Default)]
pub(super) struct Parked {
    next: u64,
    calls: BTreeMap<u64, (ClientCall, WaitsFor)>,
    by_client: BTreeMap<(PoolName, ClientName), BTreeSet<u64>>,
    by_time: BTreeSet<(Time, u64)>,
    /// When closed calls were last looked for.
    swept_at: Time,
}

/// Minimum interval between searches for disconnected callers while all places are taken: a search visits every call.
const SWEEP_EVERY: Millis = Millis(100);

impl Parked {
    pub fn is_full(&self) -> bool {
        self.calls.len() >= PARKED_MATCHES_MAX
    }

    pub fn park(&mut self, call: ClientCall, what: WaitsFor) {
        let id = self.next;
        self.next += 1;
        self.by_time.insert((due(&call, what), id));
        self.by_client.entry((call.pool.clone(), call.asker.client.clone())).or_default().insert(id);
        self.calls.insert(id, (call, what));
    }

    /// Whether any call waits for this client.
    pub fn has(&self, pool: &PoolName, client: &ClientName) -> bool {
        !self.by_client.is_empty() && self.by_client.contains_key(&(pool.clone(), client.clone()))
    }

    /// Takes the calls that wait for news of a client.
    pub fn take_news(&mut self, pool: &PoolName, client: &ClientName) -> Vec<ClientCall> {
        self.take(pool, client, |what| *what == WaitsFor::News)
    }

    /// Takes all calls of a client.
    pub fn take_client(&mut self, pool: &PoolName, client: &ClientName) -> Vec<ClientCall> {
        self.take(pool, client, |_| true)
    }

    /// Takes the calls that wait for what a worker says about a reservation, asked at this time. Those that came later have
    /// it asked again: the answer may be older than they are.
    pub fn take_checks(&mut self, pool: &PoolName, client: &ClientName, (of, at): (Token, Time)) -> Vec<ClientCall> {
        let fits =
            |what: &WaitsFor| matches!(what, WaitsFor::Check { token, sent_at, .. } if *token == of && *sent_at <= at);
        self.take(pool, client, fits)
    }

    /// Takes a call whose time is over.
    pub fn take_expired(&mut self, now: Time) -> Option<(ClientCall, WaitsFor)> {
        let (_, id) = self.by_time.first().filter(|(at, _)| *at <= now).copied()?;
        self.remove(id)
    }

    /// Takes all calls of a pool.
    pub fn take_pool(&mut self, pool: &PoolName) -> Vec<ClientCall> {
        let ids = self.calls.iter().filter(|(_, (call, _))| call.pool == *pool).map(|(id, _)| *id);
        let ids: Vec<u64> = ids.collect();
        ids.into_iter().filter_map(|id| self.remove(id)).map(|(call, _)| call).collect()
    }

    /// Takes all calls.
    pub fn take_all(&mut self) -> Vec<ClientCall> {
        self.by_client.clear();
        self.by_time.clear();
        std::mem::take(&mut self.calls).into_values().map(|(call, _)| call).collect()
    }

    /// When the next call's time is over.
    pub fn next_expiry(&self) -> Option<Time> {
        self.by_time.first().map(|(at, _)| *at)
    }

    /// Drops calls whose callers have disconnected, rate-limited. Callers that come and go must not exhaust the places.
    pub fn forget_closed(&mut self, now: Time) {
        if now < self.swept_at.after(SWEEP_EVERY) {
            return;
        }
        self.swept_at = now;
        let closed = self.calls.iter().filter(|(_, (call, _))| call.reply.is_closed()).map(|(id, _)| *id);
        let closed: Vec<u64> = closed.collect();
        closed.into_iter().for_each(|id| drop(self.remove(id)));
    }

    fn take(&mut self, pool: &PoolName, client: &ClientName, which: impl Fn(&WaitsFor) -> bool) -> Vec<ClientCall> {
        let Some(ids) = self.by_client.get(&(pool.clone(), client.clone())) else { return Vec::new() };
        let fits = |id: &&u64| self.calls.get(id).is_some_and(|(_, what)| which(what));
        let ids: Vec<u64> = ids.iter().filter(fits).copied().collect();
        ids.into_iter().filter_map(|id| self.remove(id)).map(|(call, _)| call).collect()
    }

    fn remove(&mut self, id: u64) -> Option<(ClientCall, WaitsFor)> {
        let (call, what) = self.calls.remove(&id)?;
        self.by_time.remove(&(due(&call, what), id));
        let key = (call.pool.clone(), call.asker.client.clone());
        if let Some(ids) = self.by_client.get_mut(&key) {
            ids.remove(&id);
            if ids.is_empty() {
                self.by_client.remove(&key);
            }
        }
        Some((call, what))
    }
}

const fn due(call: &ClientCall, what: WaitsFor) -> Time {
    match what {
        WaitsFor::News => call.wait_until,
        WaitsFor::Check { until, .. } => until,
    }
}
