//! Chunks on offer to crawlers, in the order of their next check: a chunk that may not go yet is looked at again when
//! its groups may be ready, so that it never hides another one.

use std::collections::BTreeSet;

use hashbrown::HashMap;

use super::row::ChunkRow;
use crate::ids::ChunkId;
use crate::names::{CrawlName, HostName};
use crate::time::Time;

type Queue = BTreeSet<(Time, ChunkId)>;

/// Offered chunks.
#[derive(Default)]
pub(super) struct Offers {
    /// When each is looked at next.
    looks: HashMap<ChunkId, Time>,
    every: Queue,
    /// Without those of one host.
    general: Queue,
    of_crawl: HashMap<CrawlName, Queue>,
    /// Chunks of one host: only a crawler that asks for the host and the crawl gets them.
    of_host: HashMap<(HostName, CrawlName), Queue>,
    /// Offers up to this time have been announced.
    announced: Time,
}

impl Offers {
    pub fn len(&self) -> usize {
        self.looks.len()
    }

    pub fn add(&mut self, chunk: &ChunkRow) {
        self.put(chunk, chunk.since);
    }

    fn put(&mut self, chunk: &ChunkRow, at: Time) {
        self.looks.insert(chunk.id, at);
        let entry = (at, chunk.id);
        self.every.insert(entry);
        match &chunk.host {
            Some(host) => {
                self.of_host.entry((host.clone(), chunk.crawl.clone())).or_default().insert(entry);
            }
            None => {
                self.general.insert(entry);
                self.of_crawl.entry(chunk.crawl.clone()).or_default().insert(entry);
            }
        }
    }

    pub fn remove(&mut self, chunk: &ChunkRow) {
        let Some(at) = self.looks.remove(&chunk.id) else { return };
        let entry = (at, chunk.id);
        self.every.remove(&entry);
        match &chunk.host {
            Some(host) => take_out(&mut self.of_host, &(host.clone(), chunk.crawl.clone()), &entry),
            None => {
                self.general.remove(&entry);
                take_out(&mut self.of_crawl, &chunk.crawl, &entry);
            }
        }
    }

    /// Looks at a chunk again at `at`, not before.
    pub fn look_at(&mut self, chunk: &ChunkRow, at: Time) {
        self.remove(chunk);
        self.put(chunk, at);
    }

    /// The first chunk that may be looked at now.
    pub fn first(&self, crawl: Option<&CrawlName>, host: Option<&HostName>, now: Time) -> Option<ChunkId> {
        let queue = match (host, crawl) {
            (Some(host), crawl) => self.of_host.get(&(host.clone(), crawl?.clone()))?,
            (None, Some(crawl)) => self.of_crawl.get(crawl)?,
            (None, None) => &self.general,
        };
        queue.first().filter(|(at, _)| *at <= now).map(|(_, id)| *id)
    }

    /// When the first that any crawler may have is looked at.
    pub fn first_look(&self) -> Option<Time> {
        self.general.first().map(|(at, _)| *at)
    }

    /// When the next one that was not announced may be looked at.
    pub fn next_look(&self) -> Option<Time> {
        self.unannounced().next().map(|(at, _)| *at)
    }

    fn unannounced(&self) -> impl Iterator<Item = &(Time, ChunkId)> {
        self.every.range((self.announced.after(crate::time::Millis(1)), ChunkId(0))..)
    }

    /// Announces those that may be looked at now and could not at the last call.
    pub fn announce(&mut self, now: Time, mut publish: impl FnMut(ChunkId)) {
        self.unannounced().take_while(|(at, _)| *at <= now).for_each(|(_, id)| publish(*id));
        self.announced = self.announced.max(now);
    }
}

fn take_out<K: std::hash::Hash + Eq>(queues: &mut HashMap<K, Queue>, key: &K, entry: &(Time, ChunkId)) {
    if let Some(queue) = queues.get_mut(key) {
        queue.remove(entry);
        if queue.is_empty() {
            queues.remove(key);
        }
    }
}
