//! A member: joins, keeps its row alive, keeps its seats in order, and leaves. Two tasks share the work: lease renewal, which
//! must never wait for anything but the store, and the seats, which open and close shards.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::FutureExt;
use tokio::sync::watch;
use tokio::task::AbortHandle;
use tokio::time::Instant;
use wayleave_core::cluster::NodeRow;
use wayleave_core::ids::{NodeId, ShardId};
use wayleave_core::time::{Millis, Time};
use wayleave_engine::rows::cluster;
use wayleave_engine::rows::node;
use wayleave_engine::{Error, Key, Look, Write};
use wayleave_registry::{Decision, News, Registry, Subject, value};
use wayleave_shard::{Deadline, Frontier, Service, Spawn};

use crate::join_error::JoinError;
use crate::lapses::Lapses;
use crate::lease_renewal::{LeaseRenewal, Missed};
use crate::network::Network;
use crate::seats::{self, Seats};
use crate::{address, cluster_rows};

/// How a node takes part.
#[derive(Clone, Debug)]
pub struct Options {
    /// Random for every start.
    pub id: NodeId,
    /// Where other nodes reach this one.
    pub address: String,
    /// What people call it.
    pub name: String,
    /// A node that is not heard of for this long is replaced.
    pub ttl: Millis,
    /// The newest format of a store that it knows.
    pub format: u32,
}

impl Options {
    /// How often a node renews its row: four may be lost.
    #[must_use]
    pub const fn interval(&self) -> Duration {
        Duration::from_millis(self.ttl.0 / 5)
    }
}

/// The state of a node, as others see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeState {
    /// It is heard of.
    Alive,
    /// It is handing its shards over.
    Leaving,
    /// It was not heard of in time: its shards go to others.
    Lost,
}

/// A node, for people to look at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeView {
    /// What it publishes about itself.
    pub row: NodeRow,
    /// Its state.
    pub state: NodeState,
    /// How many shards belong to it.
    pub shards: usize,
    /// Whether it is the one that was asked.
    pub here: bool,
    /// Whether the format of the store would be raised without it.
    pub holds_back: bool,
}

/// What both tasks share.
pub(crate) struct Shared {
    pub registry: Registry,
    pub frontier: Frontier,
    pub network: Arc<dyn Network>,
    pub options: Options,
    /// Whether this node may take itself for alive.
    pub alive: watch::Sender<bool>,
    pub leaving: watch::Sender<bool>,
    pub lapses: Lapses,
    /// Why this node may not be one any more, once it may not.
    out: watch::Sender<Option<JoinError>>,
    /// What was last seen, and when.
    pub nodes: Mutex<(Vec<NodeView>, Option<Instant>)>,
    /// The format of the store.
    pub format: AtomicU32,
    /// The shards that this node has failed to open several times.
    pub failing: Mutex<BTreeSet<ShardId>>,
    /// Counts the times that the rows were looked at and acted upon.
    pub passes: watch::Sender<u64>,
}

/// A node among others.
pub struct Membership {
    shared: Arc<Shared>,
    renewal: AbortHandle,
    seats: AbortHandle,
}

/// What nodes of a store show each other; made by the first node.
pub async fn agree(registry: &Registry, entropy: u128) -> Result<u128, JoinError> {
    let decide = |look: &Look, _| match value(look, &cluster::key()) {
        Some(found) => Decision::keep(cluster::decode(found)),
        None => {
            let writes = vec![Write { key: cluster::key(), value: Some(cluster::encode(entropy)) }];
            Decision::write(writes, News::NOBODY, Ok(entropy))
        }
    };
    let secret = registry.update_here(&Subject::row(cluster::key(), "what nodes agree on"), decide).await?;
    Ok(secret.map_err(|error| Error::Corrupt(error.to_string()))?)
}

