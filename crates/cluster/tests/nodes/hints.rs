//! Hints between nodes: a waiter on one node is woken by a change on another, for roles as for seats. No record is polled
//! here: what is not hinted is not found.

use futures::StreamExt;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};
use tonic::Request;
use tonic::service::interceptor::InterceptorLayer;
use tonic::transport::Server;
use wayleave_cluster::{Dial, Hints, Membership, Network, Options, service};
use wayleave_core::metadata::Metadata;
use wayleave_core::names::RoleName;
use wayleave_core::roles::{Candidate, HeartbeatCall, HeartbeatReply, Refusal, RoleView};
use wayleave_registry::Registry;
use wayleave_roles::{Roles, Wait, WaitFor};
use wayleave_shard::Config;

use crate::prelude::*;

/// Without hints a waiter would be woken after this time.
const NEVER: Millis = Millis(3_600_000);
/// What a user may wait for a change that was made through another node.
const AT_ONCE: Duration = Duration::from_millis(50);

/// The roles of a node that never polls them.
fn unpolled(engine: Arc<dyn Engine>, hints: Hints) -> Roles {
    let registry = wayleave_registry::Config { poll: NEVER, hints, ..wayleave_registry::Config::default() };
    Roles::with(engine, wayleave_roles::Config { registry })
}

async fn acquire(roles: &Roles) -> Result<HeartbeatReply, Refusal> {
    let candidate = Candidate {
        uuid: "a".into(),
        address: None,
        metadata: Metadata::default(),
        ready: true,
        priority: 5,
        interval: None,
        peer: None,
    };
    roles
        .heartbeat(
            role(),
            HeartbeatCall { candidate, token: None, heard: None, take_over: None, slot: None, from: None },
        )
        .await
}

fn role() -> RoleName {
    "indexer".into()
}

/// Begins to wait for a primary, past the first look of the watch.
async fn waiting(roles: &Roles, ms: u64) -> JoinHandle<Result<RoleView, Refusal>> {
    let waiter = tokio::spawn({
        let roles = roles.clone();
        let wait = Wait { what: WaitFor::Primary(Default::default()), time: Millis(ms) };
        async move { roles.primary(&role(), wait).await }
    });
    while roles.waiting() == 0 {
        tokio::task::yield_now().await;
    }
    pass(Duration::from_millis(20)).await;
    waiter
}

