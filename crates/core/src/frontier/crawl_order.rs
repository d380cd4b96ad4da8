//! Stride scheduling of the crawls of a shard, over all crawls that have a ready group, whether or not they share
//! hosts. Every crawl has a virtual time, its pass, which each visit advances by 1 / weight; the lowest pass is served
//! first. A returning crawl does not catch up for the time it was absent. A crawl closed by a limit is not scheduled.
//!
//! This module knows neither groups nor hosts: the schedule reports how many entries of a crawl are ready.

use std::collections::BTreeSet;

use hashbrown::HashMap;

use crate::ids::CrawlNo;
use crate::time::Time;

/// Virtual time of one visit of a crawl with weight 1.
pub(super) const STRIDE: u64 = 1 << 20;

/// A crawl's scheduling state.
#[derive(Clone, Copy, Debug, Default)]
struct Line {
    pass: u64,
    /// Since when its oldest entry was ready when it was last ordered; breaks ties.
    since: Time,
    ready: usize,
    closed: bool,
}

/// The order of crawls.
#[derive(Default)]
pub(super) struct CrawlOrder {
    lines: HashMap<CrawlNo, Line>,
    /// Open crawls with a ready entry.
    order: BTreeSet<(u64, Time, CrawlNo)>,
    /// The pass of the crawl served last: returning crawls start here.
    now: u64,
    /// Virtual time consumed since the last call, by crawl.
    charged: Vec<(CrawlNo, u64)>,
}

impl CrawlOrder {
    /// An entry of a crawl became ready.
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

    /// An entry of a crawl is no longer ready.
    pub fn remove(&mut self, crawl: CrawlNo) {
        if let Some(line) = self.lines.get_mut(&crawl) {
            line.ready = line.ready.saturating_sub(1);
            if line.ready == 0 {
                self.order.remove(&(line.pass, line.since, crawl));
            }
        }
    }

    /// Charges a crawl for a planned visit. `since` is when its now oldest entry became ready.
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

    /// Sets a crawl's pass to that of all shards together.
    pub fn set_pass(&mut self, crawl: CrawlNo, pass: u64) {
        let line = self.lines.entry(crawl).or_default();
        let ordered = self.order.remove(&(line.pass, line.since, crawl));
        line.pass = pass;
        if ordered {
            self.order.insert((line.pass, line.since, crawl));
        }
    }

    /// Takes the virtual time consumed since the last call.
    pub fn take_charged(&mut self) -> Vec<(CrawlNo, u64)> {
        std::mem::take(&mut self.charged)
    }

    /// Closes or reopens a crawl. Returns the number of its ready entries if that is a change.
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

    /// How many entries of a crawl are ready; none while it is closed.
    pub fn open_entries(&self, crawl: CrawlNo) -> usize {
        self.lines.get(&crawl).filter(|line| !line.closed).map_or(0, |line| line.ready)
    }

    pub fn is_closed(&self, crawl: CrawlNo) -> bool {
        self.lines.get(&crawl).is_some_and(|line| line.closed)
    }

    /// The crawls in scheduling order.
    pub fn in_order(&self) -> impl Iterator<Item = CrawlNo> {
        self.order.iter().map(|(_, _, crawl)| *crawl)
    }

    /// Forgets a deleted crawl.
    pub fn forget(&mut self, crawl: CrawlNo) {
        if let Some(line) = self.lines.remove(&crawl) {
            self.order.remove(&(line.pass, line.since, crawl));
        }
    }
}
