//! Changing hosts, groups, crawls and queues.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::Instant;
use wayleave_core::frontier::move_host::Way;
use wayleave_core::frontier::refusal::Refusal;
use wayleave_core::frontier::view::{CrawlView, GroupView, HostView};
use wayleave_core::ids::{QueueId, ShardId};
use wayleave_core::limits;
use wayleave_core::names::{Alias, CrawlName, HostName};
use wayleave_core::settings::{CrawlChanges, PaceChanges};
use wayleave_core::time::{Millis, Time};

use crate::ask::{AdminChange, HostMove, Purged, Response, StateQuery, UrlChange};
use crate::handle::frontier::Frontier;
use crate::pipeline::Pipeline;
use crate::routing::links::{GroupChange, NodeCall};
use crate::routing::router::{CallResult, OwnerLocation, changed_before, home};

/// The shard whose owner makes all group changes.
const MOVER: ShardId = ShardId(0);

impl Frontier {
    /// Changes a host, creating it if necessary. `replace` clears the settings that are not given; `ready_at` queues
    /// the host itself.
    pub async fn set_host(
        &self,
        host: HostName,
        changes: PaceChanges,
        replace: bool,
        ready_at: Option<Time>,
    ) -> CallResult<HostView> {
        let ask = AdminChange::SetHost { host: host.clone(), changes, replace, ready_at };
        self.at_host(&host, ask.clone()).await
    }

    /// Creates or changes an alias. `hosts`, where given, replaces the whole membership. Fails if one of the hosts
    /// belongs to another alias (then nothing changes), or there are too many.
    pub async fn set_group(
        &self,
        alias: Alias,
        hosts: Option<Vec<HostName>>,
        changes: PaceChanges,
        replace: bool,
    ) -> CallResult<GroupView> {
        let change = GroupChange { alias, hosts, changes, replace };
        let deadline = Instant::now() + Duration::from_millis(limits::HAND_OVER_WAIT.0);
        loop {
            let changed = match self.ask_mover(&NodeCall::SetGroup(change.clone())).await? {
                None => self.set_group_here(change.clone()).await,
                Some(told) => told.try_into(),
            };
            match changed {
                Err(Refusal::Elsewhere) => self.await_mover(deadline).await?,
                changed => return changed,
            }
        }
    }

    /// Waits for the next mover after the mover changed during a group change. The whole change can be repeated,
    /// because it states the desired result and not a difference.
    async fn await_mover(&self, deadline: Instant) -> CallResult<()> {
        let mut changes = self.router.changes();
        self.router.note_misroute();
        if changed_before(&mut changes, deadline).await {
            return Ok(());
        }
        let why = "the node that changes groups was replaced in the middle: settings may be stored and hosts moved; send it again";
        Err(Refusal::OutcomeUnknown(why.to_owned()))
    }

    /// Group changes are made by one node at a time, the owner of shard 0: two owners that each wait for the other to
    /// take a host would both time out. Returns `None` if this process is the mover.
    async fn ask_mover(&self, call: &NodeCall) -> CallResult<Option<Response>> {
        let Some(links) = &self.router.links else { return Ok(None) };
        let deadline = Instant::now() + Duration::from_millis(limits::HAND_OVER_WAIT.0);
        let mut changes = self.router.changes();
        loop {
            changes.mark_unchanged();
            match self.router.location(MOVER) {
                OwnerLocation::Local(_) => return Ok(None),
                OwnerLocation::Remote(node) => match links.ask(node, call, false).await {
                    Err(Refusal::Elsewhere) => {}
                    answer => return answer.map(Some),
                },
                OwnerLocation::Unowned => {}
            }
            self.router.note_misroute();
            if !changed_before(&mut changes, deadline).await {
                let why = self.router.why_no_owner();
                return Err(Refusal::Unavailable(format!(
                    "shard {}, whose owner makes all group changes: {why}",
                    MOVER.0
                )));
            }
        }
    }

    /// Whether this process may change groups; if so, with fresh routing hints.
    async fn begin_move(&self) -> CallResult<()> {
        if self.router.links.is_none() {
            return Ok(());
        }
        if !self.owns(MOVER) {
            return Err(Refusal::Elsewhere);
        }
        self.learn_hints(Duration::from_millis(limits::HAND_OVER_WAIT.0)).await
    }

    pub(crate) async fn set_group_here(&self, change: GroupChange) -> CallResult<GroupView> {
        let GroupChange { alias, hosts, changes, replace } = change;
        self.refresh_hints(Duration::ZERO).await;
        let _one_at_a_time = self.moves.lock().await;
        self.begin_move().await?;
        let shard = home(&alias, self.shards());
        if let Some(hosts) = &hosts {
            self.check_members(&alias, hosts)?;
        }
        let before: Vec<HostName> =
            self.router.ask(shard, AdminChange::SetGroup { alias: alias.clone(), changes, replace }).await?;
        let part =
            |refusal: Refusal| after_partial_change(refusal, "the settings are stored, and hosts may have moved");
        if let Some(hosts) = hosts {
            let joining = hosts.iter().filter(|host| !before.contains(host)).cloned().collect();
            let leaving = before.iter().filter(|host| !hosts.contains(host)).cloned().collect();
            self.move_out(&alias, leaving).await.map_err(part)?;
            self.move_in(&alias, joining).await.map_err(part)?;
        }
        let unknown = Refusal::UnknownGroup(alias.to_string());
        self.router.ask::<Option<GroupView>>(shard, StateQuery::Group(alias.into())).await.map_err(part)?.ok_or(unknown)
    }

