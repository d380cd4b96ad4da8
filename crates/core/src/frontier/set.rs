//! Changes of settings: hosts, groups, crawls, queues, and the shard.

use super::refusal::Refusal;
use super::row::{CrawlRow, HotRow};
use super::slab::Ix;
use super::state::{Group, Grouping, State, Together, boxed};
use crate::ids::{CrawlNo, GroupId};
use crate::limits;
use crate::names::{Alias, CrawlName, HostName};
use crate::settings::{Change, CrawlChanges, CrawlSettings, PaceChanges, PaceSettings};
use crate::time::{Millis, Time};

impl State {
    /// Changes a host's settings, creating the host if necessary. `replace` clears settings that are not given. Fails
    /// if an alias has that name.
    pub fn set_host(
        &mut self,
        name: &HostName,
        changes: &PaceChanges,
        replace: bool,
        ready_at: Option<Time>,
        now: Time,
    ) -> Result<(), Refusal> {
        if self.host_ix(name).is_none() && self.group_by_alias.contains_key(&**name) {
            return Err(Refusal::NameInUse(name.to_string()));
        }
        let ix = self.ensure_host(name);
        // A host with settings is kept, though its last queue was deleted.
        let id = self.hosts[ix].id;
        self.vacant.retain(|(_, vacant)| *vacant != id);
        let host = &mut self.hosts[ix];
        host.settings = changed(host.settings.as_deref(), changes, replace);
        let group = host.group;
        let mut crawl_delay = Some(host.robots_delay);
        changes.crawl_delay.apply(&mut crawl_delay);
        host.robots_delay = crawl_delay.unwrap_or_default();
        if let Some(at) = ready_at {
            host.queued_at = at.max(now);
            self.ensure_entry(group, CrawlNo::NONE);
        }
        if changes.blocked_until == Change::Clear {
            self.lift(group);
        }
        self.touch_host(ix);
        self.reschedule(group, now);
        Ok(())
    }

    /// Changes an alias's settings, creating the alias if necessary. Fails if a host or key has that name, or there are
    /// too many aliases.
    pub fn set_group(&mut self, alias: &Alias, changes: &PaceChanges, replace: bool, now: Time) -> Result<(), Refusal> {
        let is_new = !self.group_by_alias.contains_key(alias);
        if is_new && (self.host_ix(alias).is_some() || self.moved_to(alias).is_some()) {
            return Err(Refusal::NameInUse(alias.to_string()));
        }
        if is_new && self.group_by_alias.len() >= limits::ALIASES_MAX {
            let most = limits::ALIASES_MAX;
            let why = format!(
                "alias '{alias}' is new, and its shard holds {most} aliases, which is the limit; delete some that are not needed"
            );
            return Err(Refusal::OverLimit(why));
        }
        let ix = self.ensure_group(alias);
        let group = &mut self.groups[ix];
        let settings = changed(group.settings.as_deref(), changes, replace);
        let lifted = changes.blocked_until == Change::Clear && group.pace.backoff_until > Time::ZERO;
        if group.settings != settings || lifted {
            group.settings = settings;
            if lifted {
                self.lift(ix);
            }
            self.touch_group(ix);
            self.reschedule(ix, now);
        }
        Ok(())
    }

    pub(super) fn ensure_group(&mut self, alias: &Alias) -> Ix {
        if let Some(ix) = self.group_by_alias.get(alias) {
            return *ix;
        }
        let id = GroupId(self.shard_row.next_group);
        self.shard_row.next_group += 1;
        self.changed.shard = true;
        let ix = self.insert_group(id, alias.clone(), super::row::Pace::default());
        self.touch_group(ix);
        ix
    }

    pub(super) fn insert_group(&mut self, id: GroupId, alias: Alias, pace: super::row::Pace) -> Ix {
        let grouping = Grouping::Many(Box::new(Together { id, alias: alias.clone(), hosts: Vec::new(), dirty: false }));
        let ix = self.groups.insert(Group::new(grouping, pace));
        self.group_by_alias.insert(alias, ix);
        ix
    }

    /// Removes an alias that has no hosts left.
    pub fn delete_group(&mut self, alias: &Alias) -> Result<(), Refusal> {
        let unknown = || Refusal::UnknownGroup(alias.to_string());
        let ix = *self.group_by_alias.get(alias).ok_or_else(unknown)?;
        if !self.groups[ix].hosts().is_empty() {
            return Err(Refusal::Unavailable(format!("hosts of '{alias}' are being moved")));
        }
        self.group_by_alias.remove(alias);
        if let Some(group) = self.groups.remove(ix) {
            for entry in group.entries {
                self.schedule.remove(entry);
            }
            if let Grouping::Many(together) = group.grouping {
                self.changed.others.push(HotRow::AliasGone(together.id));
            }
        }
        Ok(())
    }

