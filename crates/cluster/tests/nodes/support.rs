//! A few nodes, and helpers for calls to them.

use std::sync::atomic::{AtomicU32, AtomicU64};

use wayleave_cluster::{Hints, Membership, Options};
use wayleave_core::frontier::request::{PutKind, Release};
use wayleave_core::ids::Token;
use wayleave_core::metadata::Metadata;
use wayleave_core::time::Time;
use wayleave_engine::clock::Clock;
use wayleave_registry::Registry;
use wayleave_shard::Config;
use wayleave_sim::{Process, Switchboard};

use crate::prelude::*;

pub const SHARDS: u16 = 16;
pub const TTL: Millis = Millis(5_000);

/// Tokio's time, so that leases end while a paused runtime jumps.
#[derive(Clone)]
pub struct TokioClock(tokio::time::Instant);

impl Clock for TokioClock {
    fn read(&self) -> Time {
        Time(1_000_000 + self.0.elapsed().as_millis() as u64)
    }
}

pub struct World {
    pub engine: Arc<Memory>,
    pub board: Switchboard,
    ids: AtomicU64,
    /// The format that nodes know which start from now on.
    pub format: AtomicU32,
}

pub struct Node {
    pub id: NodeId,
    pub frontier: Frontier,
    pub hints: Hints,
    pub member: Option<Arc<Membership>>,
    /// The tasks of the member, and those of the shard owners.
    pub tasks: Process,
    owners: Process,
}

impl World {
    pub fn new() -> Self {
        let clock = TokioClock(tokio::time::Instant::now());
        Self {
            engine: Arc::new(Memory::new(clock)),
            board: Switchboard::default(),
            ids: AtomicU64::new(1),
            format: AtomicU32::new(1),
        }
    }

    /// A store with this many nodes, over which its shards are spread.
    pub async fn with<const N: usize>() -> (Self, [Node; N]) {
        let world = Self::new();
        let mut nodes = Vec::new();
        for _ in 0..N {
            nodes.push(world.start().await);
        }
        world.settle(&nodes.iter().collect::<Vec<_>>()).await;
        let nodes = nodes.try_into().unwrap_or_else(|_| unreachable!("there are as many"));
        (world, nodes)
    }

    pub async fn start(&self) -> Node {
        let id = NodeId(self.ids.fetch_add(1, Ordering::Relaxed));
        self.start_at(id, &format!("http://node-{}", id.0)).await
    }

    pub async fn start_at(&self, id: NodeId, address: &str) -> Node {
        self.start_on(self.engine.clone(), id, address).await
    }

    /// Starts a node that sees the store through its own engine.
    pub async fn start_on(&self, engine: Arc<dyn Engine>, id: NodeId, address: &str) -> Node {
        self.try_start_on(engine, id, address).await.unwrap()
    }

    pub async fn try_start_on(
        &self,
        engine: Arc<dyn Engine>,
        id: NodeId,
        address: &str,
    ) -> Result<Node, wayleave_cluster::JoinError> {
        let line = self.board.line(id);
        let (tasks, owners) = (Process::default(), Process::default());
        let frontier = Frontier::join(engine.clone(), Config::new(SHARDS), &owners, line.clone());
        let options = Options {
            id,
            address: address.into(),
            name: format!("n{}", id.0),
            ttl: TTL,
            format: self.format.load(Ordering::Relaxed),
        };
        let registry = Registry::new(engine);
        let hints = registry.hints().clone();
        self.board.answer(id, frontier.clone(), hints.clone());
        let member = Arc::new(Membership::join(registry, frontier.clone(), line, options, &tasks).await?);
        Ok(Node { id, frontier, hints, member: Some(member), tasks, owners })
    }

    /// Waits until one node owns everything, whatever another one still believes.
    pub async fn settle_one(&self, node: &Node) {
        self.settle(&[node]).await;
    }

    /// Waits until the shards are spread over this many nodes.
    pub async fn settle(&self, nodes: &[&Node]) {
        for _ in 0..2_000 {
            let counts: Vec<usize> = nodes.iter().map(|node| node.owned()).collect();
            let even = counts.iter().max().unwrap() - counts.iter().min().unwrap() <= 1;
            let open = nodes.iter().all(|node| node.frontier.readiness().is_ok());
            if even && open && counts.iter().sum::<usize>() == usize::from(SHARDS) {
                return;
            }
            pass(Duration::from_millis(10)).await;
        }
        panic!("never even: {:?}", nodes.iter().map(|node| node.owned()).collect::<Vec<_>>());
    }
}

impl Node {
    pub fn owned(&self) -> usize {
        (0..SHARDS).filter(|shard| self.frontier.owns(wayleave_core::ids::ShardId(*shard))).count()
    }

    /// Ends the process without notice.
    pub fn kill(&mut self, world: &World) {
        world.board.remove(self.id);
        self.member.take().expect("it is alive");
        self.tasks.kill();
        self.owners.kill();
    }

    /// Pauses or resumes the process.
    pub fn stand_still(&self, world: &World, still: bool) {
        world.board.stand_still(self.id, still);
        self.tasks.stand_still(still);
        self.owners.stand_still(still);
    }

    /// Resumes its shard owners alone.
    pub fn wake_owners(&self, world: &World) {
        world.board.stand_still(self.id, false);
        self.owners.stand_still(false);
    }

    pub async fn leave(mut self, world: &World) {
        let member = self.member.take().expect("it is alive");
        member.leave(Duration::from_secs(5)).await;
        world.board.remove(self.id);
    }

    pub async fn put(&self, urls: &[&str]) -> Vec<PutOutcome> {
        self.frontier.put(urls.iter().map(|url| put(url)).collect()).await
    }

    pub async fn reserve(&self, groups: usize) -> Vec<Reservation> {
        self.frontier.reserve(ask(groups, 0)).await.unwrap()
    }

    pub async fn release(&self, token: Token) -> Result<(), String> {
        let release = Release { token, results: Vec::new(), ready_at: None };
        self.frontier.release(release, Vec::new()).await.map(drop).map_err(|refusal| refusal.to_string())
    }
}

pub fn ask(groups: usize, wait: u64) -> Reserve {
    let (lease, wait) = (Millis(60_000), Millis(wait));
    Reserve { holder: "h".into(), groups, urls: 1, crawl: None, lease, wait, request: None }
}

pub fn put(url: &str) -> Put {
    let host = url.split('/').nth(2).unwrap();
    Put {
        url: url.into(),
        host: host.into(),
        crawl: "DEFAULT".into(),
        kind: PutKind::Discovered { at: None, priority: 5, depth: 0 },
        metadata: Metadata::default(),
    }
}

/// URLs of this many hosts, one each.
pub fn urls(hosts: usize) -> Vec<String> {
    (0..hosts).map(|n| format!("http://h{n}.example/")).collect()
}

pub fn refs(urls: &[String]) -> Vec<&str> {
    urls.iter().map(String::as_str).collect()
}

/// Lets time pass on the test's paused clock, without waiting.
pub async fn pass(span: Duration) {
    tokio::time::sleep(span).await;
}
