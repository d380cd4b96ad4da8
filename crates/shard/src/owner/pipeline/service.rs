//! What the pipeline of a shard keeps in memory, what it may use, and what it does in every turn.

use hashbrown::HashMap;
use wayleave_core::ids::ChunkId;
use wayleave_core::pipeline::State;
use wayleave_core::pipeline::claim::Writes;
use wayleave_core::time::{Millis, Time};
use wayleave_engine::Error;
use wayleave_engine::rows::chunk;

use super::retention::Retention;
use crate::owner::courier::Courier;
use crate::owner::frontier::Frontier;
use crate::owner::port::Port;

/// The chunks of a shard.
pub(crate) struct Pipeline {
    /// Chunks in progress.
    pub(super) state: State,
    /// Chunks at the build stage whose rows could not be read: when they are tried again, and after which pause.
    pub(super) damaged: HashMap<ChunkId, (Time, Millis)>,
    /// The removal of old chunks.
    pub(super) retention: Retention,
    /// Announces built chunks to placement.
    pub(super) announcer: Courier,
}

/// What the pipeline uses: the frontier, whose leases the links of chunks are, and the port.
pub(crate) struct Links<'a> {
    pub frontier: &'a mut Frontier,
    pub port: &'a mut Port,
}

impl Links<'_> {
    /// Stamps the time of the decisions that follow.
    pub fn now(&mut self) -> Time {
        self.frontier.now(self.port)
    }

    /// Commits what was decided about frontier and pipeline together.
    pub fn commit(&mut self, writes: Writes) {
        let rows = writes.pipeline.iter().flat_map(|write| chunk::encode_write(self.port.shard, write)).collect();
        self.frontier.follow_deletions(&writes.frontier);
        self.frontier.commit_with(writes.frontier, rows, self.port);
    }
}

impl Pipeline {
    pub fn new(state: State, port: &Port) -> Self {
        let retention = Retention::new(port.shard, port.now());
        Self { state, damaged: HashMap::new(), retention, announcer: Courier::default() }
    }

    /// When it has work of its own next.
    pub fn wake_at(&self) -> Option<Time> {
        self.state.next_wake().into_iter().chain([self.retention.due()]).min()
    }

    /// Background work: removing old chunks.
    pub async fn tick(&mut self, with: &mut Links<'_>) -> Result<(), Error> {
        self.remove_old_chunks(with).await
    }

    /// Publishes which requests it has granted. Before any answer of this turn is sent: a retry must find what was granted.
    pub fn publish_requests(&mut self, port: &Port) {
        port.readiness.requests.tell(port.shard, self.state.take_request_changes());
    }

    /// Publishes what chunks this shard offers, and has built ones announced.
    pub fn publish(&mut self, port: &Port) {
        let published = self.state.publish(port.now());
        port.readiness.tell_chunks(port.shard, &published);
        self.announce_chunks(port);
    }
}
