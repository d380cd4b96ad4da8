//! The effect of each action: nodes take their steps, owners decide, faults happen.

use wayleave_cluster::cluster_rows;
use wayleave_core::cluster::{self, Step};
use wayleave_engine::rows::node as node_row;

use super::engine::{Asked, Rows};
use super::frozen::Frozen;
use super::node::{Call, Commit, Desk, Flying, Is, Node, Owner, Part, Pass, Post, TTL, address};
use super::{Action, Message, Ownership, Parcel, State, TICK_MS, What, shard};
use crate::prelude::*;
use crate::timed_model::watch::{Watch, Watching};

/// The maximum number of an owner's commits in flight.
const FLYING_MAX: usize = 2;

impl State {
    /// Takes an action; `None` if it changes nothing.
    pub(super) fn take(&mut self, model: &Ownership, action: Action) -> Option<()> {
        match action {
            Action::Deliver => {
                let message = self.fresh.remove(0);
                self.arrive(model, message, false);
            }
            Action::Delay => {
                self.left.delays -= 1;
                let message = self.fresh.remove(0);
                self.put_slow(message);
            }
            Action::DelayAnswer => {
                self.left.delays -= 1;
                let message = self.fresh.remove(0);
                self.arrive(model, message, true);
            }
            Action::Stall => {
                self.left.delays -= 1;
                let message = self.fresh.remove(0);
                self.stall(model, message);
            }
            Action::Arrive(index) => {
                let message = self.slow.remove(index);
                self.arrive(model, message, false);
            }
            Action::GiveUp(index) => self.give_up(model, index),
            Action::Tick => self.tick(),
            Action::Cut(cut) => {
                self.left.cuts -= u8::from(cut);
                self.cut = cut;
            }
            Action::StepClock(ms) => {
                self.left.steps -= 1;
                self.store.offset_ms += ms;
            }
            Action::RestartStore => {
                self.left.restarts -= 1;
                self.restart_store(model);
            }
            Action::Decide(node, shard) => self.decide(model, node, ShardId(shard))?,
            Action::Move(node, to) => self.give_host(model, node, to)?,
            action => self.step(model, action),
        }
        Some(())
    }

    /// A node does something by itself, or something is done to it.
    fn step(&mut self, model: &Ownership, action: Action) {
        match action {
            Action::Beat(node) => self.beat(node),
            Action::Look(node) => self.look(model, node, self.now),
            Action::LookSlowly(node) => {
                self.left.looks -= 1;
                self.look(model, node, self.now.saturating_sub(TICK_MS));
            }
            Action::Act(node) => self.act(model, node),
            Action::Lapse(node) => {
                (self.nodes[node].alive, self.nodes[node].lapsed) = (false, true);
                self.go_on(model, node);
            }
            Action::Read(node, shard) => self.read(model, node, ShardId(shard)),
            Action::Abandon(node) => {
                let desk = self.nodes[node].desk(ShardId(0)).expect("it hands a host over");
                (desk.handing, desk.failed) = (None, true);
                self.go_on(model, node);
            }
            Action::Pause(node) => {
                self.left.pauses -= 1;
                self.nodes[node].is = Is::Paused;
            }
            Action::Resume(node) => {
                let node = &mut self.nodes[node];
                (node.is, node.beat_due, node.look_due) = (Is::Running, true, true);
            }
            Action::Crash(node) => {
                self.left.crashes -= 1;
                self.end(node);
            }
            Action::Start(node) => self.start(model, node),
            Action::Leave(node) => {
                self.left.ends -= 1;
                let node = &mut self.nodes[node];
                (node.leaving, node.beat_due, node.look_due) = (true, true, true);
            }
            Action::Left(node) => {
                self.store.apply(&cluster_rows::leave(self.nodes[node].id).into());
                self.end(node);
            }
            _ => unreachable!("not a step of one node"),
        }
    }

    fn tick(&mut self) {
        self.now += TICK_MS;
        for node in self.nodes.iter_mut().filter(|node| node.is == Is::Running) {
            (node.beat_due, node.look_due) = (true, true);
        }
    }

    pub(super) fn ask(&mut self, node: usize, call: Call) {
        self.fresh.push(Message { node, sent: self.now, awaited: true, hidden: 0, what: What::Ask(call) });
    }

    /// Slow messages are kept in sending order, which has no other meaning.
    pub(super) fn put_slow(&mut self, message: Message) {
        self.slow.push(message);
        self.slow.sort_by_key(|message| (message.sent, message.node));
    }

