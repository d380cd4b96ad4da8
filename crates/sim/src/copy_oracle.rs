//! What readers of the map may see of copies: only those that a server holds, each chunk once in a row, and versions
//! that never go back.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use wayleave_core::ids::ChunkId;
use wayleave_core::invariants::{Broken, Verdict};
use wayleave_core::names::MachineId;
use wayleave_core::placement::Map;

type Copy = (MachineId, ChunkId);

/// All promises about copies.
#[derive(Default)]
pub struct CopyOracle {
    /// Copies that servers have reported ready, perhaps without an answer, and not certainly gone since.
    held: BTreeSet<Copy>,
    /// When copies were acknowledged as gone, in milliseconds of the run.
    gone: BTreeMap<Copy, u64>,
    last: Option<Arc<Map>>,
}

impl CopyOracle {
    /// A server is about to report a copy ready.
    pub fn ready(&mut self, server: &MachineId, chunk: ChunkId) {
        self.held.insert((server.clone(), chunk));
    }

    /// A server got the answer that its copy is known to be gone.
    pub fn gone(&mut self, server: &MachineId, chunk: ChunkId, at: u64) {
        self.held.remove(&(server.clone(), chunk));
        self.gone.insert((server.clone(), chunk), at);
    }

    /// The version that was read last.
    pub fn version(&self) -> Option<u64> {
        self.last.as_ref().map(|map| map.version)
    }

    /// A reader who asked at `asked` for a version other than the last was given this map.
    pub fn read(&mut self, map: Arc<Map>, asked: u64) -> Verdict {
        if let Some(last) = self.last.as_ref().filter(|last| last.version >= map.version) {
            let what = format!("version {} of the map was read after version {}", map.version, last.version);
            return Err(Broken { law: 3, name: "nothing lost", what });
        }
        for row in &map.rows {
            let mut listed = BTreeSet::new();
            for server in &row.servers {
                for chunk in server.chunks.iter() {
                    let copy = (server.server.clone(), *chunk);
                    if !listed.insert(*chunk) {
                        return untrue(format!("row {:?} lists chunk {chunk} twice", row.row));
                    }
                    // It may have been deleted after the question was sent.
                    let was_held = self.gone.get(&copy).is_some_and(|at| *at >= asked);
                    if !self.held.contains(&copy) && !was_held {
                        return untrue(format!("{} does not have chunk {chunk}, and the map lists it there", copy.0));
                    }
                }
            }
        }
        self.last = Some(map);
        Ok(())
    }
}

fn untrue(what: String) -> Verdict {
    Err(Broken { law: 12, name: "answers are true", what })
}
