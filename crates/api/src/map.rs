//! The map on the wire: where readers find each built chunk.

use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use wayleave_core::placement as core;
use wayleave_core::time::Millis;

use crate::BadValue;
use crate::bounds::{EXACT, WAIT};

/// Which map, and how long to wait for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct GetMapQuery {
    /// The version that the reader has: the answer is 204 while the map still has it. Absent for the present map.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<u64>,
    /// How long to wait for another version than `since`, in milliseconds, at most 60,000; 0 answers at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wait_ms: Option<u64>,
}

impl GetMapQuery {
    /// The version that the reader has. Fails if the number is too large to be exact.
    pub fn since(&self) -> Result<Option<u64>, BadValue> {
        self.since.map(|version| EXACT.check("since", version)).transpose()
    }

    /// How long to wait; not at all without a version to compare with.
    pub fn wait(&self) -> Result<Millis, BadValue> {
        let wait = WAIT.check_or_default("wait_ms", self.wait_ms)?;
        Ok(Millis(if self.since.is_some() { wait } else { 0 }))
    }
}

/// Where readers find each built chunk: in every row that serves it, on one server.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Map {
    /// Grows with every change that readers can see, and never goes back.
    pub version: u64,
    /// The rows that have a server, by number.
    pub rows: Vec<MapRow>,
    /// Chunks that a row does not serve, at most 10,000 of them.
    pub missing: Vec<MissingChunk>,
    /// How many there are.
    pub missing_count: u64,
}

impl From<&core::Map> for Map {
    fn from(map: &core::Map) -> Self {
        let missing = |missing: &core::Missing| MissingChunk {
            chunk: missing.chunk.to_string(),
            row: missing.row.0,
            also_in: missing.also_in.iter().map(|row| row.0).collect(),
        };
        Self {
            version: map.version,
            rows: map.rows.iter().map(MapRow::from).collect(),
            missing: map.missing.iter().map(missing).collect(),
            missing_count: map.missing_count as u64,
        }
    }
}

/// A row of index servers, which together hold one copy of every built chunk.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct MapRow {
    /// Its number.
    pub row: u8,
    /// The share of the built chunks that it serves, 0 to 1.
    pub complete: f64,
    /// Whether readers should use it: it serves at least 97 % of the chunks that the best row serves.
    pub serving: bool,
    /// Why it should be used or not; never empty.
    pub reason: String,
    /// Its servers that are not failed, by name.
    pub servers: Vec<MapServer>,
}

impl From<&core::MapRow> for MapRow {
    fn from(row: &core::MapRow) -> Self {
        let (served, chunks) = (row.served, row.chunks);
        let told = match chunks {
            0 => "no chunk is built yet".to_owned(),
            _ => format!("serves {served} of {chunks} built chunks"),
        };
        let reason = match (row.serving, served) {
            // A row whose servers have all left is not in the map.
            _ if row.servers.is_empty() => {
                let link = if chunks == 0 { "and" } else { "because" };
                format!("{told}, {link} all its servers have failed; `wayleave fleet` says why")
            }
            (true, _) => told,
            (false, 0) => format!("{told}: use it when it has fetched some"),
            (false, _) => format!("{told}, and another row has more: use that one until this one has caught up"),
        };
        let servers = row.servers.iter().map(|server| MapServer {
            server: server.server.to_string(),
            address: server.address.to_string(),
            chunks: server.chunks.iter().map(ToString::to_string).collect(),
        });
        Self { row: row.row.0, complete: row.complete(), serving: row.serving, reason, servers: servers.collect() }
    }
}

/// An index server of the map.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct MapServer {
    /// Its name.
    pub server: String,
    /// Where it is reached.
    pub address: String,
    /// The ids of the chunks that it serves.
    pub chunks: Vec<String>,
}

/// A chunk that a row does not serve.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct MissingChunk {
    /// The id of the chunk.
    pub chunk: String,
    /// The row that does not serve it.
    pub row: u8,
    /// Rows that do.
    pub also_in: Vec<u8>,
}

#[cfg(test)]
mod tests {
    use wayleave_core::fleet::RowNo;

    use super::*;

    #[test]
    fn a_row_without_a_live_server_says_so() {
        let row = |chunks, serving| core::MapRow { row: RowNo(0), chunks, served: 0, serving, servers: Vec::new() };
        for (row, told) in
            [(row(2, false), "serves 0 of 2 built chunks, because"), (row(0, true), "no chunk is built yet, and")]
        {
            let reason = MapRow::from(&row).reason;
            assert!(reason.starts_with(told) && reason.contains("all its servers have failed"), "{reason}");
        }
    }
}
