//! The world of a run: the store, the frontier that is open on it now, what everybody was told, and the history.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use wayleave_core::time::Time;
use wayleave_engine::{Engine, Memory};
use wayleave_shard::{Config, Frontier};

use crate::chance::Chance;
use crate::clock::SteppedClock;
use crate::oracle::Oracle;

/// Shards of every simulated store.
pub const SHARDS: u16 = 4;

/// What all tasks of a run share; they run on one thread.
pub struct World {
    pub seed: u64,
    pub clock: SteppedClock,
    engine: RefCell<Arc<Memory>>,
    frontier: RefCell<Option<Frontier>>,
    pub oracle: RefCell<Oracle>,
    history: RefCell<String>,
    /// Faults are over: everything must finish.
    pub calm: Cell<bool>,
    /// The run is over.
    pub done: Cell<bool>,
    config: Config,
}

impl World {
    pub async fn new(seed: u64) -> Rc<Self> {
        let clock = SteppedClock::new();
        let engine = Arc::new(Memory::stepped(clock.clone()));
        let drawn = AtomicU64::new(seed.wrapping_mul(1_000_003));
        let mut config = Config::new(SHARDS);
        config.log_bytes_max = 4_000;
        config.head_rows_max = 64;
        config.recent_rows_max = 8;
        config.entropy = Arc::new(move || {
            let chance = Chance::new(drawn.fetch_add(1, Ordering::Relaxed), 7);
            u128::from(chance.draw()) << 64 | u128::from(chance.draw())
        });
        let world = Self {
            seed,
            clock,
            engine: RefCell::new(engine),
            frontier: RefCell::new(None),
            oracle: RefCell::default(),
            history: RefCell::default(),
            calm: Cell::new(false),
            done: Cell::new(false),
            config,
        };
        Rc::new(world)
    }

    pub fn engine(&self) -> Arc<Memory> {
        self.engine.borrow().clone()
    }

    pub fn now(&self) -> Time {
        self.engine().now()
    }

    /// The frontier that is open now; waits while there is none.
    pub async fn frontier(&self) -> Frontier {
        loop {
            if let Some(frontier) = self.frontier.borrow().clone() {
                return frontier;
            }
            pass(10).await;
        }
    }

    /// Opens the store that is there now, again and again until it can be opened.
    pub async fn open(&self) {
        let runtime = tokio::runtime::Handle::current();
        loop {
            match Frontier::open(self.engine(), self.config.clone(), &runtime).await {
                Ok(frontier) => {
                    self.tell("open", "");
                    *self.frontier.borrow_mut() = Some(frontier);
                    return;
                }
                Err(refusal) => self.tell("not open", &refusal.to_string()),
            }
            pass(100).await;
        }
    }

    /// Ends the process and the store as a power cut would, and starts them again.
    pub async fn crash(&self) {
        *self.frontier.borrow_mut() = None;
        let after = Arc::new(self.engine().crash());
        *self.engine.borrow_mut() = after;
        self.tell("crash", "");
        self.open().await;
    }

    /// Ends the process and starts it again on the same store.
    pub async fn restart(&self) {
        let before = self.frontier.borrow_mut().take();
        if let Some(frontier) = before {
            frontier.stop().await;
        }
        self.tell("restart", "");
        self.open().await;
    }

    /// Writes a line of history.
    pub fn tell(&self, who: &str, what: &str) {
        use std::fmt::Write as _;
        let mut history = self.history.borrow_mut();
        // A string takes everything that is written to it.
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
