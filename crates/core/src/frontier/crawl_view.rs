//! A crawl as one shard sees it: its counts, what keeps it from being finished, and which limit holds its URLs back.

use super::state::{Crawl, Host, State};
use super::view::{Counts, CrawlView};
use crate::ids::CrawlNo;
use crate::time::Time;

impl State {
    /// A crawl as this shard knows it.
    #[must_use]
    pub fn crawl_view(&self, name: &str) -> Option<CrawlView> {
        let no = *self.crawl_by_name.get(name)?;
        let mut view = self.view_crawl(no)?;
        view.waits_for = self.waits_for(no, self.crawl_of(no)?);
        if view.waits_for.is_none() {
            // All that could become due is done: what is queued is so behind a limit.
            view.over_limit = view.counts.queued;
            let mut held_back = None;
            if view.over_limit > 0 && view.limit_reached.is_none() {
                let queues = self.hosts.iter_from(0).flat_map(|(_, host)| host.queues.iter().map(move |q| (host, q)));
                let full = queues.filter(|(_, queue)| queue.crawl == no && queue.head() != Time::NEVER);
                held_back = full.filter_map(|(host, queue)| self.held_back(host, queue)).next();
            }
            view.limit_reached = view.limit_reached.or(held_back);
            let hosts = self.hosts.iter_from(0).filter(|(_, host)| host.queues.iter().any(|queue| queue.crawl == no));
            view.last_visit_at = hosts.filter_map(|(_, host)| self.last_visit(host.group)).max();
        }
        Some(view)
    }

    /// A crawl by what is counted: nothing is looked through, so that many can be listed.
    fn view_crawl(&self, no: CrawlNo) -> Option<CrawlView> {
        let crawl = self.crawl_of(no)?;
        let left = crawl.counts.scheduled();
        Some(CrawlView {
            crawl: crawl.name.clone(),
            settings: crawl.settings,
            counts: crawl.counts,
            queues: crawl.queues,
            active_queues: crawl.active_queues,
            waits_for: (left > 0).then(|| format!("{left} URLs are queued or handed out")),
            last_visit_at: None,
            over_limit: 0,
            limit_reached: crawl.limit_reached().filter(|_| self.is_spent(no)),
        })
    }

    /// What keeps a crawl from being finished here: URLs that are handed out, or a queue that can still hand some out. A
    /// pause does not finish a crawl, as it ends one day; a limit does.
    fn waits_for(&self, no: CrawlNo, crawl: &Crawl) -> Option<String> {
        let Counts { queued, reserved, .. } = crawl.counts;
        if reserved > 0 {
            return Some(format!("{reserved} URLs are handed out"));
        }
        if queued == 0 || self.is_spent(no) {
            return None;
        }
        let mut full = hashbrown::HashMap::new();
        let mut open = |host: &Host| {
            self.host_chance(host, no)?;
            if *full.entry(host.group).or_insert_with(|| self.group_room(host.group, no) == Some(0)) {
                return None;
            }
            let paused = host.is_paused() || self.groups[host.group].is_paused() || crawl.settings.paused;
            let state = if paused { "and paused" } else { "and not done" };
            Some(format!("URLs are queued {state}, among others at host '{}'", host.name))
        };
        self.hosts.iter_from(0).find_map(|(_, host)| open(host))
    }

    /// All crawls as this shard knows them.
    #[must_use]
    pub fn crawl_views(&self) -> Vec<CrawlView> {
        self.crawls.keys().filter_map(|no| self.view_crawl(*no)).collect()
    }
}

impl Crawl {
    /// How its limit of pages is used up.
    pub(super) fn limit_reached(&self) -> Option<String> {
        let (name, limit) = (&self.name, self.settings.limits.pages?);
        Some(match self.counts.reserved + self.elsewhere.reserved {
            0 => format!("crawl '{name}' has reached its limit of {limit} pages"),
            out => format!("all that its limit of {limit} pages leaves to crawl '{name}' is handed out ({out})"),
        })
    }
}
