//! Moving hosts between groups: the giver's side and the taker's side of one commit that is fenced by both.
//!
//! The giver G waits for the taker T only for a time, for T may wait for G in turn. When it gives up it owns its shard
//! again and reads it, while T may still find the old request in its inbox. A store refuses T's batch then, as it carries
//! G's old epoch, but one that shows what is in flight could show it to G's opening reads first. So T commits for G only
//! while G's term lasts, checked under a lock that the opening of a shard passes through as well (`held`):
//!
//! 1. T commits, G hears of it: the host has moved.
//! 2. G gives up, then T looks at the request: nobody waits, or G's shard is being opened or has a newer epoch. T drops
//!    the request before it has changed anything.
//! 3. T has adopted the host in memory, G gives up and opens its shard, T is about to commit: the check under the lock
//!    fails. T commits nothing and reloads, for its memory has a host that the store does not give it.
//! 4. T hands the batch to the engine, then G gives up and owns its shard: the batch is in the engine before `own` is
//!    called. It is durable before the new epoch counts, and G reads the host as gone; or it is refused, and the engine
//!    hides it from those who read after `own`.
//! 5. G is on another node and dies; this node takes G's shard over and opens it, then T looks at the request: as in 2 and
//!    3, because the shard is held here under no epoch yet, or under a newer one.
//! 6. G is on another node, alive, and gave up: its own node's reads never see what this node has in flight, and the store
//!    refuses the old epoch.
//! 7. The answer to G is lost: G gives up, owns its shard, and finds the host gone or not, as in 4.
//! 8. T refuses and G hears that: nothing was committed, so G resumes under its present epoch. The number that it sealed
//!    is used again, and no request is left that carries it.
//!
//! Whoever changes groups may be behind the times as well: a mover M stops in the middle of a change, another becomes the
//! mover and goes on, M wakes up and sends what it still had to send. So both sides look at what they know themselves, in
//! the turn in which they change it:
//!
//! 9. M wants host H to join alias `a`, and the other mover has put H into `b`: H's home knows that and refuses.
//! 10. M wants H to leave `a`, and the other mover has moved it out of `a` and into `b`: `a` no longer has H. Were H to
//!     come home from nowhere, its home would serve it beside `b`. `a`'s shard refuses to give what it has not, and H's home
//!     refuses to take from `a` what lives with `b`.

use hashbrown::HashSet;
use wayleave_core::frontier::move_host::{Moving, Way};
use wayleave_core::frontier::refusal::Refusal;
use wayleave_core::frontier::row::Write;
use wayleave_core::frontier::url_key::UrlKey;
use wayleave_core::ids::{HostId, QueueId, ShardId};
use wayleave_core::limits::{MOVE_TIME, SLICE_ROWS};
use wayleave_core::names::HostName;
use wayleave_core::time::Time;
use wayleave_engine::rows::{Kind, hold, key};
use wayleave_engine::{Batch, Error, Scan};

use crate::ask::{HostMove, Told};
use crate::message::Reply;
use crate::owner::dispatch::Call;
use crate::owner::open::damaged;
use crate::owner::owner_loop::Owner;
use crate::routing::router::stopping;

/// What a giver hears that has come too late to give.
fn not_awaited() -> Refusal {
    Refusal::Unavailable("the shard that gives the host away no longer waits for this".to_owned())
}

type Hold = (Time, QueueId, UrlKey);

impl Owner {
    /// Lets hosts go. The owner waits for the taker's commit: until then nobody may decide anything about them.
    pub async fn give(&mut self, hosts: Vec<HostName>, way: Way, to: ShardId, call: Call) -> Result<(), Error> {
        let Call { reply, mark } = call;
        let may = hosts.iter().try_for_each(|host| self.state.may_give(host, &way));
        let new = hosts.iter().map(|host| &**host).filter(|_| way.into_alias().is_some());
        if let Some(refusal) = may.err().or_else(|| self.refuse_hosts(new)) {
            _ = reply.send(Err(refusal));
            return Ok(());
        }
        let holds = match self.begin_give(&hosts).await {
            Ok(holds) => holds,
            Err(error) => {
                // Nothing of the move was done, also where it is not known whether the empty commit was.
                _ = reply.send(Err(Refusal::Unavailable(format!("the host was not moved: {error}"))));
                return Err(error);
            }
        };
        let now = self.now();
        let mut writes = Vec::new();
        let mut moving = Vec::with_capacity(hosts.len());
        for host in &hosts {
            let id = self.state.host_id(host);
            let mine = holds.iter().filter(|(_, queue, _)| Some(queue.host) == id).cloned().collect();
            let jobs = if to == self.shard { Vec::new() } else { self.jobs_owed_to(id) };
            moving.push(Moving { jobs, ..self.state.export(host, mine, now, &mut writes) });
            if let Way::Into(alias) = &way {
                self.state.set_moved(host, Some(alias));
            }
        }
        if to == self.shard {
            self.adopt(moving, &way, now, &mut writes);
            self.commit(writes);
            self.cycle.answer(mark, Box::new(move |durable| _ = reply.send(durable.map(Told::from))));
            return Ok(());
        }
        let part = self.seal(writes).unwrap_or_default();
        let answer = self.hand_over(to, HostMove::Take { moving, way, part }).await;
        // What was exported is out of memory; if it was not taken the store still has it.
        let failed = match &answer {
            Ok(()) => None,
            Err(Refusal::Unavailable(why)) => Some(Error::Unavailable(why.clone())),
            Err(refusal) => Some(Error::OutcomeUnknown(format!("a host could not be moved: {refusal}"))),
        };
        _ = reply.send(answer.map(Told::from));
        failed.map_or_else(
            || {
                self.committed_for();
                Ok(())
            },
            Err,
        )
    }

