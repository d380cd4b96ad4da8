//! A node of the model: its lease, its seats and the owners of its shards, as far as they wait for something.

use wayleave_cluster::cluster_rows;
use wayleave_core::cluster::NodeRow;
use wayleave_engine::Expect;
use wayleave_engine::rows::node;

use super::engine::{Asked, Glance, NOON, Rows, after};
use super::frozen::Frozen;
use super::shard::Deed;
use crate::prelude::*;
use crate::timed_model::watch::Watch;

/// A node that has not renewed its lease for this long is replaced.
pub const TTL: Millis = Millis(1_500);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Is {
    Running,
    /// Paused, to resume as if nothing had happened.
    Paused,
    Gone,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Node {
    pub id: NodeId,
    pub is: Is,
    /// Whether it considers itself alive, and until when it may, by its own clock.
    pub alive: bool,
    pub sure_until: u64,
    /// Its lease has lapsed, and owners from before may still be open.
    pub lapsed: bool,
    /// What it knows of the engine's clock, where that steps.
    pub watch: Option<Watch>,
    pub leaving: bool,
    /// What it knows of the steps of the engine's clock.
    pub offset_ms: u64,
    /// Whether its renewal and its seats have done their part since time last passed.
    pub beat_due: bool,
    pub look_due: bool,
    pub alive_since: Time,
    /// Since when its row was alive, as its last renewal found it.
    pub life: Time,
    pub pass: Pass,
    pub posts: Vec<Post>,
}

/// The state of the seats task.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Pass {
    Rest,
    /// It has looked, and waits for these owners to stop before it acts on that.
    Looked(Glance, Vec<ShardId>),
    /// It takes shards, and will give others.
    Taking,
    /// It gives shards: which, to whom, and whether the store was updated.
    Giving(Vec<(ShardId, Option<NodeId>, bool)>),
}

/// A shard at a node.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Post {
    pub owner: Owner,
    /// The owner must finish what is in flight and stop.
    pub stopping: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Owner {
    Absent,
    /// Takes the shard. `kept` is what an owner would continue with that does not reload.
    Owning {
        kept: Option<Frozen<Rows>>,
    },
    /// Owns it and has read this much: nothing, or all but the reservations.
    Reading {
        epoch: u64,
        seq: u64,
        read: Option<Frozen<Rows>>,
    },
    Open(Desk),
}

/// A running owner.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Desk {
    pub epoch: u64,
    pub seq: u64,
    pub memory: Frozen<Rows>,
    /// Commits in flight, in order.
    pub flying: Vec<Flying>,
    /// A commit failed: memory differs from the store.
    pub failed: bool,
    /// The number of the commit that another owner is to make on its behalf.
    pub handing: Option<u64>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Flying {
    pub commit: Frozen<Commit>,
    /// Whether it was done, once that is known.
    pub done: Option<bool>,
}

/// A commit, with what the laws must know of it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Commit {
    pub asked: Asked,
    /// The shards that it is fenced by; the first is the owner's own.
    pub parts: Vec<Part>,
    pub deed: Deed,
    /// The node that waits for a host to be adopted by it.
    pub giver: Option<(usize, NodeId)>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Part {
    pub shard: ShardId,
    pub epoch: u64,
    pub seq: u64,
    /// The rows that it was decided on.
    pub base: Frozen<Rows>,
}