    /// Its look, which was sent then, shows the rows as they are now.
    fn look(&mut self, model: &Ownership, index: usize, sent: u64) {
        let mut glance = self.store.glance(self.now);
        let node = &mut self.nodes[index];
        node.look_due = false;
        if let Some(watch) = &mut node.watch {
            glance.steady_since = watch.look(model.watching, sent, self.now, glance.now);
        }
        node.pass = Pass::Looked(glance, Vec::new());
    }

    fn beat(&mut self, index: usize) {
        let glance = self.store.glance(self.now);
        let node = &mut self.nodes[index];
        node.beat_due = false;
        let renewal = node.renewal(index, &glance).into();
        self.ask(index, Call::Beat(renewal));
    }

    /// Opens what belongs to the node, closes what does not, and does its part of the plan.
    fn act(&mut self, model: &Ownership, index: usize) {
        let Pass::Looked(glance, _) = self.nodes[index].pass.clone() else { return };
        let seen = cluster_rows::ClusterSnapshot::read(
            glance.look(&cluster_rows::ClusterSnapshot::scans(model.shards)),
            model.shards,
        )
        .unwrap();
        let me = self.nodes[index].id;
        let foreign = |shard: &ShardId| !seen.belongs_to(*shard, me);
        let closing: Vec<ShardId> = (0..model.shards)
            .map(ShardId)
            .filter(foreign)
            .filter(|shard| !self.nodes[index].is_absent(*shard))
            .collect();
        if !closing.is_empty() {
            closing.iter().for_each(|shard| self.nodes[index].stop(*shard));
            self.nodes[index].pass = Pass::Looked(glance, closing);
            return self.go_on(model, index);
        }
        for shard in (0..model.shards).map(ShardId).filter(|shard| !foreign(shard)) {
            if self.nodes[index].is_absent(shard) {
                self.open(index, shard, None);
            }
        }
        let calm = if model.watching == Watching::NotAtStart { Millis(TTL.0 / 5) } else { TTL };
        let steps = cluster::plan(&seen.view(me, calm));
        let (mut takes, mut gives) = (Vec::new(), Vec::new());
        for step in steps {
            match step {
                Step::Take(shard) if seen.is_free(shard, TTL) => takes.push(shard),
                Step::Take(_) => {}
                Step::Give(shard, to) => gives.push((shard, to)),
            }
        }
        if takes.is_empty() {
            self.give(model, index, gives);
        } else {
            self.nodes[index].pass = Pass::Taking;
            self.ask(index, Call::Take(seen.take(&takes, me).into(), takes, gives));
        }
    }

    pub(super) fn open(&mut self, index: usize, shard: ShardId, kept: Option<Frozen<Rows>>) {
        let node = &mut self.nodes[index];
        *node.post(shard) = Post { owner: Owner::Owning { kept }, stopping: false };
        let expects = cluster_rows::mine(shard, node.id);
        self.ask(index, Call::Own(shard, expects));
    }

    /// Owners stop first; the store is updated later.
    pub(super) fn give(&mut self, model: &Ownership, index: usize, gives: Vec<(ShardId, Option<NodeId>)>) {
        let node = &mut self.nodes[index];
        node.pass = if gives.is_empty() {
            Pass::Rest
        } else {
            gives.iter().for_each(|(shard, _)| node.stop(*shard));
            Pass::Giving(gives.into_iter().map(|(shard, to)| (shard, to, false)).collect())
        };
        self.go_on(model, index);
    }

    /// Everything that a node can do without further waiting.
    pub(super) fn go_on(&mut self, model: &Ownership, index: usize) {
        for shard in (0..model.shards).map(ShardId) {
            let node = &mut self.nodes[index];
            if node.lapsed && node.pass == Pass::Rest {
                node.stop(shard);
            }
            self.settle(model, index, shard);
        }
        let node = &mut self.nodes[index];
        if node.pass == Pass::Rest && node.posts.iter().all(|post| post.owner == Owner::Absent) {
            node.lapsed = false;
        }
        let me = node.id;
        let Pass::Giving(mut gives) = node.pass.clone() else { return };
        let mut calls = Vec::new();
        for (shard, to, sent) in gives.iter_mut().filter(|(shard, _, sent)| !sent && node.is_absent(*shard)) {
            *sent = true;
            calls.push(Call::Give(cluster_rows::give(*shard, me, *to).into(), *shard, to.is_some()));
        }
        node.pass = Pass::Giving(gives);
        calls.into_iter().for_each(|call| self.ask(index, call));
    }

