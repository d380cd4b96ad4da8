//! Gives up an index: the chunk leaves placement, and the pipeline has it rebuilt, or skips it.
//!
//! That happens when servers report copies gone that were never ready, and no server of any row has one: the artifact is
//! lost, and asking the next server does not help. Or an operator asks for it. A report that a server is unable to keep or open
//! files says nothing of the index, and is not counted.
//!
//! The pipeline of the chunk is in another shard, which must hear of it exactly once, across crashes of either owner.
//! So the fact is a row until the pipeline has acknowledged it, and every message names the number of the index. The
//! pipeline increments its number when it accepts the fact. So a repeated message changes nothing, and an
//! announcement with a greater number proves the acceptance. The row also says what is to become of the chunk, so
//! that an operator's decision is carried out even if its caller has gone. The row stays for a while longer, so that
//! a late announcement of the old index is recognised.

use super::assignment::Copies;
use super::refusal::Refusal;
use super::row::{BuiltRow, GiveUpReason, ReturnRow, Write};
use super::state::{Ix, State};
use crate::fleet::RowNo;
use crate::ids::ChunkId;
use crate::limits::{RETURN_KEPT, UNFETCHED_MAX};
use crate::redact;
use crate::time::Time;

/// The message to the pipeline: the chunk, which of its indexes is given up, and why.
pub type GivenUpIndex = (ChunkId, u32, GiveUpReason);

/// What is rare to know of a chunk: see [`BuiltRow`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct IndexAttempt {
    pub index: u32,
    pub unfetched: u32,
}

impl State {
    /// Forgets a chunk; its servers are to delete their copies. The pipeline gets no message.
    pub fn chunk_gone(&mut self, chunk: ChunkId, now: Time, out: &mut Vec<Write>) -> Result<(), Refusal> {
        if !self.chunks.contains_key(&chunk.0) {
            return Err(Refusal::UnknownChunk(chunk.0));
        }
        self.let_go(chunk.0, GiveUpReason::Lost("it was forgotten".into()), true, now, out);
        self.finish(out);
        Ok(())
    }

    /// Gives an index up because an operator wants that. One that was replaced changes nothing; one that was given up before
    /// is given up for this reason, unless the pipeline has got another one.
    pub fn give_up(&mut self, (chunk, index): (ChunkId, u32), why: GiveUpReason, now: Time, out: &mut Vec<Write>) {
        let known = self.chunks.contains_key(&chunk.0);
        let later = self.returns.get(&chunk.0).is_some_and(|row| row.index > index);
        if known && self.mark(chunk.0).index == index {
            self.let_go(chunk.0, why, false, now, out);
        } else if !known && !later {
            // The pipeline still has it as built, though it was forgotten or the message is still on its way.
            self.note_return(chunk.0, Some(ReturnRow { index, why, at: now, taken: false }), out);
        }
        self.finish(out);
    }

    /// The messages for the pipelines, after this chunk, at most this many.
    #[must_use]
    pub fn returns(&self, after: Option<ChunkId>, most: usize) -> Vec<GivenUpIndex> {
        let first = after.map_or(0, |chunk| chunk.0.saturating_add(1));
        let rows = self.untaken.range(first..).take(most).filter_map(|id| Some((*id, self.returns.get(id)?)));
        rows.map(|(id, row)| (ChunkId(id), row.index, row.why.clone())).collect()
    }

    /// Whether there is anything.
    #[must_use]
    pub fn has_returns(&self) -> bool {
        !self.untaken.is_empty()
    }

    /// The pipelines know that these are given up.
    pub fn returned(&mut self, taken: &[(ChunkId, u32)], out: &mut Vec<Write>) {
        for (chunk, index) in taken {
            let row = self.returns.get(&chunk.0).filter(|row| row.index == *index && !row.taken);
            if let Some(row) = row.cloned() {
                self.note_return(chunk.0, Some(ReturnRow { taken: true, ..row }), out);
            }
        }
    }

    /// A copy on this server is gone that was never ready: the server rests. Whether the chunk is given up for that:
    /// not as long as a server that has not reported so yet may fetch it, because one server that cannot read the
    /// artifact proves nothing. While any server has the chunk, it is not even counted.
    pub(super) fn count_unfetched(&mut self, (id, server): (u64, Ix), now: Time, out: &mut Vec<Write>) -> bool {
        self.begin_rest(server, now);
        self.refusers.entry(id).or_default().insert(server);
        let copies: Vec<Copies> = self.rows.keys().map(|row| self.copies_in(id, *row)).collect();
        if copies.iter().any(|copies| copies.holder().is_some()) {
            return false;
        }
        let refused = |ix: &Ix| self.refusers.get(&id).is_some_and(|known| known.contains(ix));
        let hope = copies.iter().filter_map(|copies| copies.chosen).any(|(ix, _)| self.is_alive(ix) && !refused(&ix));
        let mark = self.mark(id);
        let unfetched = mark.unfetched.saturating_add(1);
        if unfetched >= UNFETCHED_MAX && !hope {
            let why = format!(
                "index servers could not fetch it in {unfetched} attempts{}, and none has it",
                self.explain_attempt(id, server)
            );
            self.let_go(id, GiveUpReason::Lost(why.into()), false, now, out);
            return true;
        }
        self.set_mark(id, IndexAttempt { unfetched, ..mark }, out);
        false
    }

