//! Shard placement: which node owns which shard. Every node computes the same plan from the same rows; there is no
//! leader.
//!
//! A node is alive while it renews its row before `expires_at`, by the store's time. A seat names the node that a shard
//! belongs to; seats of dead nodes are free. Nodes above their share give seats away, after stopping the owners; free
//! seats go to nodes below their share. Safety does not depend on the plan: commits are fenced by the shard's epoch,
//! so a plan from stale rows costs time, never correctness.
//!
//! **Shards that a node cannot open.** A node that does not know the store's format is given none. A node that has failed to open a
//! shard several times lists it in its row for a while and gives it away. Meanwhile it keeps the shards that it has open and
//! is given no others, so what is wrong with a node costs its own shards only. If no node is left that may open a shard, it stays where it is.
//!
//! **The format of the store.** [`raise`] decides when nodes may write layouts that older programs do not know: once no row of a node is
//! left, alive or dead, whose program does not know them. Dead nodes may come back; [`NodeRow`]s are removed when a node leaves, when
//! another process takes its address, and some time after its death. A node that joins afterwards is checked against
//! the new format, because the raise and every join change one row.

use std::collections::{BTreeMap, BTreeSet};

use crate::ids::{NodeId, ShardId};
use crate::limits::NODES_MAX;
use crate::time::{Millis, Time};

/// A node's row, as it announces itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeRow {
    /// Random per start.
    pub id: NodeId,
    /// Where other nodes reach it.
    pub address: Box<str>,
    /// Display name.
    pub name: Box<str>,
    /// Program version.
    pub version: Box<str>,
    /// Inter-node protocol version.
    pub protocol: u32,
    /// When it joined.
    pub started_at: Time,
    /// Since when it has been alive without interruption.
    pub alive_since: Time,
    /// When it counts as dead unless it renews.
    pub expires_at: Time,
    /// Whether it is shutting down.
    pub leaving: bool,
    /// The newest format of a store that it knows.
    pub format: u32,
    /// Shards that it has failed to open several times.
    pub failing: BTreeSet<ShardId>,
}

impl NodeRow {
    /// Whether the node is alive at `now`.
    #[must_use]
    pub fn is_alive(&self, now: Time) -> bool {
        self.expires_at > now
    }

    /// Whether a shard may be given to the node, as far as is known.
    fn may_open(&self, shard: ShardId) -> bool {
        !self.failing.contains(&shard)
    }
}

/// What a node sees of the cluster.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    /// The node that plans.
    pub me: NodeId,
    /// The store's time.
    pub now: Time,
    /// How long a node must have been alive before it takes seats of the dead: as long as a lease lasts. After an
    /// outage of the store every lease has expired, and the first node to return would take everything. And a node
    /// that has watched the store's clock for less cannot exclude that a clock step ended the lease.
    pub calm: Millis,
    /// All nodes that have a row.
    pub nodes: &'a [NodeRow],
    /// By shard, the node that it belongs to.
    pub seats: &'a [Option<NodeId>],
    /// The format of the store.
    pub format: u32,
}

/// The format that the store is to be raised to, if it is: the newest one that all nodes know which may still write to it.
#[must_use]
pub fn raise(view: &View<'_>) -> Option<u32> {
    let acts = view.nodes.iter().any(|node| node.id == view.me && node.is_alive(view.now));
    // With more rows than were read, an older node may be among the others.
    let all_seen = view.nodes.len() < NODES_MAX;
    let known = view.nodes.iter().map(|node| node.format).min()?;
    (acts && all_seen && known > view.format).then_some(known)
}

/// The nodes without which the store would be raised further.
#[must_use]
pub fn holding_back(nodes: &[NodeRow]) -> Vec<NodeId> {
    let newest = nodes.iter().map(|node| node.format).max();
    nodes.iter().filter(|node| Some(node.format) < newest).map(|node| node.id).collect()
}

/// A step of the plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Take the shard: no live node owns it.
    Take(ShardId),
    /// Stop owning the shard and pass it to another node, or to none.
    Give(ShardId, Option<NodeId>),
}

/// The steps of one node. Nodes that see the same rows plan compatible steps: each free seat is taken by exactly one of
/// them, and no node gives away a seat that is not its own.
#[must_use]
pub fn plan(view: &View<'_>) -> Vec<Step> {
    let live: BTreeMap<NodeId, &NodeRow> =
        view.nodes.iter().filter(|node| node.is_alive(view.now)).map(|node| (node.id, node)).collect();
    let Some(me) = live.get(&view.me) else { return Vec::new() };
    let mut table = Table::new(view, &live);
    let mut steps = Vec::new();
    for (shard, taker) in table.deal(view, &live) {
        if taker == view.me {
            steps.push(Step::Take(shard));
        }
    }
    let moved = table.even_out(view, &live);
    steps.extend(
        moved.iter().filter(|(_, (giver, _))| *giver == view.me).map(|(shard, (_, to))| Step::Give(*shard, Some(*to))),
    );
    if me.leaving && table.share.is_empty() {
        let mine = (0u16..).zip(view.seats).filter(|(_, seat)| **seat == Some(view.me));
        steps.extend(mine.map(|(shard, _)| Step::Give(ShardId(shard), None)));
    }
    steps
}

/// How many seats each node has and should have.
struct Table {
    held: BTreeMap<NodeId, usize>,
    /// Shares of the nodes that stay; leaving nodes and those that do not know the store's format should have none.
    share: BTreeMap<NodeId, usize>,
}

/// Moves of seats: which, from whom, to whom.
type Moves = BTreeMap<ShardId, (NodeId, NodeId)>;

