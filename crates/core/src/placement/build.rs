//! A chunk is built, or gone.

use super::cell::Layout;
use super::chunk::Chunk;
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
    /// Takes a built chunk and places it in every row. Repeated with the same artifact it changes nothing.
    ///
    /// # Errors
    /// If the artifact is malformed, or another than before.
    pub fn chunk_built(
        &mut self,
        chunk: ChunkId,
        artifact: &Artifact,
        now: Time,
        out: &mut Vec<Write>,
    ) -> Result<Built, Refusal> {
        let whole =
            (1..=limits::LOCATION_BYTES_MAX).contains(&artifact.location.len()) && artifact.bytes <= limits::NUMBER_MAX;
        if !whole {
            return Err(Refusal::BadArtifact { chunk: chunk.0 });
        }
        match self.chunks.get(&chunk.0) {
            Some(known) if known.artifact() == *artifact => return Ok(Built::Known),
            Some(_) => return Err(Refusal::AnotherArtifact(chunk.0)),
            None if self.chunks.len() >= limits::CHUNKS_MAX => {
                let max = limits::CHUNKS_MAX;
                return Err(Refusal::OverLimit(format!("there are {max} built chunks, which is the limit")));
            }
            None => {}
        }
        self.chunks.insert(chunk.0, Chunk::new(artifact, self.rows.len()));
        out.push(Write::Chunk(chunk, Some(artifact.clone())));
        let rows: Vec<RowNo> = self.rows.keys().copied().collect();
        for row in rows {
            self.reconcile(chunk.0, row, None, now, out);
        }
        self.visible = true;
        self.finish(out);
        Ok(Built::New)
    }

    /// Forgets a chunk; its servers are to delete their copies.
    ///
    /// # Errors
    /// If it is not known.
    pub fn chunk_gone(&mut self, chunk: ChunkId, out: &mut Vec<Write>) -> Result<(), Refusal> {
        if !self.chunks.contains_key(&chunk.0) {
            return Err(Refusal::UnknownChunk(chunk.0));
        }
        let rows: Vec<RowNo> = self.rows.keys().copied().collect();
        for no in rows {
            self.lay(chunk.0, no, Layout::default(), None, Time::ZERO, out);
            if let Some(row) = self.rows.get_mut(&no) {
                row.unplaced.remove(&chunk.0);
                row.blocked.remove(&chunk.0);
            }
        }
        self.chunks.remove(&chunk.0);
        out.push(Write::Chunk(chunk, None));
        self.visible = true;
        self.finish(out);
        Ok(())
    }
}
