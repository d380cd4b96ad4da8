//! The handle: routes every call to the owner of the control shard.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use wayleave_core::fleet::{self, Desired, MachineView, Probe, ProbeOutcome, Report, ReportReply};
use wayleave_core::frontier::refusal::Refusal;
use wayleave_core::ids::{ChunkId, Token};
use wayleave_core::limits::{LISTING_LOOKS, PAGE_SLICES_MAX, PROBES_AT_ONCE_MAX};
use wayleave_core::names::MachineId;
use wayleave_core::placement::{self, CopyReport, Cursor, Map, PlacementState, PlacementView};
use wayleave_core::time::Millis;

use super::CONTROL_SHARD;
use super::call::{ControlCall, ControlResponse};
use crate::handle::frontier::Frontier;
use crate::routing::links::{decode, encode};
use crate::routing::router::{CallResult, OwnerLocation};

/// How often another node is asked for a newer map: it does not tell.
const ASK_AGAIN: Duration = Duration::from_millis(250);

/// Machines, placements and the map as seen by one process. Cheap to clone, safe to share.
#[derive(Clone)]
pub struct Fleet {
    pub(crate) frontier: Frontier,
}

impl Fleet {
    /// The fleet over the shards of a frontier.
    #[must_use]
    pub const fn new(frontier: Frontier) -> Self {
        Self { frontier }
    }

    /// Takes a machine's report; the first one under a name registers it.
    ///
    /// # Errors
    /// If the report is malformed, or is not that of the machine registered under this name.
    pub async fn report(&self, id: MachineId, report: Report) -> CallResult<ReportReply> {
        self.ask(ControlCall::Report { id, report }).await.map(|answer: Box<ReportReply>| *answer)
    }

    /// Sets what the operator wants of a machine.
    ///
    /// # Errors
    /// If the machine is not known.
    pub async fn set_desired(&self, id: MachineId, desired: Desired) -> CallResult<MachineView> {
        self.ask(ControlCall::SetDesired { id, desired }).await.map(|view: Box<MachineView>| *view)
    }

    /// Deletes a machine.
    ///
    /// # Errors
    /// If the machine is not known, or its row needs its copies.
    pub async fn delete(&self, id: MachineId) -> CallResult<()> {
        self.ask(ControlCall::Delete(id)).await
    }

    /// A machine.
    ///
    /// # Errors
    /// If it is not known.
    pub async fn machine(&self, id: MachineId) -> CallResult<MachineView> {
        self.ask(ControlCall::Machine(id)).await.map(|view: Box<MachineView>| *view)
    }

    /// A page of machines, by name, and the name after which the next page starts. A page that has taken many slices is
    /// returned short.
    ///
    /// # Errors
    /// If the owner cannot be asked, or too many listings wait.
    pub async fn machines(
        &self,
        filter: fleet::Filter,
        after: Option<MachineId>,
        most: usize,
    ) -> CallResult<fleet::Page> {
        let _permit = self.frontier.listings.acquire().await?;
        let mut page = fleet::Page { machines: Vec::new(), next: after };
        for _ in 0..PAGE_SLICES_MAX {
            let room = most.saturating_sub(page.machines.len()).min(LISTING_LOOKS);
            let call = ControlCall::Machines { filter, after: page.next.take(), most: room };
            let slice: fleet::Page = self.ask(call).await?;
            page.machines.extend(slice.machines);
            page.next = slice.next;
            // An empty slice with a name to go on after has met none that matches.
            if page.next.is_none() || page.machines.len() >= most.max(1) {
                break;
            }
        }
        Ok(page)
    }

    /// A server says what it does with its copy of a chunk, perhaps with the checksum of the index. Returns the state of
    /// the copy then; none if it is gone. The machine's token is required once it has presented it.
    ///
    /// # Errors
    /// If the token is missing or another one, chunk or server are not known, the chunk is not placed there or has another
    /// index, or the state does not follow.
    pub async fn report_copy(
        &self,
        chunk: ChunkId,
        server: MachineId,
        (said, checksum): (CopyReport, Option<[u8; 32]>),
        token: Option<Token>,
    ) -> CallResult<Option<PlacementState>> {
        self.ask(ControlCall::ReportCopy { chunk, server, said, checksum, token }).await
    }

