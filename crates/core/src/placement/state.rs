//! Servers and rows in memory.
//!
//! A chunk costs its packed artifact once, and per row an assignment of 10 bytes, an entry in its server's copies (by chunk, for
//! listings) and one in its server's sizes (for rebalancing).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::OnceLock;

use super::chunk::Chunk;
use super::give_up::IndexAttempt;
use super::map::Listed;
use super::row::{LedgerRow, PlacementState, ReturnRow, ServerRow, Write};
use crate::fleet::{Desired, Judged, RowNo};
use crate::limits;
use crate::names::MachineId;
use crate::time::{Millis, Time};

/// Settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// How long a server must have failed before its chunks are placed again.
    pub replace_after: Millis,
    /// Moves towards balance per minute, over all rows.
    pub moves_per_minute: u32,
}

impl Default for Config {
    fn default() -> Self {
        Self { replace_after: limits::REPLACE_AFTER_DEFAULT, moves_per_minute: limits::MOVES_PER_MINUTE_DEFAULT }
    }
}

/// A server, by its number in memory.
pub(super) type Ix = u16;

/// A copy of a chunk on a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Copy {
    pub state: PlacementState,
    /// Seconds; there may be very many copies.
    since: u32,
}

impl Copy {
    /// A copy with a new report; the time counts while it is not ready.
    pub fn new(state: PlacementState, now: Time) -> Self {
        let since = if is_unready(state) { u32::try_from(now.as_secs()).unwrap_or(u32::MAX) } else { 0 };
        Self { state, since }
    }

    /// The last news of it, while it is not ready.
    pub const fn since(self) -> Time {
        Time::from_secs(self.since as u64)
    }
}

/// Whether a copy is wanted and not there yet.
pub(super) const fn is_unready(state: PlacementState) -> bool {
    matches!(state, PlacementState::Assigned | PlacementState::Fetching)
}

/// All placements.
#[derive(Debug)]
pub struct State {
    pub(super) config: Config,
    pub(super) chunks: BTreeMap<u64, Chunk>,
    /// Of chunks with anything out of the ordinary.
    pub(super) marks: BTreeMap<u64, IndexAttempt>,
    /// Servers that have reported a copy gone that was never ready, since this state was loaded.
    pub(super) refusers: BTreeMap<u64, BTreeSet<Ix>>,
    /// Chunks that have left.
    pub(super) returns: BTreeMap<u64, ReturnRow>,
    /// Those of them that the pipelines may not know yet.
    pub(super) untaken: BTreeSet<u64>,
    /// When the others are forgotten.
    pub(super) return_ends: BTreeSet<(Time, u64)>,
    pub(super) servers: BTreeMap<Ix, Server>,
    pub(super) names: BTreeMap<MachineId, Ix>,
    pub(super) rows: BTreeMap<RowNo, Row>,
    /// Servers that have failed.
    pub(super) failed: BTreeSet<Ix>,
    /// When failed servers are given up.
    pub(super) timers: BTreeSet<(Time, Ix)>,
    /// When to look whether a server with copies that are not ready does anything at all.
    pub(super) stalls: BTreeSet<(Time, Ix)>,
    /// When to look at copies that are being fetched. Entries of copies that have moved on are passed over.
    pub(super) fetches: BTreeSet<(Time, Ix, u64)>,
    /// When servers that rest may be tried again.
    pub(super) rests: BTreeSet<(Time, Ix)>,
    /// Since when this state hears of copies.
    pub(super) opened: Option<Time>,
    /// Servers whose copies must be looked at again.
    pub(super) sweeping: BTreeSet<Ix>,
    pub(super) ledger: LedgerRow,
    pub(super) ledger_changed: bool,
    /// Whether the map has changed since its version was last raised.
    pub(super) visible: bool,
}

/// An index server.
#[derive(Debug)]
pub(super) struct Server {
    pub id: MachineId,
    /// As it is durable.
    pub facts: ServerRow,
    pub copies: BTreeMap<u64, Copy>,
    /// Chunks whose chosen copy it has, by weight.
    pub chosen: BTreeSet<(u64, u64)>,
    /// Their weights together.
    pub load: u128,
    /// Cells that it serves, if it is alive.
    pub held: usize,
    pub draining: usize,
    /// Copies that are not ready yet.
    pub unready: usize,
    /// How many times in a row it gave up a copy that was not ready, or could not keep one, each time after a rest.
    pub refusals: u32,
    /// Until when it rests for that.
    pub rest: Option<Time>,
    /// When it last reported a copy to this state.
    pub news: Time,
    /// When to look whether it does anything about them.
    pub stall: Option<Time>,
    /// Its copies as the map lists them; unset when one has changed.
    pub listed: OnceLock<Listed>,
    /// When its unready copies were last looked at because of their age.
    pub looked_at: Time,
    /// The copy from which on its sweep continues.
    pub sweep: u64,
    /// When it is given up, if it has failed and is not given up yet.
    pub timer: Option<Time>,
    /// A new machine under the same name, to be added when this one's copies are forgotten.
    pub successor: Option<ServerRow>,
}

impl Server {
    pub const fn new(id: MachineId, facts: ServerRow) -> Self {
        Self {
            id,
            facts,
            copies: BTreeMap::new(),
            chosen: BTreeSet::new(),
            load: 0,
            held: 0,
            draining: 0,
            unready: 0,
            refusals: 0,
            rest: None,
            news: Time::ZERO,
            stall: None,
            listed: OnceLock::new(),
            looked_at: Time::ZERO,
            sweep: 0,
            timer: None,
            successor: None,
        }
    }

