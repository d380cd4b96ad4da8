//! Model of shard ownership in bounded time: nodes that own shards by leases in the engine, fenced commits, and faults.
//!
//! Nodes plan by [`wayleave_core::cluster::plan`] and write by [`wayleave_cluster::cluster_rows`]; owners decide by the
//! core's frontier on the rows that they read, and pipeline their commits; the engine checks by
//! [`wayleave_engine::fences`]. The waiting in between is modelled here after `wayleave_cluster` and `wayleave_shard`.
//!
//! Time jumps by a tick. In each a node renews its lease once, its seats look and then act; other nodes may interleave.
//! An owner may decide at any moment, or not at all. Messages arrive at once unless the budget lets them be late; a
//! waiter for a late message may give up at any moment, and an abandoned message may still arrive.

mod engine;
mod events;
mod frozen;
mod history;
mod mail;
mod node;
mod shard;

pub use engine::Fencing;
use engine::{Rows, Store};
pub use history::{CURRENT_EPOCH, NO_HOST_LOST, NOTHING_LOST, ON_TOP, ONE_IS_SURE, ONE_VISITOR};
use history::{History, LAWS};
use node::{Call, Desk, Is, Node, Owner, Pass, StoreReply};

use crate::prelude::*;
use crate::timed_model::budget::Budget;
use crate::timed_model::watch::{Watch, Watching};

/// Between two looks of a node, and two lease renewals.
const TICK_MS: u64 = 1_000;
/// The steps of the engine's clock: nodes that have not just renewed their lease are dead, or all at once.
const STEPS_MS: [u64; 2] = [1_000, 5_000];

