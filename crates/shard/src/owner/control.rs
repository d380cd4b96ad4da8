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

use wayleave_core::frontier::refusal::Refusal;
use wayleave_core::ids::ShardId;
use wayleave_core::limits::{BUILT_AT_ONCE_MAX, PROBES_AT_ONCE_MAX};
use wayleave_core::placement::Map;
use wayleave_core::time::Time;
use wayleave_core::{fleet, placement};
use wayleave_engine::rows;

use crate::fleet::call::{ControlCall, ControlResponse, Taken};
use crate::message::ControlReply;
use crate::owner::owner_loop::Owner;
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
    pub const fn new(fleet: fleet::State, placement: placement::State) -> Self {
        // At once: the fleet's servers must be passed on, and work that was left behind goes on.
        Self { fleet, placement, map: None, due: Some(Time::ZERO), drained: false }
    }

    fn decide(
        &mut self,
        call: ControlCall,
        secret: (ShardId, u128),
        now: Time,
        writes: &mut Writes,
    ) -> CallResult<ControlResponse> {
        let looks = call.only_looks();
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
    fn tick(&mut self, now: Time, writes: &mut Writes) {
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

impl Owner {
    pub fn handle_control(&mut self, call: ControlCall, reply: ControlReply) {
        if call.is_listing() && reply.is_closed() {
            return;
        }
        if let Some(why) = self.refusal().filter(|_| !call.only_looks()) {
            _ = reply.send(Err(why));
            return;
        }
        let mark = self.cycle.mark();
        let (now, secret) = (self.now(), (self.shard, (self.config.entropy)()));
        let Some(control) = &mut self.control else {
            let why = format!("shard {} does not keep the fleet", self.shard.0);
            _ = reply.send(Err(Refusal::Internal(why)));
            return;
        };
        let mut writes = Writes::default();
        let answer = control.decide(call, secret, now, &mut writes);
        self.commit_control(&writes);
        self.cycle.answer(mark, Box::new(move |durable| _ = reply.send(durable.and(answer))));
    }

    /// Notes whether a turn took all calls that waited.
    pub fn note_drained(&mut self, drained: bool) {
        if let Some(control) = &mut self.control {
            control.drained = drained;
        }
    }

    /// Ticks, if it is time; after the calls of a turn.
    pub fn tick_control(&mut self) {
        let now = self.engine.now();
        let Some(control) = &mut self.control else { return };
        let Some(due) = control.due.filter(|due| *due <= now) else { return };
        if !control.drained && now.since(due) < control.fleet.config().report_interval {
            return;
        }
        let mut writes = Writes::default();
        control.tick(now, &mut writes);
        self.commit_control(&writes);
    }

    /// When fleet or placement have work of their own next.
    pub fn control_due(&self) -> Option<Time> {
        self.control.as_ref()?.due
    }

    /// Whether pipelines must be told of indexes that are given up.
    pub fn has_returns(&self) -> bool {
        self.control.as_ref().is_some_and(|control| control.placement.has_returns())
    }

    /// Publishes the version of the map, so that readers who wait for a newer one ask again.
    pub fn publish_map(&self) {
        if let Some(control) = &self.control {
            self.readiness.map.tell(control.placement.version());
        }
    }

    fn commit_control(&mut self, Writes { fleet, placement }: &Writes) {
        let shard = self.shard;
        let machines = fleet.iter().map(|write| rows::machine::encode_write(shard, write));
        let placements = placement.iter().map(|write| rows::placement::encode_write(shard, write));
        let rows = machines.chain(placements).collect();
        self.commit_all(Vec::new(), rows);
    }
}
