//! Effects waiting for Makers: a bounded queue per site, and the polls parked on it.
//!
//! A repeated order replaces its earlier copy in place. Orders beyond the bound are dropped, and expired orders are not
//! handed out; the core repeats what still matters.

use std::collections::{BTreeMap, VecDeque};

use hashbrown::HashMap;
use wayleave_core::ids::Token;
use wayleave_core::limits::{
    ORDERS_AT_ONCE_MAX, ORDERS_WAITING_MAX, POLLS_PER_SITE_MAX, SITE_LOST_AFTER, SITE_SILENT_AFTER, SITES_MAX,
};
use wayleave_core::matches::{Effect, Lack, RuntimeKind, WorkerNo};
use wayleave_core::names::{ClientName, PoolName, SiteName};
use wayleave_core::time::{Millis, Time};

use crate::matches::Orders;

/// Interval at which a site's polls announce it to the pools.
const TOLD_EVERY: Millis = Millis(2_000);

/// The sites of a shard. `R` is where the answer to a poll goes.
pub(super) struct Sites<R>(BTreeMap<SiteName, Site<R>>);

struct Site<R> {
    /// None until its Maker polls: what is ordered before waits.
    runtime: Option<RuntimeKind>,
    /// What its node should be able to start besides, and cannot.
    lack: Option<Lack>,
    /// When its Maker last polled, or the first order came.
    heard: Time,
    /// When pools were last told of it.
    told: Time,
    queue: Queue,
    polls: VecDeque<(Time, R)>,
}

/// What makes two orders the same.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Subject {
    Reserve(ClientName, Token),
    Release(ClientName, Token),
    Check(ClientName, Token),
    /// A worker has one step at a time: the order for the next one replaces it.
    Worker(WorkerNo),
    Unknown(WorkerNo, u64),
    List,
}

#[derive(Default)]
struct Queue {
    next: u64,
    waiting: BTreeMap<u64, (PoolName, Subject, Effect)>,
    places: HashMap<(PoolName, Subject), u64>,
}

impl<R> Default for Sites<R> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<R> Sites<R> {
    /// Whether a site of this name polls with another runtime.
    pub fn is_other(&self, site: &SiteName, runtime: RuntimeKind, now: Time) -> bool {
        let known = self.0.get(site).filter(|site| now < site.heard.after(SITE_SILENT_AFTER));
        known.and_then(|site| site.runtime).is_some_and(|known| known != runtime)
    }

    /// A site polls. Returns whether pools must be told that it is there. What its node lacks is told with that: nodes that
    /// share a site may lack different things, and pools are not told at each poll.
    pub fn heard(&mut self, site: &SiteName, runtime: RuntimeKind, lack: Option<&Lack>, now: Time) -> bool {
        self.forget_lost(now);
        let Some(site) = self.entry(site, now) else { return true };
        let due = site.runtime != Some(runtime) || now >= site.told.after(TOLD_EVERY);
        (site.runtime, site.lack, site.heard) = (Some(runtime), lack.cloned(), now);
        if due {
            site.told = now;
        }
        due
    }

    /// Sites whose Makers poll.
    pub fn alive(&self, now: Time) -> Vec<(SiteName, RuntimeKind, Option<Lack>)> {
        let alive = self.0.iter().filter(|(_, site)| now < site.heard.after(SITE_SILENT_AFTER));
        alive.filter_map(|(name, site)| Some((name.clone(), site.runtime?, site.lack.clone()))).collect()
    }

    /// Parks a poll. Returns those that must be answered because there are too many.
    pub fn park(&mut self, site: &SiteName, until: Time, reply: R, now: Time) -> Vec<R> {
        let Some(site) = self.entry(site, now) else { return vec![reply] };
        site.polls.push_back((until, reply));
        let surplus = site.polls.len().saturating_sub(POLLS_PER_SITE_MAX);
        site.polls.drain(..surplus).map(|(_, reply)| reply).collect()
    }

