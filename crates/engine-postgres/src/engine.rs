//! The engine over the PostgreSQL wire protocol.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use futures::FutureExt;
use tokio::sync::oneshot;
use tokio::task::AbortHandle;
use tokio_postgres::Client;
use wayleave_core::ids::{Epoch, ShardId};
use wayleave_core::time::Time;
use wayleave_engine::{Batch, Commit, Engine, Error, Expect, Key, Look, Pending, Row, Scan, Value};

use crate::clock::{Clock, Note, boot_us};
use crate::committer::{self, CommitContext, Locked, TRIED_AT_ONCE};
use crate::open_error::OpenError;
use crate::overlay::Overlay;
use crate::pending_batch::PendingBatch;
use crate::pool::Pool;
use crate::queue::{Queue, Serves};
use crate::session::{self, CALL, Use};
use crate::target::Target;
use crate::timekeeper::Sample;
use crate::timelines::Timelines;
use crate::trouble::{Trouble, within};
use crate::wire::{Database, Wire};
use crate::{Durability, identity, look, own, reads, schema, vendor};

/// The oldest supported server version (YugabyteDB calls itself 11).
const VERSION_LEAST: u32 = 11;
/// The clock is sampled at least this often, so that drift is noticed.
const SAMPLE_EVERY: Duration = Duration::from_secs(1);
/// Committers reserved for node leases and seats, each with a connection.
const FOR_NODES: usize = 1;
/// Connections for looks: node leases and roles are judged by them, so they must not wait for the long reads of owners.
const FOR_LOOKS: usize = 4;
/// Opening a store may take this long once the database has responded: other nodes may be creating its tables.
const OPENING: Duration = Duration::from_secs(60);

/// Options for opening a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// The number of shards of a new store. Ignored for an existing one.
    pub shards: u16,
    /// Connections for the reads of shard owners.
    pub read_connections: usize,
    /// Connections for taking shards.
    pub write_connections: usize,
    /// The maximum number of concurrent transactions of owners and roles. With more than one, commits of different
    /// shards may be acknowledged out of order; those of one shard never are.
    pub committers: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self { shards: 256, read_connections: 8, write_connections: 4, committers: 2 }
    }
}

/// The store shared by many nodes.
pub struct Postgres {
    bench: Arc<CommitContext<Wire>>,
    reads: Pool,
    looks: Arc<Pool>,
    sampler: AbortHandle,
    shards: u16,
    durability: Durability,
    elsewhere: bool,
}

impl Postgres {
    /// Opens the store in a database, creating its tables if needed. The URL is in libpq's form, with several hosts if
    /// needed: `postgres://user:password@host1,host2/database?sslmode=verify-full`. Fails if the database cannot be
    /// used. Every message names the cause and the remedy, and never the password.
    pub async fn open(url: &str, options: Options) -> Result<Self, OpenError> {
        if options.shards == 0
            || options.read_connections == 0
            || options.write_connections == 0
            || options.committers == 0
        {
            let text = "shards, connections and committers must each be at least 1";
            return Err(OpenError::Options(text.into()));
        }
        let target = Target::parse(url)?;
        let client = session::bare(&target).await.map_err(|trouble| OpenError::sort(&target, &trouble))?;
        let slow = |_| OpenError::sort(&target, &Trouble::Slow(OPENING));
        let facts = tokio::time::timeout(OPENING, Facts::learn(&client, &target, options.shards));
        let facts = facts.await.map_err(slow)??;
        let timelines = Timelines::default();
        let pool = |usage, size| Pool::new(target.clone(), usage, facts.incarnation, timelines.clone(), size);
        let (reads, looks) = (pool(Use::Reads, options.read_connections), Arc::new(pool(Use::Reads, FOR_LOOKS)));
        let database = Wire {
            commits: pool(Use::Writes, options.committers + 2 * TRIED_AT_ONCE),
            nodes: pool(Use::Writes, FOR_NODES + TRIED_AT_ONCE),
            owns: pool(Use::Writes, options.write_connections),
            clock: facts.clock,
        };
        let bench = Arc::new(CommitContext {
            queue: Queue::default(),
            overlay: Overlay::default(),
            database,
            down: AtomicBool::new(false),
            locked: Locked::default(),
            locked_of_nodes: Locked::default(),
        });
        for _ in 0..options.committers {
            tokio::spawn(committer::run(Arc::clone(&bench), Serves::Others));
        }
        for _ in 0..FOR_NODES {
            tokio::spawn(committer::run(Arc::clone(&bench), Serves::Nodes));
        }
        let sampler = tokio::spawn(sample(Arc::clone(&bench), Arc::clone(&looks))).abort_handle();
        Ok(Self {
            bench,
            reads,
            looks,
            sampler,
            shards: facts.shards,
            durability: facts.durability,
            elsewhere: facts.elsewhere,
        })
    }

    /// The number of shards, fixed when the store was created.
    #[must_use]
    pub fn shards(&self) -> u16 {
        self.shards
    }

    /// The durability settings of the database when it was opened. A server shows its warnings to the operator.
    #[must_use]
    pub fn durability(&self) -> &Durability {
        &self.durability
    }

    /// Whether the store was first opened in another database: it was copied into this one, or moved.
    #[must_use]
    pub const fn is_elsewhere(&self) -> bool {
        self.elsewhere
    }