    fn check_members(&self, alias: &Alias, hosts: &[HostName]) -> CallResult<()> {
        if hosts.len() > limits::GROUP_HOSTS_MAX {
            let most = limits::GROUP_HOSTS_MAX;
            return Err(Refusal::OverLimit(format!("alias '{alias}': {} hosts; the limit is {most}", hosts.len())));
        }
        for host in hosts {
            if **host == **alias {
                // Checked before the settings are stored: a refused call must not change anything.
                return Err(Refusal::NameInUse(host.to_string()));
            }
            if let Some(other) = self.router.moved.alias_of(host).filter(|other| other != alias) {
                return Err(Refusal::HostTaken { host: host.to_string(), alias: other.to_string() });
            }
        }
        Ok(())
    }

    /// Moves hosts from their home shards into an alias.
    async fn move_in(&self, alias: &Alias, hosts: Vec<HostName>) -> CallResult<()> {
        let to = home(alias, self.shards());
        let mut moved = 0;
        for (from, hosts) in by_home(hosts, self.shards()) {
            let move_hosts = self.move_hosts(from, to, hosts.clone(), Way::Into(alias.clone()));
            move_hosts.await.map_err(|refusal| in_part(refusal, moved))?;
            moved += hosts.len();
            hosts.iter().for_each(|host| self.router.moved.set(host, Some(alias)));
        }
        Ok(())
    }

    /// Moves hosts out of an alias, back to their home shards.
    async fn move_out(&self, alias: &Alias, hosts: Vec<HostName>) -> CallResult<()> {
        let from = home(alias, self.shards());
        let mut moved = 0;
        for (to, hosts) in by_home(hosts, self.shards()) {
            self.move_hosts(from, to, hosts.clone(), Way::OutOf(alias.clone()))
                .await
                .map_err(|refusal| in_part(refusal, moved))?;
            moved += hosts.len();
            hosts.iter().for_each(|host| self.router.moved.set(host, None));
        }
        Ok(())
    }

    async fn move_hosts(&self, from: ShardId, to: ShardId, hosts: Vec<HostName>, way: Way) -> CallResult<()> {
        if self.router.links.is_some() && !self.owns(MOVER) {
            return Err(Refusal::Elsewhere);
        }
        let moved = self.router.ask::<()>(from, HostMove::Give { hosts, way, to }).await;
        if moved.is_err() {
            // The move may have been made nevertheless.
            self.router.mark_hints_stale();
        }
        moved
    }

    /// Deletes an alias; each of its hosts becomes a group of its own again.
    pub async fn delete_group(&self, alias: Alias) -> CallResult<()> {
        let deadline = Instant::now() + Duration::from_millis(limits::HAND_OVER_WAIT.0);
        loop {
            let deleted = match self.ask_mover(&NodeCall::DeleteGroup(alias.clone())).await? {
                None => self.delete_group_here(alias.clone()).await,
                Some(told) => told.try_into(),
            };
            match deleted {
                Err(Refusal::Elsewhere) => self.await_mover(deadline).await?,
                deleted => return deleted,
            }
        }
    }

    pub(crate) async fn delete_group_here(&self, alias: Alias) -> CallResult<()> {
        self.refresh_hints(Duration::ZERO).await;
        let _one_at_a_time = self.moves.lock().await;
        self.begin_move().await?;
        let shard = home(&alias, self.shards());
        let unknown = Refusal::UnknownGroup(alias.to_string());
        let view: Option<GroupView> = self.router.ask(shard, StateQuery::Group(alias.clone().into())).await?;
        let view = view.filter(|view| view.aliased).ok_or(unknown)?;
        let some = !view.hosts.is_empty();
        self.move_out(&alias, view.hosts).await?;
        let deleted = self.router.ask(shard, AdminChange::DeleteGroup(alias)).await;
        deleted.map_err(|refusal| if some { refusal.after_partial_change("its hosts have left it") } else { refusal })
    }

    /// Changes a crawl on every shard, creating it if necessary. One shard decides, and the others follow. Fails if the
    /// changes contradict what is set, there are too many crawls, or the store cannot be reached.
    pub async fn set_crawl(&self, crawl: CrawlName, changes: CrawlChanges, replace: bool) -> CallResult<CrawlView> {
        // One at a time: a change that is overtaken by another one costs a further round.
        let one_at_a_time = self.crawl_changes.lock().await;
        self.router.set_crawl(&crawl, Some((changes, replace))).await?;
        drop(one_at_a_time);
        self.crawl(crawl).await.map_err(|refusal| refusal.after_partial_change("the crawl was changed"))
    }