/// What is modelled.
#[derive(Clone, Debug)]
pub struct Ownership {
    pub nodes: usize,
    pub shards: u16,
    pub ticks: u64,
    /// The lease time of a reservation.
    pub lease: Millis,
    pub budget: Budget,
    pub fencing: Fencing,
    /// Whether an owner reloads after a commit with an unknown outcome.
    pub reloads: bool,
    /// Whether clients are answered before a commit is durable.
    pub answers_early: bool,
    /// Whether a shard or a host leaves only when its owner has nothing in flight.
    pub waits: bool,
    /// Whether the commit that moves a host is fenced by the giver's shard too.
    pub fences_giver: bool,
    /// Whether a node's reads show what it has in flight to the store, as the PostgreSQL engine's do. Taking a shard
    /// hides what is in flight at that moment.
    pub overlay: bool,
    /// How nodes watch the engine's clock.
    pub watching: Watching,
    /// Whether a host is adopted only while its giver's term lasts and the giver waits for it.
    pub drops_stale: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct State {
    now: u64,
    nodes: Vec<Node>,
    store: Store,
    /// Sent, and its fate not yet decided.
    fresh: Vec<Message>,
    /// In flight, slowly.
    slow: Vec<Message>,
    /// Whether nodes cannot reach each other.
    cut: bool,
    /// How many processes there ever were.
    lives: u64,
    left: Budget,
    pub history: History,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Message {
    /// The calling node, or the destination of a message between nodes.
    node: usize,
    sent: u64,
    /// Whether the response is still awaited.
    awaited: bool,
    /// The shards whose reads do not show it, as a bit set.
    hidden: u8,
    what: What,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum What {
    /// To the store.
    Ask(Call),
    /// In the store: checked, and not yet applied. Only where fences are read before.
    Checked(Call),
    /// From the store, with the steps of its clock.
    StoreReply(Call, StoreReply, u64),
    /// To another node: a host to adopt.
    Hand(Parcel),
    /// Back: whether it was.
    Handed { taker: usize, giver: NodeId, seq: u64, done: bool },
}

/// A host in flight, as the giver's memory before it left.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Parcel {
    giver: (usize, NodeId),
    part: node::Part,
    at: Time,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// What was sent arrives at once, and so does its answer.
    Deliver,
    /// It arrives later, or its answer does.
    Delay,
    DelayAnswer,
    /// The store stops between the check and the write. Only where these are separate.
    Stall,
    /// Something slow arrives.
    Arrive(usize),
    /// The waiter for a slow message gives up.
    GiveUp(usize),
    Beat(usize),
    /// The seats look, and act on what they saw.
    Look(usize),
    /// The same, with a look that was sent when time last passed.
    LookSlowly(usize),
    Act(usize),
    /// A node notices that its lease has expired.
    Lapse(usize),
    /// An owner reads a part of its shard.
    Read(usize, u16),
    /// An owner decides and commits.
    Decide(usize, u16),
    /// The owner of shard 0 gives its host to the owner of shard 1 at a node.
    Move(usize, usize),
    /// It gives up waiting for that.
    Abandon(usize),
    Tick,
    Pause(usize),
    Resume(usize),
    Crash(usize),
    Start(usize),
    Leave(usize),
    /// A leaving node that owns nothing any more is gone.
    Left(usize),
    Cut(bool),
    StepClock(u64),
    RestartStore,
}

impl Model for Ownership {
    type State = State;
    type Action = Action;

    /// The first node owns everything.
    fn init_states(&self) -> Vec<State> {
        let all = || (0..self.shards).map(ShardId);
        let rows: Vec<Rows> = all().map(shard::first_rows).collect();
        let mut store = Store::new(rows, Rows::new());
        let mut nodes: Vec<Node> = (1u64..).take(self.nodes).map(|id| Node::new(NodeId(id), self.shards)).collect();
        // They have been running for a while.
        for (place, node) in nodes.iter_mut().enumerate() {
            for past in [true, false] {
                let mut glance = store.glance(0);
                glance.now = if past { glance.now.before(Millis(TICK_MS)) } else { glance.now };
                let renewal = node.renewal(place, &glance).into();
                store.apply(&renewal);
            }
            node.renewed(0);
            node.watch = self.clock_steps().then(|| Watch::start(self.watching, 0, store.now(0)));
        }
        let seats =
            wayleave_cluster::cluster_rows::ClusterSnapshot::read(store.glance(0).look(&[]), self.shards).unwrap();
        store.apply(&seats.take(&all().collect::<Vec<_>>(), NodeId(1)).into());
        for shard in all() {
            nodes[0].post(shard).owner = Owner::Open(Desk::open(1, 0, store.shard(shard).clone()));
        }
        vec![State {
            now: 0,
            nodes,
            store,
            fresh: Vec::new(),
            slow: Vec::new(),
            cut: false,
            lives: self.nodes as u64,
            left: self.budget,
            history: History::default(),
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        if let Some(message) = state.fresh.first() {
            actions.push(Action::Deliver);
            if state.left.delays > 0 {
                actions.push(Action::Delay);
                if let What::Ask(call) = &message.what {
                    actions.push(Action::DelayAnswer);
                    if self.fencing == Fencing::ReadBefore && matches!(call, Call::Commit(_)) {
                        actions.push(Action::Stall);
                    }
                }
            }
            return;
        }
        for (index, message) in state.slow.iter().enumerate() {
            let runs = state.nodes[message.node].is == Is::Running;
            let answers = !matches!(message.what, What::Ask(_) | What::Checked(_));
            if runs || !answers {
                actions.push(Action::Arrive(index));
            }
            let to_store = matches!(&message.what, What::Ask(call) | What::Checked(call) | What::StoreReply(call, ..)
                if !matches!(call, Call::Beat(_)));
            if runs && message.awaited && to_store {
                actions.push(Action::GiveUp(index));
            }
        }
        let due = |node: &Node| node.is_due(state.now);
        let calm = !state.nodes.iter().any(due);
        for (index, node) in state.nodes.iter().enumerate() {
            self.steps(state, index, actions);
            self.faults(state, index, calm || node.is_midway(), actions);
        }
        if calm {
            actions.push(Action::Tick);
        }
        if state.left.cuts > 0 && !state.cut {
            actions.push(Action::Cut(true));
        }
        if state.cut {
            actions.push(Action::Cut(false));
        }
        if state.left.steps > 0 {
            actions.extend(STEPS_MS.map(Action::StepClock));
        }
        if state.left.restarts > 0 {
            actions.push(Action::RestartStore);
        }
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = last.clone();
        state.take(self, action)?;
        Some(state)
    }

    fn within_boundary(&self, state: &State) -> bool {
        state.now <= self.ticks * TICK_MS
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let law = |law: &'static str| match law {
            ONE_VISITOR => Property::always(law, |_, state: &State| !state.history.broken.contains(ONE_VISITOR)),
            CURRENT_EPOCH => Property::always(law, |_, state: &State| !state.history.broken.contains(CURRENT_EPOCH)),
            ON_TOP => Property::always(law, |_, state: &State| !state.history.broken.contains(ON_TOP)),
            NO_HOST_LOST => Property::always(law, |_, state: &State| state.owners_know_the_store()),
            ONE_IS_SURE => Property::always(law, |_, state: &State| state.one_is_sure()),
            _ => Property::always(law, |model: &Self, state: &State| {
                !state.history.broken.contains(NOTHING_LOST) && state.history.nothing_lost(&state.store, model.shards)
            }),
        };
        let mut all: Vec<Property<Self>> = LAWS.map(law).into();
        // Liveness checks: without these the model could be safe because nothing happens in it.
        let Budget { delays, pauses, crashes, ends, moves, .. } = self.budget;
        if pauses + crashes + ends > 0 || self.shards > 1 {
            all.push(Property::sometimes("a second owner grants", |_, state: &State| state.history.met.taken_over));
        }
        if pauses > 0 || delays > 0 {
            all.push(Property::sometimes("a commit comes too late", |_, state: &State| state.history.met.fenced));
        }
        if delays > 0 {
            all.push(Property::sometimes("a reload finds what was in doubt", |_, state: &State| {
                state.history.met.found
            }));
        }
        if ends > 0 || self.shards > 1 {
            all.push(Property::sometimes("a shard is handed over", |_, state: &State| state.history.met.handed_over));
        }
        if moves > 0 {
            all.push(Property::sometimes("a host moves", |_, state: &State| state.history.met.moved));
        }
        all
    }
}

impl Ownership {
    /// Whether the engine's clock may step.
    const fn clock_steps(&self) -> bool {
        self.budget.steps > 0
    }

    fn steps(&self, state: &State, index: usize, actions: &mut Vec<Action>) {
        let node = &state.nodes[index];
        if node.is != Is::Running {
            return;
        }
        if node.beat_due {
            actions.push(Action::Beat(index));
        }
        match &node.pass {
            // A node renews before its seats look: the other order is that of the previous tick.
            Pass::Rest if node.look_due && node.alive && !node.lapsed && !node.beat_due => {
                actions.push(Action::Look(index));
                if state.left.looks > 0 {
                    actions.push(Action::LookSlowly(index));
                }
            }
            Pass::Looked(..) if node.is_due(state.now) => actions.push(Action::Act(index)),
            _ => {}
        }
        if node.lapses(state.now) {
            actions.push(Action::Lapse(index));
        }
        for (shard, post) in (0u16..).zip(&node.posts) {
            match &post.owner {
                Owner::Reading { .. } => actions.push(Action::Read(index, shard)),
                Owner::Open(desk) if desk.handing.is_some() => actions.push(Action::Abandon(index)),
                Owner::Open(_) if state.left.commits > 0 => actions.push(Action::Decide(index, shard)),
                _ => {}
            }
        }
        if state.left.moves > 0 && matches!(node.posts[0].owner, Owner::Open(_)) {
            let takers = (0..self.nodes).filter(|to| matches!(state.nodes[*to].posts[1].owner, Owner::Open(_)));
            actions.extend(takers.map(|to| Action::Move(index, to)));
        }
    }

    fn faults(&self, state: &State, index: usize, may_stop: bool, actions: &mut Vec<Action>) {
        let (node, left) = (&state.nodes[index], state.left);
        match node.is {
            Is::Running if may_stop => {
                if left.pauses > 0 {
                    actions.push(Action::Pause(index));
                }
                if left.crashes > 0 {
                    actions.push(Action::Crash(index));
                }
                if left.ends > 0 && !node.leaving {
                    actions.push(Action::Leave(index));
                }
                if node.leaving && node.posts.iter().all(|post| post.owner == Owner::Absent) {
                    actions.push(Action::Left(index));
                }
            }
            Is::Running => {}
            Is::Paused => actions.push(Action::Resume(index)),
            Is::Gone => actions.push(Action::Start(index)),
        }
    }
}

fn name(node: usize) -> char {
    char::from(b'A' + node as u8)
}

impl State {
    /// Whether every owner whose last commit is the store's last one has the store's content in memory.
    fn owners_know_the_store(&self) -> bool {
        let knows = |shard: u16, desk: &Desk| {
            let shard = ShardId(shard);
            self.store.turn(shard) != (desk.epoch, desk.seq) || desk.memory == *self.store.shard(shard)
        };
        let posts = self.nodes.iter().flat_map(|node| (0u16..).zip(&node.posts));
        posts.into_iter().all(|(shard, post)| match &post.owner {
            Owner::Open(desk) => desk.failed || knows(shard, desk),
            _ => true,
        })
    }

    /// Whether no node has opened a shard that an older owner may answer for from memory.
    fn one_is_sure(&self) -> bool {
        let open = |node: &Node| -> Vec<(usize, u64)> {
            let posts = node.posts.iter().enumerate().filter(|(_, post)| !post.stopping);
            posts
                .filter_map(
                    |(shard, post)| if let Owner::Open(desk) = &post.owner { Some((shard, desk.epoch)) } else { None },
                )
                .collect()
        };
        let newer = |(shard, epoch): (usize, u64)| {
            self.nodes.iter().flat_map(open).any(|(other, later)| other == shard && later > epoch)
        };
        self.nodes.iter().filter(|node| node.is_sure(self.now)).flat_map(open).all(|owner| !newer(owner))
    }

    /// A line for people: when, and who has which shard open in which epoch.
    pub fn line(&self) -> String {
        let mut open = Vec::new();
        for (index, node) in self.nodes.iter().enumerate() {
            for (shard, post) in node.posts.iter().enumerate() {
                if let Owner::Open(Desk { epoch, .. }) = &post.owner {
                    let paused = if node.is == Is::Paused { " (paused)" } else { "" };
                    open.push(format!("{} has shard {shard} in epoch {epoch}{paused}", name(index)));
                }
            }
        }
        format!("{:>5} ms  {}", self.now, open.join(", "))
    }
}
