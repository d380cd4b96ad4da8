//! Shard placement: which node owns which shard. Every node computes the same plan from the same rows; there is no
//! leader.
//!
//! A node is alive while it renews its row before `expires_at`, by the store's time. A seat names the node that a shard
//! belongs to; seats of dead nodes are free. Nodes above their share give seats away, after stopping the owners; free
//! seats go to nodes below their share. Safety does not depend on this module: commits are fenced by the shard's epoch,
//! so a plan from stale rows costs time, never correctness.

use std::collections::BTreeMap;

use crate::ids::{NodeId, ShardId};
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
}

impl NodeRow {
    /// Whether the node is alive at `now`.
    #[must_use]
    pub fn is_alive(&self, now: Time) -> bool {
        self.expires_at > now
    }
}

/// What a node sees of the cluster.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    /// The node that plans.
    pub me: NodeId,
    /// The store's time.
    pub now: Time,
    /// How long a node must have been alive before it takes seats of the dead: after an outage of the store every lease
    /// has expired, and the first node to return would take everything.
    pub calm: Millis,
    /// All nodes that have a row.
    pub nodes: &'a [NodeRow],
    /// By shard, the node that it belongs to.
    pub seats: &'a [Option<NodeId>],
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
    for (shard, giver, taker) in table.even_out(view) {
        if giver == view.me {
            steps.push(Step::Give(shard, Some(taker)));
        }
    }
    if me.leaving && table.share.is_empty() {
        let mine = (0u16..).zip(view.seats).filter(|(_, seat)| **seat == Some(view.me));
        steps.extend(mine.map(|(shard, _)| Step::Give(ShardId(shard), None)));
    }
    steps
}

/// How many seats each node has and should have.
struct Table {
    held: BTreeMap<NodeId, usize>,
    /// Shares of the nodes that stay; leaving nodes should have none.
    share: BTreeMap<NodeId, usize>,
}

impl Table {
    fn new(view: &View<'_>, live: &BTreeMap<NodeId, &NodeRow>) -> Self {
        let mut held: BTreeMap<NodeId, usize> = live.keys().map(|id| (*id, 0)).collect();
        for node in view.seats.iter().flatten() {
            if let Some(count) = held.get_mut(node) {
                *count += 1;
            }
        }
        let mut staying: Vec<NodeId> = live.values().filter(|node| !node.leaving).map(|node| node.id).collect();
        // Nodes with most seats get the remainder, so that as few seats as possible move.
        staying.sort_by_key(|id| (std::cmp::Reverse(held.get(id).copied()), *id));
        let (each, odd) = match staying.len() {
            0 => (0, 0),
            nodes => (view.seats.len() / nodes, view.seats.len() % nodes),
        };
        let share = staying.into_iter().enumerate().map(|(i, id)| (id, each + usize::from(i < odd))).collect();
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
                Some(node) if lapsed(*node) => self.neediest(calm),
                _ => self.neediest(|_| true),
            };
            if let Some(taker) = taker {
                *self.held.entry(taker).or_default() += 1;
                dealt.push((ShardId(shard), taker));
            }
        }
        dealt
    }

    /// Moves seats from nodes above their share to nodes below.
    fn even_out(&mut self, view: &View<'_>) -> Vec<(ShardId, NodeId, NodeId)> {
        let mut moved = Vec::new();
        // From the last shard down: the first shards, which are asked first, stay where they are.
        for (shard, seat) in (0u16..).zip(view.seats).collect::<Vec<_>>().into_iter().rev() {
            let Some(giver) = *seat else { continue };
            let Some(held) = self.held.get(&giver).copied() else { continue };
            if held <= self.share.get(&giver).copied().unwrap_or(0) {
                continue;
            }
            let Some(taker) = self.neediest(|_| true) else { break };
            *self.held.entry(giver).or_default() -= 1;
            *self.held.entry(taker).or_default() += 1;
            moved.push((ShardId(shard), giver, taker));
        }
        moved
    }
}

#[cfg(test)]
#[path = "cluster_tests.rs"]
mod tests;