    /// Queues an effect for its site.
    pub fn order(&mut self, pool: &PoolName, effect: Effect, now: Time) {
        let (name, subject) = (effect.site().clone(), subject(&effect));
        let Some(site) = self.entry(&name, now) else { return };
        let queue = &mut site.queue;
        let key = (pool.clone(), subject);
        if let Some(place) = queue.places.get(&key)
            && let Some((_, _, waiting)) = queue.waiting.get_mut(place)
        {
            *waiting = effect;
            return;
        }
        if queue.waiting.len() >= ORDERS_WAITING_MAX {
            return;
        }
        let (pool, subject) = key.clone();
        queue.places.insert(key, queue.next);
        queue.waiting.insert(queue.next, (pool, subject, effect));
        queue.next += 1;
    }

    /// Pairs polls with what waits for their sites. `is_gone` tells polls whose caller has left.
    pub fn hand_out(&mut self, now: Time, is_gone: impl Fn(&R) -> bool) -> Vec<(R, Orders)> {
        let mut out = Vec::new();
        for site in self.0.values_mut() {
            if site.queue.waiting.is_empty() {
                continue;
            }
            site.polls.retain(|(_, reply)| !is_gone(reply));
            while !site.polls.is_empty() {
                let orders = site.queue.take(now);
                if orders.is_empty() {
                    break;
                }
                out.extend(site.polls.pop_front().map(|(_, reply)| (reply, orders)));
            }
        }
        out
    }

    /// Polls whose time is over.
    pub fn take_expired_polls(&mut self, now: Time) -> Vec<R> {
        let mut over = Vec::new();
        for site in self.0.values_mut() {
            while site.polls.front().is_some_and(|(until, _)| *until <= now) {
                over.extend(site.polls.pop_front().map(|(_, reply)| reply));
            }
        }
        over
    }

    /// When the time of the next poll is over.
    pub fn next_expiry(&self) -> Option<Time> {
        self.0.values().filter_map(|site| site.polls.front()).map(|(until, _)| *until).min()
    }

    /// All polls.
    pub fn take_polls(&mut self) -> Vec<R> {
        self.0.values_mut().flat_map(|site| site.polls.drain(..)).map(|(_, reply)| reply).collect()
    }

    fn entry(&mut self, name: &SiteName, now: Time) -> Option<&mut Site<R>> {
        if !self.0.contains_key(name) {
            if self.0.len() >= SITES_MAX {
                return None;
            }
            let (queue, polls) = (Queue::default(), VecDeque::new());
            let site = Site { runtime: None, lack: None, heard: now, told: Time::ZERO, queue, polls };
            self.0.insert(name.clone(), site);
        }
        self.0.get_mut(name)
    }

    fn forget_lost(&mut self, now: Time) {
        self.0.retain(|_, site| !site.polls.is_empty() || now < site.heard.after(SITE_LOST_AFTER));
    }
}

impl Queue {
    /// Takes what waits longest, up to a bound.
    fn take(&mut self, now: Time) -> Orders {
        let mut orders = Vec::new();
        while orders.len() < ORDERS_AT_ONCE_MAX
            && let Some((_, (pool, subject, effect))) = self.waiting.pop_first()
        {
            self.places.remove(&(pool.clone(), subject));
            if until(&effect).is_none_or(|until| now < until) {
                orders.push((pool, effect));
            }
        }
        orders
    }
}

fn subject(effect: &Effect) -> Subject {
    match effect {
        Effect::Reserve(ask) => Subject::Reserve(ask.client.clone(), ask.token),
        Effect::Release(ask) => Subject::Release(ask.client.clone(), ask.token),
        Effect::Check(ask) => Subject::Check(ask.client.clone(), ask.token),
        Effect::Create(make) | Effect::Restart(make) => Subject::Worker(make.step.worker),
        Effect::Await(order) | Effect::Stop(order) | Effect::Remove(order) => Subject::Worker(order.step.worker),
        Effect::RemoveUnknown { labels, .. } => Subject::Unknown(labels.worker, labels.generation),
        Effect::List { .. } => Subject::List,
    }
}

const fn until(effect: &Effect) -> Option<Time> {
    match effect {
        Effect::Reserve(ask) | Effect::Release(ask) | Effect::Check(ask) => Some(ask.until),
        Effect::Create(make) | Effect::Restart(make) => Some(make.until),
        Effect::Await(order) | Effect::Stop(order) | Effect::Remove(order) => Some(order.until),
        Effect::RemoveUnknown { .. } | Effect::List { .. } => None,
    }
}

#[cfg(test)]
#[path = "orders_tests.rs"]
mod tests;
