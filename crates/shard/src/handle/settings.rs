//! The handle, continued: changing hosts, groups, crawls and queues.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::Instant;
use wayleave_core::frontier::move_host::Way;
use wayleave_core::frontier::refusal::Refusal;
use wayleave_core::frontier::view::{CrawlView, GroupView, HostView};
use wayleave_core::ids::{QueueId, ShardId};
use wayleave_core::limits;
use wayleave_core::names::{Alias, CrawlName, HostName};
use wayleave_core::settings::{CrawlChanges, CrawlSettings, PaceChanges};
use wayleave_core::time::{Millis, Time};
use wayleave_engine::Key;

use crate::ask::{AdminChange, HostMove, Look, Told, UrlChange};
use crate::handle::frontier::Frontier;
use crate::routing::links::{Call, GroupChange};
use crate::routing::router::{Answer, Place, changed_before, home};

/// The shard whose owner changes groups.
const MOVER: ShardId = ShardId(0);

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
        let ask = AdminChange::SetHost { host: host.clone(), changes, replace, ready_at };
        self.at_host(&host, ask.clone()).await
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
        let change = GroupChange { alias, hosts, changes, replace };
        let deadline = Instant::now() + Duration::from_millis(limits::HAND_OVER_WAIT.0);
        loop {
            let changed = match self.ask_mover(&Call::SetGroup(change.clone())).await? {
                None => self.set_group_here(change.clone()).await,
                Some(told) => told.try_into(),
            };
            match changed {
                Err(Refusal::Elsewhere) => self.await_mover(deadline).await?,
                changed => return changed,
            }
        }
    }

    /// The mover changed in the middle of a change. All of it may be done again, for it says what is to be, not what is to
    /// change: so the next one is waited for.
    async fn await_mover(&self, deadline: Instant) -> Answer<()> {
        let mut changes = self.router.changes();
        self.router.miss();
        if changed_before(&mut changes, deadline).await {
            return Ok(());
        }
        let why = "the node that changes groups was replaced in the middle: settings may be stored and hosts moved; send it again";
        Err(Refusal::OutcomeUnknown(why.to_owned()))
    }

    /// Groups are changed by one node at a time, the owner of shard 0: two owners that each wait for the other to take a
    /// host would wait until they give up. None if that is this process.
    async fn ask_mover(&self, call: &Call) -> Answer<Option<Told>> {
        let Some(links) = &self.router.links else { return Ok(None) };
        let deadline = Instant::now() + Duration::from_millis(limits::HAND_OVER_WAIT.0);
        let mut changes = self.router.changes();
        loop {
            changes.mark_unchanged();
            match self.router.place(MOVER) {
                Place::Here(_) => return Ok(None),
                Place::There(node) => match links.ask(node, call, false).await {
                    Err(Refusal::Elsewhere) => {}
                    answer => return answer.map(Some),
                },
                Place::Nobody => {}
            }
            self.router.miss();
            if !changed_before(&mut changes, deadline).await {
                let why = self.router.why_no_owner();
                return Err(Refusal::Unavailable(format!("shard {}, whose owner changes groups: {why}", MOVER.0)));
            }
        }
    }

    /// Whether this process may change groups, with hints that nobody else has changed meanwhile.
    async fn begin_move(&self) -> Answer<()> {
        if self.router.links.is_none() {
            return Ok(());
        }
        if !self.owns(MOVER) {
            return Err(Refusal::Elsewhere);
        }
        self.learn_hints(Duration::from_millis(limits::HAND_OVER_WAIT.0)).await
    }

    pub(crate) async fn set_group_here(&self, change: GroupChange) -> Answer<GroupView> {
        let GroupChange { alias, hosts, changes, replace } = change;
        self.settle_hints(Duration::ZERO).await;
        let _one_at_a_time = self.moves.lock().await;
        self.begin_move().await?;
        let shard = home(&alias, self.shards());
        if let Some(hosts) = &hosts {
            self.check_members(&alias, hosts)?;
        }
        let before: Vec<HostName> =
            self.router.ask(shard, AdminChange::SetGroup { alias: alias.clone(), changes, replace }).await?;
        let part = |refusal: Refusal| after_a_part(refusal, "the settings are stored, and hosts may have moved");
        if let Some(hosts) = hosts {
            let joining = hosts.iter().filter(|host| !before.contains(host)).cloned().collect();
            let leaving = before.iter().filter(|host| !hosts.contains(host)).cloned().collect();
            self.move_out(&alias, leaving).await.map_err(part)?;
            self.move_in(&alias, joining).await.map_err(part)?;
        }
        let unknown = Refusal::UnknownGroup(alias.to_string());
        self.router.ask::<Option<GroupView>>(shard, Look::Group(alias.into())).await.map_err(part)?.ok_or(unknown)
    }

    fn check_members(&self, alias: &Alias, hosts: &[HostName]) -> Answer<()> {
        if hosts.len() > limits::GROUP_HOSTS_MAX {
            let most = limits::GROUP_HOSTS_MAX;
            return Err(Refusal::OverLimit(format!("alias '{alias}': {} hosts; the limit is {most}", hosts.len())));
        }
        for host in hosts {
            if **host == **alias {
                // Before the settings are stored: nothing may be changed by a call that is refused.
                return Err(Refusal::NameInUse(host.to_string()));
            }
            if let Some(other) = self.router.alias_of(host).filter(|other| other != alias) {
                return Err(Refusal::HostTaken { host: host.to_string(), alias: other.to_string() });
            }
        }
        Ok(())
    }

    /// Moves hosts from their homes into an alias.
    async fn move_in(&self, alias: &Alias, hosts: Vec<HostName>) -> Answer<()> {
        let to = home(alias, self.shards());
        let mut moved = 0;
        for (from, hosts) in by_home(hosts, self.shards()) {
            let move_hosts = self.move_hosts(from, to, hosts.clone(), Way::Into(alias.clone()));
            move_hosts.await.map_err(|refusal| in_part(refusal, moved))?;
            moved += hosts.len();
            hosts.iter().for_each(|host| self.router.set_alias_of(host, Some(alias)));
        }
        Ok(())
    }

    /// Moves hosts from an alias back to their homes.
    async fn move_out(&self, alias: &Alias, hosts: Vec<HostName>) -> Answer<()> {
        let from = home(alias, self.shards());
        let mut moved = 0;
        for (to, hosts) in by_home(hosts, self.shards()) {
            self.move_hosts(from, to, hosts.clone(), Way::OutOf(alias.clone()))
                .await
                .map_err(|refusal| in_part(refusal, moved))?;
            moved += hosts.len();
            hosts.iter().for_each(|host| self.router.set_alias_of(host, None));
        }
        Ok(())
    }

    async fn move_hosts(&self, from: ShardId, to: ShardId, hosts: Vec<HostName>, way: Way) -> Answer<()> {
        if self.router.links.is_some() && !self.owns(MOVER) {
            return Err(Refusal::Elsewhere);
        }
        let moved = self.router.ask::<()>(from, HostMove::Give { hosts, way, to }).await;
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
        let deadline = Instant::now() + Duration::from_millis(limits::HAND_OVER_WAIT.0);
        loop {
            let deleted = match self.ask_mover(&Call::DeleteGroup(alias.clone())).await? {
                None => self.delete_group_here(alias.clone()).await,
                Some(told) => told.try_into(),
            };
            match deleted {
                Err(Refusal::Elsewhere) => self.await_mover(deadline).await?,
                deleted => return deleted,
            }
        }
    }

    pub(crate) async fn delete_group_here(&self, alias: Alias) -> Answer<()> {
        self.settle_hints(Duration::ZERO).await;
        let _one_at_a_time = self.moves.lock().await;
        self.begin_move().await?;
        let shard = home(&alias, self.shards());
        let unknown = Refusal::UnknownGroup(alias.to_string());
        let view: Option<GroupView> = self.router.ask(shard, Look::Group(alias.clone().into())).await?;
        let view = view.filter(|view| view.aliased).ok_or(unknown)?;
        let some = !view.hosts.is_empty();
        self.move_out(&alias, view.hosts).await?;
        let deleted = self.router.ask(shard, AdminChange::DeleteGroup(alias)).await;
        deleted.map_err(|refusal| if some { refusal.after_a_part("its hosts have left it") } else { refusal })
    }

    /// Changes a crawl on every shard; it is made if it is unknown. What stands against the changes is looked for before any
    /// shard is asked, so that none of them refuses what another has done; two changes at the same moment may pass it.
    ///
    /// # Errors
    /// If the changes contradict what is set, there are too many crawls, or the store cannot be reached.
    pub async fn set_crawl(&self, crawl: CrawlName, changes: CrawlChanges, replace: bool) -> Answer<CrawlView> {
        let before = match self.crawl(crawl.clone()).await {
            Ok(view) if !replace => view.settings,
            Ok(_) | Err(Refusal::UnknownCrawl(_)) => CrawlSettings::default(),
            Err(refusal) => return Err(refusal),
        };
        if let Some(why) = changes.contradiction(&before) {
            return Err(Refusal::Contradiction(why));
        }
        // One at a time: two that change the same crawl must not reach the first shard and the others in different orders.
        let _one_at_a_time = self.crawl_changes.lock().await;
        let ask = |bounded| AdminChange::SetCrawl { crawl: crawl.clone(), changes: changes.clone(), replace, bounded };
        // One shard first: where there are too many crawls it refuses this one before any other has changed it.
        let first = home(&crawl, self.shards());
        self.router.ask::<()>(first, ask(true)).await?;
        let others: Vec<ShardId> = self.all().into_iter().filter(|shard| *shard != first).collect();
        let part = |refusal: Refusal| refusal.after_a_part("the crawl was changed on some shards");
        self.router.ask_all::<()>(&others, ask(false)).await.map_err(part)?;
        self.crawl(crawl).await.map_err(|refusal| refusal.after_a_part("the crawl was changed"))
    }

    /// Deletes a crawl with all its URLs and settings; says how many URLs that were.
    ///
    /// # Errors
    /// If the store cannot be reached.
    pub async fn delete_crawl(&self, crawl: CrawlName) -> Answer<u64> {
        let ask = AdminChange::DeleteCrawl { crawl, at: self.now() };
        let counts: Vec<u64> = self.router.ask_all(&self.all(), ask.clone()).await?;
        // Again: a shard that was opened since it heard of it has forgotten that, and links of pages that other shards still had
        // may be on their way to it.
        let part =
            |refusal: Refusal| refusal.after_a_part("the crawl was deleted, but links found meanwhile may be stored");
        let late: Vec<u64> = self.router.ask_all(&self.all(), ask.clone()).await.map_err(part)?;
        Ok(counts.into_iter().chain(late).sum())
    }

    /// Deletes the queue of a crawl at a host; says how many URLs that were, 0 if there is none.
    ///
    /// # Errors
    /// If the store cannot be reached.
    pub async fn delete_queue(&self, crawl: CrawlName, host: HostName) -> Answer<u64> {
        let ask = AdminChange::DeleteQueue { crawl, host: host.clone() };
        self.at_host(&host, ask.clone()).await
    }

    /// Sets the pages after which a queue hands out no more; none clears it.
    ///
    /// # Errors
    /// If there is no such queue.
    pub async fn set_queue_limit(&self, crawl: CrawlName, host: HostName, limit: Option<u64>) -> Answer<()> {
        let ask = AdminChange::SetQueueLimit { crawl, host: host.clone(), limit };
        self.at_host(&host, ask.clone()).await
    }

    /// Removes URLs of a crawl, or of one host in it, that were stored before a time; says how many.
    ///
    /// # Errors
    /// If the store cannot be reached; what was removed by then stays removed.
    pub async fn purge(&self, crawl: CrawlName, host: Option<HostName>, before: Time) -> Answer<u64> {
        self.settle_hints(Duration::ZERO).await;
        let mut count = 0;
        let shards: Vec<ShardId> = match &host {
            Some(host) => vec![self.router.shard_of(host)],
            None => self.all(),
        };
        for shard in shards {
            let ask = Look::QueuesOf { crawl: crawl.clone(), host: host.clone() };
            let queues: Answer<Vec<QueueId>> = self.router.ask(shard, ask).await;
            for queue in queues.map_err(|refusal| purged_in_part(refusal, count))? {
                self.purge_queue(shard, queue, before, &mut count).await?;
            }
        }
        Ok(count)
    }

    async fn purge_queue(&self, shard: ShardId, queue: QueueId, before: Time, count: &mut u64) -> Answer<()> {
        let mut after = None;
        loop {
            let purged = self.router.ask(shard, UrlChange::Purge { queue, before, after }).await;
            let (purged, next): (u64, Option<Key>) = purged.map_err(|refusal| purged_in_part(refusal, *count))?;
            *count += purged;
            match next {
                Some(next) => after = Some(next),
                None => return Ok(()),
            }
        }
    }

    /// Sets the delay where group, host and crawl set none; none goes back to the built-in one.
    ///
    /// # Errors
    /// If the store cannot be reached.
    pub async fn set_default_delay(&self, delay: Option<Millis>) -> Answer<()> {
        self.router.ask_all::<()>(&self.all(), AdminChange::SetDefaultDelay(delay)).await.map(drop)
    }
}

/// What is said of a refusal after so many hosts had been moved.
fn in_part(refusal: Refusal, moved: usize) -> Refusal {
    if moved > 0 { after_a_part(refusal, &format!("{moved} hosts have been moved")) } else { refusal }
}

/// The same after a part of a change of groups. That another node is the mover now is told as it is: the whole change is then made
/// there.
fn after_a_part(refusal: Refusal, done: &str) -> Refusal {
    if refusal == Refusal::Elsewhere { refusal } else { refusal.after_a_part(done) }
}

/// What is said of a refusal after so many URLs had been removed.
fn purged_in_part(refusal: Refusal, count: u64) -> Refusal {
    if count > 0 { refusal.after_a_part(&format!("{count} URLs have been removed")) } else { refusal }
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
