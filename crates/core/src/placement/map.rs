//! The map: where readers find each chunk.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::state::{Ix, Row, Server, State};
use crate::fleet::RowNo;
use crate::ids::ChunkId;
use crate::limits::MAP_MISSING_MAX;
use crate::names::MachineId;

/// A row serves if it has at least this share, in percent, of the chunks that the best row has. Not of all built chunks:
/// many that are built at once would stop every row from serving.
const SERVING_PERCENT: usize = 97;

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
    pub chunks: Vec<ChunkId>,
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
    /// The map. It walks all chunks; readers should ask again only when the version has grown.
    #[must_use]
    pub fn map(&self) -> Map {
        let mut map =
            Map { version: self.ledger.version, rows: self.map_rows(), missing: Vec::new(), missing_count: 0 };
        let live: Vec<RowNo> = map.rows.iter().map(|row| row.row).collect();
        map.missing_count = map.rows.iter().map(|row| row.chunks - row.served).sum();
        for id in self.chunks.keys() {
            if map.missing.len() >= map.missing_count.min(MAP_MISSING_MAX) {
                break;
            }
            let (also_in, missed): (Vec<RowNo>, Vec<RowNo>) =
                live.iter().partition(|row| self.holder(*id, **row).is_some());
            let chunk = ChunkId(*id);
            map.missing.extend(missed.into_iter().map(|row| Missing { chunk, row, also_in: also_in.clone() }));
        }
        map.missing.truncate(MAP_MISSING_MAX);
        map
    }

    /// The server that serves a chunk in a row.
    pub(super) fn holder(&self, chunk: u64, row: RowNo) -> Option<Ix> {
        self.layout(chunk, row).holder().filter(|ix| self.is_alive(*ix))
    }

    /// The addresses of servers that hold a chunk ready.
    #[must_use]
    pub fn sources(&self, chunk: ChunkId) -> Vec<Arc<str>> {
        let cells = self.chunks.get(&chunk.0).map(|chunk| chunk.cells.as_slice()).unwrap_or_default();
        let mut rows: Vec<RowNo> = cells.iter().map(|cell| cell.row).collect();
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
            let nearly = row.served > 0 && row.served * 100 >= best * SERVING_PERCENT;
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
        let holds = |chunk: &&u64| self.layout(**chunk, server.facts.row).holder() == Some(ix);
        let chunks = server.copies.keys().filter(holds).map(|chunk| ChunkId(*chunk)).collect();
        MapServer { server: server.id.clone(), address: server.facts.address.clone(), chunks }
    }
}
