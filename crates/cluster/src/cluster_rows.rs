//! Cluster rows: everything that a node writes about itself and its seats, as batches that each expect the rows they were
//! decided on.
//!
//! Pure: what a look has shown goes in, a batch comes out. Lease renewal and the seats carry the batches to the store; the
//! model checker of `sim` carries the same ones through everything that can go wrong on the way.

use std::collections::BTreeSet;
use std::time::Duration;

use wayleave_core::cluster::{NodeRow, View};
use wayleave_core::codec::Damaged;
use wayleave_core::ids::{NodeId, ShardId};
use wayleave_core::limits::NODES_MAX;
use wayleave_core::time::{Millis, Time};
use wayleave_engine::rows::{join, node, seat};
use wayleave_engine::{Batch, Error, Expect, Key, Look, Row, Scan, Value, Write};
use wayleave_registry::{batch, only, value};

/// What one look has shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterSnapshot {
    /// The store's time at which the rows lay there.
    pub now: Time,
    /// All nodes that have a row.
    pub nodes: Vec<NodeRow>,
    /// By shard, the node that it belongs to.
    pub seats: Vec<Option<NodeId>>,
    /// The format of the store.
    pub format: u32,
    /// The number of joins.
    joins: u64,
    /// The look itself, whose rows are expected in what is written.
    look: Look,
}

impl ClusterSnapshot {
    /// The rows to look at, in a store of this many shards.
    #[must_use]
    pub fn scans(shards: u16) -> [Scan; 3] {
        [node::all(NODES_MAX), seat::all(shards), only(join::key())]
    }

    /// Reads what [`ClusterSnapshot::scans`] found.
    pub fn read(look: Look, shards: u16) -> Result<Self, Error> {
        let mut nodes = Vec::new();
        let mut seats = vec![None; shards.into()];
        let damaged = |error: Damaged| Error::Corrupt(error.to_string());
        let mut found = look.rows.iter();
        for row in found.next().into_iter().flatten() {
            nodes.push(node::decode(&row.value).map_err(damaged)?);
        }
        for Row { key, value } in found.next().into_iter().flatten() {
            if let Some(place) = seats.get_mut(usize::from(seat::parse_key(key).map_err(damaged)?.0)) {
                *place = seat::decode(value).map_err(damaged)?;
            }
        }
        let found = value(&look, &join::key()).map(|row| join::decode(row).map_err(damaged));
        let (joins, format) = found.transpose()?.unwrap_or_default();
        Ok(Self { now: look.now, nodes, seats, format, joins, look })
    }

    /// The same for the plan of a node, which waits for `calm` before it takes seats of the dead.
    #[must_use]
    pub fn view(&self, me: NodeId, calm: Millis) -> View<'_> {
        View { me, now: self.now, calm, nodes: &self.nodes, seats: &self.seats, format: self.format }
    }

    /// Raises the format of the store, unless a node has joined since the look.
    #[must_use]
    pub fn raise(&self, format: u32) -> Batch {
        let write = Write { key: join::key(), value: Some(join::encode(self.joins, format)) };
        batch(&self.look, vec![write], Vec::new())
    }

    /// Whether a node lived at the time of the look.
    #[must_use]
    pub fn lives(&self, id: NodeId) -> bool {
        self.nodes.iter().any(|node| node.id == id && node.is_alive(self.now))
    }

    /// The shards that are to have an owner at `me`; all others are to have none there.
    #[must_use]
    pub fn belongs_to(&self, shard: ShardId, me: NodeId) -> bool {
        self.seats.get(usize::from(shard.0)) == Some(&Some(me)) && self.lives(me)
    }

    /// Until when no seat is taken whose node is dead by the store's time: that clock may have stepped, and the node
    /// rely on its lease by its own. A node that has watched the clock for as long as a lease lasts knows.
    #[must_use]
    pub const fn unsure_until(&self, ttl: Millis) -> Time {
        self.look.steady_since.after(ttl)
    }

    /// Whether no node can still rely on owning a shard without a living owner.
    #[must_use]
    pub fn is_free(&self, shard: ShardId, ttl: Millis) -> bool {
        let seat = self.seats.get(usize::from(shard.0)).copied().flatten();
        let has_row = |id: NodeId| self.nodes.iter().any(|node| node.id == id);
        self.unsure_until(ttl) <= self.now || !seat.is_some_and(has_row)
    }

    /// Makes free shards one node's own, all or none.
    #[must_use]
    pub fn take(&self, shards: &[ShardId], me: NodeId) -> Batch {
        let write = |shard: &ShardId| Write { key: seat::key(*shard), value: Some(seat::encode(Some(me))) };
        let holder = |shard: &ShardId| self.seats.get(usize::from(shard.0)).copied().flatten();
        // Their former owner must still be dead.
        let dead: Vec<Key> = shards.iter().filter_map(holder).map(node::key).collect();
        batch(&self.look, shards.iter().map(write).collect(), dead)
    }

    /// Removes the rows of nodes that are still as they were seen.
    #[must_use]
    pub fn forget(&self, nodes: &[NodeId]) -> Batch {
        let write = |id: &NodeId| Write { key: node::key(*id), value: None };
        batch(&self.look, nodes.iter().map(write).collect(), Vec::new())
    }
}

