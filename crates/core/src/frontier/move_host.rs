//! Moving a host between groups. The host takes along its queues, its reservations and its politeness state, which then
//! also bind the group it joins. The rows of its URLs stay where they are.

use super::refusal::Refusal;
use super::row::{CrawlRow, HostRow, HotRow, LeaseRow, Pace, QueueRow, Write};
use super::slab::Ix;
use super::state::{Crawl, Grouping, State};
use super::url_key::UrlKey;
use crate::ids::{CrawlNo, HostId, QueueId};
use crate::names::{Alias, CrawlName, HostName};
use crate::time::Time;
use serde::{Deserialize, Serialize};

/// A host on its way from one group to another.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Moving {
    /// Its name.
    pub name: HostName,
    /// Its state; `None` if the host is not known yet.
    pub luggage: Option<Luggage>,
    /// Bulk jobs that its old shard still owed it.
    pub jobs: Vec<crate::ids::Token>,
}

impl Moving {
    fn new(name: &HostName, luggage: Option<Luggage>) -> Self {
        Self { name: name.clone(), luggage, jobs: Vec::new() }
    }

    /// Its id, if it is known.
    #[must_use]
    pub fn id(&self) -> Option<HostId> {
        self.luggage.as_ref().map(|luggage| luggage.row.id)
    }
}

/// Direction of a move. One side of every move is the hosts' home shard.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Way {
    /// From their home shard into an alias.
    Into(Alias),
    /// From an alias back to their home shard.
    OutOf(Alias),
}

impl Way {
    /// The alias they join; `None` if they return home.
    #[must_use]
    pub const fn into_alias(&self) -> Option<&Alias> {
        match self {
            Self::Into(alias) => Some(alias),
            Self::OutOf(_) => None,
        }
    }
}

/// The state that a host takes along.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Luggage {
    /// The host, with the pace of the group it leaves.
    pub row: HostRow,
    /// The crawls of its queues, with the numbers used by the shard it leaves.
    pub crawls: Vec<CrawlRow>,
    /// Its live reservations.
    pub leases: Vec<LeaseRow>,
    /// Its holds of the paced form.
    pub holds: Vec<(Time, QueueId, UrlKey)>,
}

impl Luggage {
    /// Pages that count against the limits of its crawls.
    #[must_use]
    pub fn pages(&self) -> Vec<(CrawlName, u64)> {
        let name = |no: CrawlNo| self.crawls.iter().find(|crawl| crawl.no == no).map(|crawl| crawl.name.clone());
        let pages = |queue: &QueueRow| Some((name(queue.crawl)?, u64::from(queue.pages) + u64::from(queue.reserved)));
        self.row.queues.iter().filter_map(pages).filter(|(_, pages)| *pages > 0).collect()
    }
}

fn has_left(host: &HostName, alias: &Alias) -> Refusal {
    Refusal::Unavailable(format!("host '{host}' has left '{alias}' in the meantime; read the group and try again"))
}

impl State {
    /// Whether a host here may have URLs on hold, which a move must find first.
    #[must_use]
    pub fn has_holds(&self, host: &str) -> Option<HostId> {
        let host = &self.hosts[self.host_ix(host)?];
        host.queues.iter().any(|q| q.reserved > 0).then_some(host.id)
    }

    /// Whether a host may leave this shard in that direction. Fails if it lives with a different alias than the mover
    /// assumes.
    pub fn may_give(&self, host: &HostName, way: &Way) -> Result<(), Refusal> {
        self.refuse_stranded(host)?;
        match way {
            Way::Into(alias) if **host == **alias || self.group_by_alias.contains_key(&**host) => {
                Err(Refusal::NameInUse(host.to_string()))
            }
            Way::Into(alias) => match self.moved_to(host).filter(|other| *other != alias) {
                Some(other) => Err(Refusal::HostTaken { host: host.to_string(), alias: other.to_string() }),
                None => Ok(()),
            },
            Way::OutOf(alias) => {
                let lives_with = self.host_ix(host).map(|ix| self.hosts[ix].group);
                let is_member = lives_with.is_some() && lives_with == self.group_by_alias.get(alias).copied();
                if is_member { Ok(()) } else { Err(has_left(host, alias)) }
            }
        }
    }