    /// Responses leave in order; an owner without commits in flight stops, or restarts if one has failed.
    fn settle(&mut self, model: &Ownership, index: usize, shard: ShardId) {
        let node = &mut self.nodes[index];
        let stopping = node.post(shard).stopping;
        let Some(desk) = node.desk(shard) else { return };
        let mut in_doubt = None;
        while let Some(done) = desk.flying.first().and_then(|first| first.done) {
            let Flying { commit, .. } = desk.flying.remove(0);
            if done && !desk.failed {
                self.history.acknowledge(&commit);
            } else if !desk.failed {
                desk.failed = true;
                in_doubt = Some(commit.parts[0].base.clone());
            }
            if let Some((giver, id)) = commit.giver {
                let what = What::Handed { taker: index, giver: id, seq: commit.parts[1].seq, done };
                self.fresh.push(Message { node: giver, sent: self.now, awaited: true, hidden: 0, what });
            }
        }
        if stopping && !model.waits {
            *node.post(shard) = Post { owner: Owner::Absent, stopping: false };
            return self.forget(index, shard);
        }
        if !desk.flying.is_empty() || desk.handing.is_some() {
            if let Some(base) = in_doubt {
                desk.memory = base;
            }
            return;
        }
        if stopping {
            *node.post(shard) = Post { owner: Owner::Absent, stopping: false };
        } else if desk.failed {
            let kept = in_doubt.unwrap_or_else(|| desk.memory.clone());
            self.open(index, shard, Some(kept));
        }
    }

    /// Abandons the commits of an owner.
    fn forget(&mut self, index: usize, shard: ShardId) {
        let of_owner = |message: &Message| match &message.what {
            What::Ask(Call::Commit(commit))
            | What::Checked(Call::Commit(commit))
            | What::StoreReply(Call::Commit(commit), ..) => message.node == index && commit.parts[0].shard == shard,
            _ => false,
        };
        self.slow.retain(|message| !(of_owner(message) && matches!(message.what, What::StoreReply(..))));
        for message in self.fresh.iter_mut().chain(&mut self.slow).filter(|message| of_owner(message)) {
            message.awaited = false;
        }
    }

    /// An owner reads its shard: first everything but the reservations, then these.
    fn read(&mut self, model: &Ownership, index: usize, shard: ShardId) {
        let there = self.shown(model, index, shard);
        let there = &there;
        let owner = &mut self.nodes[index].post(shard).owner;
        let Owner::Reading { epoch, seq, read } = owner else { return };
        *owner = match read {
            None => {
                let read = Some(Frozen::new(shard::without_leases(shard, there)));
                Owner::Reading { epoch: *epoch, seq: *seq, read }
            }
            Some(read) => {
                let memory = Frozen::new(shard::with_leases(shard, read, there));
                Owner::Open(Desk::open(*epoch, *seq, memory))
            }
        };
        self.go_on(model, index);
    }

    /// The rows of a shard as a node's reads show them.
    fn shown(&self, model: &Ownership, index: usize, shard: ShardId) -> Frozen<Rows> {
        if !model.overlay {
            return self.store.shard(shard).clone();
        }
        let flying = self.slow.iter().chain(&self.fresh).filter_map(|message| match &message.what {
            What::Ask(Call::Commit(commit)) | What::Checked(Call::Commit(commit)) => {
                (message.node == index && message.hidden & (1 << shard.0) == 0).then_some(&commit.asked)
            }
            _ => None,
        });
        self.store.shard_with(shard, flying)
    }

    /// Whether the giver of a host, or the current owner of its shard, still waits for the host to be taken; as far as
    /// the taker's node can know.
    fn is_awaited(&mut self, index: usize, parcel: &Parcel) -> bool {
        let Parcel { giver, part, .. } = parcel;
        let node = &mut self.nodes[index];
        if giver.0 != index || giver.1 != node.id {
            return node.is_absent(part.shard);
        }
        node.desk(part.shard).is_some_and(|desk| desk.epoch == part.epoch && desk.handing == Some(part.seq))
    }

    fn decide(&mut self, model: &Ownership, index: usize, shard: ShardId) -> Option<()> {
        let node = &mut self.nodes[index];
        let (now, id) = (node.now(self.now), node.id);
        let desk = node.free_desk(shard).filter(|desk| desk.flying.len() < FLYING_MAX)?;
        let entropy = u128::from(id.0) << 64 | u128::from(desk.epoch) << 32 | u128::from(desk.seq + 1);
        let (writes, deed) =
            shard::decide(shard, &desk.memory, now, self.history.granted_tokens(), (entropy, model.lease))?;
        let part = desk.seal(shard, &writes);
        let commit = Frozen::new(Commit { asked: fenced(&[&part], writes), parts: vec![part], deed, giver: None });
        desk.flying.push(Flying { commit: commit.clone(), done: None });
        self.left.commits -= 1;
        if model.answers_early {
            self.history.acknowledge(&commit);
        }
        self.ask(index, Call::Commit(commit));
        Some(())
    }

