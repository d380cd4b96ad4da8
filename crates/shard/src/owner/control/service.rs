//! Fleet and placement, owner's side. The owner of the control shard is their single writer: it decides each call on its
//! memory, commits what was decided about both in one batch, and answers once that is durable.
//!
//! Interleavings that could go wrong:
//!
//! 1. The owner dies between a verdict of the fleet and what follows for placement: both are in one batch, and what a
//!    tick leaves behind follows from rows, so the next owner picks it up.
//! 2. Two owners judge at the same time: the older one's commits are fenced, and its reads wait for a fenced commit
//!    once its node is unsure.
//! 3. The tick comes before reports that wait in the inbox, and fails machines that are well: within a turn calls come
//!    first, and while more calls wait than a turn takes, the tick waits as well, up to a report interval.
//! 4. The owner was away, or the store refused changes: nobody could report. The core counts silence from the load, and
//!    anew after a gap.
//! 5. A reader gets a version of the map whose commit fails, and the next owner uses that version for another map:
//!    impossible, since the answer waits for the commit that raised the version.
//! 6. A commit fails: the owner drops all of this and loads it again.

use std::sync::Arc;

use wayleave_core::ids::ShardId;
use wayleave_core::limits::{BUILT_AT_ONCE_MAX, PROBES_AT_ONCE_MAX};
use wayleave_core::placement::Map;
use wayleave_core::time::Time;
use wayleave_core::{fleet, placement};
use wayleave_engine::rows;

use crate::fleet::call::{ControlCall, ControlResponse, Taken};
use crate::message::ControlReply;
use crate::owner::control::give_back::give_back;
use crate::owner::courier::Courier;
use crate::owner::port::{Pending, Port};
use crate::routing::router::CallResult;
use crate::routing::service_call::ServiceCall;

/// Fleet and placement in memory.
pub(crate) struct Control {
    fleet: fleet::State,
    placement: placement::State,
    /// The map, as long as it has this version: many readers ask for the same one.
    map: Option<Arc<Map>>,
    /// When to tick next.
    due: Option<Time>,
    /// Whether the last turn took all calls that waited.
    drained: bool,
    /// Tells pipelines of indexes that are given up.
    give_back: Courier,
}

/// A machine with what placement knows of it.
fn explained(mut view: fleet::MachineView, placement: &placement::State, now: Time) -> fleet::MachineView {
    if let Some(rest) = placement.explain_rest(&view.id, now) {
        view.reason = format!("{}; {rest}", view.reason);
    }
    view
}

/// What a decision writes.
#[derive(Default)]
struct Writes {
    fleet: Vec<fleet::Write>,
    placement: Vec<placement::Write>,
}

impl Control {
    pub fn new(fleet: fleet::State, placement: placement::State) -> Self {
        // At once: the fleet's servers must be passed on, and work that was left behind goes on.
        Self { fleet, placement, map: None, due: Some(Time::ZERO), drained: false, give_back: Courier::default() }
    }

    fn decide(
        &mut self,
        call: ControlCall,
        secret: (ShardId, u128),
        now: Time,
        writes: &mut Writes,
    ) -> CallResult<ControlResponse> {
        let looks = call.is_read_only();
        let answer = self.answer(call, secret, now, writes);
        if !looks {
            self.pass_on(now, writes);
        }
        if !writes.fleet.is_empty() || !writes.placement.is_empty() {
            // A tick finds out what work the change has left.
            self.due = Some(now);
        }
        answer
    }