/// What a node asks the store.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Call {
    Beat(Asked),
    Take(Asked, Vec<ShardId>, Vec<(ShardId, Option<NodeId>)>),
    Give(Asked, ShardId, bool),
    Own(ShardId, Expect),
    Commit(Frozen<Commit>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StoreReply {
    Done,
    Owned(u64, u64),
    /// Fenced or a conflict: nothing was changed.
    Refused,
    Unknown,
}

impl Node {
    /// A node that starts now. Its row is not in the store yet.
    pub fn new(id: NodeId, shards: u16) -> Self {
        let post = Post { owner: Owner::Absent, stopping: false };
        Self {
            id,
            is: Is::Running,
            alive: true,
            sure_until: 0,
            lapsed: false,
            watch: None,
            leaving: false,
            offset_ms: 0,
            beat_due: false,
            look_due: shards > 1,
            alive_since: Time::ZERO,
            life: Time::ZERO,
            pass: Pass::Rest,
            posts: vec![post; shards.into()],
        }
    }

    /// The engine's time, as far as this node knows.
    pub fn now(&self, real_ms: u64) -> Time {
        Time(NOON + real_ms + self.offset_ms)
    }

    /// The batch that renews its row. `place` is where it listens, whatever its id.
    pub fn renewal(&mut self, place: usize, glance: &Glance) -> Batch {
        let mut row = NodeRow {
            id: self.id,
            address: address(place),
            name: "".into(),
            version: "".into(),
            protocol: 1,
            started_at: Time(1),
            alive_since: self.alive_since,
            expires_at: Time::ZERO,
            leaving: false,
            format: 1,
            failing: std::collections::BTreeSet::new(),
        };
        let batch = cluster_rows::renew(&mut row, glance.row(&node::key(self.id)), glance.now, TTL, self.leaving);
        self.alive_since = row.alive_since;
        batch
    }

    /// Its row has been renewed by what it sent then.
    pub fn renewed(&mut self, sent: u64) {
        self.alive = true;
        self.life = self.alive_since;
        self.sure_until = self.sure_until.max(sent + cluster_rows::sure_for(TTL).as_millis() as u64);
    }

    pub fn post(&mut self, shard: ShardId) -> &mut Post {
        &mut self.posts[usize::from(shard.0)]
    }

    pub fn is_absent(&self, shard: ShardId) -> bool {
        self.posts[usize::from(shard.0)].owner == Owner::Absent
    }

    pub fn desk(&mut self, shard: ShardId) -> Option<&mut Desk> {
        match &mut self.post(shard).owner {
            Owner::Open(desk) => Some(desk),
            _ => None,
        }
    }

    /// The owner of a shard, if it may decide something.
    pub fn free_desk(&mut self, shard: ShardId) -> Option<&mut Desk> {
        let stopping = self.post(shard).stopping;
        self.desk(shard).filter(|desk| !stopping && !desk.failed && desk.handing.is_none())
    }

    /// Asks an owner to stop.
    pub fn stop(&mut self, shard: ShardId) {
        let post = self.post(shard);
        post.stopping = post.owner != Owner::Absent;
    }

    /// Whether it has something to do before time passes.
    pub fn is_due(&self, real_ms: u64) -> bool {
        let looks = match &self.pass {
            Pass::Rest => self.look_due && self.alive && !self.lapsed,
            Pass::Looked(_, waits) => waits.iter().all(|shard| self.is_absent(*shard)),
            Pass::Taking | Pass::Giving(_) => false,
        };
        let reads = self.posts.iter().any(|post| matches!(post.owner, Owner::Reading { .. }));
        self.is == Is::Running && (self.beat_due || looks || reads || self.lapses(real_ms))
    }

    /// Whether its lease has expired unnoticed.
    pub fn lapses(&self, real_ms: u64) -> bool {
        self.alive && real_ms >= self.sure_until
    }

    /// Whether its owners may answer from memory.
    pub fn is_sure(&self, real_ms: u64) -> bool {
        self.is == Is::Running && self.alive && !self.lapsed && real_ms < self.sure_until
    }

    /// Whether it is between two steps that belong together.
    pub fn is_midway(&self) -> bool {
        self.pass != Pass::Rest || self.posts.iter().any(|post| matches!(post.owner, Owner::Reading { .. }))
    }
}

/// Where a node listens.
pub fn address(place: usize) -> Box<str> {
    format!("http://{place}").into()
}

impl Desk {
    pub fn open(epoch: u64, seq: u64, memory: Frozen<Rows>) -> Self {
        Self { epoch, seq, memory, flying: Vec::new(), failed: false, handing: None }
    }

    /// Turns a decision into a commit on top of what it has in memory.
    pub fn seal(&mut self, shard: ShardId, writes: &[Write]) -> Part {
        self.seq += 1;
        let memory = Frozen::new(after(&self.memory, writes));
        let base = std::mem::replace(&mut self.memory, memory);
        Part { shard, epoch: self.epoch, seq: self.seq, base }
    }
}
