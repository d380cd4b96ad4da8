//! Effects waiting for Makers: a bounded queue per site.
//!
//! A repeated order replaces its earlier copy in place. Orders beyond the bound are dropped, and expired orders are not
//! handed out; the core repeats what still matters.

use std::collections::BTreeMap;

use hashbrown::HashMap;
use wayleave_core::ids::Token;
use wayleave_core::limits::{
    ORDERS_AT_ONCE_MAX, ORDERS_WAITING_MAX, SITE_LOST_AFTER, SITE_SILENT_AFTER, SITES_EVERY, SITES_MAX,
};
use wayleave_core::matches::{Effect, Lack, RuntimeKind, WorkerNo};
use wayleave_core::names::{ClientName, PoolName, SiteName};
use wayleave_core::time::Time;

use crate::matches::Orders;
use crate::routing::router::digest;

/// The sites of a shard.
#[derive(Default)]
pub(super) struct Sites {
    sites: BTreeMap<SiteName, Site>,
    /// Orders were added or taken.
    changed: bool,
}

struct Site {
    /// None until its Maker is heard: what is ordered before waits.
    runtime: Option<RuntimeKind>,
    /// What its node should be able to start besides, and cannot.
    lack: Option<Lack>,
    /// When its Maker was last heard, or the first order came.
    heard: Time,
    /// When pools were last told of it.
    told: Time,
    queue: Queue,
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

impl Sites {
    /// Whether a site of this name is there with another runtime.
    pub fn is_other(&self, site: &SiteName, runtime: RuntimeKind, now: Time) -> bool {
        let known = self.sites.get(site).filter(|site| now < site.heard.after(SITE_SILENT_AFTER));
        known.and_then(|site| site.runtime).is_some_and(|known| known != runtime)
    }

    /// A site is there. Returns whether pools must be told that it is there. What its node lacks is told with that: nodes that
    /// share a site may lack different things, and pools are not told each time.
    pub fn heard(&mut self, site: &SiteName, runtime: RuntimeKind, lack: Option<&Lack>, now: Time) -> bool {
        self.forget_lost(now);
        let Some(site) = self.entry(site, now) else { return true };
        let due = site.runtime != Some(runtime) || now >= site.told.after(SITES_EVERY);
        (site.runtime, site.lack, site.heard) = (Some(runtime), lack.cloned(), now);
        if due {
            site.told = now;
        }
        due
    }

    /// Sites whose Makers are heard.
    pub fn alive(&self, now: Time) -> Vec<(SiteName, RuntimeKind, Option<Lack>)> {
        let alive = self.sites.iter().filter(|(_, site)| now < site.heard.after(SITE_SILENT_AFTER));
        alive.filter_map(|(name, site)| Some((name.clone(), site.runtime?, site.lack.clone()))).collect()
    }

    /// Queues an effect for its site.
    pub fn order(&mut self, pool: &PoolName, effect: Effect, now: Time) {
        let (name, subject) = (effect.site().clone(), subject(&effect));
        self.changed = true;
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

    /// Takes what waits for a site, up to a bound.
    pub fn take(&mut self, site: &SiteName, now: Time) -> Orders {
        let Some(site) = self.sites.get_mut(site).filter(|site| !site.queue.waiting.is_empty()) else {
            return Orders::new();
        };
        self.changed = true;
        site.queue.take(now)
    }

    /// Digests of the sites for which orders wait, if that has changed or orders were added.
    pub fn take_changed(&mut self) -> Option<Vec<u64>> {
        let wait = |site: &&SiteName| self.sites.get(*site).is_some_and(|site| !site.queue.waiting.is_empty());
        std::mem::take(&mut self.changed).then(|| self.sites.keys().filter(wait).map(|site| digest(site)).collect())
    }

    fn entry(&mut self, name: &SiteName, now: Time) -> Option<&mut Site> {
        if !self.sites.contains_key(name) {
            if self.sites.len() >= SITES_MAX {
                return None;
            }
            let site = Site { runtime: None, lack: None, heard: now, told: Time::ZERO, queue: Queue::default() };
            self.sites.insert(name.clone(), site);
        }
        self.sites.get_mut(name)
    }

    fn forget_lost(&mut self, now: Time) {
        self.sites.retain(|_, site| now < site.heard.after(SITE_LOST_AFTER));
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
