//! Whose turn it is among the crawls of a shard: stride scheduling over all crawls that have a ready group, whether or not
//! they share hosts. Every crawl has a virtual time, its pass, which a visit moves on by 1 / weight; the lowest goes first.
//! A crawl that comes back does not catch up for the time that it was away. A crawl that a limit has closed has no turn.
//!
//! It knows no groups and no hosts: the schedule tells it how many slots of a crawl are ready.

use std::collections::BTreeSet;

use hashbrown::HashMap;

use crate::ids::CrawlNo;
use crate::time::Time;

/// What one visit of a crawl with weight 1 takes, in virtual time.
pub(super) const STRIDE: u64 = 1 << 20;

/// A crawl in the order of turns.
#[derive(Clone, Copy, Debug, Default)]
struct Line {
    pass: u64,
    /// Since when its oldest slot was ready when it was last put in order: it breaks ties.
    since: Time,
    ready: usize,
    closed: bool,
}

/// The order of turns.
#[derive(Default)]
pub(super) struct Turns {
    lines: HashMap<CrawlNo, Line>,
    /// Crawls that are open and have a ready slot.
    order: BTreeSet<(u64, Time, CrawlNo)>,
    /// The pass of the crawl that was served last, when it was: others that come back begin here.
    now: u64,
    /// Virtual time that visits took since somebody last asked, by crawl.
    charged: Vec<(CrawlNo, u64)>,
}

impl Turns {
    /// One slot more of a crawl is ready, since a time.
    pub fn add(&mut self, crawl: CrawlNo, since: Time) {
        let line = self.lines.entry(crawl).or_default();
        line.ready += 1;
        if line.ready == 1 {
            line.pass = line.pass.max(self.now);
            line.since = since;
            if !line.closed {
                self.order.insert((line.pass, line.since, crawl));
            }
        }
    }

    /// One slot of a crawl is no longer ready.
    pub fn remove(&mut self, crawl: CrawlNo) {
        if let Some(line) = self.lines.get_mut(&crawl) {
            line.ready = line.ready.saturating_sub(1);
            if line.ready == 0 {
                self.order.remove(&(line.pass, line.since, crawl));
            }
        }
    }

    /// A visit of a crawl was planned. `since` is when the slot became ready that is its oldest now.
    pub fn charge(&mut self, crawl: CrawlNo, stride: u64, since: Time) {
        let line = self.lines.entry(crawl).or_default();
        let ordered = self.order.remove(&(line.pass, line.since, crawl));
        self.now = self.now.max(line.pass);
        line.pass += stride;
        line.since = since;
        if ordered {
            self.order.insert((line.pass, line.since, crawl));
        }
        match self.charged.last_mut() {
            Some((last, sum)) if *last == crawl => *sum += stride,
            _ => self.charged.push((crawl, stride)),
        }
    }

    /// Puts a crawl where all shards together have brought it.
    pub fn set_pass(&mut self, crawl: CrawlNo, pass: u64) {
        let line = self.lines.entry(crawl).or_default();
        let ordered = self.order.remove(&(line.pass, line.since, crawl));
        line.pass = pass;
        if ordered {
            self.order.insert((line.pass, line.since, crawl));
        }
    }

    /// The virtual time that visits took since this was last asked.
    pub fn take_charged(&mut self) -> Vec<(CrawlNo, u64)> {
        std::mem::take(&mut self.charged)
    }

    /// Lets a crawl have turns, or not. Says how many slots of it are ready if that is a change.
    pub fn set_closed(&mut self, crawl: CrawlNo, closed: bool) -> Option<usize> {
        if !closed && !self.is_closed(crawl) {
            return None;
        }
        let line = self.lines.entry(crawl).or_default();
        if std::mem::replace(&mut line.closed, closed) == closed {
            return None;
        }
        if line.ready > 0 {
            if closed {
                self.order.remove(&(line.pass, line.since, crawl));
            } else {
                line.pass = line.pass.max(self.now);
                self.order.insert((line.pass, line.since, crawl));
            }
        }
        Some(line.ready)
    }

    pub fn has_ready(&self, crawl: CrawlNo) -> bool {
        self.lines.get(&crawl).is_some_and(|line| line.ready > 0)
    }

    pub fn is_closed(&self, crawl: CrawlNo) -> bool {
        self.lines.get(&crawl).is_some_and(|line| line.closed)
    }

    /// The crawls whose turn it is, the first one first.
    pub fn in_order(&self) -> impl Iterator<Item = CrawlNo> {
        self.order.iter().map(|(_, _, crawl)| *crawl)
    }

    /// Forgets a crawl that is no more.
    pub fn forget(&mut self, crawl: CrawlNo) {
        if let Some(line) = self.lines.remove(&crawl) {
            self.order.remove(&(line.pass, line.since, crawl));
        }
    }
}
