//! Rows that cannot be read for a while, and what may be answered meanwhile. It must not miss that
//!
//! - a call is refused for want of rows and does not name the host or chunk that they are of, or names another one;
//! - a call is refused for damage that has been mended long since, or never was;
//! - a known URL is called new, because what knows it could not be read;
//! - a shard is closed for want of rows that it does not need to be opened;
//! - a shard stays closed though its rows can be read again.
//!
//! That what was damaged is neither lost nor handed out twice is seen by the other oracles.

use std::cell::Cell;
use std::rc::Rc;

use wayleave_core::frontier::refusal::Refusal;
use wayleave_core::frontier::request::PutOutcome;
use wayleave_core::invariants::{Broken, Verdict};
use wayleave_engine::rows::Kind;

use crate::chance::Chance;
use crate::clients::{HOSTS, host_name};
use crate::oracle::Id;
use crate::run;
use crate::world::{self, World, pass};

/// Rows that are read when a call needs them: each costs what it holds.
const READ_BY_CALLS: [Kind; 6] = [Kind::Url, Kind::Due, Kind::Hold, Kind::Chunk, Kind::RestingChunk, Kind::ChunkLinks];

/// Those of them that are never read when a shard is opened, so they close none.
const CLOSE_NONE: [Kind; 4] = [Kind::Url, Kind::Due, Kind::Hold, Kind::RestingChunk];

/// Rows that are read when a shard is opened: they close it. Those of calls that are read then as well are above.
const READ_AT_OPEN: [Kind; 19] = [
    Kind::Shard,
    Kind::Crawl,
    Kind::Alias,
    Kind::Host,
    Kind::Member,
    Kind::Lease,
    Kind::Log,
    Kind::DeletedQueue,
    Kind::BulkJob,
    Kind::Pipeline,
    Kind::Machine,
    Kind::BuiltChunk,
    Kind::Copy,
    Kind::IndexServer,
    Kind::MapLedger,
    Kind::ReturnedChunk,
    Kind::Pool,
    Kind::Worker,
    Kind::Match,
];

/// How long damage may be reported after it was mended: until the deferred work is tried again.
const KNOWN_AFTER_MS: u64 = 120_000;
/// How long a shard may stay closed then.
const CLOSED_MS: u64 = 40_000;

/// What is damaged in a run.
#[derive(Default)]
pub struct Damage {
    /// Whether rows cannot be read now.
    present: Cell<bool>,
    /// Whether a shard may be closed because of it.
    may_close: Cell<bool>,
    /// When they could be read again, if there was damage.
    mended: Cell<Option<u64>>,
}

impl Damage {
    /// Rows of some kinds cannot be read from now on.
    pub fn begin(&self, kinds: &[Kind]) {
        self.present.set(true);
        self.may_close.set(self.may_close.get() || kinds.iter().any(|kind| !CLOSE_NONE.contains(kind)));
    }

    /// All rows can be read again.
    pub fn end(&self, now: u64) {
        if self.present.take() {
            self.mended.set(Some(now));
        }
    }

    /// Whether there has been any.
    pub fn has_been(&self) -> bool {
        self.present.get() || self.mended.get().is_some()
    }

    /// Whether rows could not be read at some time from then on.
    pub fn has_been_since(&self, then: u64) -> bool {
        self.present.get() || self.mended.get().is_some_and(|mended| then <= mended)
    }

    fn is_known(&self, now: u64) -> bool {
        self.present.get() || self.mended.get().is_some_and(|mended| now <= mended + KNOWN_AFTER_MS)
    }
}

/// A kind of rows to damage. That shards are closed leaves little else to happen, so it does in some runs only.
pub fn draw(world: &World, chance: &Chance) -> Kind {
    let closes = world.seed.is_multiple_of(3) && chance.once_in(2);
    if closes { chance.pick(READ_AT_OPEN) } else { chance.pick(READ_BY_CALLS) }
}

/// Whether a key is of a row of a kind.
pub fn is_kind(key: &[u8], kind: Kind) -> bool {
    key.get(2) == Some(&(kind as u8))
}

/// Judges a refusal.
pub fn judge(world: &World, refusal: &Refusal) {
    let is_named = match refusal {
        Refusal::Damaged { host, .. } => (0..HOSTS).any(|n| host_name(n) == *host),
        Refusal::DamagedChunk { .. } => true,
        Refusal::Corrupt(_) => false,
        _ => return,
    };
    if !is_named || !world.damage.is_known(world.clock.elapsed()) {
        untrue(world, format!("a call was refused with: {refusal}"));
    }
}

/// Judges the outcome of a put; `known` if its URL was acknowledged before.
pub fn judge_put(world: &World, (id, known): (&Id, bool), outcome: &PutOutcome) {
    if let PutOutcome::Failed(why) = outcome {
        judge(world, why);
        if let Refusal::Damaged { host, .. } = &**why
            && !id.1.starts_with(&format!("http://{host}/"))
        {
            untrue(world, format!("a put of {id:?} was refused with: {why}"));
        }
    }
    if known && *outcome == PutOutcome::Added {
        let what = format!("{id:?} was acknowledged before, and is called new");
        run::verdict(world, Err(Broken { law: 4, name: "nothing twice", what }));
    }
}

fn untrue(world: &World, what: String) {
    let verdict: Verdict = Err(Broken { law: 12, name: "answers are true", what });
    run::verdict(world, verdict);
}

/// Watches that only rows which a shard needs close it.
pub async fn watch(world: Rc<World>) {
    let Damage { present, may_close, .. } = &world.damage;
    while !world.done.get() {
        pass(200).await;
        let clients = world.node_clients();
        if !may_close.get() && clients.iter().any(|client| client.frontier.damage().shards_closed > 0) {
            let what = "a shard is closed, though all rows that it needs can be read".to_owned();
            run::verdict(&world, Err(Broken { law: 11, name: "everything moves", what }));
        }
        // A paused node of several may still learn what could not be read before.
        if world.kind == world::Kind::One && !present.get() {
            may_close.set(may_close.get() && clients.iter().any(|client| client.frontier.readiness().is_err()));
        }
    }
}

/// Waits until the shards are open that could not be while their rows could not be read.
pub async fn settle(world: &World) {
    if !world.damage.has_been() {
        return;
    }
    for _ in 0..CLOSED_MS / 1_000 {
        let ready = world.node_clients().iter().all(|client| client.frontier.readiness().is_ok());
        if ready {
            return;
        }
        pass(1_000).await;
    }
    let why = world.node_clients().iter().find_map(|client| client.frontier.readiness().err());
    run::fail(world, &format!("law 5: a shard stays closed though all rows can be read: {why:?}"));
}
