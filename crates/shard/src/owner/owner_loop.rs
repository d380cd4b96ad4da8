//! The owner loop of a shard: receive → stamp now → read facts → decide → commit → reply.
//!
//! The owner is the shard's single writer. Each turn drains the inbox, decides the calls in order and commits them; the
//! answers wait for their commits while the next turn is decided. After a commit that failed or whose outcome is
//! unknown the term ends and the state is reloaded: the owner never guesses.

use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::sync::oneshot;
use wayleave_core::frontier::refusal::Refusal;
use wayleave_core::ids::ShardId;
use wayleave_core::limits;
use wayleave_engine::Error;

use crate::ask::{AdminChange, Ask, HostMove};
use crate::message::{Message, Reply};
use crate::owner::control::Control;
use crate::owner::frontier::Frontier;
use crate::owner::frontier::put_replies::Puts;
use crate::owner::inbox::InboxReceiver;
use crate::owner::open::Opened;
use crate::owner::pipeline::{Links, Pipeline};
use crate::owner::pools::Pools;
use crate::owner::port::{Port, cycle};
use crate::owner::run::OwnerContext;
use crate::routing::service_call::ServiceCall;

/// A shard and everything its owner keeps for it.
pub(crate) struct Owner {
    pub port: Port,
    frontier: Frontier,
    pipeline: Pipeline,
    /// Fleet and placement, in the one shard that keeps them.
    control: Option<Box<Control>>,
    /// Pools whose names hash to this shard.
    pools: Pools,
    /// The shard was closed because of damage and counts as closed until a turn succeeds.
    pub is_settling: bool,
}

impl Owner {
    pub fn new(context: &OwnerContext, opened: Opened) -> Self {
        let Opened { frontier, pipeline, control, pools, epoch, seq, log } = opened;
        // Whatever was published before describes state that has been dropped.
        context.readiness.crawls.forget(context.shard);
        context.readiness.requests.forget(context.shard);
        let port = Port::new(context, (epoch, seq), log);
        let mut owner = Self {
            frontier: Frontier::new(frontier, &port),
            pipeline: Pipeline::new(pipeline, &port),
            control,
            pools,
            is_settling: false,
            port,
        };
        owner.frontier.begin(&mut owner.port);
        owner
    }

    /// How long until the shard has work of its own; `None` if only a message can bring some.
    pub fn idle_for(&self) -> Option<Duration> {
        if let Some(left) = self.port.probe_in() {
            return Some(left);
        }
        if self.is_settling {
            return Some(Duration::ZERO);
        }
        let control = self.control.as_ref().and_then(|control| control.wake_at());
        let services = [self.frontier.wake_at(), self.pipeline.wake_at(), control, self.pools.wake_at()];
        let next = services.into_iter().chain([self.port.wake_at()]).flatten().min();
        let next = next.map(|at| Duration::from_millis(at.since(self.port.now()).0));
        next.into_iter().chain(self.frontier.idle_for()).min()
    }

    /// Publishes whether the shard is open.
    pub fn set_open(&self, open: bool) {
        if let Some(published) = self.port.readiness.shards.get(usize::from(self.port.shard.0)) {
            published.open.store(open, Ordering::Release);
        }
    }

    /// One turn: expirations first, then the inbox up to a bound. Even if the turn fails, every message received is
    /// answered: refused, or according to the commits made for it before.
    pub async fn turn(
        &mut self,
        mut first: Option<Message>,
        inbox: &mut InboxReceiver,
        stop: &mut Option<oneshot::Sender<()>>,
    ) -> Result<(), Error> {
        if let Err(error) = self.begin_turn().await {
            match first.take() {
                // A stop must still wait for the commits in flight.
                Some(Message::Stop { done }) => *stop = Some(done),
                Some(message) => message.refuse(&cycle::refusal(&error)),
                None => {}
            }
            return Err(error);
        }
        let busy = first.is_some();
        let mut puts = Puts::default();
        if let Err(error) = self.receive(first, inbox, stop, &mut puts).await {
            puts.refuse(&cycle::refusal(&error));
            self.pools.refuse(&cycle::refusal(&error));
            return Err(error);
        }
        if self.port.refusal().is_some() {
            self.frontier.pause();
            return Ok(());
        }
        self.tidy(busy).await
    }

    async fn begin_turn(&mut self) -> Result<(), Error> {
        self.port.probe().await?;
        if self.port.refusal().is_none() {
            self.sweep().await?;
        }
        self.frontier.set_room(&self.port);
        Ok(())
    }

    /// Ends leases and holds that are over. Only entries that are due are read; there is no polling.
    async fn sweep(&mut self) -> Result<(), Error> {
        let now = self.frontier.now(&self.port);
        self.frontier.sweep_leases(now, &mut self.port).await?;
        let with = &mut Links { frontier: &mut self.frontier, port: &mut self.port };
        self.pipeline.sweep(now, with).await?;
        self.frontier.sweep(now, &mut self.port).await
    }

