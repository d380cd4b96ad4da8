//! What crawlers and index builders were told of chunks. It must not miss that
//!
//! - an id is used again, or a chunk is built twice;
//! - a call is accepted although another worker had the chunk when it was sent, or its lease had ended by the store's time;
//! - a page counts in two chunks. A crawler is told which of the links that it reported do not count; all others do, until an
//!   index builder says that the content of the chunk is lost, whatever the answer. A call whose answer was lost is repeated,
//!   so that also its links are known, unless that answer is lost too;
//! - a link leaves its chunk although its host did not move;
//! - a call that is repeated is refused or answered in another way.
//!
//! It says nothing about calls whose answers were lost twice, about leases that a lost answer may have extended, and about a
//! token whose call was answered by another store than the one that was asked: a store that comes up after a crash may be
//! behind the time that the one before has shown.

use std::collections::BTreeMap;

use wayleave_core::ids::{ChunkId, Token};
use wayleave_core::invariants::{Broken, Verdict};
use wayleave_core::pipeline::request::{Claimed, Stage};
use wayleave_core::time::Time;

use crate::oracle::Id;

/// All promises about chunks.
#[derive(Default)]
pub struct ChunkOracle {
    numbers: u64,
    /// Chunks that were claimed for the first time.
    made: BTreeMap<ChunkId, Token>,
    /// How often the content of chunks may have been lost: they begin anew.
    losses: BTreeMap<ChunkId, u64>,
    /// The links that count in chunks, and in which.
    crawled: BTreeMap<Id, ChunkId>,
    built: BTreeMap<ChunkId, Token>,
    /// All leases of chunks that workers were told of.
    leases: BTreeMap<ChunkId, Vec<Lease>>,
    pub calls: ChunkCalls,
}

/// Calls for chunks by what makes them worth judging. Without any, nothing says that they are judged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChunkCalls {
    /// With a token that another one had superseded.
    pub superseded: u64,
    /// With a token whose lease had ended.
    pub expired: u64,
    /// Repeated, and accepted as before.
    pub repeated: u64,
    /// Completions that named links which had left before.
    pub left: u64,
}

impl std::ops::AddAssign for ChunkCalls {
    fn add_assign(&mut self, other: Self) {
        self.superseded += other.superseded;
        self.expired += other.expired;
        self.repeated += other.repeated;
        self.left += other.left;
    }
}

/// A lease, and when it was asked for and told, in milliseconds of the run, which never goes back.
struct Lease {
    token: Token,
    asked: u64,
    told: u64,
    /// Its end by the store's time; `None` if an answer was lost that may have told a later one.
    until: Option<Time>,
}

/// When a call with the token of a chunk was sent.
#[derive(Clone, Copy)]
pub struct Sent {
    /// In milliseconds of the run.
    pub elapsed: u64,
    /// The store's time; `None` if another store has answered.
    pub now: Option<Time>,
}

impl ChunkOracle {
    /// A number that was not drawn before.
    pub fn number(&mut self) -> u64 {
        self.numbers += 1;
        self.numbers
    }

    /// A chunk was claimed: asked for at the first time and told at the second.
    pub fn claimed(&mut self, chunk: &Claimed, (asked, told): (u64, u64)) -> Verdict {
        let leases = self.leases.entry(chunk.id).or_default();
        if leases.iter().all(|lease| lease.token != chunk.token) {
            leases.push(Lease { token: chunk.token, asked, told, until: Some(chunk.expires_at) });
        }
        if chunk.stage != Stage::Crawl || chunk.attempts > 0 || self.losses(chunk.id) > 0 {
            return Ok(());
        }
        match self.made.insert(chunk.id, chunk.token) {
            Some(before) if before != chunk.token => twice(format!("chunk {} was made twice", chunk.id)),
            _ => Ok(()),
        }
    }

    /// A lease was renewed; without a time it may have been.
    pub fn renewed(&mut self, id: ChunkId, token: Token, until: Option<Time>) {
        for lease in self.leases.entry(id).or_default().iter_mut().filter(|lease| lease.token == token) {
            lease.until = until;
        }
    }

    /// A call with this token was acknowledged or not. A lease that was asked for after this one had been told is a later one,
    /// and if it was told before the call was sent, the call must have been refused.
    pub fn answered(&mut self, (id, token): (ChunkId, Token), sent: Sent, accepted: bool) -> Verdict {
        let leases = self.leases.get(&id).map_or(&[][..], Vec::as_slice);
        let Some(own) = leases.iter().find(|lease| lease.token == token) else { return Ok(()) };
        let superseded = leases.iter().any(|other| own.told < other.asked && other.told < sent.elapsed);
        let expired = own.until.zip(sent.now).is_some_and(|(until, now)| until <= now);
        self.calls.superseded += u64::from(superseded);
        self.calls.expired += u64::from(expired);
        if accepted && superseded {
            return twice(format!("a call for chunk {id} was accepted whose token another one had superseded"));
        }
        if accepted && expired {
            return twice(format!("a call for chunk {id} was accepted though its lease had ended"));
        }
        Ok(())
    }

    /// A call that was accepted before was repeated. `alike`: with the same answer; `None` if that was lost.
    pub fn repeated(&mut self, id: ChunkId, alike: Option<bool>) -> Verdict {
        self.calls.repeated += u64::from(alike == Some(true));
        if alike == Some(false) {
            let what = format!("a repeated call for chunk {id} was not answered like the first one");
            return Err(Broken { law: 12, name: "answers are true", what });
        }
        Ok(())
    }

    /// The crawl stage of a chunk was completed, and these links count. The content of the chunk may have been lost so many
    /// times when that was asked for: if it was lost since, they may count no more.
    pub fn crawled(&mut self, id: ChunkId, losses: u64, links: &[Id]) -> Verdict {
        if self.losses(id) > losses {
            return Ok(());
        }
        // A crawl that is occasionally deleted promises nothing: its URLs may have been deleted and found again.
        for link in links.iter().filter(|link| link.0 != "doomed") {
            let before = self.crawled.insert(link.clone(), id);
            if let Some(before) = before.filter(|before| *before != id) {
                return twice(format!("{link:?} counts in the chunks {before} and {id}"));
            }
        }
        Ok(())
    }

    /// How often the content of a chunk may have been lost.
    pub fn losses(&self, id: ChunkId) -> u64 {
        self.losses.get(&id).copied().unwrap_or_default()
    }

    /// The content of a chunk may be lost; its links.
    pub fn lost(&mut self, id: ChunkId) -> Vec<Id> {
        *self.losses.entry(id).or_default() += 1;
        let links: Vec<Id> = self.crawled.iter().filter(|(_, of)| **of == id).map(|(link, _)| link.clone()).collect();
        self.crawled.retain(|_, of| *of != id);
        links
    }

    /// The chunks that were built.
    pub fn built_chunks(&self) -> impl Iterator<Item = ChunkId> + '_ {
        self.built.keys().copied()
    }

    /// A chunk was built.
    pub fn built(&mut self, id: ChunkId, token: Token) -> Verdict {
        match self.built.insert(id, token) {
            Some(before) if before != token => twice(format!("chunk {id} was built twice")),
            _ => Ok(()),
        }
    }
}

fn twice(what: String) -> Verdict {
    Err(Broken { law: 4, name: "nothing twice", what })
}
