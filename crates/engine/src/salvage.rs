//! Selects the rows of a damaged store that make a store that opens.
//!
//! Rows arrive in key order, without those that could not be read. A row that does not decode, or that refers to one that is
//! lost, would keep its whole shard from opening: it is left out and named. This module reads nothing itself.

use std::collections::{BTreeMap, HashSet};

use wayleave_core::codec::Damaged;
use wayleave_core::fleet::RowNo;
use wayleave_core::frontier::row::{LeaseRow, Link};
use wayleave_core::ids::{ChunkId, ShardId};
use wayleave_core::limits::LEASE_MS_MAX;
use wayleave_core::names::{MachineId, PoolName};
use wayleave_core::placement::PlacementState;
use wayleave_core::time::{Millis, Time};

use crate::rows::{self, Kind, chunk, key as keys, lease, match_row, placement, pool, worker};
use crate::{Key, Row};

/// The end of a reservation whose own end is lost: its holder may be visiting until then.
#[must_use]
pub const fn lost_lease_ends(at: Time) -> Time {
    at.after(Millis(LEASE_MS_MAX))
}

/// A row that is left out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeftOut {
    /// Its key.
    pub key: Key,
    /// Why.
    pub why: String,
}

/// The rows of a damaged store, on their way into a new one.
#[derive(Debug, Default)]
pub struct Salvage {
    shard: Option<ShardId>,
    /// Pools of the present shard.
    pools: HashSet<PoolName>,
    /// Built chunks, as placement knows them.
    chunks: HashSet<ChunkId>,
    /// Index servers and their rows.
    servers: BTreeMap<MachineId, RowNo>,
    /// Readable rows of links, which come after their chunks.
    link_rows: HashSet<Key>,
    /// Rows of links that the chunks of the present shard need.
    wanted_links: HashSet<Key>,
    /// Chunks in progress that are kept.
    kept: HashSet<ChunkId>,
    /// The moment of the store.
    at: Time,
}

impl Salvage {
    /// For a store of this moment with these readable rows of index servers and of chunks' links: they come after the rows
    /// that refer to them. So do chunks, see [`Salvage::note_chunk`].
    #[must_use]
    pub fn new(servers: &[Row], links: Vec<Row>, at: Time) -> Self {
        let servers = servers.iter().filter_map(|row| placement::decode_server(&row.key, &row.value).ok());
        let servers = servers.map(|(server, row)| (server, row.row)).collect();
        let link_rows = links.into_iter().filter(|row| rows::decode(row).is_ok()).map(|row| row.key).collect();
        Self { servers, link_rows, at, ..Self::default() }
    }

    /// Notes a readable row of a chunk in progress, before the first row is taken.
    pub fn note_chunk(&mut self, row: &Row) {
        let Ok((shard, chunk)) =
            keys::Parts(&row.key).prefix().and_then(|(shard, _)| Ok((shard, chunk::decode(&row.value)?)))
        else {
            return;
        };
        if chunk.link_keys(shard).iter().all(|key| self.link_rows.contains(key)) {
            self.kept.insert(chunk.id());
        }
    }

    /// Takes the next row; `None` if it is left out, with the reason in `left_out`.
    pub fn take(&mut self, row: Row, left_out: &mut Vec<LeftOut>) -> Option<Row> {
        let why = match rows::decode(&row).and_then(|_| self.refers(&row)) {
            Ok(None) => return Some(self.detached(row)),
            Ok(Some(why)) => why,
            Err(Damaged(why)) => why.to_owned(),
        };
        left_out.push(LeftOut { key: row.key, why });
        None
    }

    /// A reservation ends with its chunk. If that is lost it becomes one that ends by itself: otherwise its URLs would never
    /// return, and its group would stay busy.
    fn detached(&self, row: Row) -> Row {
        let is_lease = keys::kind(&row.key) == Ok(Kind::Lease);
        let Some(lease) = is_lease.then(|| lease::decode(&row.value).ok()).flatten() else { return row };
        match lease.link {
            Some(Link { chunk, visiting }) if !self.kept.contains(&chunk) => {
                // The visit may continue.
                let expires_at = if visiting { lost_lease_ends(self.at) } else { self.at };
                Row { value: lease::encode(&LeaseRow { link: None, expires_at, ..lease }), ..row }
            }
            _ => row,
        }
    }

    /// Why a row refers to one that is lost, if it does; notes what later rows may refer to.
    fn refers(&mut self, row: &Row) -> Result<Option<String>, Damaged> {
        let (shard, _) = keys::Parts(&row.key).prefix()?;
        if self.shard != Some(shard) {
            self.shard = Some(shard);
            self.pools.clear();
            self.wanted_links.clear();
        }
        let no_pool = |pool: &PoolName| format!("pool '{pool}' is lost");
        Ok(match keys::kind(&row.key)? {
            Kind::Pool => {
                self.pools.insert(pool::parse_key(&row.key)?);
                None
            }
            Kind::Worker => {
                let (pool, _) = worker::parse_key(&row.key)?;
                (!self.pools.contains(&pool)).then(|| no_pool(&pool))
            }
            Kind::Match => {
                let (pool, _) = match_row::parse_key(&row.key)?;
                (!self.pools.contains(&pool)).then(|| no_pool(&pool))
            }
            Kind::Chunk => {
                let links = chunk::decode(&row.value)?.link_keys(shard);
                let whole = links.iter().all(|key| self.link_rows.contains(key));
                if whole {
                    self.wanted_links.extend(links);
                }
                (!whole).then(|| "some of its links are lost".to_owned())
            }
            Kind::ChunkLinks => (!self.wanted_links.contains(&row.key)).then(|| "its chunk is lost".to_owned()),
            Kind::BuiltChunk => {
                self.chunks.insert(placement::decode_chunk(&row.key, &row.value)?.0);
                None
            }
            Kind::Copy => {
                let (id, server, copy) = placement::decode_copy(&row.key, &row.value)?;
                let of_chunk = copy.state == PlacementState::Draining || self.chunks.contains(&id);
                match self.servers.get(&server) {
                    Some(row) if *row == copy.row && of_chunk => None,
                    Some(row) if *row == copy.row => Some(format!("built chunk {} is lost", id.0)),
                    _ => Some(format!("index server '{server}' is lost")),
                }
            }
            _ => None,
        })
    }
}

#[cfg(test)]
#[path = "salvage_tests.rs"]
mod tests;