impl Membership {
    /// Joins the nodes of a store, any number of them, and waits until this node's shards are opening. Its tasks run
    /// on `tasks`. Fails if the store cannot be reached, or a living node has the address.
    pub async fn join(
        registry: Registry,
        frontier: Frontier,
        network: Arc<dyn Network>,
        options: Options,
        tasks: &dyn Spawn,
    ) -> Result<Self, JoinError> {
        let member = Self::enter(registry, frontier, network, options, tasks).await?;
        member.settled().await;
        Ok(member)
    }

    /// Joins, and does not wait for any shard. Fails as [`Self::join`] does.
    pub async fn enter(
        registry: Registry,
        frontier: Frontier,
        network: Arc<dyn Network>,
        options: Options,
        tasks: &dyn Spawn,
    ) -> Result<Self, JoinError> {
        let row = NodeRow {
            id: options.id,
            address: options.address.as_str().into(),
            name: options.name.as_str().into(),
            version: env!("CARGO_PKG_VERSION").into(),
            protocol: Service::Frontier.version(),
            started_at: Time::ZERO,
            alive_since: Time::ZERO,
            expires_at: Time::ZERO,
            leaving: false,
            format: options.format,
            failing: BTreeSet::new(),
        };
        let mut renewal = LeaseRenewal { registry: registry.clone(), row, ttl: options.ttl };
        let deadline = address::join(&mut renewal, &*network).await?;
        frontier.set_sure_until(deadline);
        let shared = Arc::new(Shared {
            registry,
            frontier,
            network,
            options,
            alive: watch::Sender::new(true),
            leaving: watch::Sender::new(false),
            lapses: Lapses::new(deadline),
            out: watch::Sender::new(None),
            nodes: Mutex::default(),
            format: AtomicU32::default(),
            failing: Mutex::default(),
            passes: watch::Sender::new(0),
        });
        let others = Arc::downgrade(&shared);
        let send = move |keys: &[Key]| _ = others.upgrade().map(|shared| shared.send_hints(keys));
        shared.registry.hints().on_send(Arc::new(send));
        Ok(Self {
            renewal: tasks.spawn(live(shared.clone(), renewal, deadline).boxed()),
            seats: tasks.spawn(Seats::new(shared.clone()).run().boxed()),
            shared,
        })
    }

    /// Waits until the shards that fall to this node are opening, at most for the time of a lease.
    pub async fn settled(&self) {
        let mut passes = self.shared.passes.subscribe();
        let looked = passes.wait_for(|passes| *passes > 0);
        _ = tokio::time::timeout(Duration::from_millis(self.shared.options.ttl.0), looked).await;
    }

    /// This node's id.
    #[must_use]
    pub fn id(&self) -> NodeId {
        self.shared.options.id
    }

    /// All nodes, as they were last seen; none if that is too long ago to say anything of now.
    #[must_use]
    pub fn nodes(&self) -> Option<Vec<NodeView>> {
        let (nodes, at) = self.shared.nodes.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let fresh = at.is_some_and(|at| at.elapsed() < Duration::from_millis(self.shared.options.ttl.0));
        fresh.then_some(nodes)
    }

    /// The format of the store, as it was last seen.
    #[must_use]
    pub fn format(&self) -> u32 {
        self.shared.format.load(Ordering::Relaxed)
    }

    /// Whether this node may take itself for alive.
    #[must_use]
    pub fn is_alive(&self) -> bool {
        *self.shared.alive.borrow()
    }

    /// Waits until another process has taken this node's address, or the store has a format that this node does not know, and says so.
    /// This node then gives its shards up and never takes any again: its process should end with this error.
    pub async fn replaced(&self) -> JoinError {
        let mut out = self.shared.out.subscribe();
        match out.wait_for(Option::is_some).await.as_deref() {
            Ok(Some(why)) => why.clone(),
            // The sender lives as long as this member.
            _ => std::future::pending().await,
        }
    }

