//! Membership and health of the index servers, as the fleet sees them.

use std::collections::BTreeSet;

use super::row::{ServerRow, Write};
use super::state::{Ix, Row, Server, State};
use crate::fleet::{Desired, Holdings, Judged, RowNo};
use crate::names::MachineId;
use crate::time::Time;

impl State {
    /// Takes all index servers of the fleet, and whether their moves are frozen. What follows for copies is left to
    /// ticks; the map follows at once.
    pub fn servers(&mut self, servers: &[(MachineId, ServerRow)], frozen: bool, now: Time, out: &mut Vec<Write>) {
        self.freeze(frozen, now);
        let named: BTreeSet<&MachineId> = servers.iter().map(|(id, _)| id).collect();
        let left: Vec<Ix> = self.names.iter().filter(|(id, _)| !named.contains(id)).map(|(_, ix)| *ix).collect();
        for ix in left {
            self.leave(ix, None, now, out);
        }
        for (id, facts) in servers {
            self.see(id, facts.clone(), now, out);
        }
        self.finish(out);
    }

    /// The copies that a server has. A row whose servers are all drained is being dismantled: it needs none.
    #[must_use]
    pub fn holdings(&self, server: &MachineId) -> Holdings {
        let Some(server) = self.names.get(server).and_then(|ix| self.servers.get(ix)) else {
            return Holdings::default();
        };
        let row = self.rows.get(&server.facts.row);
        let mut others = row.into_iter().flat_map(|row| &row.servers).filter_map(|ix| self.servers.get(ix));
        let kept = others.any(|other| !other.facts.removed && !other.is_drained());
        let needed = if kept { server.copies.len() - server.draining } else { 0 };
        Holdings { needed, surplus: server.copies.len() - needed }
    }

    fn freeze(&mut self, frozen: bool, now: Time) {
        if self.ledger.frozen == frozen {
            return;
        }
        self.ledger.frozen = frozen;
        self.ledger_changed = true;
        if !frozen {
            self.ledger.thawed_at = now;
            let all: Vec<Ix> = self.servers.keys().copied().collect();
            for ix in all {
                self.time_failure(ix);
                if self.must_leave(ix, now) {
                    self.start_sweep(ix);
                }
            }
        }
    }

    /// A server of the fleet, new or known.
    pub(super) fn see(&mut self, id: &MachineId, facts: ServerRow, now: Time, out: &mut Vec<Write>) {
        let Some(ix) = self.names.get(id).copied() else {
            let no = facts.row;
            let new_row = self.rows.get(&no).is_none_or(|row| !self.is_map_row(row));
            let ix = self.enter(id.clone(), facts.clone());
            out.push(Write::Server(id.clone(), Some(facts)));
            // A failed one is not in the map, but makes its row.
            self.visible |= new_row || self.is_alive(ix);
            self.time_failure(ix);
            self.woken(no, now);
            return;
        };
        match self.servers.get_mut(&ix) {
            Some(server) if server.facts.removed => server.successor = Some(facts),
            Some(server) if server.facts.row != facts.row => self.leave(ix, Some(facts), now, out),
            _ => self.change(ix, facts, now, out),
        }
    }

    /// A server has left the fleet, and may be followed by another of the same name.
    fn leave(&mut self, ix: Ix, successor: Option<ServerRow>, now: Time, out: &mut Vec<Write>) {
        let Some(server) = self.servers.get_mut(&ix) else { return };
        server.successor = successor;
        let (no, was_here) = (server.facts.row, !server.facts.removed);
        let facts = ServerRow { removed: true, ..server.facts.clone() };
        self.change(ix, facts, now, out);
        // Its row may go with it, also if it had failed.
        self.visible |= was_here && self.rows.get(&no).is_none_or(|row| !self.is_map_row(row));
    }

    /// Adds a server to memory.
    pub(super) fn enter(&mut self, id: MachineId, facts: ServerRow) -> Ix {
        let ix = (0..Ix::MAX).find(|ix| !self.servers.contains_key(ix)).unwrap_or(Ix::MAX);
        let server = Server::new(id.clone(), facts);
        let backfill = (!self.chunks.is_empty()).then_some(0);
        let row = self.rows.entry(server.facts.row).or_insert_with(|| Row { backfill, ..Row::default() });
        row.servers.insert(ix);
        if server.is_eligible() {
            row.eligible.insert((server.fullness(0), ix));
        }
        if server.is_probe_suspect() {
            row.probe_suspects.insert((server.fullness(0), ix));
        }
        self.names.insert(id, ix);
        self.servers.insert(ix, server);
        ix
    }

