//! Limits over all shards, as one owner takes part in them. After each turn it publishes the counts of the crawls that
//! changed in that turn, before the turn's answers are sent: a caller who is answered finds its changes counted everywhere.
//! What others count it looks up when a decision or an answer rests on it. A crawl that nothing happens to costs nothing.

use std::collections::BTreeSet;

use wayleave_core::frontier::page_limits::PageLimit;
use wayleave_core::ids::CrawlNo;
use wayleave_core::names::CrawlName;

use crate::ask::StateQuery;
use crate::owner::frontier::Frontier;
use crate::owner::port::Port;
use crate::shared::crawl_totals::CrawlTotals;

impl Frontier {
    /// Publishes the counts of this shard, as read from the store.
    pub fn open_limits(&mut self, port: &mut Port) {
        self.state.take_limits_changed();
        let limits: Vec<PageLimit> = self.state.page_limits().collect();
        match &mut self.page_grants {
            Some(grants) => limits.iter().for_each(|limit| grants.forget(limit.crawl)),
            None => {
                self.pages_taken = limits.iter().map(|limit| (limit.crawl, limit.clone())).collect();
                port.readiness.pages.open(port.shard, &limits);
            }
        }
        let counts = |no| self.state.limited_counts(no).map(|(name, urls, hosts)| (no, name.clone(), urls, hosts));
        let parts: Vec<_> = self.state.limited().filter_map(counts).collect();
        self.limited = parts.iter().map(|(no, name, ..)| (*no, name.clone())).collect();
        let totals = |(_, name, urls, hosts)| (name, CrawlTotals { urls, hosts, ..CrawlTotals::default() });
        let parts: Vec<_> = parts.into_iter().map(totals).collect();
        port.readiness.pages.tell_all(&port.readiness.totals.open(port.shard, &parts));
        port.readiness.tell_others();
        for limit in limits {
            self.plan_pages(&limit, port);
            self.publish_pages(&limit, 0, port);
        }
        self.expect_ledgers(port);
    }

    /// Publishes the counts of the crawls that changed, and plans when their pages are looked at next.
    pub fn share_limits(&mut self, port: &mut Port) {
        let mut changed = self.state.take_limits_changed();
        self.page_grants.iter_mut().for_each(|grants| changed.append(&mut grants.take_changed()));
        for no in changed {
            let counts = self.state.limited_counts(no).map(|(name, urls, hosts)| (name.clone(), urls, hosts));
            let limit = self.state.page_limit_of(no);
            match &limit {
                Some(limit) => {
                    self.publish_pages(limit, 0, port);
                    self.plan_pages(limit, port);
                }
                None => self.forget_pages(no, port),
            }
            let Some((name, urls, hosts)) = counts else {
                let gone = self.limited.remove(&no);
                gone.into_iter().for_each(|name| share(&name, None, port));
                continue;
            };
            let mut totals = CrawlTotals { urls, hosts, ..CrawlTotals::default() };
            if let (Some(grants), Some(limit)) = (&self.page_grants, &limit) {
                grants.publish(limit, &mut totals);
            }
            share(&name, Some(totals), port);
            self.limited.insert(no, name);
        }
    }

    /// Learns what the other shards count for some crawls.
    pub fn learn_limits(&mut self, crawls: impl IntoIterator<Item = CrawlNo>, port: &mut Port) {
        for no in crawls {
            let Some((name, ..)) = self.state.limited_counts(no) else { continue };
            let others = port.readiness.totals.others(name, port.shard);
            self.state.set_elsewhere(no, others.urls, others.hosts);
            if let Some(limit) = self.state.page_limit_of(no) {
                self.publish_pages(&limit, 0, port);
            }
        }
    }

    /// The same for crawls by name, of which each may be named many times in a row.
    pub fn learn_limits_of<'a>(&mut self, crawls: impl Iterator<Item = &'a CrawlName>, port: &mut Port) {
        if !self.state.has_limited() {
            return;
        }
        let (mut named, mut last) = (BTreeSet::new(), None);
        for crawl in crawls {
            if last != Some(crawl) {
                named.extend(self.state.crawl_no(crawl).filter(|no| self.state.is_limited(*no)));
                last = Some(crawl);
            }
        }
        self.learn_limits(named, port);
    }

    /// Learns what the answer to a query rests on.
    pub fn learn_for(&mut self, query: &StateQuery, port: &mut Port) {
        let crawls: Vec<CrawlNo> = match query {
            StateQuery::Crawl(crawl) | StateQuery::ScanCrawl { crawl, .. } => {
                self.state.crawl_no(crawl).into_iter().collect()
            }
            StateQuery::Host(host) => {
                let host = self.state.host_id(host).and_then(|id| self.state.host_by_id(id));
                host.into_iter().flat_map(|host| host.queues).map(|queue| queue.crawl).collect()
            }
            StateQuery::Hosts { .. } | StateQuery::Groups { .. } | StateQuery::Group(_) | StateQuery::Crawls { .. } => {
                self.state.limited().collect()
            }
            _ => Vec::new(),
        };
        self.learn_limits(crawls, port);
    }
}

fn share(crawl: &CrawlName, totals: Option<CrawlTotals>, port: &Port) {
    let (changed, looking) = port.readiness.totals.set(crawl, port.shard, totals);
    port.readiness.pages.tell(crawl, &looking);
    if changed {
        port.readiness.tell_others();
    }
}