    /// Hands all shards over and leaves; gives up after `within`, then the others wait for the deadline.
    pub async fn leave(&self, within: Duration) {
        let deadline = Instant::now() + within;
        let mut passes = self.shared.passes.subscribe();
        self.shared.leaving.send_replace(true);
        loop {
            passes.mark_unchanged();
            let left = seats::owned(&self.shared.frontier).is_empty();
            if left || tokio::time::timeout_at(deadline, passes.changed()).await.is_err() {
                break;
            }
        }
        self.renewal.abort();
        self.seats.abort();
        self.shared.frontier.stop().await;
        if let Err(error) = self.shared.registry.write(cluster_rows::leave(self.shared.options.id), News::OTHERS).await
        {
            tracing::warn!(%error, "cannot record that this node leaves; its lease will expire");
        }
    }
}

impl Shared {
    /// This node must not take itself for alive any more.
    fn lose(&self) {
        self.lapses.on_lapse(&self.frontier);
        self.frontier.set_cut_off(true);
        self.alive.send_replace(false);
    }

    /// Lets the seats look now.
    fn look_now(&self) {
        self.registry.hints().wake(&node::key(self.options.id));
    }

    fn send_hints(&self, keys: &[Key]) {
        let (nodes, _) = self.nodes.lock().unwrap_or_else(PoisonError::into_inner).clone();
        for node in nodes.iter().filter(|node| !node.here && node.state != NodeState::Lost) {
            self.network.hint(node.row.id, keys);
        }
    }
}

/// Renews the row until the node has left, or another one has taken its place.
async fn live(shared: Arc<Shared>, mut renewal: LeaseRenewal, mut deadline: Deadline) {
    let interval = shared.options.interval();
    let mut leaving = shared.leaving.subscribe();
    let mut next = Instant::now() + interval;
    // Since when its row has been alive without interruption.
    let mut life = renewal.row.alive_since;
    loop {
        let was_leaving = *leaving.borrow();
        if !was_leaving {
            tokio::select! {
                biased;
                () = tokio::time::sleep_until(next) => {}
                _ = leaving.changed() => {}
            }
        } else {
            tokio::time::sleep_until(next).await;
        }
        let now_leaving = *leaving.borrow();
        renewal.row.failing = shared.failing.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let beat = tokio::select! {
            biased;
            beat = renewal.extend(now_leaving) => beat,
            () = tokio::time::sleep_until(deadline.timer()), if *shared.alive.borrow() => {
                Err(Missed::Store(Error::Unavailable("the store did not answer in time".to_owned())))
            }
        };
        let was_dead = std::mem::replace(&mut life, renewal.row.alive_since) != renewal.row.alive_since;
        // Or the lapse was noticed too late: the renewal was under way, or the process was stopped.
        let late = beat.is_ok() && deadline.has_passed();
        if (was_dead || late) && *shared.alive.borrow() {
            tracing::error!("this node had lost its lease before it was renewed; its shards are opened anew");
            shared.lapses.on_lapse(&shared.frontier);
            shared.look_now();
        }
        match beat {
            Ok(until) => {
                deadline = until;
                shared.lapses.on_renewed(until, &shared.frontier);
                shared.frontier.set_cut_off(false);
                shared.alive.send_if_modified(|alive| !std::mem::replace(alive, true));
                next = Instant::now() + interval;
                if now_leaving != was_leaving {
                    shared.look_now();
                }
            }
            Err(Missed::Out(why)) => {
                tracing::error!(%why, "this node may not join again; giving its shards up");
                shared.lose();
                shared.out.send_replace(Some(why));
                return;
            }
            Err(Missed::Store(error)) => {
                tracing::warn!(%error, "this node could not renew its lease");
                next = Instant::now() + interval / 4;
            }
        }
        if deadline.has_passed() && *shared.alive.borrow() {
            tracing::error!("this node has lost its lease; its shards go to others");
            shared.lose();
        }
    }
}