/// What must be in the store for a node to own a shard.
#[must_use]
pub fn mine(shard: ShardId, me: NodeId) -> Expect {
    (seat::key(shard), Some(seat::encode(Some(me))))
}

/// Gives a shard to another node, or to none.
#[must_use]
pub fn give(shard: ShardId, me: NodeId, to: Option<NodeId>) -> Batch {
    let writes = vec![Write { key: seat::key(shard), value: Some(seat::encode(to)) }];
    Batch { fences: Vec::new(), expects: vec![mine(shard, me)], writes }
}

/// Renews a node's row, or writes it if it is not there. `old` is what the store has, at its time `now`.
pub fn renew(row: &mut NodeRow, old: Option<Value>, now: Time, ttl: Millis, leaving: bool) -> Batch {
    let was = old.as_deref().and_then(|value| node::decode(value).ok());
    if !was.is_some_and(|row| row.is_alive(now)) {
        row.alive_since = now;
    }
    if row.started_at.0 == 0 {
        row.started_at = now;
    }
    row.expires_at = now.after(ttl);
    row.leaving = leaving;
    let key = node::key(row.id);
    let writes = vec![Write { key: key.clone(), value: Some(node::encode(row)) }];
    Batch { fences: Vec::new(), expects: vec![(key, old)], writes }
}

/// How long a node may take itself for alive after it has sent what renewed its row: less than the store does, for clocks
/// run at different rates.
#[must_use]
pub const fn sure_for(ttl: Millis) -> Duration {
    Duration::from_millis(ttl.0 - ttl.0 / 50)
}

/// What to look at before [`join()`].
#[must_use]
pub fn join_scans() -> Vec<Scan> {
    vec![node::all(NODES_MAX), only(join::key())]
}

/// Why a node may not join.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refused {
    /// This living node has its address.
    Taken(NodeRow),
    /// The store has this format, which it does not know.
    Newer(u32),
}

/// Writes the row of a node that has none, removes those of dead nodes with its address, and counts the join. The row of a
/// node in `silent` is removed too: it did not answer at the address. The first node decides on the format. Fails if
/// the row that counts joins is damaged.
pub fn join(
    look: &Look,
    row: &mut NodeRow,
    silent: &BTreeSet<NodeId>,
    ttl: Millis,
    leaving: bool,
) -> Result<Result<Vec<Write>, Refused>, Damaged> {
    let (joins, format) = value(look, &join::key()).map_or(Ok((0, row.format)), |found| join::decode(found))?;
    if format > row.format {
        return Ok(Err(Refused::Newer(format)));
    }
    let nodes = look.rows.first().into_iter().flatten();
    let others = nodes.filter_map(|stored| node::decode(&stored.value).ok());
    let mut gone = Vec::new();
    for other in others.filter(|other| other.address == row.address && other.id != row.id) {
        if other.is_alive(look.now) && !silent.contains(&other.id) {
            return Ok(Err(Refused::Taken(other)));
        }
        gone.push(Write { key: node::key(other.id), value: None });
    }
    let mut writes = renew(row, value(look, &node::key(row.id)).cloned(), look.now, ttl, leaving).writes;
    writes.push(Write { key: join::key(), value: Some(join::encode(joins.wrapping_add(1), format)) });
    writes.append(&mut gone);
    Ok(Ok(writes))
}

/// Removes the row of a node that has left.
#[must_use]
pub fn leave(me: NodeId) -> Batch {
    Batch { writes: vec![Write { key: node::key(me), value: None }], ..Batch::default() }
}
