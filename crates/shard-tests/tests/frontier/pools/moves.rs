//! A shard moves to another node while calls are parked: none hangs, and none is answered untruly.

use futures::future::BoxFuture;
use wayleave_core::ids::NodeId;
use wayleave_shard::{LinkError, Links, Service};

use super::*;
use crate::prelude::*;

const SHARD: ShardId = ShardId(0);
const NODES: [NodeId; 2] = [NodeId(1), NodeId(2)];

/// A network in which every node reaches every other. It counts the calls.
#[derive(Clone, Default)]
struct Net(Arc<Mutex<BTreeMap<NodeId, Frontier>>>, Arc<AtomicUsize>);

impl Links for Net {
    fn call(
        &self,
        node: NodeId,
        service: Service,
        call: Vec<u8>,
        within: Duration,
    ) -> BoxFuture<'static, Result<Vec<u8>, LinkError>> {
        let there = self.0.lock().unwrap().get(&node).cloned();
        self.1.fetch_add(1, Ordering::Relaxed);
        async move {
            let Some(there) = there else { return Err(LinkError::NotSent("no such node".to_owned())) };
            let answer = tokio::time::timeout(within, there.answer(service, &call)).await;
            let answer = answer.map_err(|_| LinkError::Lost("no answer in time".to_owned()))?;
            answer.map_err(LinkError::NotSent)
        }
        .boxed()
    }
}

pub struct Cluster {
    pub nodes: Vec<Frontier>,
    net: Net,
    /// What each node hears of the other.
    beats: Vec<JoinHandle<()>>,
}

impl Cluster {
    pub fn new() -> Self {
        let engine = Arc::new(Memory::new(RuntimeClock::new()));
        let net = Net::default();
        let config = Config { clock_step: Millis(0), ..Config::new(1) };
        let runtime = tokio::runtime::Handle::current();
        let nodes = NODES.map(|_| Frontier::join(engine.clone(), config.clone(), &runtime, Arc::new(net.clone())));
        for (node, frontier) in NODES.iter().zip(&nodes) {
            net.0.lock().unwrap().insert(*node, frontier.clone());
        }
        let mut cluster = Self { nodes: nodes.into(), net, beats: Vec::new() };
        cluster.listen();
        cluster.open(0);
        cluster
    }

    /// Each node hears the beats of the other.
    pub fn listen(&mut self) {
        for (from, to) in [(0, 1), (1, 0)] {
            let (from_id, from, to) = (NODES[from], self.nodes[from].clone(), self.nodes[to].clone());
            self.beats.push(tokio::spawn(async move {
                let (mut beats, mut news) = (from.beats(), from.news());
                loop {
                    to.hear(from_id, Some(beats.next_beat()));
                    news.changed().await;
                }
            }));
        }
    }

    /// They hear nothing of each other, and do not know yet.
    pub fn part(&mut self) {
        self.beats.drain(..).for_each(|beats| beats.abort());
    }

    /// They find out.
    pub fn miss(&self) {
        self.nodes[0].hear(NODES[1], None);
        self.nodes[1].hear(NODES[0], None);
    }

    /// How many calls nodes have made to each other since this was asked last.
    pub fn calls(&self) -> usize {
        self.net.1.swap(0, Ordering::Relaxed)
    }

    /// A node owns the shard from now on.
    fn open(&self, node: usize) {
        self.nodes[1 - node].set_owner(SHARD, Some(NODES[node]));
        self.nodes[node].open_shard(SHARD, Vec::new());
    }

    /// The shard moves from its owner to the other node. In between it has no owner for a moment.
    pub async fn move_to(&self, node: usize) {
        self.nodes[1 - node].close_shard(SHARD).await;
        pass(200).await;
        self.open(node);
    }

    /// The other node takes the shard from an owner that does not know.
    fn take_over(&self, node: usize) {
        self.nodes[node].open_shard(SHARD, Vec::new());
    }

    pub fn at(&self, node: usize) -> Matches {
        Matches::new(self.nodes[node].clone())
    }
}