    /// Deletes a crawl with all its URLs and settings; returns the number of URLs.
    pub async fn delete_crawl(&self, crawl: CrawlName) -> CallResult<u64> {
        const LEFT: &str = "the crawl was deleted, but chunks of it may still be built; delete it again";
        let (count, _) = self.router.delete_crawl(&crawl).await?;
        // A second pass: a shard that was reopened since the first one no longer remembers the deletion, and links
        // found on pages of other shards may still be on their way to it. It has a number of its own: a claim that was
        // served between the start of the first pass and its arrival made chunks that are younger than the first number,
        // and none can be made of this crawl after the first pass. A crawl of the same name that begins between the
        // passes is deleted by the second one, with its chunks.
        let part = |refusal: Refusal| {
            refusal.after_partial_change("the crawl was deleted, but links found meanwhile may be stored")
        };
        let (late, at) = self.router.delete_crawl(&crawl).await.map_err(part)?;
        let part = |refusal: Refusal| match refusal {
            Refusal::OutcomeUnknown(why) => Refusal::OutcomeUnknown(format!("{LEFT}: {why}")),
            refusal => refusal.after_partial_change(LEFT),
        };
        Pipeline::new(self.clone()).end_chunks(&crawl, at).await.map_err(part)?;
        self.router
            .drop_ledger(&crawl)
            .await
            .map_err(|refusal| refusal.after_partial_change("the crawl was deleted"))?;
        Ok(count + late)
    }

    /// Deletes the queue of a crawl at a host; returns the number of URLs, 0 if there is no such queue.
    pub async fn delete_queue(&self, crawl: CrawlName, host: HostName) -> CallResult<u64> {
        let ask = AdminChange::DeleteQueue { crawl, host: host.clone() };
        self.at_host(&host, ask.clone()).await
    }

    /// Sets the number of pages after which a queue hands out no more; `None` removes the limit.
    pub async fn set_queue_limit(&self, crawl: CrawlName, host: HostName, limit: Option<u64>) -> CallResult<()> {
        let ask = AdminChange::SetQueueLimit { crawl, host: host.clone(), limit };
        self.at_host(&host, ask.clone()).await
    }

    /// Removes URLs of a crawl, or of one host in it, that were stored before a time; returns their number. Fails if
    /// the store cannot be reached; what was removed by then stays removed.
    pub async fn purge(&self, crawl: CrawlName, host: Option<HostName>, before: Time) -> CallResult<u64> {
        self.refresh_hints(Duration::ZERO).await;
        let (mut count, mut unread) = (0, None);
        let shards: Vec<ShardId> = match &host {
            Some(host) => vec![self.router.shard_of(host)],
            None => self.all(),
        };
        for shard in shards {
            let ask = StateQuery::QueuesOf { crawl: crawl.clone(), host: host.clone() };
            let queues: CallResult<Vec<QueueId>> = self.router.ask(shard, ask).await;
            for queue in queues.map_err(|refusal| purged_in_part(refusal, count))? {
                self.purge_queue(shard, queue, before, (&mut count, &mut unread)).await?;
            }
        }
        match unread {
            Some(Refusal::Damaged { host, cause }) => {
                let cause = format!("{cause}; the other URLs, {count}, have been removed");
                Err(Refusal::Damaged { host, cause })
            }
            Some(refusal) => Err(purged_in_part(refusal, count)),
            None => Ok(count),
        }
    }

    async fn purge_queue(
        &self,
        shard: ShardId,
        queue: QueueId,
        before: Time,
        (count, unread): (&mut u64, &mut Option<Refusal>),
    ) -> CallResult<()> {
        let mut after = None;
        loop {
            let purged = self.router.ask(shard, UrlChange::Purge { queue, before, after }).await;
            let (purged, next, damage): Purged = purged.map_err(|refusal| purged_in_part(refusal, *count))?;
            *count += purged;
            *unread = unread.take().or(damage);
            match next {
                Some(next) => after = Some(next),
                None => return Ok(()),
            }
        }
    }

    /// Sets the default delay, used where group, host and crawl set none; `None` restores the built-in default.
    pub async fn set_default_delay(&self, delay: Option<Millis>) -> CallResult<()> {
        self.router.ask_all::<()>(&self.all(), AdminChange::SetDefaultDelay(delay)).await.map(drop)
    }
}

/// The refusal after some hosts have already been moved.
fn in_part(refusal: Refusal, moved: usize) -> Refusal {
    if moved > 0 { after_partial_change(refusal, &format!("{moved} hosts have been moved")) } else { refusal }
}

/// The refusal after part of a group change. `Elsewhere`, which means that another node is the mover now, is passed on
/// unchanged: the whole change is then repeated there.
fn after_partial_change(refusal: Refusal, done: &str) -> Refusal {
    if refusal == Refusal::Elsewhere { refusal } else { refusal.after_partial_change(done) }
}

/// The refusal after some URLs have already been removed.
fn purged_in_part(refusal: Refusal, count: u64) -> Refusal {
    if count > 0 { refusal.after_partial_change(&format!("{count} URLs have been removed")) } else { refusal }
}

/// Groups hosts by home shard, in a fixed order, so that the same request always moves them the same way.
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