    /// Whether readers may be sent to it.
    pub fn is_alive(&self) -> bool {
        !self.facts.removed && self.facts.judged != Judged::Failed
    }

    /// Whether it may get new copies.
    pub fn is_eligible(&self) -> bool {
        let facts = &self.facts;
        !facts.removed && facts.judged == Judged::Healthy && facts.desired == Desired::Online && facts.accepts
    }

    /// Whether it may get a first copy if its row has no eligible server: it reports, and only probes doubt it.
    pub fn is_probe_suspect(&self) -> bool {
        let facts = &self.facts;
        let suspect = facts.judged == Judged::Suspect && facts.unanswered;
        !facts.removed && suspect && facts.desired == Desired::Online && facts.accepts
    }

    /// Whether it has copies that should be with a server that gets work.
    pub fn keeps_work_back(&self) -> bool {
        self.unready > 0 && !self.is_eligible()
    }

    /// Whether the operator wants it emptied.
    pub fn is_drained(&self) -> bool {
        self.facts.desired == Desired::Drain
    }

    /// Its load per capacity with `more` bytes, as a number with 32 fractional bits.
    pub fn fullness(&self, more: u64) -> u128 {
        ((self.load + u128::from(more)) << 32) / u128::from(self.facts.capacity.max(1))
    }
}

/// A row of servers.
#[derive(Debug, Default)]
pub(super) struct Row {
    /// Its servers, with those that are being forgotten.
    pub servers: BTreeSet<Ix>,
    /// Those that may get new copies, the emptiest first.
    pub eligible: BTreeSet<(u128, Ix)>,
    /// Those that may get first copies if there are no eligible ones.
    pub probe_suspects: BTreeSet<(u128, Ix)>,
    /// Chunks without a copy here, for lack of a server that takes it.
    pub unplaced: BTreeSet<u64>,
    /// Chunks without a copy here because each eligible server must first delete an old one.
    pub blocked: BTreeSet<u64>,
    /// The chunk from which on chunks may have no copy here, as in a new row.
    pub backfill: Option<u64>,
    /// Chunks that have an assignment here.
    pub placed: usize,
    /// Cells that an alive server serves.
    pub served: usize,
}

impl Row {
    /// Whether a server takes first copies.
    pub fn takes_copies(&self) -> bool {
        !self.eligible.is_empty() || !self.probe_suspects.is_empty()
    }

    /// Whether chunks wait for a copy that they could get now.
    pub fn has_work(&self) -> bool {
        self.takes_copies() && (self.backfill.is_some() || !self.unplaced.is_empty())
    }
}

impl State {
    /// A state without rows.
    #[must_use]
    pub const fn new(config: Config) -> Self {
        Self {
            config,
            chunks: BTreeMap::new(),
            marks: BTreeMap::new(),
            refusers: BTreeMap::new(),
            returns: BTreeMap::new(),
            untaken: BTreeSet::new(),
            return_ends: BTreeSet::new(),
            servers: BTreeMap::new(),
            names: BTreeMap::new(),
            rows: BTreeMap::new(),
            failed: BTreeSet::new(),
            timers: BTreeSet::new(),
            stalls: BTreeSet::new(),
            fetches: BTreeSet::new(),
            rests: BTreeSet::new(),
            opened: None,
            sweeping: BTreeSet::new(),
            ledger: LedgerRow { version: 0, frozen: false, thawed_at: Time::ZERO, moves_from: Time::ZERO, moves: 0 },
            ledger_changed: false,
            visible: false,
        }
    }

    /// Number of built chunks.
    #[must_use]
    pub fn chunk_count(&self) -> usize {
        self.chunks.len()
    }

    /// The version of the map.
    #[must_use]
    pub const fn version(&self) -> u64 {
        self.ledger.version
    }

    /// Ends a command: raises the version if the map has changed.
    pub(super) fn finish(&mut self, out: &mut Vec<Write>) {
        if std::mem::take(&mut self.visible) {
            self.ledger.version += 1;
            self.ledger_changed = true;
        }
        if std::mem::take(&mut self.ledger_changed) {
            out.push(Write::Ledger(self.ledger));
        }
    }

    pub(super) fn is_alive(&self, ix: Ix) -> bool {
        self.servers.get(&ix).is_some_and(Server::is_alive)
    }

    /// When a failed server is given up.
    pub(super) fn given_up_at(&self, server: &Server) -> Time {
        server.facts.since.max(self.ledger.thawed_at).after(self.config.replace_after)
    }

    /// Failed servers whose chunks are placed elsewhere, as far as they are wanted: nothing waits for them any more. None
    /// during a freeze.
    #[must_use]
    pub fn replaced(&self, now: Time) -> Vec<MachineId> {
        let failed = self.failed.iter().filter_map(|ix| self.servers.get(ix)).filter(|_| !self.ledger.frozen);
        let empty = failed.filter(|server| server.copies.len() == server.draining && now >= self.given_up_at(server));
        empty.map(|server| server.id.clone()).collect()
    }

    /// Whether a server's chunks must be placed elsewhere now.
    pub(super) fn must_leave(&self, ix: Ix, now: Time) -> bool {
        let Some(server) = self.servers.get(&ix) else { return true };
        let lost = server.facts.judged == Judged::Failed && now >= self.given_up_at(server);
        server.facts.removed || (!self.ledger.frozen && (server.is_drained() || lost))
    }

    /// Has a tick look at all copies of a server again.
    pub(super) fn start_sweep(&mut self, ix: Ix) {
        if let Some(server) = self.servers.get_mut(&ix) {
            server.sweep = 0;
            self.sweeping.insert(ix);
        }
    }
}