    fn answer(
        &mut self,
        call: ControlCall,
        secret: (ShardId, u128),
        now: Time,
        writes: &mut Writes,
    ) -> CallResult<ControlResponse> {
        let Self { fleet, placement, .. } = self;
        Ok(match call {
            ControlCall::Report { id, report } => {
                Box::new(fleet.report(&id, &report, secret, now, &mut writes.fleet)?).into()
            }
            ControlCall::SetDesired { id, desired } => {
                Box::new(fleet.set_desired(&id, desired, now, &mut writes.fleet)?).into()
            }
            ControlCall::Delete(id) => fleet.delete(&id, placement.holdings(&id), &mut writes.fleet)?.into(),
            ControlCall::Machine(id) => {
                let view = fleet.view(&id, now).ok_or_else(|| fleet::Refusal::UnknownMachine(id.to_string()))?;
                Box::new(explained(view, placement, now)).into()
            }
            ControlCall::Machines { filter, after, most } => {
                let mut page = fleet.list(filter, after.as_ref(), most, now);
                page.machines = page.machines.into_iter().map(|view| explained(view, placement, now)).collect();
                page.into()
            }
            ControlCall::ReportCopy { chunk, server, said, checksum, token } => {
                fleet.check_token(&server, token)?;
                checksum.map(|checksum| placement.check_index(chunk, &server, checksum)).transpose()?;
                placement.report(chunk, &server, said, now, &mut writes.placement)?.into()
            }
            ControlCall::Placements { filter, after, most } => {
                placement.list(&filter, after.as_ref(), most, now)?.into()
            }
            ControlCall::CopiesOf(chunk) => placement.copies_of(chunk, now)?.into(),
            ControlCall::Map { since } => {
                Some(placement.version()).filter(|version| since != Some(*version)).map(|_| self.map()).into()
            }
            ControlCall::Built(chunks) => {
                let chunks = chunks.into_iter().take(BUILT_AT_ONCE_MAX);
                let taken: Taken = chunks
                    .map(|(id, artifact, index)| {
                        placement.chunk_built(id, &artifact, index, now, &mut writes.placement).map(drop)
                    })
                    .collect();
                taken.into()
            }
            ControlCall::Gone(chunk) => placement.chunk_gone(chunk, now, &mut writes.placement)?.into(),
            ControlCall::GiveUp { chunk, index, why } => {
                placement.give_up((chunk, index), why, now, &mut writes.placement);
                ().into()
            }
            ControlCall::Returns { after } => placement.returns(after, BUILT_AT_ONCE_MAX).into(),
            ControlCall::Returned(taken) => {
                placement.returned(&taken, &mut writes.placement);
                ().into()
            }
            ControlCall::ProbesDue => fleet.probes_due(now).into(),
            ControlCall::Probed(results) => {
                for (probe, outcome) in results.into_iter().take(PROBES_AT_ONCE_MAX) {
                    fleet.probed(&probe, &outcome, now, &mut writes.fleet);
                }
                ().into()
            }
        })
    }

    /// Passes the fleet's servers on to placement, if they changed.
    fn pass_on(&mut self, now: Time, writes: &mut Writes) {
        if self.fleet.take_servers_changed() {
            let frozen = self.fleet.frozen(fleet::Kind::Server).is_some();
            self.placement.servers(&self.fleet.servers(), frozen, now, &mut writes.placement);
        }
    }

    /// Judges machines, and does one slice of the work that changes have left to placement.
    fn judge(&mut self, now: Time, writes: &mut Writes) {
        let judged = self.fleet.tick(now, &mut writes.fleet);
        self.pass_on(now, writes);
        let placed = self.placement.tick(now, &mut writes.placement);
        // Servers that are replaced no longer count in the guard, which may end a freeze but never begins one.
        self.fleet.write_off(&self.placement.replaced(now), &mut writes.fleet);
        self.pass_on(now, writes);
        self.due = if judged.more || placed.more {
            Some(now)
        } else {
            self.fleet.next_tick().into_iter().chain(self.placement.next_tick(now)).min()
        };
    }

    fn map(&mut self) -> Arc<Map> {
        let version = self.placement.version();
        match self.map.take().filter(|map| map.version == version) {
            Some(map) => self.map.insert(map).clone(),
            None => self.map.insert(Arc::new(self.placement.map())).clone(),
        }
    }
}

impl Control {
    pub fn handle(&mut self, call: ControlCall, reply: ControlReply, port: &mut Port) {
        let Some(Pending { reply, mark }) = port.admit(reply, call.is_listing(), call.is_read_only()) else { return };
        let (now, secret) = (port.now(), (port.shard, (port.config.entropy)()));
        let mut writes = Writes::default();
        let answer = self.decide(call, secret, now, &mut writes);
        writes.commit(port);
        port.cycle.answer(mark, Box::new(move |durable| _ = reply.send(durable.and(answer))));
    }

    /// Notes whether a turn took all calls that waited.
    pub fn note_drained(&mut self, drained: bool) {
        self.drained = drained;
    }

    /// Judges and places, if it is time; after the calls of a turn.
    pub fn tick(&mut self, port: &mut Port) {
        let now = port.now();
        let Some(due) = self.due.filter(|due| *due <= now) else { return };
        if !self.drained && now.since(due) < self.fleet.config().report_interval {
            return;
        }
        let mut writes = Writes::default();
        self.judge(now, &mut writes);
        writes.commit(port);
    }

    /// When fleet or placement have work of their own next.
    pub fn wake_at(&self) -> Option<Time> {
        self.due
    }

    /// Has pipelines told of indexes that are given up, if there are any, and publishes the version of the map, so that readers
    /// who wait for a newer one ask again.
    pub fn publish(&mut self, port: &Port) {
        if self.placement.has_returns() {
            self.give_back.wake(&port.router, "indexes that are given up", give_back);
        }
        port.readiness.map.tell(self.placement.version());
    }
}

impl Writes {
    fn commit(&self, port: &mut Port) {
        let machines = self.fleet.iter().map(|write| rows::machine::encode_write(port.shard, write));
        let placements = self.placement.iter().map(|write| rows::placement::encode_write(port.shard, write));
        let rows: Vec<_> = machines.chain(placements).collect();
        if !rows.is_empty() {
            port.commit_rows(rows);
        }
    }
}
