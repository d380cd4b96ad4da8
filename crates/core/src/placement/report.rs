//! Reports of index servers about their copies.
//!
//! Allowed: assigned → fetching or ready, fetching → ready, every state → gone. Repeating the present state changes
//! nothing; so does `gone` for a chunk that is known and not placed there. Repeated `fetching` is news of the fetch, and
//! is written from time to time.
//!
//! `unable` is `gone` for a reason that is the server's own: the server rests, and nothing is concluded about the index.

use serde::{Deserialize, Serialize};

use super::assignment::Copies;
use super::refusal::Refusal;
use super::row::{CopyRole, PlacementState, Write};
use super::state::{State, is_unready};
use crate::ids::ChunkId;
use crate::limits::FETCH_NEWS_INTERVAL;
use crate::names::MachineId;
use crate::time::Time;
use crate::words::words;

/// What a server says of its copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum CopyReport {
    /// It has begun to fetch it.
    Fetching,
    /// It has it and serves it.
    Ready,
    /// It does not have it (any longer).
    Gone,
    /// The same, but the fault is the server's own: it cannot keep or open files.
    Unable,
}

words!(CopyReport, name: Fetching "fetching", Ready "ready", Gone "gone", Unable "unable");

impl State {
    /// Checks that a report is about the present index of a chunk, if it names one by its checksum. A late report about
    /// an index that was given up would otherwise vouch for the next. A copy that is to be deleted may be of any. Fails
    /// if it is about another index.
    pub fn check_index(&self, chunk: ChunkId, server: &MachineId, checksum: [u8; 32]) -> Result<(), Refusal> {
        let copies = self.names.get(server).and_then(|ix| self.servers.get(ix)).map(|server| &server.copies);
        let wanted = copies.and_then(|copies| copies.get(&chunk.0));
        let wanted = wanted.is_some_and(|copy| copy.state != PlacementState::Draining);
        let present = self.chunks.get(&chunk.0).map(|chunk| chunk.artifact().checksum);
        if wanted && present.is_some_and(|present| present != checksum) {
            return Err(Refusal::AnotherIndex { chunk: chunk.0, server: server.to_string() });
        }
        Ok(())
    }

    /// Takes a server's report on a copy; answers the copy's state, none if it is gone. Fails if chunk or server are
    /// not known, the chunk is not placed there, or the state does not follow.
    pub fn report(
        &mut self,
        chunk: ChunkId,
        server: &MachineId,
        reported: CopyReport,
        now: Time,
        out: &mut Vec<Write>,
    ) -> Result<Option<PlacementState>, Refusal> {
        let (id, name) = (chunk.0, || server.to_string());
        let ix = self.names.get(server).copied();
        let found = ix.and_then(|ix| Some((ix, self.servers.get(&ix).filter(|server| !server.facts.removed)?)));
        let Some((ix, holder)) = found else { return Err(Refusal::UnknownServer(name())) };
        let row = holder.facts.row;
        let known = holder.copies.get(&id).copied();
        let copy = known.map(|copy| copy.state);
        if copy.is_some() {
            self.servers.entry(ix).and_modify(|server| server.news = now);
        }
        match (copy, reported) {
            (None, _) if !self.chunks.contains_key(&id) => return Err(Refusal::UnknownChunk(id)),
            (None, CopyReport::Gone | CopyReport::Unable) => return Ok(None),
            (None, _) => return Err(Refusal::NotPlaced { chunk: id, server: name() }),
            (Some(PlacementState::Draining), CopyReport::Gone | CopyReport::Unable) => {
                self.erase(id, ix, out);
                // The chunk may have waited for this server to delete its old copy.
                self.reconcile(id, row, None, now, out);
            }
            (Some(PlacementState::Draining), _) => return Err(Refusal::NotWanted { chunk: id, server: name() }),
            (Some(PlacementState::Ready), CopyReport::Fetching) => {
                let (is, asked) = (PlacementState::Ready.name().into(), reported.name().into());
                return Err(Refusal::WrongStep { chunk: id, server: name(), is, asked });
            }
            (Some(state @ PlacementState::Fetching), CopyReport::Fetching) => {
                if known.is_some_and(|copy| now.since(copy.since()) >= FETCH_NEWS_INTERVAL) {
                    self.record(id, ix, (state, CopyRole::Chosen), now, out);
                }
                return Ok(Some(state));
            }
            (Some(state @ PlacementState::Ready), CopyReport::Ready) => return Ok(Some(state)),
            (Some(_), CopyReport::Fetching) => {
                let before = self.copies_in(id, row);
                let next = Copies { chosen: Some((ix, PlacementState::Fetching)), ..before };
                self.lay(id, row, next, None, now, out);
            }
            (Some(_), CopyReport::Ready) => {
                self.forgive_unfetched(id, out);
                self.prove(ix, now);
                let before = self.copies_in(id, row);
                let next = Copies { chosen: Some((ix, PlacementState::Ready)), ..before };
                self.lay(id, row, next, None, now, out);
                self.reconcile(id, row, None, now, out);
            }
            (Some(_), CopyReport::Gone | CopyReport::Unable) => {
                let before = self.copies_in(id, row);
                let kept = before.chosen.filter(|(chosen, _)| *chosen != ix);
                let former = before.former.filter(|former| *former != ix).map(|former| (former, PlacementState::Ready));
                let next = Copies { chosen: kept.or(former), ..Copies::default() };
                self.lay(id, row, next, Some(ix), now, out);
                if reported == CopyReport::Unable {
                    self.begin_rest(ix, now);
                } else if copy.is_some_and(is_unready) && self.count_unfetched((id, ix), now, out) {
                    self.finish(out);
                    return Ok(None);
                }
                self.reconcile(id, row, Some(ix), now, out);
            }
        }
        self.finish(out);
        Ok(self.servers.get(&ix).and_then(|server| server.copies.get(&id)).map(|copy| copy.state))
    }
}
