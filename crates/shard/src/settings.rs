//! The handle, continued: changing hosts, groups, crawls and queues.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

use wayleave_core::frontier::refusal::Refusal;
use wayleave_core::frontier::view::{CrawlView, GroupView, HostView};
use wayleave_core::ids::{QueueId, ShardId};
use wayleave_core::limits;
use wayleave_core::names::{Alias, CrawlName, HostName};
use wayleave_core::settings::{Change, CrawlChanges, PaceChanges};
use wayleave_core::time::{Millis, Time};

use crate::frontier::Frontier;
use crate::message::Message;
use crate::router::{Answer, home};

impl Frontier {
    /// Changes a host, which is made if it is unknown. `replace` clears what is not named; `ready_at` puts the host
    /// itself into the queue.
    ///
    /// # Errors
    /// If the store cannot be reached.
    pub async fn set_host(
        &self,
        host: HostName,
        changes: PaceChanges,
        replace: bool,
        ready_at: Option<Time>,
    ) -> Answer<HostView> {
        let name = host.clone();
        self.decide_at(&host, move |state, now, _| {
            state.set_host(&name, &changes, replace, ready_at, now);
            state.host_view(&name, now).ok_or_else(|| Refusal::UnknownHost(name.to_string()))
        })
        .await
    }

    /// Creates or changes an alias. `hosts`, where given, becomes the whole membership.
    ///
    /// # Errors
    /// If one of the hosts belongs to another alias (then nothing changes), or there are too many.
    pub async fn set_group(
        &self,
        alias: Alias,
        hosts: Option<Vec<HostName>>,
        changes: PaceChanges,
        replace: bool,
    ) -> Answer<GroupView> {
        self.settle_hints().await;
        let _one_at_a_time = self.moves.lock().await;
        let shard = home(&alias, self.shards());
        if let Some(hosts) = &hosts {
            self.check_members(&alias, hosts)?;
        }
        let name = alias.clone();
        let before = self
            .decide(shard, move |state, now, _| {
                state.set_group(&name, &changes, replace, now);
                Ok(state.group_view(&name, now).map(|view| view.hosts).unwrap_or_default())
            })
            .await?;
        if let Some(hosts) = hosts {
            let joining = hosts.iter().filter(|host| !before.contains(host)).cloned().collect();
            let leaving = before.iter().filter(|host| !hosts.contains(host)).cloned().collect();
            self.move_out(&alias, leaving).await?;
            self.move_in(&alias, joining).await?;
        }
        let unknown = Refusal::UnknownGroup(alias.to_string());
        self.decide(shard, move |state, now, _| state.group_view(&alias, now).ok_or(unknown)).await
    }

    fn check_members(&self, alias: &Alias, hosts: &[HostName]) -> Answer<()> {
        if hosts.len() > limits::GROUP_HOSTS_MAX {
            let most = limits::GROUP_HOSTS_MAX;
            return Err(Refusal::OverLimit(format!("alias '{alias}': {} hosts; the limit is {most}", hosts.len())));
        }
        for host in hosts {
            if let Some(other) = self.router.alias_of(host).filter(|other| other != alias) {
                return Err(Refusal::HostTaken { host: host.to_string(), alias: other.to_string() });
            }
        }
        Ok(())
    }

    /// Moves hosts from their homes into an alias.
    async fn move_in(&self, alias: &Alias, hosts: Vec<HostName>) -> Answer<()> {
        let to = home(alias, self.shards());
        for (from, hosts) in by_home(hosts, self.shards()) {
            self.move_hosts(from, to, hosts.clone(), Some(alias.clone())).await?;
            hosts.iter().for_each(|host| self.router.set_alias_of(host, Some(alias)));
        }
        Ok(())
    }

    /// Moves hosts from an alias back to their homes.
    async fn move_out(&self, alias: &Alias, hosts: Vec<HostName>) -> Answer<()> {
        let from = home(alias, self.shards());
        for (to, hosts) in by_home(hosts, self.shards()) {
            self.move_hosts(from, to, hosts.clone(), None).await?;
            hosts.iter().for_each(|host| self.router.set_alias_of(host, None));
        }
        Ok(())
    }

    async fn move_hosts(&self, from: ShardId, to: ShardId, hosts: Vec<HostName>, alias: Option<Alias>) -> Answer<()> {
        let inbox = self.router.inboxes.get(usize::from(to.0)).cloned().ok_or_else(crate::router::stopping)?;
        let same = from == to;
        let moved = self.router.ask(from, |reply| Message::Give { hosts, alias, to: inbox, same, reply }).await;
        if moved.is_err() {
            // The move may have been made all the same.
            self.router.doubt();
        }
        moved
    }