    /// Which server tried last, and from where: its own log says more.
    fn explain_attempt(&self, id: u64, server: Ix) -> String {
        let name = self.names.iter().find(|(_, ix)| **ix == server).map(|(name, _)| name);
        let Some((name, chunk)) = name.zip(self.chunks.get(&id)) else { return String::new() };
        format!(" (the last by '{name}' from {})", redact::location_in_reason(&chunk.artifact().location))
    }

    /// A copy is ready: the artifact can be fetched.
    pub(super) fn forgive_unfetched(&mut self, id: u64, out: &mut Vec<Write>) {
        self.refusers.remove(&id);
        let mark = self.mark(id);
        if mark.unfetched > 0 {
            self.set_mark(id, IndexAttempt { unfetched: 0, ..mark }, out);
        }
    }

    pub(super) fn mark(&self, id: u64) -> IndexAttempt {
        self.marks.get(&id).copied().unwrap_or_default()
    }

    /// The row of a built chunk.
    pub(super) fn built_row(&self, id: u64) -> Option<BuiltRow> {
        let IndexAttempt { index, unfetched } = self.mark(id);
        Some(BuiltRow { artifact: self.chunks.get(&id)?.artifact(), index, unfetched })
    }

    /// Sets what is rare, and writes the chunk.
    pub(super) fn set_mark(&mut self, id: u64, mark: IndexAttempt, out: &mut Vec<Write>) {
        if mark == IndexAttempt::default() {
            self.marks.remove(&id);
        } else {
            self.marks.insert(id, mark);
        }
        if let Some(row) = self.built_row(id) {
            out.push(Write::Chunk(ChunkId(id), Some(row)));
        }
    }

    /// Takes a chunk out, and notes that.
    fn let_go(&mut self, id: u64, why: GiveUpReason, taken: bool, now: Time, out: &mut Vec<Write>) {
        let rows: Vec<RowNo> = self.rows.keys().copied().collect();
        for no in rows {
            self.lay(id, no, Copies::default(), None, now, out);
            if let Some(row) = self.rows.get_mut(&no) {
                row.unplaced.remove(&id);
                row.blocked.remove(&id);
            }
        }
        let index = self.mark(id).index;
        self.marks.remove(&id);
        self.refusers.remove(&id);
        self.chunks.remove(&id);
        out.push(Write::Chunk(ChunkId(id), None));
        self.visible |= self.has_map_rows();
        self.note_return(id, Some(ReturnRow { index, why, at: now, taken }), out);
    }

    /// Adds, changes or removes the row of a chunk that has left.
    fn note_return(&mut self, id: u64, row: Option<ReturnRow>, out: &mut Vec<Write>) {
        self.load_return(id, row.clone());
        out.push(Write::Return(ChunkId(id), row));
    }

    pub(super) fn load_return(&mut self, id: u64, row: Option<ReturnRow>) {
        if let Some(before) = self.returns.remove(&id) {
            self.return_ends.remove(&(before.at.after(RETURN_KEPT), id));
        }
        self.untaken.remove(&id);
        let Some(row) = row else { return };
        if row.taken {
            self.return_ends.insert((row.at.after(RETURN_KEPT), id));
        } else {
            self.untaken.insert(id);
        }
        self.returns.insert(id, row);
    }

    /// An announcement of an index. One that was given up is late; a later one shows that the pipeline knows.
    pub(super) fn is_late(&mut self, id: u64, index: u32, out: &mut Vec<Write>) -> bool {
        let Some(row) = self.returns.get(&id).cloned() else { return false };
        if index <= row.index {
            return true;
        }
        if !row.taken {
            self.note_return(id, Some(ReturnRow { taken: true, ..row }), out);
        }
        false
    }

    /// Forgets chunks that left long ago, while `room` lasts.
    pub(super) fn forget_returns(&mut self, room: &mut usize, now: Time, out: &mut Vec<Write>) {
        while let Some((_, id)) = self.return_ends.first().copied().filter(|(at, _)| *at <= now && *room > 0) {
            *room -= 1;
            self.note_return(id, None, out);
        }
    }
}