#[tokio::test(start_paused = true)]
async fn a_change_through_one_node_wakes_a_waiter_on_another_without_any_poll() {
    let (world, [a, b]) = World::with().await;
    pass(Duration::from_millis(TTL.0)).await;
    let (here, there) = (unpolled(world.engine.clone(), a.hints), unpolled(world.engine.clone(), b.hints));
    let waiter = waiting(&there, 60_000).await;
    let start = Instant::now();
    acquire(&here).await.unwrap();
    assert_eq!(&*waiter.await.unwrap().unwrap().primary.unwrap().uuid, "a");
    assert!(start.elapsed() <= AT_ONCE, "{:?}", start.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_hint_over_a_cut_link_is_lost_and_blocks_no_one() {
    let (world, [a, b]) = World::with().await;
    let (here, there) = (unpolled(world.engine.clone(), a.hints), unpolled(world.engine.clone(), b.hints));
    world.board.cut(a.id, b.id, true);
    let waiter = waiting(&there, 10_000).await;
    let start = Instant::now();
    acquire(&here).await.unwrap();
    assert_eq!(start.elapsed(), Duration::ZERO, "the change does not wait for the hint");
    // The end of its time makes the waiter look for itself.
    assert!(waiter.await.unwrap().unwrap().primary.is_some());
    assert!(start.elapsed() > Duration::from_secs(9), "woken by what? {:?}", start.elapsed());
}

/// A store that counts looks at nodes and seats.
struct Counted {
    store: Arc<Memory>,
    looks: watch::Sender<u64>,
}

impl Engine for Counted {
    wayleave_engine::pass_on! { store: now own get_many scan_many commit }

    fn look<'a>(&'a self, scans: &'a [Scan]) -> Pending<'a, Look> {
        // A renewal reads one row.
        if scans.len() == 3 {
            self.looks.send_modify(|looks| *looks += 1);
        }
        self.store.look(scans)
    }
}

impl Counted {
    async fn start(world: &World) -> (Arc<Self>, Node) {
        let counted = Arc::new(Self { store: world.engine.clone(), looks: watch::Sender::new(0) });
        let node = world.start_on(counted.clone(), NodeId(50), "http://node-50").await;
        (counted, node)
    }

    /// Waits until right after a look, so that the next one is far away.
    async fn looked(&self) {
        self.looks.subscribe().changed().await.unwrap();
    }
}

/// A node looks by itself after a fifth of the time to live. Here c looks at 700 ms, a at 1,000 ms, when it finds c and
/// gives it a share, and c again at 1,700 ms.
#[tokio::test(start_paused = true)]
async fn a_moved_shard_wakes_its_new_owner_even_if_the_hint_is_lost() {
    for linked in [true, false] {
        let world = World::new();
        let (counted, a) = Counted::start(&world).await;
        world.settle(&[&a]).await;
        pass(Duration::from_millis(2 * TTL.0)).await;
        counted.looked().await;
        pass(Duration::from_millis(700)).await;
        let c = world.start().await;
        if !linked {
            world.board.answer(c.id, c.frontier.clone(), Hints::default());
        }
        while a.owned() > usize::from(SHARDS) / 2 {
            pass(Duration::from_millis(1)).await;
        }
        let given = Instant::now();
        while c.owned() < usize::from(SHARDS) / 2 {
            pass(Duration::from_millis(1)).await;
        }
        assert_eq!(given.elapsed() <= AT_ONCE, linked, "{:?}", given.elapsed());
        assert!(given.elapsed() < Duration::from_millis(TTL.0), "{:?}", given.elapsed());
    }
}

#[tokio::test(start_paused = true)]
async fn a_leaving_node_wakes_its_successor_even_if_the_hint_is_lost() {
    for linked in [true, false] {
        let world = World::new();
        let (counted, a) = Counted::start(&world).await;
        let b = world.start().await;
        world.settle(&[&a, &b]).await;
        pass(Duration::from_millis(2 * TTL.0)).await;
        counted.looked().await;
        if !linked {
            world.board.answer(a.id, a.frontier.clone(), Hints::default());
        }
        let start = Instant::now();
        tokio::spawn(async move { b.leave(&world).await });
        while (0..SHARDS).any(|shard| !a.frontier.owns(ShardId(shard))) {
            pass(Duration::from_millis(5)).await;
        }
        let took = start.elapsed();
        assert_eq!(took < Duration::from_millis(TTL.0 / 10), linked, "{took:?}");
        assert!(took < Duration::from_millis(TTL.0), "{took:?}");
    }
}

/// A node with a real port.
struct Linked {
    hints: Hints,
    member: Membership,
    frontier: Frontier,
}

/// A process with a real port that has not joined yet. `speaks` is what it takes for the version that its callers speak.
pub struct Listening {
    pub address: String,
    id: NodeId,
    dial: Arc<Dial>,
    registry: Registry,
    frontier: Frontier,
}

impl Listening {
    pub async fn start(engine: Arc<Memory>, id: NodeId, speaks: Option<&'static str>) -> Self {
        const SECRET: u128 = 7;
        let dial = Dial::new(SECRET);
        let runtime = tokio::runtime::Handle::current();
        let frontier = Frontier::join(engine.clone(), Config::new(SHARDS), &runtime, dial.clone());
        let registry = Registry::new(engine);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let incoming = futures::stream::unfold(listener, |listener| async move {
            let accepted = listener.accept().await.map(|(stream, _)| stream);
            Some((accepted, listener))
        });
        let translate = InterceptorLayer::new(move |mut request: Request<()>| {
            let header =
                speaks.map(|speaks| request.metadata_mut().insert("wayleave-protocol", speaks.parse().unwrap()));
            drop(header);
            Ok(request)
        });
        let service = service(frontier.clone(), id, SECRET, registry.hints().clone());
        let served = Server::builder().layer(translate).add_service(service);
        tokio::spawn(served.serve_with_incoming(incoming.boxed()));
        Self { address, id, dial, registry, frontier }
    }

    /// Joins at an address, its own or another one.
    pub async fn join(&self, address: &str) -> Result<Membership, JoinError> {
        let runtime = tokio::runtime::Handle::current();
        let name = format!("n{}", self.id.0);
        let options = Options { id: self.id, address: address.to_owned(), name, ttl: TTL, format: 1 };
        let network: Arc<dyn Network> = self.dial.clone();
        Membership::join(self.registry.clone(), self.frontier.clone(), network, options, &runtime).await
    }
}

async fn linked(engine: Arc<Memory>, id: NodeId) -> Linked {
    let listening = Listening::start(engine, id, None).await;
    let member = listening.join(&listening.address).await.unwrap();
    Linked { hints: listening.registry.hints().clone(), member, frontier: listening.frontier }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_wakes_a_waiter_on_another_node_without_polling() {
    let engine = Arc::new(Memory::new(wayleave_engine::clock::SystemClock::default()));
    let (a, b) = (linked(engine.clone(), NodeId(1)).await, linked(engine.clone(), NodeId(2)).await);
    let bound = Duration::from_secs(60);
    let both = async {
        while [&a, &b].iter().any(|node| node.member.nodes().is_none_or(|nodes| nodes.len() < 2)) {
            pass(Duration::from_millis(10)).await;
        }
    };
    timeout(bound, both).await.expect("the nodes never met");
    let (here, there) = (unpolled(engine.clone(), a.hints), unpolled(engine, b.hints));
    let waiter = waiting(&there, 60_000).await;
    acquire(&here).await.unwrap();
    // The waiter would look by itself after 60 seconds.
    let woken = timeout(bound / 2, waiter).await.expect("the hint has not arrived").unwrap().unwrap();
    assert_eq!(&*woken.primary.unwrap().uuid, "a");
    for node in [a.frontier, b.frontier] {
        node.stop().await;
    }
}
