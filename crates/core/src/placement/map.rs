//! The map: where readers find each chunk.
//!
//! A map is asked for after nearly every change, and there may be millions of copies. So what a server serves is listed
//! once and kept until one of its copies changes, and missing chunks are looked for only where they can be.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::row::PlacementState;
use super::state::{Ix, Row, Server, State};
use crate::fleet::RowNo;
use crate::ids::ChunkId;
use crate::limits::{MAP_MISSING_MAX, ROW_SERVES_PERCENT};
use crate::names::MachineId;

/// Where readers find each chunk.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Map {
    /// Grows with every visible change, and never goes back.
    pub version: u64,
    /// The rows.
    pub rows: Vec<MapRow>,
    /// Chunks that a row does not serve, at most a bounded number of them.
    pub missing: Vec<Missing>,
    /// How many there are.
    pub missing_count: usize,
}

/// A row of the map.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MapRow {
    /// Its number.
    pub row: RowNo,
    /// Built chunks.
    pub chunks: usize,
    /// Those that it serves.
    pub served: usize,
    /// Whether readers should use it: it has at least 97 % of the chunks that the best row has.
    pub serving: bool,
    /// Its servers that are not failed.
    pub servers: Vec<MapServer>,
}

impl MapRow {
    /// The share of chunks that it serves, 0 to 1.
    #[must_use]
    pub fn complete(&self) -> f64 {
        if self.chunks == 0 { 1.0 } else { self.served as f64 / self.chunks as f64 }
    }
}

/// A server of the map.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MapServer {
    /// Its name.
    pub server: MachineId,
    /// Where it is reached.
    pub address: Arc<str>,
    /// The chunks that it serves.
    pub chunks: Arc<[ChunkId]>,
}

/// The copies of a server, as long as none changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Listed {
    /// Those that it serves if it is alive.
    serves: Arc<[ChunkId]>,
    /// Those that it is to serve later.
    later: Arc<[ChunkId]>,
}

/// A chunk that a row does not serve.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Missing {
    /// The chunk.
    pub chunk: ChunkId,
    /// The row.
    pub row: RowNo,
    /// Rows that serve it.
    pub also_in: Vec<RowNo>,
}

impl State {
    /// The map. Its cost grows with the copies of servers that have changed, and with the chunks that are missing.
    #[must_use]
    pub fn map(&self) -> Map {
        let rows = self.map_rows();
        let missing_count = rows.iter().map(|row| row.chunks - row.served).sum();
        let mut missing = Vec::new();
        if missing_count > 0 {
            // What a new row has not been through yet is listed nowhere.
            let walk = rows.iter().any(|row| self.rows.get(&row.row).is_some_and(|row| row.backfill.is_some()));
            missing = if walk { self.missing(&rows, self.chunks.keys().copied()) } else { self.listed_missing(&rows) };
        }
        Map { version: self.ledger.version, rows, missing, missing_count }
    }

    fn listed_missing(&self, rows: &[MapRow]) -> Vec<Missing> {
        let mut candidates: BTreeSet<u64> = BTreeSet::new();
        for row in rows.iter().filter_map(|row| self.rows.get(&row.row)) {
            candidates.extend(row.unplaced.union(&row.blocked));
            for (ix, server) in row.servers.iter().filter_map(|ix| Some((*ix, self.servers.get(ix)?))) {
                let Listed { serves, later } = self.listed(ix, server);
                candidates.extend(later.iter().map(|chunk| chunk.0));
                if !server.is_alive() {
                    candidates.extend(serves.iter().map(|chunk| chunk.0));
                }
            }
        }
        self.missing(rows, candidates.into_iter())
    }

    /// Those of these chunks that a row does not serve, as many as the map names.
    pub(super) fn missing(&self, rows: &[MapRow], chunks: impl Iterator<Item = u64>) -> Vec<Missing> {
        let mut missing = Vec::new();
        for id in chunks {
            let (also_in, missed): (Vec<RowNo>, Vec<RowNo>) =
                rows.iter().map(|row| row.row).partition(|row| self.holder(id, *row).is_some());
            let chunk = ChunkId(id);
            missing.extend(missed.into_iter().map(|row| Missing { chunk, row, also_in: also_in.clone() }));
            if missing.len() >= MAP_MISSING_MAX {
                break;
            }
        }
        missing.truncate(MAP_MISSING_MAX);
        missing
    }

    /// The server that serves a chunk in a row.
    pub(super) fn holder(&self, chunk: u64, row: RowNo) -> Option<Ix> {
        self.copies_in(chunk, row).holder().filter(|ix| self.is_alive(*ix))
    }

    /// The addresses of servers that hold a chunk ready.
    #[must_use]
    pub fn sources(&self, chunk: ChunkId) -> Vec<Arc<str>> {
        let assignments = self.chunks.get(&chunk.0).map(|chunk| chunk.assignments.as_slice()).unwrap_or_default();
        let mut rows: Vec<RowNo> = assignments.iter().map(|assignment| assignment.row).collect();
        rows.sort_unstable();
        let holders = rows.into_iter().filter_map(|row| self.servers.get(&self.holder(chunk.0, row)?));
        holders.map(|server| server.facts.address.clone()).collect()
    }

    /// Rows that have a server, in their order.
    fn map_rows(&self) -> Vec<MapRow> {
        let mut rows: Vec<MapRow> = Vec::with_capacity(self.rows.len());
        for (no, row) in &self.rows {
            let here = || row.servers.iter().filter_map(|ix| Some((*ix, self.servers.get(ix)?)));
            if !self.is_map_row(row) {
                continue;
            }
            let mut servers: Vec<MapServer> = here()
                .filter(|(_, server)| server.is_alive())
                .map(|(ix, server)| self.map_server(ix, server))
                .collect();
            servers.sort_by(|a, b| a.server.cmp(&b.server));
            rows.push(MapRow { row: *no, chunks: self.chunks.len(), served: row.served, serving: false, servers });
        }
        let best = rows.iter().map(|row| row.served).max().unwrap_or_default();
        for row in &mut rows {
            let nearly = row.served > 0 && row.served * 100 >= best * ROW_SERVES_PERCENT;
            row.serving = nearly || row.chunks == 0;
        }
        rows
    }

    /// Whether a row is in the map: it has a server that has not left.
    pub(super) fn is_map_row(&self, row: &Row) -> bool {
        row.servers.iter().filter_map(|ix| self.servers.get(ix)).any(|server| !server.facts.removed)
    }

    /// Whether the map has rows; without any, chunks are not visible.
    pub(super) fn has_map_rows(&self) -> bool {
        self.rows.values().any(|row| self.is_map_row(row))
    }

    fn map_server(&self, ix: Ix, server: &Server) -> MapServer {
        let chunks = self.listed(ix, server).serves.clone();
        MapServer { server: server.id.clone(), address: server.facts.address.clone(), chunks }
    }

    fn listed<'a>(&self, ix: Ix, server: &'a Server) -> &'a Listed {
        server.listed.get_or_init(|| self.list_copies(ix, server))
    }

    pub(super) fn list_copies(&self, ix: Ix, server: &Server) -> Listed {
        let wanted = server.copies.iter().filter(|(_, copy)| copy.state != PlacementState::Draining);
        let (serves, later): (Vec<ChunkId>, Vec<ChunkId>) = wanted
            .map(|(chunk, _)| ChunkId(*chunk))
            .partition(|chunk| self.copies_in(chunk.0, server.facts.row).holder() == Some(ix));
        Listed { serves: serves.into(), later: later.into() }
    }
}