#[tokio::test(start_paused = true)]
async fn any_node_takes_any_call() {
    let cluster = Cluster::new();
    cluster.at(1).set_pool(pool(), settings(spec())).await.unwrap();
    let site = Site::new("s");
    let _maker = site.serve(&cluster.at(1));
    super::crowd(&cluster.at(1), &site, 5).await;
    let here = cluster.at(0).why(pool(), "c1".into()).await.unwrap();
    assert_eq!(here.map(|view| view.stage), Some(MatchStage::Matched));
    // Waits may be longer than a call between nodes may take.
    let full = cluster.at(1).put(pool(), asker("late"), Millis(1)).await.unwrap().unwrap();
    assert_eq!(full.stage, MatchStage::Matched);
    let waiting = tokio::spawn({
        let matches = cluster.at(1);
        async move { matches.put(pool(), asker("later"), Millis(25_000)).await }
    });
    let begun = tokio::time::Instant::now();
    assert_eq!(waiting.await.unwrap().unwrap().unwrap().stage, MatchStage::Queued);
    assert!(begun.elapsed() >= Duration::from_secs(25));
    assert_eq!(cluster.net.0.lock().unwrap().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn calls_that_are_parked_when_the_shard_moves_go_on_at_its_next_owner() {
    for asked_at in 0..2 {
        let cluster = Cluster::new();
        let matches = cluster.at(asked_at);
        matches.set_pool(pool(), settings(spec())).await.unwrap();
        let calls: Vec<_> = (0..20)
            .map(|n| {
                let matches = matches.clone();
                tokio::spawn(async move { put(&matches, &format!("c{n}"), LONG).await })
            })
            .collect();
        let looks: Vec<_> = (0..5)
            .map(|n| {
                let matches = matches.clone();
                tokio::spawn(async move {
                    pass(100).await;
                    matches.look(pool(), asker(&format!("c{n}")), LONG).await
                })
            })
            .collect();
        let polling = tokio::spawn({
            let matches = matches.clone();
            async move { matches.orders(SHARD, "other".into(), RuntimeKind::Docker, Millis(5_000)).await }
        });
        pass(1_000).await;
        cluster.move_to(1).await;
        pass(1_000).await;
        assert!(polling.is_finished(), "a Maker is asked to list what it has");
        assert!(calls.iter().all(|call| !call.is_finished()), "they go on waiting");
        assert_eq!(matches.pool(pool()).await.unwrap().waiting, 20, "no client is queued twice");
        cluster.move_to(0).await;
        let six = PoolSpec { slots: Some(10), ..spec() };
        matches.set_pool(pool(), settings(six)).await.unwrap();
        let site = Site::new("s");
        let _maker = site.serve(&matches);
        for call in calls.into_iter().chain(looks) {
            let view = tokio::time::timeout(Duration::from_secs(60), call).await.expect("none hangs");
            assert_eq!(view.unwrap().unwrap().unwrap().stage, MatchStage::Matched);
        }
        assert_eq!(site.held(), 20);
    }
}

/// An owner that was replaced without knowing decides on what it remembers: none of it becomes durable, so none of it is
/// answered or handed out.
#[tokio::test(start_paused = true)]
async fn an_owner_that_was_replaced_hands_out_nothing() {
    let cluster = Cluster::new();
    let (old, new) = (cluster.at(0), cluster.at(1));
    old.set_pool(pool(), settings(spec())).await.unwrap();
    let poll = |matches: &Matches| {
        let matches = matches.clone();
        tokio::spawn(async move { matches.orders(SHARD, "s".into(), RuntimeKind::Process, Millis(4_000)).await })
    };
    let site = Site::new("s");
    let inputs = poll(&old).await.unwrap().unwrap().into_iter().filter_map(|(pool, effect)| site.run(pool, effect));
    old.tell(inputs.collect()).await.unwrap();
    cluster.take_over(1);
    pass(10).await;
    assert_eq!(new.pool(pool()).await.unwrap().waiting, 0);
    let polling = poll(&old);
    pass(10).await;
    let refused = put(&old, "a", NOW).await;
    // The old owner is fenced, and opens the shard again, because nothing says that it may not: then it is a new owner.
    let is_known = refused.is_err() || refused.is_ok_and(|view| view.is_some());
    assert!(is_known);
    let orders = polling.await.unwrap();
    let ordered = |(_, effect): &(_, wayleave_core::matches::Effect)| effect.kind() == "create";
    assert!(!orders.is_ok_and(|orders| orders.iter().any(ordered)), "handed out by an owner that was fenced");
}
