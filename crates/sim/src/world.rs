//! The world of a run: the store, the processes that have it open, the answers that each client got, and the history.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use wayleave_core::frontier::refusal::Refusal;
use wayleave_core::time::{Millis, Time};
use wayleave_engine::{Engine, Memory};
use wayleave_shard::{Config, Frontier};

use crate::chance::Chance;
use crate::clock::SteppedClock;
use crate::cluster::Cluster;
use crate::damage::{self, Damage};
use crate::embedded::{Embedded, End};
use crate::node_client::NodeClient;
use crate::oracle::Oracle;
use crate::site::Site;
use crate::store_link::Store;

/// Shards of a simulated store.
const SHARDS: u16 = 4;
/// The same where several nodes share them; not a multiple of the nodes, so that even is not equal.
const SHARDS_OF_NODES: u16 = 7;
/// Attempts to open a store after which its rows are made readable again.
const MENDED_AFTER: u64 = 50;

/// What kind of run it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// One process owns everything.
    One,
    /// Three nodes share a store, with all faults.
    Nodes,
    /// One process owns everything, on the embedded store over a simulated disk.
    Embedded,
    /// Three nodes come and go cleanly without faults: then no call may fail.
    HandOvers,
}

/// State shared by all tasks of a run; they run on one thread.
pub struct World {
    pub seed: u64,
    pub kind: Kind,
    pub clock: SteppedClock,
    pub store: Store,
    /// The processes that can be called now.
    one: RefCell<Option<NodeClient>>,
    /// `None` if one process owns everything.
    pub cluster: Option<Cluster>,
    /// `None` if the store is the memory engine.
    pub embedded: Option<Embedded>,
    /// Chooses the node to call.
    choice: Chance,
    pub oracle: RefCell<Oracle>,
    /// Starts workers of pools.
    pub site: Site,
    /// Clients that have been matched in the calm.
    pub matched: RefCell<BTreeSet<u64>>,
    history: RefCell<String>,
    /// The calm phase: faults are over, and everything must finish.
    pub calm: Cell<bool>,
    /// The run is over.
    pub done: Cell<bool>,
    /// There was a power cut.
    cut: Cell<bool>,
    /// How many stores there have been: the time of the next one may be behind.
    stores: Cell<u64>,
    /// Rows that cannot be read.
    pub damage: Damage,
    /// The first law that was found to be broken: the run ends with it, whatever comes of it.
    pub broken: RefCell<Option<String>>,
    pub config: Config,
}

impl World {
    pub fn new(seed: u64, kind: Kind) -> Rc<Self> {
        let nodes = matches!(kind, Kind::Nodes | Kind::HandOvers);
        let clock = SteppedClock::new();
        let engine = Arc::new(Memory::stepped(clock.clone()));
        let drawn = AtomicU64::new(seed.wrapping_mul(1_000_003));
        let mut config = Config::new(if nodes { SHARDS_OF_NODES } else { SHARDS });
        config.clock_step = Millis(0);
        config.log_bytes_max = 4_000;
        let lane_cache_bytes = 4_000 * usize::from(config.shards);
        config.lane_cache_bytes = (lane_cache_bytes, lane_cache_bytes);
        config.held_cache_rows_max = 8;
        config.entropy = Arc::new(move || {
            let chance = Chance::new(drawn.fetch_add(1, Ordering::Relaxed), 7);
            u128::from(chance.draw()) << 64 | u128::from(chance.draw())
        });
        let embedded = (kind == Kind::Embedded).then(|| Embedded::new(seed, config.shards, clock.clone()));
        let world = Self {
            seed,
            kind,
            clock,
            store: Arc::new(Mutex::new(engine)),
            one: RefCell::default(),
            cluster: nodes.then(Cluster::default),
            embedded,
            choice: Chance::new(seed, 8),
            oracle: RefCell::default(),
            site: Site::default(),
            matched: RefCell::default(),
            history: RefCell::default(),
            calm: Cell::new(false),
            done: Cell::new(false),
            cut: Cell::new(false),
            stores: Cell::new(0),
            damage: Damage::default(),
            broken: RefCell::default(),
            config,
        };
        Rc::new(world)
    }

