//! Self-check: recounts everything from scratch for the invariant checks. It walks the whole shard.

use super::row::Link;
use super::slab::Ix;
use super::state::State;
use super::view::Counts;
use crate::ids::CrawlNo;
use crate::invariants::{Audit, CrawlAudit, LeaseAudit};
use crate::time::Time;

impl State {
    /// Recounts everything at `now`.
    #[must_use]
    pub fn audit(&self, now: Time) -> Audit {
        let mut recounted = Counts::default();
        self.hosts.iter().flat_map(|(_, host)| &host.queues).for_each(|q| recounted.add(&q.counts()));
        Audit {
            totals: (self.totals, recounted),
            crawls: self.crawls.keys().filter_map(|no| self.audit_crawl(*no)).collect(),
            leases: self.audit_leases(),
            stray_tokens: self.stray_tokens(),
            misplaced: self.misplaced(now),
            standings: self.host_views(now).map(|view| (view.host, view.standing)).collect(),
        }
    }

    fn audit_crawl(&self, no: CrawlNo) -> Option<CrawlAudit> {
        let crawl = self.crawl_of(no)?;
        let mut recounted = (Counts::default(), 0, 0, 0);
        for queue in self.hosts.iter().flat_map(|(_, host)| &host.queues).filter(|q| q.crawl == no) {
            recounted.0.add(&queue.counts());
            recounted.1 += 1;
            recounted.2 += u64::from(queue.counts().scheduled() > 0);
            recounted.3 += u64::from(queue.pages);
        }
        let kept = (crawl.counts, crawl.queues, crawl.active_queues, crawl.pages);
        Some(CrawlAudit { crawl: crawl.name.clone(), kept, recounted })
    }

    fn audit_leases(&self) -> Vec<LeaseAudit> {
        let mut leases: Vec<LeaseAudit> = self
            .leases
            .values()
            .map(|lease| {
                let group = self.hosts.by_id(lease.host).map(|host| self.hosts[host].group);
                let counted = group.is_some_and(|g| self.groups[g].leases.contains(&lease.token));
                let idle = self.idle_links.get(&lease.host).is_some_and(|links| links.contains(&lease.token));
                LeaseAudit {
                    token: lease.token,
                    granted_at: lease.granted_at,
                    expires_at: lease.expires_at,
                    in_group: match lease.link {
                        Some(Link { visiting: false, .. }) => idle && !counted,
                        _ => counted && !idle,
                    },
                    // A link ends with its chunk.
                    in_line: lease.link.is_some() || self.lease_ends.contains(&(lease.expires_at, lease.token)),
                    link: lease.link,
                }
            })
            .collect();
        leases.sort_unstable_by_key(|lease| lease.token);
        leases
    }

    fn stray_tokens(&self) -> usize {
        let in_groups = self.groups.iter().flat_map(|(_, group)| &group.leases);
        let in_line = self.lease_ends.iter().map(|(_, token)| token);
        let idle = self.idle_links.values().flatten();
        in_groups.chain(in_line).chain(idle).filter(|token| !self.leases.contains_key(*token)).count()
    }

    fn misplaced(&self, now: Time) -> Vec<String> {
        let entries = self.groups.iter().flat_map(|(ix, group)| group.entries.iter().map(move |entry| (ix, *entry)));
        entries.filter_map(|(group, entry)| self.misplaced_entry(group, entry, now)).collect()
    }

    fn misplaced_entry(&self, group: Ix, entry: Ix, now: Time) -> Option<String> {
        let crawl = self.schedule.entries[entry].crawl;
        let want = self.opportunity(group, crawl).map(|opportunity| opportunity.at).filter(|at| *at != Time::NEVER);
        let is = self.schedule.state_of(entry);
        let fits = match (want, is) {
            (None, None) => true,
            (Some(_), None) | (None, Some(_)) => false,
            (Some(want), Some((at, ready))) => want == at && (!ready || at <= now),
        };
        (!fits).then(|| format!("group '{}', crawl {crawl:?}: wants {want:?}, is {is:?}", self.group_name(group)))
    }
}