    /// What must be so before hosts can go: nothing in flight that could come after the taker's commit. Says their holds.
    async fn begin_give(&mut self, hosts: &[HostName]) -> Result<Vec<Hold>, Error> {
        if self.router.upgrade().is_some_and(|router| router.links.is_some()) {
            // The taker may commit for us from another node: what we have under way must not come after that.
            self.flush().await?;
        }
        self.holds_of(hosts).await
    }

    /// Asks the taker, which may be on another node; only so long, for it may wait for this shard in turn.
    fn hand_over(&self, to: ShardId, take: HostMove) -> impl Future<Output = Result<(), Refusal>> + use<> {
        let router = self.router.upgrade();
        let within = std::time::Duration::from_millis(MOVE_TIME.0);
        let gave_up = move || Refusal::OutcomeUnknown(format!("shard {} did not take the host in time", to.0));
        async move {
            let router = router.ok_or_else(stopping)?;
            tokio::time::timeout(within, router.ask(to, take)).await.unwrap_or_else(|_| Err(gave_up()))
        }
    }

    /// Takes hosts in, with the giver's side in the same commit.
    pub async fn take(&mut self, moving: Vec<Moving>, way: Way, part: Batch, reply: Reply) -> Result<(), Error> {
        if let Err(refusal) = moving.iter().try_for_each(|host| self.state.may_take(&host.name, &way)) {
            _ = reply.send(Err(refusal));
            return Ok(());
        }
        let Some(router) = self.router.upgrade().filter(|router| !reply.is_closed() && router.held.allow(&part.fences))
        else {
            _ = reply.send(Err(not_awaited()));
            return Ok(());
        };
        let now = self.now();
        let mut writes = Vec::new();
        self.adopt(moving, &way, now, &mut writes);
        let mut batch = self.seal(writes).unwrap_or_default();
        let theirs = part.fences.clone();
        batch.fences.extend(part.fences);
        batch.writes.extend(part.writes);
        let (engine, awaited) = (self.engine.clone(), || !reply.is_closed());
        let Some(commit) = router.held.while_allowed(&theirs, awaited, move || engine.commit(batch)) else {
            _ = reply.send(Err(not_awaited()));
            return Err(Error::Unavailable(not_awaited().to_string()));
        };
        let outcome = self.commit_both(commit).await;
        _ = reply.send(outcome.as_ref().copied().map(Told::from).map_err(crate::owner::cycle::refusal));
        outcome
    }

    fn adopt(&mut self, moving: Vec<Moving>, way: &Way, now: Time, writes: &mut Vec<Write>) {
        for host in moving {
            if let Way::OutOf(_) = way {
                self.state.set_moved(&host.name, None);
            }
            let (id, jobs) = (host.id(), host.jobs.clone());
            self.state.adopt(host, way.into_alias(), now, writes);
            if let Some(id) = id {
                self.take_jobs(id, &jobs, writes);
            }
        }
        // A host that has been here before was served elsewhere since: what is remembered of its queues is out of date.
        self.lane_cache = self.config.heads(self.state.host_count());
        self.held_cache = crate::cache::held_cache::HeldCache::new(self.config.recent_rows_max);
        // And URLs may have been removed there.
        self.known_cache = crate::cache::known_cache::KnownCache::new(self.config.share(self.config.seen_bytes_max));
        // URLs may have been added to these hosts elsewhere: the filter must read them before it may say "new".
        self.filter = crate::cache::filter::Filter::new(self.config.share(self.config.filter_bytes_max));
    }

    /// The holds of some hosts. Holds lie by their end, so all of the shard's are looked at; moves are rare.
    async fn holds_of(&mut self, hosts: &[HostName]) -> Result<Vec<Hold>, Error> {
        let ids: HashSet<HostId> = hosts.iter().filter_map(|host| self.state.has_holds(host)).collect();
        let mut found = Vec::new();
        if ids.is_empty() {
            return Ok(found);
        }
        let (mut from, to) = key::range(self.shard, Kind::Hold, Kind::Hold);
        loop {
            let scan = Scan { from, to: to.clone(), limit: SLICE_ROWS };
            let rows = self.engine.scan_many(std::slice::from_ref(&scan)).await?.pop().unwrap_or_default();
            for row in &rows {
                let hold = hold::parse_key(&row.key).map_err(damaged)?;
                if ids.contains(&hold.1.host) {
                    found.push(hold);
                }
            }
            match rows.into_iter().next_back() {
                Some(last) => {
                    from = last.key;
                    from.push(0);
                }
                None => return Ok(found),
            }
        }
    }
}

#[cfg(test)]
#[path = "moving_tests.rs"]
mod tests;