    pub fn engine(&self) -> Arc<Memory> {
        self.store.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The store of this run, of either kind.
    fn any_engine(&self) -> Arc<dyn Engine> {
        match &self.embedded {
            Some(embedded) => embedded.engine(),
            None => self.engine(),
        }
    }

    pub fn now(&self) -> Time {
        self.any_engine().now()
    }

    /// Which store gives the time.
    pub fn store_number(&self) -> u64 {
        self.stores.get()
    }

    /// Any process that can be called; waits while there is none.
    async fn node_client(&self) -> NodeClient {
        loop {
            let node_clients = self.node_clients();
            let at = self.choice.below(node_clients.len() as u64) as usize;
            if let Some(node_client) = node_clients.into_iter().nth(at) {
                return node_client;
            }
            pass(10).await;
        }
    }

    /// All processes that can be called.
    pub fn node_clients(&self) -> Vec<NodeClient> {
        match &self.cluster {
            Some(cluster) => cluster.nodes().iter().map(|node| node.node_client.clone()).collect(),
            None => self.one.borrow().iter().cloned().collect(),
        }
    }

    /// Calls any process.
    pub async fn ask<T>(&self, call: impl AsyncFnOnce(Frontier) -> Result<T, Refusal>) -> Result<T, Refusal> {
        let answer = self.node_client().await.ask(call).await;
        answer.inspect_err(|refusal| damage::judge(self, refusal))
    }

    /// Whether the store's clock steps in this run.
    pub fn clock_steps(&self) -> bool {
        self.cluster.is_none() || self.seed.is_multiple_of(2)
    }

    /// Without faults no call may be refused.
    pub fn check<T>(&self, what: &str, answer: &Result<T, Refusal>) {
        if self.kind == Kind::HandOvers
            && !self.cut.get()
            && let Err(refusal) = answer
            && *refusal != Refusal::NotCurrent
        {
            crate::run::fail(self, &format!("{what} failed though nothing is broken: {refusal}"));
        }
    }

    /// Opens the current store, retrying until it succeeds. If every shard has rows that cannot be read, the store refuses
    /// to open until an operator mends it.
    pub async fn open(&self) {
        let runtime = tokio::runtime::Handle::current();
        for attempt in 1u64.. {
            if attempt.is_multiple_of(MENDED_AFTER) {
                self.mend();
            }
            match Frontier::open(self.any_engine(), self.config.clone(), &runtime).await {
                Ok(frontier) => {
                    self.log("open", "");
                    *self.one.borrow_mut() = Some(NodeClient::of_one(frontier));
                    return;
                }
                Err(refusal) => self.log("not open", &refusal.to_string()),
            }
            pass(100).await;
        }
    }

    /// Makes all rows readable again.
    pub fn mend(&self) {
        self.log("fault", "all rows can be read");
        match &self.embedded {
            Some(embedded) => embedded.heal(),
            None => self.engine().repair(),
        }
        self.damage.end(self.clock.elapsed());
    }

    /// Ends the store as a power cut would, and restarts it.
    pub fn restart_store(&self) {
        let after = Arc::new(self.engine().crash());
        *self.store.lock().unwrap_or_else(PoisonError::into_inner) = after;
        self.stores.set(self.stores.get() + 1);
        self.log("crash", "");
    }

    /// Ends all processes and the store as a power cut would, and restarts them.
    pub async fn crash(&self) {
        self.cut.set(true);
        if self.embedded.is_some() {
            return self.end_embedded(End::PowerCut).await;
        }
        if let Some(cluster) = &self.cluster {
            // Their keepers restart the nodes.
            return cluster.power_cut(self);
        }
        *self.one.borrow_mut() = None;
        self.restart_store();
        self.open().await;
    }

    /// Ends the process on the embedded store in some way, and restarts it.
    pub async fn end_embedded(&self, end: End) {
        let before = self.one.borrow_mut().take();
        if let Some(node_client) = before.filter(|_| end == End::Stop) {
            node_client.frontier.stop().await;
        }
        if let Some(embedded) = &self.embedded {
            embedded.reopen(self, end);
        }
        self.stores.set(self.stores.get() + 1);
        self.log("end", &format!("{end:?}"));
        self.open().await;
    }

    /// Restarts the process on the same store; of several nodes only the store is restarted.
    pub async fn restart(&self) {
        if self.cluster.is_some() {
            return self.restart_store();
        }
        let before = self.one.borrow_mut().take();
        if let Some(node_client) = before {
            node_client.frontier.stop().await;
        }
        self.log("restart", "");
        self.open().await;
    }

    /// Appends a line to the history.
    pub fn log(&self, who: &str, what: &str) {
        use std::fmt::Write as _;
        let mut history = self.history.borrow_mut();
        // Writing to a String cannot fail.
        _ = writeln!(history, "{:>8} {:>13} {who}: {what}", self.clock.elapsed(), self.now().0);
    }

    pub fn history(&self) -> String {
        self.history.borrow().clone()
    }
}

/// Lets time pass.
pub async fn pass(ms: u64) {
    tokio::time::sleep(Duration::from_millis(ms)).await;
}
