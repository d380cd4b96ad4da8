//! The handle: routes every call to the owner of the control shard.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use wayleave_core::fleet::{self, Desired, MachineView, Probe, ProbeOutcome, Report, ReportReply};
use wayleave_core::frontier::refusal::Refusal;
use wayleave_core::ids::{ChunkId, Token};
use wayleave_core::limits::{LISTING_LOOKS, NODE_MESSAGE_BYTES_MAX, PAGE_SLICES_MAX, PROBES_AT_ONCE_MAX};
use wayleave_core::names::MachineId;
use wayleave_core::placement::{self, CopyReport, Cursor, Map, PlacementState, PlacementView};
use wayleave_core::time::Millis;

use super::CONTROL_SHARD;
use super::call::{ControlCall, ControlResponse};
use crate::handle::frontier::Frontier;
use crate::routing::links::{decode, encode};
use crate::routing::router::CallResult;

/// How soon another node is asked for the map again: it is large, and may change often.
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

    /// Takes a machine's report; the first one under a name registers it. Fails if the report is malformed, or is not
    /// that of the machine registered under this name.
    pub async fn report(&self, id: MachineId, report: Report) -> CallResult<ReportReply> {
        self.ask(ControlCall::Report { id, report }).await.map(|answer: Box<ReportReply>| *answer)
    }

    /// Sets what the operator wants of a machine.
    pub async fn set_desired(&self, id: MachineId, desired: Desired) -> CallResult<MachineView> {
        self.ask(ControlCall::SetDesired { id, desired }).await.map(|view: Box<MachineView>| *view)
    }

    /// Deletes a machine. Fails if the machine is not known, or its row needs its copies.
    pub async fn delete(&self, id: MachineId) -> CallResult<()> {
        self.ask(ControlCall::Delete(id)).await
    }

    /// A machine.
    pub async fn machine(&self, id: MachineId) -> CallResult<MachineView> {
        self.ask(ControlCall::Machine(id)).await.map(|view: Box<MachineView>| *view)
    }

    /// A page of machines, by name, and the name after which the next page starts. A page that has taken many slices is
    /// returned short. Fails if the owner cannot be asked, or too many listings wait.
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
    /// the copy then; none if it is gone. The machine's token is required once it has presented it. Fails if the token
    /// is missing or another one, chunk or server are not known, the chunk is not placed there or has another index, or
    /// the state does not follow.
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
    /// Fails if the filter names a server that is not known, or too many listings wait.
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

    /// The copies of a built chunk. Fails if placement does not know the chunk: it is not built, or is about to be
    /// placed.
    pub async fn copies_of(&self, chunk: ChunkId) -> CallResult<Vec<PlacementView>> {
        self.ask(ControlCall::CopiesOf(chunk)).await
    }

    /// The map. Long poll: while it still has the version `since`, waits for another one up to `wait`, and then returns
    /// `None`. A change wakes it at once, also one on another node, whose beats carry the version. Readers that ask at the
    /// same time share one question and one map.
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
            let owner = router.owner_id(CONTROL_SHARD);
            loop {
                tokio::select! {
                    () = news.changed() => break,
                    // Any shard may have moved.
                    () = owners.changed() => if router.owner_id(CONTROL_SHARD) != owner { break },
                    () = tokio::time::sleep_until(deadline) => break,
                }
            }
            if owner.0.is_some() {
                tokio::time::sleep_until(deadline.min(now + ASK_AGAIN)).await;
            }
        }
    }

    /// Forgets a built chunk: its servers are to delete their copies.
    pub async fn forget_chunk(&self, chunk: ChunkId) -> CallResult<()> {
        self.ask(ControlCall::Gone(chunk)).await
    }

    /// The probes to send now, a bounded number. Each machine is due again after an interval, whether or not a result
    /// comes.
    pub async fn probes_due(&self) -> CallResult<Vec<Probe>> {
        self.ask(ControlCall::ProbesDue).await
    }

    /// Takes the results of probes.
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
        // Room for what the message has around it.
        encode_within(&answer, NODE_MESSAGE_BYTES_MAX - 1_024)
    }
}

/// Encodes an answer, or the refusal if it has too many bytes. Only the map may, with some 30 million copies.
fn encode_within(answer: &CallResult<ControlResponse>, bytes_max: usize) -> Result<Vec<u8>, String> {
    let sent = encode(answer)?;
    if sent.len() <= bytes_max {
        return Ok(sent);
    }
    let why = format!(
        "the map has {} bytes, and one node sends another at most {bytes_max}: ask the node that owns shard 0 \
         instead, or keep fewer copies",
        sent.len()
    );
    encode(&CallResult::<ControlResponse>::Err(Refusal::Unavailable(why)))
}

#[cfg(test)]
#[path = "handle_tests.rs"]
mod tests;