    /// A page of placements, by server and chunk, and the last one. A page that has taken many slices is returned short.
    ///
    /// # Errors
    /// If the filter names a server that is not known, or too many listings wait.
    pub async fn placements(
        &self,
        filter: placement::Filter,
        after: Option<Cursor>,
        most: usize,
    ) -> CallResult<placement::Page> {
        let _permit = self.frontier.listings.acquire().await?;
        let mut page = placement::Page { placements: Vec::new(), next: after };
        for _ in 0..PAGE_SLICES_MAX {
            let room = most.saturating_sub(page.placements.len()).min(LISTING_LOOKS);
            let call = ControlCall::Placements { filter: filter.clone(), after: page.next.take(), most: room };
            let slice: placement::Page = self.ask(call).await?;
            page.placements.extend(slice.placements);
            page.next = slice.next;
            if page.next.is_none() || page.placements.len() >= most.max(1) {
                break;
            }
        }
        Ok(page)
    }

    /// The copies of a built chunk.
    ///
    /// # Errors
    /// If placement does not know the chunk: it is not built, or is about to be placed.
    pub async fn copies_of(&self, chunk: ChunkId) -> CallResult<Vec<PlacementView>> {
        self.ask(ControlCall::CopiesOf(chunk)).await
    }

    /// The map. Long poll: while it still has the version `since`, waits for another one up to `wait`, and then returns
    /// `None`. A change on this node wakes it at once; another node is asked again and again. Readers that ask at the same
    /// time share one question and one map.
    ///
    /// # Errors
    /// If the owner cannot be asked.
    pub async fn map(&self, since: Option<u64>, wait: Millis) -> CallResult<Option<Arc<Map>>> {
        let deadline = Instant::now() + Duration::from_millis(wait.0);
        let router = &self.frontier.router;
        let (mut news, mut owners) = (self.frontier.readiness.map.subscribe(), router.changes());
        loop {
            // Before asking, so that no change meanwhile is missed.
            news.mark_unchanged();
            owners.mark_unchanged();
            let known = &self.frontier.readiness.map.known;
            let map = known.present(|since| self.ask(ControlCall::Map { since })).await?;
            let now = Instant::now();
            let changed = since != Some(map.version);
            if changed || now >= deadline {
                return Ok(changed.then_some(map));
            }
            let here = matches!(router.location(CONTROL_SHARD), OwnerLocation::Local(_));
            let until = if here { deadline } else { deadline.min(now + ASK_AGAIN) };
            tokio::select! {
                () = news.changed() => {}
                () = owners.changed() => {}
                () = tokio::time::sleep_until(until) => {}
            }
        }
    }

    /// Forgets a built chunk: its servers are to delete their copies.
    ///
    /// # Errors
    /// If it is not known.
    pub async fn forget_chunk(&self, chunk: ChunkId) -> CallResult<()> {
        self.ask(ControlCall::Gone(chunk)).await
    }

    /// The probes to send now, a bounded number. Each machine is due again after an interval, whether or not a result
    /// comes.
    ///
    /// # Errors
    /// If the owner cannot be asked.
    pub async fn probes_due(&self) -> CallResult<Vec<Probe>> {
        self.ask(ControlCall::ProbesDue).await
    }

    /// Takes the results of probes.
    ///
    /// # Errors
    /// If the owner cannot be asked.
    pub async fn probed(&self, mut results: Vec<(Probe, ProbeOutcome)>) -> CallResult<()> {
        while !results.is_empty() {
            let rest = results.split_off(results.len().min(PROBES_AT_ONCE_MAX));
            self.ask::<()>(ControlCall::Probed(std::mem::replace(&mut results, rest))).await?;
        }
        Ok(())
    }

    async fn ask<T: TryFrom<ControlResponse, Error = Refusal>>(&self, call: ControlCall) -> CallResult<T> {
        self.frontier.router.call(CONTROL_SHARD, call).await
    }
}

impl Frontier {
    /// Serves another node's call about the fleet, if this node owns the control shard.
    pub(crate) async fn answer_fleet(&self, call: &[u8]) -> Result<Vec<u8>, String> {
        let call: ControlCall = decode(call)?;
        let answer: CallResult<ControlResponse> =
            self.router.call_here(CONTROL_SHARD, call).await.unwrap_or(Err(Refusal::Elsewhere));
        encode(&answer)
    }
}

#[cfg(test)]
#[path = "handle_tests.rs"]
mod tests;
