//! Places a chunk that was built.

use super::chunk::Chunk;
use super::give_up::IndexAttempt;
use super::refusal::Refusal;
use super::row::Write;
use super::state::State;
use crate::fleet::RowNo;
use crate::ids::ChunkId;
use crate::limits;
use crate::pipeline::row::Artifact;
use crate::time::Time;

/// What a built chunk met.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Built {
    /// It is new.
    New,
    /// It was known.
    Known,
}

impl State {
    /// Takes a built chunk and places it in every row. Repeated with the same artifact it changes nothing. `index` counts
    /// the indexes of the chunk that were given up: the announcement of one of those is late, and changes nothing.
    /// Fails if the artifact is malformed, or another than before.
    pub fn chunk_built(
        &mut self,
        chunk: ChunkId,
        artifact: &Artifact,
        index: u32,
        now: Time,
        out: &mut Vec<Write>,
    ) -> Result<Built, Refusal> {
        let built = self.enter_built(chunk, artifact, index, out)?;
        if built == Built::New {
            self.place_in_all_rows(chunk, now, out);
            self.finish(out);
        }
        Ok(built)
    }

    /// Takes a built chunk, and leaves its copies to the caller.
    pub(super) fn enter_built(
        &mut self,
        chunk: ChunkId,
        artifact: &Artifact,
        index: u32,
        out: &mut Vec<Write>,
    ) -> Result<Built, Refusal> {
        let whole =
            (1..=limits::LOCATION_BYTES_MAX).contains(&artifact.location.len()) && artifact.bytes <= limits::NUMBER_MAX;
        if !whole {
            return Err(Refusal::BadArtifact { chunk: chunk.0 });
        }
        if self.is_late(chunk.0, index, out) {
            return Ok(Built::Known);
        }
        match self.chunks.get(&chunk.0) {
            Some(_) if index < self.mark(chunk.0).index => return Ok(Built::Known),
            Some(known) if known.artifact() == *artifact => return Ok(Built::Known),
            Some(_) => return Err(Refusal::AnotherArtifact(chunk.0)),
            None if self.chunks.len() >= limits::CHUNKS_MAX => {
                let max = limits::CHUNKS_MAX;
                return Err(Refusal::OverLimit(format!("there are {max} built chunks, which is the limit")));
            }
            None => {}
        }
        self.chunks.insert(chunk.0, Chunk::new(artifact, self.rows.len()));
        self.set_mark(chunk.0, IndexAttempt { index, unfetched: 0 }, out);
        Ok(Built::New)
    }

    /// Gives a chunk that was just entered a copy in every row that has none of it.
    pub(super) fn place_in_all_rows(&mut self, chunk: ChunkId, now: Time, out: &mut Vec<Write>) {
        let rows: Vec<RowNo> = self.rows.keys().copied().collect();
        for row in rows {
            self.reconcile(chunk.0, row, None, now, out);
        }
        self.visible |= self.has_map_rows();
    }
}
