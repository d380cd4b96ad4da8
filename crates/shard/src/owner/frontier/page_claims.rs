//! Pages of the crawls that visits are planned of: claimed before their URLs are taken, and settled when the visits are
//! decided. They come from the budget of the process or, where several nodes share the store, from the shard's grants.

use std::collections::BTreeMap;

use wayleave_core::frontier::page_limits::PageLimit;
use wayleave_core::frontier::visit::Visit;
use wayleave_core::ids::CrawlNo;
use wayleave_core::names::CrawlName;
use wayleave_engine::Error;

use crate::owner::frontier::Frontier;
use crate::owner::port::Port;
use crate::shared::page_budget::Taker;

/// Pages claimed for visits that are planned.
pub(crate) struct Claim {
    limit: PageLimit,
    pages: u64,
}

impl Frontier {
    /// Claims pages for the crawls that visits are planned of, up to `urls` for each visit. They must be returned once the
    /// visits are decided. Fails if pages had to be drawn from a ledger and the store failed.
    pub async fn claim_pages(&mut self, visits: &[Visit], urls: usize, port: &mut Port) -> Result<Vec<Claim>, Error> {
        let mut claims = Vec::new();
        if !self.state.has_limited() {
            return Ok(claims);
        }
        let mut planned: BTreeMap<CrawlNo, usize> = BTreeMap::new();
        visits.iter().for_each(|visit| *planned.entry(visit.crawl()).or_default() += 1);
        for (crawl, visits) in planned {
            claims.extend(self.claim_pages_of(crawl, visits.saturating_mul(urls.max(1)), port).await?);
        }
        Ok(claims)
    }

    /// Claims up to `wanted` pages of a crawl, if it has a page limit. Fails if pages had to be drawn from a ledger and
    /// the store failed.
    pub async fn claim_pages_of(
        &mut self,
        crawl: CrawlNo,
        wanted: usize,
        port: &mut Port,
    ) -> Result<Option<Claim>, Error> {
        let Some(limit) = self.state.page_limit_of(crawl) else { return Ok(None) };
        let pages = match self.page_grants {
            Some(_) => self.draw_pages(&limit, wanted as u64, port).await?,
            None => port.readiness.pages.claim(taker(&limit, port), wanted as u64),
        };
        self.state.allow_pages(crawl, pages);
        Ok(Some(Claim { limit, pages }))
    }

    /// The visits are decided: returns what was claimed and not taken.
    pub fn return_pages(&mut self, claims: Vec<Claim>, port: &mut Port) {
        let now = port.engine.now();
        for Claim { mut limit, pages } in claims {
            let before = std::mem::replace(&mut limit.used, self.state.pages_used(limit.crawl));
            if let Some(grants) = &mut self.page_grants {
                grants.took(limit.crawl, limit.used.saturating_sub(before), now);
            }
            self.publish_pages(&limit, pages, port);
        }
    }

    /// Publishes this shard's use of a limit, and learns that of the others.
    pub fn publish_pages(&mut self, limit: &PageLimit, claimed: u64, port: &mut Port) {
        if let Some(grants) = &self.page_grants {
            return self.state.set_used_elsewhere(limit.crawl, grants.used_elsewhere(limit));
        }
        let before = self.pages_taken.insert(limit.crawl, limit.clone()).map_or(0, |before| before.used);
        let more = limit.used.saturating_sub(before);
        let others = port.readiness.pages.settle(taker(limit, port), more, claimed);
        self.state.set_used_elsewhere(limit.crawl, others);
        let back = before.saturating_sub(limit.used);
        if back > 0 {
            give_back(limit.name.clone(), limit.limit, back, port);
        }
    }

    /// A crawl has no page limit any more, or is gone. What it has used is to be had by shards that have not heard of that yet.
    pub fn forget_pages(&mut self, no: CrawlNo, port: &mut Port) {
        self.page_grants.iter_mut().for_each(|grants| grants.remove(no));
        if let Some(PageLimit { name, used, .. }) = self.pages_taken.remove(&no) {
            give_back(name, u64::MAX, used, port);
        }
    }
}

/// Gives pages back as soon as what was decided is durable.
fn give_back(crawl: CrawlName, limit: u64, pages: u64, port: &mut Port) {
    let (readiness, shard) = (port.readiness.clone(), port.shard);
    let give_back = move |durable: Result<(), _>| {
        if durable.is_ok() {
            readiness.pages.give_back(Taker { crawl: &crawl, shard, limit }, pages);
        }
    };
    port.cycle.answer(port.cycle.mark(), Box::new(give_back));
}

fn taker<'a>(limit: &'a PageLimit, port: &Port) -> Taker<'a> {
    Taker { crawl: &limit.name, shard: port.shard, limit: limit.limit }
}