    /// Whether a host arriving from that direction may be adopted here. Fails if it comes home from an alias that it
    /// does not live with.
    pub fn may_take(&self, host: &HostName, way: &Way) -> Result<(), Refusal> {
        match way {
            Way::OutOf(alias) if self.moved_to(host) != Some(alias) => Err(has_left(host, alias)),
            _ => Ok(()),
        }
    }

    /// Exports a host and removes it. `holds` are its holds as read from the engine.
    pub fn export(
        &mut self,
        name: &HostName,
        holds: Vec<(Time, QueueId, UrlKey)>,
        now: Time,
        writes: &mut Vec<Write>,
    ) -> Moving {
        let Some(ix) = self.host_ix(name) else { return Moving::new(name, None) };
        let group = self.hosts[ix].group;
        let mut row = self.row_of_host(ix);
        row.group = None;
        row.pace = self.groups[group].pace.clone();
        // Carry over the remaining delay, whichever crawl or setting it came from: other settings may apply at the
        // destination. A back-off is carried separately and a block stays, so that both can be lifted.
        row.pace.not_before = Some(self.rested(group)).filter(|at| *at > now).unwrap_or_default();
        let crawl = |no: CrawlNo| {
            let Crawl { name, settings, kept, version, .. } = self.crawl_of(no)?;
            Some(CrawlRow { no, name: name.clone(), settings: *settings, kept: *kept, version: *version })
        };
        let mut numbers: Vec<CrawlNo> = row.queues.iter().map(|q| q.crawl).chain([row.pace.last_crawl]).collect();
        let mine = |token: &&crate::ids::Token| self.leases.get(*token).is_some_and(|l| l.host == row.id);
        let idle = self.idle_links.get(&row.id).into_iter().flatten();
        let tokens: Vec<_> = self.groups[group].leases.iter().filter(mine).chain(idle).copied().collect();
        numbers.extend(tokens.iter().filter_map(|t| self.leases.get(t)).map(|l| l.crawl));
        numbers.sort_unstable();
        numbers.dedup();
        let crawls = numbers.into_iter().filter_map(crawl).collect();
        let mut leases: Vec<LeaseRow> = tokens.iter().filter_map(|t| self.remove_lease(*t)).map(|(l, _)| l).collect();
        writes.extend(leases.iter().map(|l| Write::Lease(l.token, None)));
        leases.iter_mut().for_each(|lease| lease.leave_chunk(now));
        writes.extend(holds.iter().map(|(until, queue, key)| Write::Hold(*until, *queue, key.clone(), false)));
        // Holds of deleted queues are no longer counted and are not needed elsewhere.
        let holds: Vec<_> = holds.into_iter().filter(|(_, queue, _)| self.find_queue(*queue).is_some()).collect();
        self.holds = self.holds.saturating_sub(holds.len() as u64);
        self.detach(ix, group, now);
        Moving::new(name, Some(Luggage { row, crawls, leases, holds }))
    }

    fn detach(&mut self, ix: Ix, group: Ix, now: Time) {
        let queues = std::mem::take(&mut self.hosts[ix].queues);
        for queue in &queues {
            self.discount(queue);
            self.damage.forget(QueueId { host: self.hosts[ix].id, no: queue.no });
        }
        if let Some(host) = self.hosts.remove(ix) {
            self.changed.others.push(HotRow::HostGone(host.id));
        }
        if let Grouping::Many(together) = &mut self.groups[group].grouping {
            together.hosts.retain(|h| *h != ix);
            self.drop_idle_entries(group);
            self.reschedule(group, now);
        } else if let Some(group) = self.groups.remove(group) {
            for entry in group.entries {
                self.schedule.remove(entry);
            }
        }
    }