    async fn receive(
        &mut self,
        first: Option<Message>,
        inbox: &mut InboxReceiver,
        stop: &mut Option<oneshot::Sender<()>>,
        puts: &mut Puts,
    ) -> Result<(), Error> {
        let mut next = first;
        let mut left = limits::SHARD_BATCH_MAX;
        let mut sliced = false;
        while let Some(message) = next {
            sliced |= message.is_slice();
            left = left.saturating_sub(message.weight());
            match message {
                Message::Put { items, sink } => puts.add(items, sink),
                Message::Stop { done } => {
                    // Messages in the other queues were sent before the stop and are still served.
                    *stop = Some(done);
                    left = usize::from(u16::MAX);
                }
                Message::Ask { ask, reply } => {
                    if let Err(error) = self.frontier.put_all(std::mem::take(puts), &mut self.port).await {
                        _ = reply.send(Err(cycle::refusal(&error)));
                        return Err(error);
                    }
                    self.handle(ask, reply).await?;
                }
                Message::Chunk { call, reply } => {
                    if let Err(error) = self.frontier.put_all(std::mem::take(puts), &mut self.port).await {
                        _ = reply.send(Err(cycle::refusal(&error)));
                        return Err(error);
                    }
                    let with = &mut Links { frontier: &mut self.frontier, port: &mut self.port };
                    self.pipeline.handle(call, reply, with).await?;
                }
                // It concerns no URL, so puts need not come before it.
                Message::Control { call, reply } => match &mut self.control {
                    Some(control) => control.handle(call, reply, &mut self.port),
                    None => _ = reply.send(Err(not_control(self.port.shard))),
                },
                Message::Match { call, reply } => self.pools.handle(call, reply, &self.port),
            }
            next = if left > 0 { inbox.try_recv() } else { None };
            if next.is_none() && !sliced {
                // One slice per turn, after everything else: readers can wait, and still make progress.
                next = inbox.try_slice();
            }
        }
        // Reports that are left for the next turn must not be missed by the judge.
        self.control.iter_mut().for_each(|control| control.note_drained(left > 0));
        self.pools.finish(&mut self.port);
        self.frontier.put_all(std::mem::take(puts), &mut self.port).await
    }

    /// Serves a call to the frontier; one that concerns chunks as well is the pipeline's.
    async fn handle(&mut self, ask: Ask, reply: Reply) -> Result<(), Error> {
        let Self { port, frontier, pipeline, .. } = self;
        let Some(call) = port.admit(reply, ask.needs_caller(), ask.is_read_only()) else { return Ok(()) };
        if ask.host().is_some_and(|host| !frontier.belongs(host, port)) {
            return port.answer(call, Ok(Err::<(), _>(Refusal::Moved)));
        }
        let now = frontier.now(port);
        match ask {
            Ask::StateQuery(query) => {
                let mut told = frontier.look(&query, now, port);
                if let Ok(told) = &mut told {
                    pipeline.tell_of_offers(told, now, frontier);
                }
                port.answer(call, Ok(told))
            }
            Ask::RowQuery(query) => frontier.query(query, call, port).await,
            Ask::Admin(AdminChange::Crawl(change)) => frontier.change_crawl(&change, call, port).await,
            Ask::Admin(AdminChange::DeleteCrawl { crawl, number }) => {
                pipeline.delete_crawl(&crawl, number, call, &mut Links { frontier, port })
            }
            Ask::Admin(change) => frontier.change(&change, now, call, port),
            Ask::Job(change) => frontier.change_job(change, now, call, port),
            Ask::Url(change) => frontier.change_urls(change, call, port).await,
            Ask::Visit(visit) => frontier.visit(visit, now, call, port).await,
            Ask::Move(HostMove::Give { hosts, way, to }) => frontier.give(hosts, way, to, call, port).await,
            Ask::Move(HostMove::Take { moving, way, part }) => frontier.take(moving, way, part, call.reply, port).await,
        }
    }

    /// Background work of the services. `busy` if calls came in this turn.
    async fn tidy(&mut self, busy: bool) -> Result<(), Error> {
        self.port.checkpoint(&self.frontier.state);
        self.control.iter_mut().for_each(|control| control.tick(&mut self.port));
        self.pipeline.tick(&mut Links { frontier: &mut self.frontier, port: &mut self.port }).await?;
        self.frontier.tick(busy, &mut self.port).await
    }

    /// Publishes what a turn has changed, before any of its answers is sent.
    pub fn publish(&mut self) {
        self.frontier.publish_counts(&self.port);
        self.pipeline.publish_requests(&self.port);
        self.frontier.publish(&self.port);
        self.pipeline.publish(&self.port);
        self.control.iter_mut().for_each(|control| control.publish(&self.port));
        self.pools.publish(&self.port);
    }

    /// Another shard has returned pages of some crawls, or waits for some.
    pub fn hear_of_pages(&mut self) {
        self.frontier.hear_of_pages(&mut self.port);
    }

    /// Publishes the counts of crawls with limits; after a turn that has not failed.
    pub fn share_limits(&mut self) {
        self.frontier.share_limits(&mut self.port);
    }
}

impl Drop for Owner {
    /// The next owner of the shard counts its hosts and crawls again.
    fn drop(&mut self) {
        self.frontier.discount(&self.port);
    }
}

fn not_control(shard: ShardId) -> Refusal {
    Refusal::Internal(format!("shard {} does not keep the fleet", shard.0))
}