    fn change(&mut self, ix: Ix, facts: ServerRow, now: Time, out: &mut Vec<Write>) {
        let Some(server) = self.servers.get_mut(&ix).filter(|server| server.facts != facts) else { return };
        let Some(row) = self.rows.get_mut(&facts.row) else { return };
        let (alive, key) = (server.is_alive(), (server.fullness(0), ix));
        let was = std::mem::replace(&mut server.facts, facts.clone());
        if alive != server.is_alive() {
            if alive {
                row.served -= server.held
            } else {
                row.served += server.held
            }
            self.visible = true;
        }
        self.visible |= alive && was.address != facts.address;
        let (eligible, probe_suspects) = (row.eligible.remove(&key), row.probe_suspects.remove(&key));
        if server.is_eligible() {
            row.eligible.insert((server.fullness(0), ix));
        }
        if server.is_probe_suspect() {
            row.probe_suspects.insert((server.fullness(0), ix));
        }
        // The last eligible one that goes makes way for those that only probes doubt.
        let last = eligible && row.eligible.is_empty() && !row.probe_suspects.is_empty();
        let woken = (server.is_eligible() && !eligible) || (server.is_probe_suspect() && !probe_suspects) || last;
        let keeps_back = server.keeps_work_back();
        let returned = server.is_alive() && !alive;
        let drained = server.is_drained() && (was.desired != Desired::Drain || was.judged != facts.judged);
        out.push(Write::Server(server.id.clone(), Some(facts.clone())));
        self.time_failure(ix);
        if returned || drained || facts.removed || keeps_back {
            self.start_sweep(ix);
        }
        if woken {
            self.woken(facts.row, now);
        }
    }

    /// Sets the time at which a failed server is given up.
    pub(super) fn time_failure(&mut self, ix: Ix) {
        let failed = self.servers.get(&ix).filter(|server| server.facts.judged == Judged::Failed);
        let at = failed.map(|server| self.given_up_at(server));
        if at.is_some() {
            self.failed.insert(ix);
        } else {
            self.failed.remove(&ix);
        }
        let Some(server) = self.servers.get_mut(&ix) else { return };
        let before = std::mem::replace(&mut server.timer, at);
        before.map(|before| self.timers.remove(&(before, ix)));
        self.timers.extend(at.map(|at| (at, ix)));
    }

    /// A row has one more server that takes copies, or more of them: what found no place before may find one now.
    pub(super) fn woken(&mut self, no: RowNo, now: Time) {
        let Some(row) = self.rows.get_mut(&no) else { return };
        row.unplaced.append(&mut row.blocked);
        let servers: Vec<Ix> = row.servers.iter().copied().collect();
        for ix in servers {
            if self.must_leave(ix, now) || self.servers.get(&ix).is_some_and(Server::keeps_work_back) {
                self.start_sweep(ix);
            }
        }
    }

    /// Forgets a server that has left, once it has no copies.
    pub(super) fn forget(&mut self, ix: Ix, now: Time, out: &mut Vec<Write>) {
        let Some(server) = self.servers.remove(&ix) else { return };
        self.names.remove(&server.id);
        // The next server may get its number, and has refused nothing.
        self.refusers.retain(|_, refusers| {
            refusers.remove(&ix);
            !refusers.is_empty()
        });
        self.failed.remove(&ix);
        server.timer.map(|at| self.timers.remove(&(at, ix)));
        server.stall.map(|at| self.stalls.remove(&(at, ix)));
        server.rest.map(|at| self.rests.remove(&(at, ix)));
        let no = server.facts.row;
        if let Some(row) = self.rows.get_mut(&no) {
            row.servers.remove(&ix);
            if row.servers.is_empty() {
                self.rows.remove(&no);
            }
        }
        out.push(Write::Server(server.id.clone(), None));
        if let Some(successor) = server.successor {
            self.see(&server.id, successor, now, out);
        }
    }
}
