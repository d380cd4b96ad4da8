//! Listing of copies by server and chunk, a slice at a time; and all copies of one chunk.

use std::ops::Bound;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::refusal::Refusal;
use super::row::PlacementState;
use super::state::{Ix, Server, State};
use crate::fleet::{Judged, RowNo};
use crate::ids::ChunkId;
use crate::limits::LISTING_LOOKS;
use crate::names::MachineId;
use crate::pipeline::row::Artifact;
use crate::time::Time;

/// Which copies.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Filter {
    /// On this server.
    pub server: Option<MachineId>,
    /// In this row.
    pub row: Option<RowNo>,
    /// In this state.
    pub state: Option<PlacementState>,
}

/// The last copy examined.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cursor {
    /// Its server.
    pub server: MachineId,
    /// Its chunk.
    pub chunk: ChunkId,
}

/// A slice of a listing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Page {
    /// The copies that match.
    pub placements: Vec<PlacementView>,
    /// The position to continue after; none at the end.
    pub next: Option<Cursor>,
}

/// A copy as callers see it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlacementView {
    /// The chunk.
    pub chunk: ChunkId,
    /// The server.
    pub server: MachineId,
    /// Its row.
    pub row: RowNo,
    /// Its state.
    pub state: PlacementState,
    /// What to fetch; none if the chunk is gone.
    pub artifact: Option<Artifact>,
    /// The addresses of other servers that hold it ready.
    pub sources: Vec<Arc<str>>,
    /// Why it is so; never empty.
    pub reason: String,
    /// When that changes by time alone.
    pub changes_at: Option<Time>,
}

impl State {
    /// The copies after `after` that match, by server and chunk, at most `limit`; examines a bounded number. Fails if
    /// the filter names a server that is not known.
    pub fn list(&self, filter: &Filter, after: Option<&Cursor>, limit: usize, now: Time) -> Result<Page, Refusal> {
        let named = filter.server.as_ref();
        if let Some(server) = named.filter(|server| !self.names.contains_key(*server)) {
            return Err(Refusal::UnknownServer(server.to_string()));
        }
        let from = named.or_else(|| after.map(|after| &after.server)).map_or(Bound::Unbounded, Bound::Included);
        let to = named.map_or(Bound::Unbounded, Bound::Included);
        let mut page = Page::default();
        let mut looks = LISTING_LOOKS;
        for (id, ix) in self.names.range::<MachineId, _>((from, to)) {
            let Some(server) = self.servers.get(ix) else { continue };
            if filter.row.is_some_and(|row| row != server.facts.row) {
                continue;
            }
            let start =
                after.filter(|after| after.server == *id).map_or(Bound::Unbounded, |a| Bound::Excluded(a.chunk.0));
            for (chunk, copy) in server.copies.range((start, Bound::Unbounded)) {
                if looks == 0 || page.placements.len() >= limit.max(1) {
                    return Ok(page);
                }
                looks -= 1;
                if filter.state.is_none_or(|wanted| wanted == copy.state) {
                    page.placements.push(self.view(*chunk, *ix, server, copy.state, now));
                }
                page.next = Some(Cursor { server: id.clone(), chunk: ChunkId(*chunk) });
            }
        }
        page.next = None;
        Ok(page)
    }

    /// All copies of a chunk, by server.
    pub fn copies_of(&self, chunk: ChunkId, now: Time) -> Result<Vec<PlacementView>, Refusal> {
        let servers = self.names.values().filter_map(|ix| Some((*ix, self.servers.get(ix)?)));
        let copies = servers.filter_map(|(ix, server)| Some((ix, server, server.copies.get(&chunk.0)?.state)));
        let found: Vec<PlacementView> =
            copies.map(|(ix, server, state)| self.view(chunk.0, ix, server, state, now)).collect();
        if found.is_empty() && !self.chunks.contains_key(&chunk.0) {
            return Err(Refusal::UnknownChunk(chunk.0));
        }
        Ok(found)
    }

    fn view(&self, chunk: u64, ix: Ix, server: &Server, state: PlacementState, now: Time) -> PlacementView {
        let (reason, changes_at) = self.explain(chunk, ix, server, state, now);
        let mut sources = self.sources(ChunkId(chunk));
        sources.retain(|address| *address != server.facts.address);
        PlacementView {
            chunk: ChunkId(chunk),
            server: server.id.clone(),
            row: server.facts.row,
            state,
            artifact: self.chunks.get(&chunk).map(super::chunk::Chunk::artifact),
            sources,
            reason,
            changes_at,
        }
    }

    /// Why a copy is in its state, and when that changes by time alone.
    fn explain(&self, chunk: u64, ix: Ix, server: &Server, state: PlacementState, now: Time) -> (String, Option<Time>) {
        let copies = self.copies_in(chunk, server.facts.row);
        let name = |ix: Ix| self.servers.get(&ix).map(|server| server.id.to_string()).unwrap_or_default();
        let waits = match copies.former.filter(|former| *former != ix) {
            Some(former) if self.is_alive(former) => format!("; '{}' serves it until then", name(former)),
            Some(former) => format!("; it was lost with '{}'", name(former)),
            None => String::new(),
        };
        let (mut fate, mut changes_at) = self.fate(server, now);
        if let Some(at) = self.overdue_at(chunk, ix).filter(|_| changes_at.is_none() && fate.is_empty()) {
            fate = format!("; placed elsewhere if nothing is heard of it for {}", at.since(now).in_words());
            changes_at = Some(at.max(now));
        }
        let text = match state {
            PlacementState::Draining if server.facts.judged == Judged::Failed => {
                let text = "no longer wanted here; the server has failed: this is forgotten when it comes back and reports it \
                            gone, or with the server, which an operator removes, or a day of failure";
                return (text.into(), None);
            }
            PlacementState::Draining => {
                return ("no longer wanted here: the server deletes it and reports it gone".into(), None);
            }
            PlacementState::Ready if copies.former == Some(ix) => {
                let to = copies.chosen.map(|(ix, _)| name(ix)).unwrap_or_default();
                return (format!("being replaced by a copy on '{to}'; drained when that is ready"), None);
            }
            PlacementState::Assigned => format!("the server has not begun to fetch it{waits}{fate}"),
            PlacementState::Fetching => format!("the server is fetching it{waits}{fate}"),
            PlacementState::Ready => format!("the server has it{fate}"),
        };
        (text, changes_at)
    }

    /// What will happen to the copies of a server.
    fn fate(&self, server: &Server, now: Time) -> (String, Option<Time>) {
        let failed = server.facts.judged == Judged::Failed;
        let at = self.given_up_at(server);
        match (server.facts.removed, server.is_drained(), failed) {
            (true, _, _) => ("; the server has left the fleet".into(), None),
            (_, true, _) | (_, _, true) if self.ledger.frozen => (
                "; the server should be replaced, but moves are frozen: too many servers look dead at once".into(),
                None,
            ),
            (_, true, _) => {
                ("; the server is drained, and it is placed elsewhere as soon as another server takes it".into(), None)
            }
            (_, _, true) if now < at => (
                format!("; the server has failed, and it is placed elsewhere in {}", at.since(now).in_words()),
                Some(at),
            ),
            (_, _, true) => {
                ("; the server has failed, and it is placed elsewhere as soon as another server takes it".into(), None)
            }
            _ => (String::new(), None),
        }
    }
}