    /// The owner of shard 0 gives its host away, once nothing of its own is in flight.
    fn give_host(&mut self, model: &Ownership, index: usize, to: usize) -> Option<()> {
        let node = &mut self.nodes[index];
        let (at, id) = (node.now(self.now), node.id);
        let desk = node.free_desk(ShardId(0)).filter(|desk| !model.waits || desk.flying.is_empty())?;
        let writes = shard::export(ShardId(0), &desk.memory, at)?;
        let part = desk.seal(ShardId(0), &writes);
        desk.handing = Some(part.seq);
        let parcel = Parcel { giver: (index, id), part, at };
        self.left.moves -= 1;
        self.fresh.push(Message { node: to, sent: self.now, awaited: true, hidden: 0, what: What::Hand(parcel) });
        Some(())
    }

    /// A host arrives at a node, which adopts it with one commit for both shards, or declines.
    pub(super) fn take_host(&mut self, model: &Ownership, index: usize, parcel: Parcel) {
        let awaited = !model.drops_stale || self.is_awaited(index, &parcel);
        let Parcel { giver, part, at } = parcel;
        let node = &mut self.nodes[index];
        let now = node.now(self.now);
        let to = ShardId(1);
        let Some(desk) = node.free_desk(to).filter(|_| awaited) else {
            let what = What::Handed { taker: index, giver: giver.1, seq: part.seq, done: false };
            return self.fresh.push(Message { node: giver.0, sent: self.now, awaited: true, hidden: 0, what });
        };
        let mut writes = shard::adopt(to, &desk.memory, now, (part.shard, &part.base, at));
        let taken = desk.seal(to, &writes);
        writes.extend(shard::export(part.shard, &part.base, at).unwrap_or_default());
        let deed = shard::Deed { moved: giver.0 != index, ..Default::default() };
        let fences: &[&Part] = if model.fences_giver { &[&taken, &part] } else { &[&taken] };
        let asked = fenced(fences, writes);
        let commit = Frozen::new(Commit { asked, parts: vec![taken, part], deed, giver: Some(giver) });
        desk.flying.push(Flying { commit: commit.clone(), done: None });
        self.ask(index, Call::Commit(commit));
    }

    /// A process has ended. What it sent may still arrive.
    fn end(&mut self, index: usize) {
        let shards = self.nodes[index].posts.len() as u16;
        let node = &mut self.nodes[index];
        *node = Node::new(node.id, shards);
        node.is = Is::Gone;
        self.slow.retain(|message| message.node != index || matches!(message.what, What::Ask(_) | What::Checked(_)));
        for message in self.slow.iter_mut().filter(|message| message.node == index) {
            message.awaited = false;
        }
    }

    /// Another process starts in the place of one that is gone.
    fn start(&mut self, model: &Ownership, index: usize) {
        self.lives += 1;
        let mut node = Node::new(NodeId(self.lives), model.shards);
        node.offset_ms = self.store.offset_ms;
        node.watch = model.clock_steps().then(|| Watch::start(model.watching, self.now, self.store.now(self.now)));
        let glance = self.store.glance(self.now);
        for Row { key, value } in
            glance.look(&cluster_rows::ClusterSnapshot::scans(model.shards)[..1]).rows.into_iter().flatten()
        {
            if node_row::decode(&value).unwrap().address == address(index) {
                let writes = vec![Write { key: key.clone(), value: None }];
                let bury = Batch { fences: Vec::new(), expects: vec![(key, Some(value))], writes };
                self.store.apply(&bury.into());
            }
        }
        self.store.apply(&node.renewal(index, &glance).into());
        node.renewed(self.now);
        node.look_due = true;
        self.nodes[index] = node;
    }
}

/// A batch that is fenced by some shards.
fn fenced(parts: &[&Part], writes: Vec<Write>) -> Asked {
    let fence = |part: &&Part| Fence { shard: part.shard, epoch: Epoch(part.epoch), seq: part.seq };
    Batch { fences: parts.iter().map(fence).collect(), expects: Vec::new(), writes }.into()
}
