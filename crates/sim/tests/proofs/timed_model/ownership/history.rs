//! The laws, checked for every commit that the engine accepts and every response that a client gets.

use wayleave_core::invariants;
use wayleave_core::invariants::Visit;

use super::engine::Store;
use super::node::Commit;
use super::shard;
use crate::prelude::*;

pub const ONE_VISITOR: &str = "no two reservations of one group live at once";
pub const CURRENT_EPOCH: &str = "every accepted commit is of the epoch that was granted last";
pub const ON_TOP: &str = "every accepted commit was decided on the rows that the last one left";
pub const NO_HOST_LOST: &str = "an owner knows all that the store has of its shard";
pub const NOTHING_LOST: &str = "what was acknowledged is in the store";
pub const ONE_IS_SURE: &str = "while a node is sure of a shard, no other one has opened it since";
pub const LAWS: [&str; 6] = [ONE_VISITOR, CURRENT_EPOCH, ON_TOP, NO_HOST_LOST, NOTHING_LOST, ONE_IS_SURE];

/// What the laws check: everything ever granted, accepted and acknowledged.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct History {
    /// The highest epoch that the engine ever granted, by shard.
    granted: BTreeMap<u16, u64>,
    /// Commits that were accepted: shard, epoch, number.
    accepted: BTreeSet<(u16, u64, u64)>,
    /// In the order in which they were accepted.
    visits: Vec<(Token, Reserved)>,
    acknowledged: BTreeSet<Token>,
    pub broken: BTreeSet<&'static str>,
    pub met: Met,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Reserved {
    /// The birth shard of its host.
    host: u16,
    start: Time,
    end: Time,
    /// Its end is in the store, or its release.
    over: bool,
}

/// What must happen at some time, or the model could be safe because nothing happens in it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Met {
    /// A reservation was granted by a second owner.
    pub taken_over: bool,
    /// A commit came too late.
    pub fenced: bool,
    /// A shard was handed from one living node to another.
    pub handed_over: bool,
    /// An owner reloaded and found something that it did not know.
    pub found: bool,
    /// A host went from one node's shard to another's.
    pub moved: bool,
}

impl History {
    pub fn own(&mut self, shard: ShardId, epoch: u64) {
        let before = self.granted.insert(shard.0, epoch);
        if before.is_some_and(|before| before >= epoch) {
            self.broken.insert(CURRENT_EPOCH);
        }
    }

    /// The engine accepts a commit; `store` is as it was before.
    pub fn accept(&mut self, commit: &Commit, store: &Store) {
        for part in &commit.parts {
            if self.granted.get(&part.shard.0).copied().unwrap_or(1) != part.epoch {
                self.broken.insert(CURRENT_EPOCH);
            }
            if *store.shard(part.shard) != part.base {
                self.broken.insert(ON_TOP);
            }
            self.accepted.insert((part.shard.0, part.epoch, part.seq));
        }
        for (token, end) in &commit.deed.ended {
            if let Some((_, visit)) = self.visits.iter_mut().find(|(granted, _)| granted == token) {
                visit.end = end.unwrap_or(visit.end).min(visit.end);
                visit.over = true;
            }
        }
        if let Some((token, host, start, end)) = commit.deed.granted {
            self.visits.push((token, Reserved { host, start, end, over: false }));
            self.met.taken_over |= commit.parts.iter().any(|part| part.epoch > 1);
            if invariants::one_visitor(&self.history()).is_err() {
                self.broken.insert(ONE_VISITOR);
            }
        }
        self.met.moved |= commit.deed.moved;
    }

    /// A client learns that a commit is durable.
    pub fn acknowledge(&mut self, commit: &Commit) {
        let there = commit.parts.iter().all(|part| self.accepted.contains(&(part.shard.0, part.epoch, part.seq)));
        if !there {
            self.broken.insert(NOTHING_LOST);
        }
        self.acknowledged.extend(commit.deed.granted.map(|(token, ..)| token));
    }

    /// The reservations that clients know of.
    pub fn granted_tokens(&self) -> impl Iterator<Item = Token> + '_ {
        self.acknowledged.iter().copied()
    }

    /// Whether each reservation that a client knows of is in one shard, until its end is.
    pub fn nothing_lost(&self, store: &Store, shards: u16) -> bool {
        let places = |token| {
            let has = |shard: &ShardId| shard::has_lease(*shard, store.shard(*shard), token);
            (0..shards).map(ShardId).filter(has).count()
        };
        self.acknowledged.iter().all(|token| match self.visits.iter().find(|(granted, _)| granted == token) {
            Some((_, visit)) => visit.over || places(*token) == 1,
            None => false,
        })
    }

    fn history(&self) -> Vec<Visit> {
        let visit = |(_, reserved): &(Token, Reserved)| Visit {
            place: shard::host(ShardId(reserved.host)).as_ref().into(),
            span: Span { start: reserved.start, end: reserved.end },
            parallel: 1,
            delay: Millis(0),
            urls: Vec::new(),
        };
        self.visits.iter().map(visit).collect()
    }
}