    /// The settings of a crawl that is known here.
    #[must_use]
    pub fn crawl_settings(&self, name: &CrawlName) -> Option<CrawlSettings> {
        self.crawl_by_name.get(name).and_then(|no| self.crawl_of(*no)).map(|crawl| crawl.settings)
    }

    /// The version of a crawl's settings; 0 if they were never set here.
    #[must_use]
    pub fn crawl_version(&self, name: &CrawlName) -> u64 {
        self.crawl_by_name.get(name).and_then(|no| self.crawl_of(*no)).map_or(0, |crawl| crawl.version)
    }

    /// The number of a change that is decided now, be it settings or a deletion: above those of all earlier ones.
    #[must_use]
    pub fn next_version(&self, name: &CrawlName, now: Time) -> u64 {
        let last = self.crawl_version(name).max(self.deleted.last(name));
        now.0.max(last.saturating_add(1))
    }

    /// Changes a crawl's settings, creating the crawl if necessary.
    pub fn set_crawl(&mut self, name: &CrawlName, changes: &CrawlChanges, replace: bool, now: Time) {
        let before = self.crawl_settings(name).filter(|_| !replace);
        let mut settings = before.unwrap_or_default();
        changes.apply(&mut settings);
        self.put_crawl(name, settings, self.next_version(name, now), now);
    }

    /// Sets a crawl's settings unless newer ones or a later deletion are known, creating the crawl if necessary, however many
    /// there are (see [`State::crawls_full`]).
    pub fn put_crawl(&mut self, name: &CrawlName, settings: CrawlSettings, version: u64, now: Time) {
        if self.deleted.covers(name, version) {
            return;
        }
        let no = self.ensure_crawl(name);
        let Some(crawl) = self.crawls.get_mut(&no) else { return };
        if version < crawl.version {
            return;
        }
        let before = (crawl.settings, crawl.kept, crawl.version);
        (crawl.settings, crawl.kept, crawl.version) = (settings, true, version);
        if before != (settings, true, version) {
            let row = CrawlRow { no, name: name.clone(), settings, kept: true, version };
            self.changed.others.push(HotRow::Crawl(row));
            self.note_limits(no);
            self.settled.push(name.clone());
            self.reschedule_crawl(no, now);
        }
    }

    /// Why a crawl may not be created here. Existing crawls are never refused, nor those brought along by a moving
    /// host.
    #[must_use]
    pub fn crawls_full(&self, name: &CrawlName) -> Option<String> {
        let most = limits::CRAWLS_MAX;
        let full = self.crawls.len() >= most && !self.crawl_by_name.contains_key(name);
        full.then(|| {
            format!("crawl '{name}' is new, and its shard holds {most} crawls, which is the limit; delete crawls that are done with")
        })
    }

    /// Sets the page limit of a queue.
    pub fn set_queue_limit(
        &mut self,
        host: &HostName,
        crawl: &CrawlName,
        limit: Option<u64>,
        now: Time,
    ) -> Result<(), Refusal> {
        let unknown = || Refusal::UnknownQueue { host: host.to_string(), crawl: crawl.to_string() };
        let (ix, at) = self.queue_id(host, crawl).and_then(|id| self.find_queue(id)).ok_or_else(unknown)?;
        self.queue_mut(ix, at).limit = limit;
        self.touch_queue(ix, at);
        self.reschedule(self.hosts[ix].group, now);
        Ok(())
    }

    /// Sets the default delay.
    pub fn set_default_delay(&mut self, delay: Option<Millis>, now: Time) {
        if self.shard_row.default_delay != delay {
            self.shard_row.default_delay = delay;
            self.changed.shard = true;
            self.reschedule_all(now);
        }
    }

    /// Sets the maximum computed back-off; `None` restores the default.
    pub const fn set_backoff_max(&mut self, most: Option<Millis>) {
        self.backoff_max = most;
    }

    /// Switches the paced form on or off.
    pub const fn set_active(&mut self, active: bool) {
        self.shard_row.active = active;
        self.changed.shard = true;
    }

    /// Sets how many more hosts puts may create; `None` for any number. Hosts that move here are never refused.
    pub const fn set_host_room(&mut self, room: Option<super::state::HostRoom>) {
        self.host_room = room;
    }
}

fn changed(before: Option<&PaceSettings>, changes: &PaceChanges, replace: bool) -> Option<Box<PaceSettings>> {
    let mut settings = if replace { PaceSettings::default() } else { before.copied().unwrap_or_default() };
    changes.apply(&mut settings);
    boxed(settings)
}