    /// Dissolves an alias: its hosts become groups of their own again.
    ///
    /// # Errors
    /// If there is no such alias.
    pub async fn delete_group(&self, alias: Alias) -> Answer<()> {
        self.settle_hints().await;
        let _one_at_a_time = self.moves.lock().await;
        let shard = home(&alias, self.shards());
        let name = alias.clone();
        let unknown = Refusal::UnknownGroup(alias.to_string());
        let view = self.decide(shard, move |state, now, _| Ok(state.group_view(&name, now))).await?;
        let view = view.filter(|view| view.aliased).ok_or(unknown)?;
        self.move_out(&alias, view.hosts).await?;
        self.decide(shard, move |state, _, _| state.delete_group(&alias)).await
    }

    /// Changes a crawl on every shard; it is made if it is unknown.
    ///
    /// # Errors
    /// If the store cannot be reached.
    pub async fn set_crawl(&self, crawl: CrawlName, changes: CrawlChanges, replace: bool) -> Answer<CrawlView> {
        if matches!(changes.urls, Change::Set(_)) || matches!(changes.pages, Change::Set(_)) {
            self.pulse.bounded.store(true, Ordering::Release);
        }
        let name = crawl.clone();
        self.router.decide_all(move |state, now, _| state.set_crawl(&name, &changes, replace, now)).await?;
        self.crawl(crawl).await
    }

    /// Deletes a crawl with all its URLs and settings; says how many URLs that were.
    ///
    /// # Errors
    /// If the store cannot be reached.
    pub async fn delete_crawl(&self, crawl: CrawlName) -> Answer<u64> {
        let counts = self.router.decide_all(move |state, now, writes| state.delete_crawl(&crawl, now, writes)).await?;
        Ok(counts.into_iter().sum())
    }

    /// Deletes the queue of a crawl at a host; says how many URLs that were, 0 if there is none.
    ///
    /// # Errors
    /// If the store cannot be reached.
    pub async fn delete_queue(&self, crawl: CrawlName, host: HostName) -> Answer<u64> {
        let name = host.clone();
        self.decide_at(&host, move |state, now, writes| Ok(state.delete_queue(&name, &crawl, now, writes))).await
    }

    /// Sets the pages after which a queue hands out no more; none clears it.
    ///
    /// # Errors
    /// If there is no such queue.
    pub async fn set_queue_limit(&self, crawl: CrawlName, host: HostName, limit: Option<u64>) -> Answer<()> {
        let name = host.clone();
        self.decide_at(&host, move |state, now, _| state.set_queue_limit(&name, &crawl, limit, now)).await
    }

    /// Removes URLs of a crawl, or of one host in it, that were stored before a time; says how many.
    ///
    /// # Errors
    /// If the store cannot be reached; what was removed by then stays removed.
    pub async fn purge(&self, crawl: CrawlName, host: Option<HostName>, before: Time) -> Answer<u64> {
        self.settle_hints().await;
        let mut count = 0;
        let shards: Vec<ShardId> = match &host {
            Some(host) => vec![self.router.shard_of(host)],
            None => (0..self.shards()).map(ShardId).collect(),
        };
        for shard in shards {
            let (crawl, host) = (crawl.clone(), host.clone());
            let queues = self.decide(shard, move |state, _, _| Ok(state.queues_of(&crawl, host.as_ref()))).await?;
            for queue in queues {
                count += self.purge_queue(shard, queue, before).await?;
            }
        }
        Ok(count)
    }

    async fn purge_queue(&self, shard: ShardId, queue: QueueId, before: Time) -> Answer<u64> {
        let (mut count, mut after) = (0, None);
        loop {
            let ask = self.router.ask(shard, |reply| Message::Purge { queue, before, after, reply });
            let (purged, next) = ask.await?;
            count += purged;
            match next {
                Some(next) => after = Some(next),
                None => return Ok(count),
            }
        }
    }

    /// Sets the delay where group, host and crawl set none; none goes back to the built-in one.
    ///
    /// # Errors
    /// If the store cannot be reached.
    pub async fn set_default_delay(&self, delay: Option<Millis>) -> Answer<()> {
        self.router.decide_all(move |state, now, _| state.set_default_delay(delay, now)).await?;
        Ok(())
    }
}

/// Hosts by their homes, in one order, so that the same request always moves them in the same way.
fn by_home(hosts: Vec<HostName>, shards: u16) -> BTreeMap<ShardId, Vec<HostName>> {
    let mut homes: BTreeMap<ShardId, Vec<HostName>> = BTreeMap::new();
    for host in hosts {
        let place = homes.entry(home(&host, shards)).or_default();
        if !place.contains(&host) {
            place.push(host);
        }
    }
    homes
}
