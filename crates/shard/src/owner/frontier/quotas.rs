//! The hosts and crawls of this shard, as they count against the limits of the process and of the store.

use wayleave_core::frontier::HostRoom;
use wayleave_core::frontier::put::hosts_full;
use wayleave_core::frontier::refusal::Refusal;
use wayleave_core::names::CrawlName;

use crate::owner::frontier::Frontier;
use crate::owner::port::Port;

impl Frontier {
    /// Publishes the number of hosts of this shard.
    pub fn count_hosts(&mut self, port: &Port) {
        let hosts = self.state.host_count() as u64;
        port.readiness.hosts.change(self.hosts_counted, hosts);
        self.hosts_counted = hosts;
        self.state.set_host_room(None);
    }

    /// Claims room for up to `wanted` new hosts, until [`Frontier::count_hosts`] is called.
    pub fn claim_hosts(&mut self, wanted: usize, port: &Port) {
        let limit = port.config.hosts_max;
        let left = port.readiness.hosts.claim(wanted as u64, limit);
        self.hosts_counted += left;
        self.state.set_host_room(Some(HostRoom { left, limit }));
    }

    /// Refuses to create hosts for which there is no room.
    pub fn refuse_hosts<'a>(&self, mut hosts: impl Iterator<Item = &'a str>, port: &Port) -> Option<Refusal> {
        let limit = port.config.hosts_max;
        let first = hosts.find(|host| self.state.host_id(host).is_none())?;
        let new = 1 + hosts.filter(|host| self.state.host_id(host).is_none()).count() as u64;
        let full = !port.readiness.hosts.has_room(new, limit);
        full.then(|| Refusal::HostsFull(hosts_full(first, limit)))
    }

    /// Publishes which crawls this shard has.
    pub fn count_crawls(&mut self, port: &Port) {
        let mut told = false;
        for (crawl, is_here) in self.state.take_crawls_changed() {
            told |= port.readiness.crawl_count.note(&crawl, is_here);
        }
        if told {
            port.readiness.tell_others();
        }
    }

    /// Refuses to create a crawl for which the store has no room.
    pub fn refuse_crawl(&self, crawl: &CrawlName, port: &Port) -> Option<Refusal> {
        let is_new = self.state.crawl_no(crawl).is_none();
        let full = if is_new { port.readiness.crawl_count.full(crawl) } else { None };
        full.map(Refusal::CrawlsFull)
    }

    /// The owner ends: the next one counts again.
    pub fn discount(&mut self, port: &Port) {
        port.readiness.hosts.change(self.hosts_counted, 0);
        self.count_crawls(port);
        self.state.crawl_names().for_each(|crawl| _ = port.readiness.crawl_count.note(crawl, false));
    }
}
