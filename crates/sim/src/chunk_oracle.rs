//! What crawlers and index builders were told of chunks: ids are never used again, each is built once, and a token counts no
//! more once another worker has the chunk.

use std::collections::BTreeMap;

use wayleave_core::ids::{ChunkId, Token};
use wayleave_core::invariants::{Broken, Verdict};
use wayleave_core::pipeline::request::{Claimed, Stage};

use crate::oracle::Id;

/// All promises about chunks.
#[derive(Default)]
pub struct ChunkOracle {
    numbers: u64,
    /// Chunks that were claimed for the first time.
    made: BTreeMap<ChunkId, Token>,
    /// Chunks whose content may have been lost: they begin anew.
    lost: Vec<ChunkId>,
    /// The links that chunks were completed with.
    crawled: BTreeMap<ChunkId, Vec<Id>>,
    built: BTreeMap<ChunkId, Token>,
    /// All leases of chunks that workers were told of.
    leases: BTreeMap<ChunkId, Vec<Lease>>,
    /// Calls with a token that another one had superseded. Without any, nothing says that they are refused.
    pub superseded: u64,
}

/// A lease, and when it was asked for and told, in milliseconds of the run, which never goes back.
struct Lease {
    token: Token,
    asked: u64,
    told: u64,
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
            leases.push(Lease { token: chunk.token, asked, told });
        }
        if chunk.stage != Stage::Crawl || chunk.attempts > 0 || self.lost.contains(&chunk.id) {
            return Ok(());
        }
        match self.made.insert(chunk.id, chunk.token) {
            Some(before) if before != chunk.token => broken(format!("chunk {} was made twice", chunk.id)),
            _ => Ok(()),
        }
    }

    /// A call with this token, sent at this time, was acknowledged or not. A lease that was asked for after this one had been
    /// told is a later one, and if it was told before the call was sent, the call must have been refused.
    pub fn answered(&mut self, id: ChunkId, token: Token, sent: u64, accepted: bool) -> Verdict {
        let leases = self.leases.get(&id).map_or(&[][..], Vec::as_slice);
        let Some(own) = leases.iter().find(|lease| lease.token == token) else { return Ok(()) };
        let superseded = leases.iter().any(|other| own.told < other.asked && other.told < sent);
        self.superseded += u64::from(superseded);
        if superseded && accepted {
            return broken(format!("a call for chunk {id} was accepted whose token another one had superseded"));
        }
        Ok(())
    }

    /// The crawl stage of a chunk was completed with these links.
    pub fn crawled(&mut self, id: ChunkId, links: Vec<Id>) {
        self.crawled.insert(id, links);
    }

    /// The content of a chunk may be lost; its links.
    pub fn lost(&mut self, id: ChunkId) -> Vec<Id> {
        self.lost.push(id);
        self.crawled.remove(&id).unwrap_or_default()
    }

    /// The chunks that were built.
    pub fn built_chunks(&self) -> impl Iterator<Item = ChunkId> + '_ {
        self.built.keys().copied()
    }

    /// A chunk was built.
    pub fn built(&mut self, id: ChunkId, token: Token) -> Verdict {
        match self.built.insert(id, token) {
            Some(before) if before != token => broken(format!("chunk {id} was built twice")),
            _ => Ok(()),
        }
    }
}

fn broken(what: String) -> Verdict {
    Err(Broken { law: 4, name: "nothing twice", what })
}