    /// Adopts a host, into an alias or as a group of its own.
    pub fn adopt(&mut self, moving: Moving, alias: Option<&Alias>, now: Time, writes: &mut Vec<Write>) {
        let group = alias.map(|alias| self.ensure_group(alias));
        let Some(luggage) = moving.luggage else {
            return self.adopt_stranger(&moving.name, group);
        };
        let Luggage { mut row, crawls, leases, holds } = luggage;
        let numbers: Vec<(CrawlNo, CrawlNo)> = crawls
            .into_iter()
            .map(|row| {
                let known = self.crawl_by_name.contains_key(&row.name);
                let (there, here) = (row.no, self.ensure_crawl(&row.name));
                if let Some(crawl) = self.crawls.get_mut(&here).filter(|_| !known) {
                    (crawl.settings, crawl.kept, crawl.version) = (row.settings, row.kept, row.version);
                    self.changed.others.push(HotRow::Crawl(CrawlRow { no: here, ..row }));
                    self.note_limits(here);
                }
                (there, here)
            })
            .collect();
        // A crawl that was deleted at the source has no name, and its number may belong to another crawl here.
        let here =
            |no: CrawlNo| numbers.iter().find(|(there, _)| *there == no).map_or(CrawlNo::NONE, |(_, here)| *here);
        for queue in &mut row.queues {
            queue.crawl = here(queue.crawl);
        }
        if row.pace.last_end != Time::ZERO {
            row.pace.last_crawl = here(row.pace.last_crawl);
        }
        if let Some(group) = group {
            let own = self.rested(group);
            let pace = &mut self.groups[group].pace;
            pace.bind(&row.pace);
            pace.not_before = Some(own.max(row.pace.not_before)).filter(|at| *at > now).unwrap_or_default();
            self.touch_group(group);
        }
        let ix = self.insert_host(row, group);
        self.touch_host(ix);
        for mut lease in leases {
            lease.crawl = here(lease.crawl);
            writes.push(Write::Lease(lease.token, Some(lease.clone())));
            self.insert_lease(lease);
        }
        self.holds += holds.len() as u64;
        for (until, queue, key) in holds {
            self.next_hold = self.next_hold.min(until);
            writes.push(Write::Hold(until, queue, key, true));
        }
        self.reschedule(self.hosts[ix].group, now);
    }

    /// A host that is not known yet: an alias records it as a member; on its own it needs no row.
    fn adopt_stranger(&mut self, name: &HostName, group: Option<Ix>) {
        let (Some(group), None) = (group, self.host_ix(name)) else { return };
        let ix = self.ensure_host(name);
        let own = std::mem::replace(&mut self.hosts[ix].group, group);
        self.groups.remove(own);
        if let Grouping::Many(together) = &mut self.groups[group].grouping {
            together.hosts.push(ix);
        }
    }

    /// Records at a host's home shard that it lives with an alias, or has returned.
    pub fn set_moved(&mut self, host: &HostName, alias: Option<&Alias>) {
        match alias {
            Some(alias) => self.moved.insert(host.clone(), alias.clone()),
            None => self.moved.remove(host),
        };
        self.changed.others.push(HotRow::HostAlias { host: host.clone(), alias: alias.cloned() });
    }
}

impl Pace {
    /// Merges the pace of a joining host: the later visit end and the later block win.
    fn bind(&mut self, other: &Self) {
        if other.last_end > self.last_end {
            (self.last_end, self.last_crawl) = (other.last_end, other.last_crawl);
        }
        self.last_duration = self.last_duration.max(other.last_duration);
        self.backoff_until = self.backoff_until.max(other.backoff_until);
        if other.backoff_count > self.backoff_count {
            (self.backoff_count, self.backoff_status) = (other.backoff_count, other.backoff_status);
            self.asked_by.clone_from(&other.asked_by);
        }
    }
}