    fn try_commit(&self, batch: Batch) -> Result<Commit, Error> {
        let (answer, durable) = oneshot::channel();
        self.bench.queue.push(PendingBatch::new(batch, answer)?, &self.bench.overlay)?;
        let closed = || Error::OutcomeUnknown("the store was closed".into());
        Ok(durable.map(move |durable| durable.unwrap_or_else(|_| Err(closed()))).boxed())
    }
}

impl Engine for Postgres {
    fn now(&self) -> Time {
        self.bench.database.clock.now()
    }

    fn own<'a>(&'a self, shard: ShardId, expects: &'a [Expect]) -> Pending<'a, (Epoch, u64)> {
        own::own(&self.bench, shard, expects).boxed()
    }

    fn get_many<'a>(&'a self, keys: &'a [Key]) -> Pending<'a, Vec<Option<Value>>> {
        reads::get_many(&self.reads, &self.bench.overlay, keys).boxed()
    }

    fn scan_many<'a>(&'a self, scans: &'a [Scan]) -> Pending<'a, Vec<Vec<Row>>> {
        reads::scan_many(&self.reads, &self.bench.overlay, scans).boxed()
    }

    fn past_damage<'a>(&'a self, scan: &'a Scan) -> Pending<'a, (Key, Vec<Row>)> {
        reads::past_damage(&self.reads, &self.bench.overlay, scan).boxed()
    }

    fn look<'a>(&'a self, scans: &'a [Scan]) -> Pending<'a, Look> {
        look::look(&self.looks, &self.bench.database.clock, scans).boxed()
    }

    fn commit(&self, batch: Batch) -> Commit {
        match self.try_commit(batch) {
            Ok(commit) => commit,
            Err(Error::Fenced { shard, epoch, seq }) => {
                // Refused already; the database only shows how far the shard has progressed since it was taken.
                let (bench, known) = (Arc::clone(&self.bench), Error::Fenced { shard, epoch, seq });
                async move {
                    let fence_states = bench.database.fence_states(vec![shard.into()]).await;
                    let now = fence_states.map(|fence_states| fence_states.state(ShardId(shard)));
                    Err(now.map_or(known, |fence_state| Error::Fenced {
                        shard,
                        epoch: fence_state.epoch.0,
                        seq: fence_state.seq,
                    }))
                }
                .boxed()
            }
            Err(error) => std::future::ready(Err(error)).boxed(),
        }
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        // The committers commit the queue, then end.
        self.bench.queue.close();
        self.sampler.abort();
    }
}

/// What is read once, when a store is opened.
struct Facts {
    shards: u16,
    incarnation: &'static str,
    durability: Durability,
    elsewhere: bool,
    clock: Clock,
}

impl Facts {
    async fn learn(client: &Client, target: &Target, shards: u16) -> Result<Self, OpenError> {
        check_version(client, target).await?;
        let shards = schema::prepare(client, target, shards).await?;
        let durability = vendor::durability(client).await;
        let elsewhere = identity::is_elsewhere(client).await;
        let elsewhere = elsewhere.map_err(|error| OpenError::sort(target, &Trouble::Said(error)))?;
        let clock = start_clock(client).await.map_err(|trouble| OpenError::sort(target, &trouble))?;
        Ok(Self { shards, incarnation: vendor::incarnation(client).await, durability, elsewhere, clock })
    }
}

async fn check_version(client: &Client, target: &Target) -> Result<(), OpenError> {
    let row = within(CALL, client.query_one("SHOW server_version_num", &[])).await;
    let row = row.map_err(|trouble| OpenError::sort(target, &trouble))?;
    let number: Option<u32> = row.try_get::<_, String>(0).ok().and_then(|text| text.parse().ok());
    match number.map(|number| number / 10_000) {
        Some(major) if major < VERSION_LEAST => {
            Err(OpenError::TooOld { place: target.to_string(), found: major.to_string(), least: VERSION_LEAST })
        }
        _ => Ok(()),
    }
}

async fn start_clock(client: &Client) -> Result<Clock, Trouble> {
    let sent_us = boot_us();
    let text = "SELECT (extract(epoch FROM statement_timestamp()) * 1000000)::int8, \
                (SELECT coalesce(max(at), 0) FROM wayleave_fences)::int8, \
                coalesce((SELECT at FROM wayleave_fences WHERE shard = -1), 0)::int8, \
                coalesce((SELECT seq FROM wayleave_fences WHERE shard = -1), 0)::int8";
    let row = within(CALL, client.query_one(text, &[])).await?;
    let number = |column: usize| row.try_get::<_, i64>(column).map(|number| number.max(0).cast_unsigned());
    let (store_us, last) = (number(0)?, Time(number(1)?));
    let noted = Note { at: Time(number(2)?), store: Time(number(3)?) };
    let sample = Sample { store_us, sent_us, arrived_us: boot_us() };
    Ok(Clock::start(sample, noted.extrapolated_us(store_us).max(last.0.saturating_mul(1_000))))
}

async fn sample(bench: Arc<CommitContext<Wire>>, looks: Arc<Pool>) {
    loop {
        _ = tokio::time::timeout(SAMPLE_EVERY, bench.database.clock.news.notified()).await;
        if let Err(error) = look::sample(&looks, &bench.database.nodes, &bench.database.clock).await {
            tracing::debug!(error = %error, "cannot read the database's clock; continuing on the local clock");
        }
    }
}

#[cfg(test)]
#[path = "engine_tests.rs"]
mod tests;
