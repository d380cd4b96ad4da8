//! Moving hosts between groups: the giver's side and the taker's side of one commit that is fenced by both.

use hashbrown::HashSet;
use wayleave_core::frontier::move_host::Moving;
use wayleave_core::frontier::refusal::Refusal;
use wayleave_core::frontier::row::Write;
use wayleave_core::frontier::url_key::UrlKey;
use wayleave_core::ids::{HostId, QueueId, ShardId};
use wayleave_core::limits::{MOVE_TIME, SLICE_ROWS};
use wayleave_core::names::{Alias, HostName};
use wayleave_core::time::Time;
use wayleave_engine::rows::{Kind, hold, key};
use wayleave_engine::{Batch, Error, Scan};

use crate::ask::{Ask, Told};
use crate::message::Reply;
use crate::open::damaged;
use crate::owner::Owner;
use crate::router::stopping;

type Hold = (Time, QueueId, UrlKey);

impl Owner {
    /// Lets hosts go. The owner waits for the taker's commit: until then nobody may decide anything about them.
    pub async fn give(
        &mut self,
        hosts: Vec<HostName>,
        alias: Option<Alias>,
        to: ShardId,
        reply: Reply,
    ) -> Result<(), Error> {
        if self.router.upgrade().is_some_and(|router| router.links.is_some()) {
            // The taker may commit for us from another node: what we have under way must not come after that.
            self.flush().await?;
        }
        let holds = self.holds_of(&hosts).await?;
        let now = self.now();
        let mut writes = Vec::new();
        let mut moving = Vec::with_capacity(hosts.len());
        for host in &hosts {
            let id = self.state.host_id(host);
            let mine = holds.iter().filter(|(_, queue, _)| Some(queue.host) == id).cloned().collect();
            moving.push(self.state.export(host, mine, now, &mut writes));
            if alias.is_some() {
                self.state.set_moved(host, alias.as_ref());
            }
        }
        if to == self.shard {
            self.adopt(moving, alias.as_ref(), now, &mut writes);
            self.commit(writes);
            self.cycle.answers.push(Box::new(move |durable| _ = reply.send(durable.map(Told::from))));
            return Ok(());
        }
        let part = self.seal(writes).unwrap_or_default();
        let answer = self.hand_over(to, Ask::Take { moving, alias, part }).await;
        let failed = answer.is_err();
        _ = reply.send(answer.map(Told::from));
        // What was exported is out of memory; if it was not taken the store still has it.
        if failed { Err(Error::OutcomeUnknown("a host could not be moved".to_owned())) } else { Ok(()) }
    }

    /// Asks the taker, which may be on another node; only so long, for it may wait for this shard in turn.
    fn hand_over(&self, to: ShardId, take: Ask) -> impl Future<Output = Result<(), Refusal>> + use<> {
        let router = self.router.upgrade();
        let within = std::time::Duration::from_millis(MOVE_TIME.0);
        let gave_up = move || Refusal::OutcomeUnknown(format!("shard {} did not take the host in time", to.0));
        async move {
            let router = router.ok_or_else(stopping)?;
            tokio::time::timeout(within, router.ask(to, take)).await.unwrap_or_else(|_| Err(gave_up()))
        }
    }

    /// Takes hosts in, with the giver's side in the same commit.
    pub async fn take(
        &mut self,
        moving: Vec<Moving>,
        alias: Option<Alias>,
        part: Batch,
        reply: Reply,
    ) -> Result<(), Error> {
        let now = self.now();
        let mut writes = Vec::new();
        self.adopt(moving, alias.as_ref(), now, &mut writes);
        let mut batch = self.seal(writes).unwrap_or_default();
        batch.fences.extend(part.fences);
        batch.writes.extend(part.writes);
        let outcome = self.engine.commit(batch).await;
        _ = reply.send(outcome.as_ref().copied().map(Told::from).map_err(crate::cycle::refusal));
        outcome
    }

    fn adopt(&mut self, moving: Vec<Moving>, alias: Option<&Alias>, now: Time, writes: &mut Vec<Write>) {
        for host in moving {
            if alias.is_none() {
                self.state.set_moved(&host.name, None);
            }
            self.state.adopt(host, alias, now, writes);
        }
        // A host that has been here before was served elsewhere since: what is remembered of its queues is out of date.
        self.heads = self.config.heads(self.state.host_count());
        self.recent = crate::recent::Recent::new(self.config.recent_rows_max);
        // And URLs may have been removed there.
        self.seen = crate::seen::Seen::new(self.config.share(self.config.seen_bytes_max));
        // URLs may have been added to these hosts elsewhere: the filter must read them before it may say "new".
        self.filter = crate::filter::Filter::new(self.config.share(self.config.filter_bytes_max));
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