impl Table {
    fn new(view: &View<'_>, live: &BTreeMap<NodeId, &NodeRow>) -> Self {
        let mut held: BTreeMap<NodeId, usize> = live.keys().map(|id| (*id, 0)).collect();
        for node in view.seats.iter().flatten() {
            if let Some(count) = held.get_mut(node) {
                *count += 1;
            }
        }
        let stays = |node: &&&NodeRow| !node.leaving && node.format >= view.format;
        let staying: Vec<&NodeRow> = live.values().filter(stays).copied().collect();
        let all_fail = staying.iter().all(|node| !node.failing.is_empty());
        let (mut well, failing): (Vec<&NodeRow>, Vec<&NodeRow>) =
            staying.iter().partition(|node| all_fail || node.failing.is_empty());
        let mut left = view.seats.len();
        let mut share = BTreeMap::new();
        for node in &failing {
            let opens = (0u16..)
                .zip(view.seats)
                .filter(|(shard, seat)| **seat == Some(node.id) && node.may_open(ShardId(*shard)));
            let keeps = opens.count().min(view.seats.len() / staying.len());
            share.insert(node.id, keeps);
            left -= keeps;
        }
        // Nodes with most seats get the remainder, so that as few seats as possible move.
        well.sort_by_key(|node| (std::cmp::Reverse(held.get(&node.id).copied()), node.id));
        let (each, odd) = if well.is_empty() { (0, 0) } else { (left / well.len(), left % well.len()) };
        share.extend(well.into_iter().enumerate().map(|(i, node)| (node.id, each + usize::from(i < odd))));
        Self { held, share }
    }

    fn held(&self, node: NodeId) -> usize {
        self.held.get(&node).copied().unwrap_or(0)
    }

    /// The node furthest below its share among those that `may`.
    fn neediest(&self, may: impl Fn(NodeId) -> bool) -> Option<NodeId> {
        let wants = |(id, share): (&NodeId, &usize)| (*share > self.held(*id) && may(*id)).then_some((*id, *share));
        let by_need = |(id, share): &(NodeId, usize)| (share - self.held(*id), std::cmp::Reverse(*id));
        self.share.iter().filter_map(wants).max_by_key(by_need).map(|(id, _)| id)
    }

    /// Assigns the free seats.
    fn deal(&mut self, view: &View<'_>, live: &BTreeMap<NodeId, &NodeRow>) -> Vec<(ShardId, NodeId)> {
        let calm = |id: NodeId| live.get(&id).is_some_and(|node| node.alive_since.after(view.calm) <= view.now);
        let lapsed = |id: NodeId| view.nodes.iter().any(|node| node.id == id);
        let mut dealt = Vec::new();
        for (shard, seat) in (0u16..).zip(view.seats) {
            let taker = match seat {
                Some(node) if live.contains_key(node) => None,
                Some(node) if lapsed(*node) => self.taker(ShardId(shard), live, calm),
                _ => self.taker(ShardId(shard), live, |_| true),
            };
            if let Some(taker) = taker {
                *self.held.entry(taker).or_default() += 1;
                dealt.push((ShardId(shard), taker));
            }
        }
        dealt
    }

    /// The node below its share that a free seat goes to: rather one that has not failed to open the shard.
    fn taker(&self, shard: ShardId, live: &BTreeMap<NodeId, &NodeRow>, may: impl Fn(NodeId) -> bool) -> Option<NodeId> {
        let opens = |id: NodeId| live.get(&id).is_some_and(|node| node.may_open(shard));
        self.neediest(|id| may(id) && opens(id)).or_else(|| self.neediest(may))
    }

    /// Moves seats from nodes that cannot open the shard, and from nodes above their share to nodes below.
    fn even_out(&mut self, view: &View<'_>, live: &BTreeMap<NodeId, &NodeRow>) -> Moves {
        let mut moved = Moves::new();
        let opens = |id: NodeId, shard| live.get(&id).is_some_and(|node| node.may_open(shard));
        // From the last shard down: the first shards, which are asked first, stay where they are.
        let taken = (0u16..).map(ShardId).zip(view.seats).filter_map(|(shard, seat)| Some((shard, (*seat)?)));
        let seats: Vec<(ShardId, NodeId)> = taken.collect::<Vec<_>>().into_iter().rev().collect();
        let fails = |(shard, giver): &&(ShardId, NodeId)| live.contains_key(giver) && !opens(*giver, *shard);
        for (shard, giver) in seats.iter().filter(fails).copied() {
            let may = |id: NodeId| opens(id, shard);
            // One that has its share already gives another seat in return.
            let emptiest = || self.share.keys().copied().filter(|id| may(*id)).min_by_key(|id| (self.held(*id), *id));
            if let Some(taker) = self.neediest(may).or_else(emptiest) {
                self.pass(&mut moved, shard, giver, taker);
            }
        }
        for (shard, giver) in seats {
            let Some(held) = self.held.get(&giver).copied().filter(|_| !moved.contains_key(&shard)) else { continue };
            let taker = match self.share.get(&giver) {
                Some(share) if held <= *share => None,
                Some(_) => self.neediest(|id| opens(id, shard)),
                None => self.taker(shard, live, |_| true),
            };
            if let Some(taker) = taker {
                self.pass(&mut moved, shard, giver, taker);
            }
        }
        moved
    }

    fn pass(&mut self, moved: &mut Moves, shard: ShardId, giver: NodeId, taker: NodeId) {
        *self.held.entry(giver).or_default() -= 1;
        *self.held.entry(taker).or_default() += 1;
        moved.insert(shard, (giver, taker));
    }
}

#[cfg(test)]
#[path = "cluster_tests.rs"]
mod tests;
