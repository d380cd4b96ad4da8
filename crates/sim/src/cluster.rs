//! The nodes of a run: three of them over one store. Each has a keeper that restarts it whenever it is gone.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use wayleave_cluster::{Membership, NodeState, Options};
use wayleave_core::ids::{NodeId, ShardId};
use wayleave_core::time::Millis;
use wayleave_engine::Engine;
use wayleave_engine::format::VERSION;
use wayleave_registry::Registry;
use wayleave_shard::Frontier;

use crate::chance::Chance;
use crate::node_client::{NodeClient, ProcessHandle, ProcessState};
use crate::process::Process;
use crate::store_link::StoreLink;
use crate::switchboard::Switchboard;
use crate::world::{Kind, World, pass};

/// Nodes of a run.
pub const NODES: usize = 3;
/// A node that has not renewed its lease for this long is replaced.
pub const TTL: Millis = Millis(2_000);
/// In the calm phase the shards are evenly spread within this time.
const EVEN_MS: u64 = 60_000;
/// A node that leaves has left within this time, whatever happens meanwhile.
const LEAVE_MS: u64 = 60_000;

/// How long a process that shuts down cleanly waits for calls to be answered.
const DRAIN_MS: u64 = 3_000;

/// One running node.
pub struct Node {
    pub id: NodeId,
    pub address: String,
    pub node_client: NodeClient,
    pub life: ProcessHandle,
    pub member: Arc<Membership>,
    /// The tasks of the member, and those of the shard owners.
    tasks: Process,
    owners: Process,
}

impl Node {
    pub fn is_gone(&self) -> bool {
        self.life.now() == ProcessState::Dead
    }

    fn owns(&self, shard: u16) -> bool {
        self.node_client.frontier.owns(ShardId(shard))
    }
}

/// All nodes.
#[derive(Default)]
pub struct Cluster {
    pub board: Switchboard,
    slots: RefCell<[Option<Rc<Node>>; NODES]>,
    /// Nodes that are joining: a power cut ends them too.
    joining: RefCell<Vec<ProcessHandle>>,
    ids: Cell<u64>,
    /// The number of node faults in progress.
    pub faults: Cell<usize>,
}

impl Cluster {
    pub fn node(&self, slot: usize) -> Option<Rc<Node>> {
        self.slots.borrow().get(slot).cloned().flatten()
    }

    pub fn nodes(&self) -> Vec<Rc<Node>> {
        self.slots.borrow().iter().flatten().cloned().collect()
    }

    fn put(&self, slot: usize, node: Option<Rc<Node>>) {
        if let Some(place) = self.slots.borrow_mut().get_mut(slot) {
            *place = node;
        }
    }

    /// Starts a node, retrying until it has joined.
    pub async fn start(&self, world: &World, slot: usize, address: Option<String>) -> Rc<Node> {
        loop {
            self.ids.set(self.ids.get() + 1);
            let id = NodeId(self.ids.get());
            let address = address.clone().unwrap_or_else(|| format!("http://node-{}", id.0));
            let life = ProcessHandle::new();
            self.joining.borrow_mut().push(life.clone());
            let joined = self.join(world, id, address, &life).await;
            self.joining.borrow_mut().retain(|joining| !joining.is_same(&life));
            match joined {
                Ok(node) if !node.is_gone() => {
                    world.log("join", &format!("{slot} {id} {}", node.address));
                    let node = Rc::new(node);
                    self.put(slot, Some(node.clone()));
                    return node;
                }
                Ok(node) => self.end(&node),
                Err(error) => {
                    world.log("join", &format!("{slot} {id} {error}"));
                    life.change(ProcessState::Dead);
                    self.board.remove(id);
                }
            }
            pass(100).await;
        }
    }

    async fn join(
        &self,
        world: &World,
        id: NodeId,
        address: String,
        life: &ProcessHandle,
    ) -> Result<Node, wayleave_cluster::JoinError> {
        let chance = Chance::new(world.seed, 1_000 + id.0);
        let engine: Arc<dyn Engine> = StoreLink::new(world.store.clone(), life.clone(), chance);
        let line = self.board.line(id);
        let (tasks, owners) = (Process::default(), Process::default());
        let frontier = Frontier::join(engine.clone(), world.config.clone(), &owners, line.clone());
        // Nodes that join at the same time wait for different spans, which are the same in every run.
        let entropy = Arc::new(move || u128::from(id.0.wrapping_mul(7_919)));
        let registry = Registry::with(engine, wayleave_registry::Config { entropy, ..Default::default() });
        self.board.answer(id, frontier.clone(), registry.hints().clone());
        let options = Options { id, address: address.clone(), name: format!("n{}", id.0), ttl: TTL, format: VERSION };
        let member = Arc::new(Membership::join(registry, frontier.clone(), line, options, &tasks).await?);
        let node_client = NodeClient::of_node(frontier, life.clone());
        Ok(Node { id, address, node_client, life: life.clone(), member, tasks, owners })
    }

