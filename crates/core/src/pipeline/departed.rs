//! Links of hosts that have moved to another shard since. A chunk whose content is lost crawls its links again, but only
//! its own shard's; the others are queued again where they live now, before the chunk changes.

use super::row::{ChunkRow, ChunkState};
use crate::frontier::State as Frontier;
use crate::ids::Token;
use crate::limits;
use crate::names::HostName;
use crate::time::Time;

impl ChunkRow {
    /// The links that a chunk that is about to be crawled again would do without: host and URL of those whose queues are
    /// not in this shard. With a token: if its holder says that the content is lost; without: if an operator asks for
    /// it again. A URL over a kilobyte is not named, because its key tells only the start of it.
    #[must_use]
    pub fn departed(&self, token: Option<Token>, frontier: &Frontier, now: Time) -> Vec<(HostName, Box<str>)> {
        let again = match (token, self.state) {
            (Some(token), ChunkState::Building) => {
                let held = self.lease.as_ref().is_some_and(|l| l.token == token && l.expires_at > now);
                held && self.inputs_lost.saturating_add(1) < limits::CHUNK_ATTEMPTS_MAX
            }
            (None, ChunkState::SetAside | ChunkState::Skipped) => self.crawled.is_none(),
            _ => false,
        };
        let links = self.links.iter().filter(|link| again && !link.has_left());
        let away = links.filter(|link| !link.url.1.is_cut() && !frontier.has_queue(link.url.0));
        away.map(|link| (link.host.clone(), link.text())).collect()
    }
}
