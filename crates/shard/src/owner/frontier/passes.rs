//! Stride scheduling of crawls, as one shard takes part in it; see `shared::crawl_passes`.

use std::sync::atomic::Ordering;

use wayleave_core::ids::CrawlNo;
use wayleave_core::limits::{PUBLISHED_CRAWLS_MAX, REORDERED_CRAWLS_MAX};

use crate::owner::frontier::Frontier;
use crate::owner::port::Port;
use crate::shared::crawl_passes::Pass;

impl Frontier {
    /// Loads the process-wide passes of the crawls ready here, before a visit of any crawl is planned.
    pub fn load_passes(&mut self, port: &Port) {
        let ready = self.state.crawls_in_order(REORDERED_CRAWLS_MAX);
        if ready.len() < 2 || ready.len() == REORDERED_CRAWLS_MAX {
            return;
        }
        let now = port.readiness.passes.now.load(Ordering::Acquire);
        for crawl in ready {
            let pass = self.pass_of(crawl, port);
            let before = pass.fetch_max(now, Ordering::AcqRel);
            self.state.set_pass(crawl, before.max(now));
        }
    }

    /// Publishes the strides of the visits planned here.
    pub fn publish_passes(&mut self, port: &Port) {
        for (crawl, stride) in self.state.take_charged() {
            let pass = self.pass_of(crawl, port);
            let before = pass.fetch_add(stride, Ordering::AcqRel);
            port.readiness.passes.now.fetch_max(before, Ordering::AcqRel);
        }
    }

    /// Publishes which crawls are next here. Other shards may advance their passes, so naming only the first is not
    /// enough.
    pub fn publish_next(&mut self, port: &Port) {
        self.load_passes(port);
        let next = self.state.crawls_in_order(PUBLISHED_CRAWLS_MAX);
        let next = next.into_iter().map(|crawl| self.pass_of(crawl, port)).collect();
        port.readiness.set_next(port.shard, next);
    }

    fn pass_of(&mut self, crawl: CrawlNo, port: &Port) -> Pass {
        if let Some(pass) = self.passes.get(&crawl) {
            return pass.clone();
        }
        // Deleted crawls no longer have a name.
        self.passes.retain(|no, _| self.state.crawl_name(*no).is_some());
        // Hosts queued by themselves are scheduled like a crawl without a name.
        let name = self.state.crawl_name(crawl).cloned().unwrap_or_default();
        let pass = port.readiness.passes.of(&name);
        self.passes.insert(crawl, pass.clone());
        pass
    }
}