    fn end(&self, node: &Node) {
        node.life.change(ProcessState::Dead);
        self.board.remove(node.id);
        node.tasks.kill();
        node.owners.kill();
    }

    /// Kills a node without notice.
    pub fn kill(&self, world: &World, slot: usize, node: &Node) {
        world.log("kill", &format!("{slot} {}", node.id));
        self.end(node);
        self.put(slot, None);
    }

    /// Lets a node hand over its shards and leave.
    pub async fn leave(&self, world: &World, slot: usize, node: &Node) {
        world.log("leave", &format!("{slot} {}", node.id));
        self.put(slot, None);
        let in_order = world.kind == Kind::HandOvers;
        if in_order {
            // Clients' calls are answered first.
            pass(DRAIN_MS).await;
        }
        let leaving = node.member.leave(Duration::from_secs(4));
        if tokio::time::timeout(Duration::from_millis(LEAVE_MS), leaving).await.is_err() {
            crate::run::fail(world, &format!("node {} never left", node.id));
        }
        world.log("left", &format!("{slot} {}", node.id));
        if in_order {
            pass(DRAIN_MS).await;
        }
        self.end(node);
    }

    /// Pauses a whole process, or only its member while its owners continue.
    pub async fn stand_still(&self, world: &World, node: &Node, whole: bool, ms: u64) {
        world.log("still", &format!("{} whole: {whole}", node.id));
        node.tasks.stand_still(true);
        if whole {
            node.life.change(ProcessState::Paused);
            self.board.stand_still(node.id, true);
        }
        pass(ms).await;
        world.log("goes on", &node.id.to_string());
        node.tasks.stand_still(false);
        self.board.stand_still(node.id, false);
        node.life.change(ProcessState::Running);
    }

    /// Ends all nodes and the store, as a power cut would; the store restarts at once.
    pub fn power_cut(&self, world: &World) {
        self.joining.borrow().iter().for_each(|life| life.change(ProcessState::Dead));
        let slots = self.slots.borrow().clone();
        for (slot, node) in (0..).zip(slots) {
            if let Some(node) = node {
                self.kill(world, slot, &node);
            }
        }
        world.restart_store();
    }

    /// Waits until the shards are spread evenly and every node sees all others; only in the calm phase.
    pub async fn settle(&self, world: &World) {
        let start = world.clock.elapsed();
        loop {
            let wrong = self.uneven(world);
            match wrong {
                None => return,
                Some(wrong) if world.clock.elapsed() - start > EVEN_MS => {
                    crate::run::fail(world, &format!("the shards are never evenly spread: {wrong}"));
                }
                Some(_) => pass(20).await,
            }
        }
    }

    fn uneven(&self, world: &World) -> Option<String> {
        if self.faults.get() > 0 {
            return Some("faults that are not over".to_owned());
        }
        let nodes = self.nodes();
        if nodes.len() < NODES {
            return Some(format!("only {} nodes", nodes.len()));
        }
        for shard in 0..world.config.shards {
            let owners: Vec<_> = nodes.iter().filter(|node| node.owns(shard)).map(|node| node.id).collect();
            if owners.len() != 1 {
                return Some(format!("shard {shard} has the owners {owners:?}"));
            }
        }
        let count = |node: &Rc<Node>| (0..world.config.shards).filter(|shard| node.owns(*shard)).count();
        let counts: Vec<usize> = nodes.iter().map(count).collect();
        if counts.iter().max()? - counts.iter().min()? > 1 {
            return Some(format!("{counts:?} shards"));
        }
        for (node, owned) in nodes.iter().zip(counts) {
            if let Err(trouble) = node.node_client.frontier.readiness() {
                return Some(format!("node {}: {trouble}", node.id));
            }
            let seen = node.member.nodes().unwrap_or_default();
            let alive: Vec<_> = seen.iter().filter(|other| other.state == NodeState::Alive).collect();
            let itself = alive.iter().find(|other| other.here).map(|other| other.shards);
            if alive.len() != NODES || itself != Some(owned) {
                return Some(format!("node {} owns {owned} and sees {seen:?}", node.id));
            }
        }
        None
    }
}
