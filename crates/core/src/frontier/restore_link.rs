//! Links of a chunk that is imported. Their URLs were stored before, queued or finished, and become an idle link.

use std::sync::Arc;

use super::link::LinkUrl;
use super::requeue::Known;
use super::row::{LeaseRow, Link, QueuePosition, UrlRow, UrlStatus, Write};
use super::state::State;
use super::view::UrlState;
use crate::ids::{ChunkId, QueueId, Token};
use crate::time::Time;

impl State {
    /// Makes URLs of one queue an idle link of a chunk that is restored. A URL that is not known or is handed out is left
    /// out: somebody else takes care of it. Returns those that were taken. No URL may be named twice.
    pub fn restore_link(
        &mut self,
        (token, chunk): (Token, ChunkId),
        (queue, urls): (QueueId, Vec<Known>),
        now: Time,
        writes: &mut Vec<Write>,
    ) -> Vec<LinkUrl> {
        let Some((host, at)) = self.find_queue(queue) else { return Vec::new() };
        let mut taken: Vec<LinkUrl> = Vec::new();
        for known in urls {
            let Some((position, details)) = known.clone().at_rest() else { continue };
            let Known { key, row: UrlRow { created, whole, status }, .. } = known;
            let was_done = matches!(status, UrlStatus::Done { .. });
            self.take_out(host, at, &key, &status, writes);
            if was_done {
                // It counted as a page when it ended, and counts as one that is handed out now.
                self.uncount_page(host, at);
            }
            let was_active = self.queue(host, at).counts().scheduled() > 0;
            self.shift(host, at, None, Some(UrlState::Reserved));
            self.recount_active(host, at, was_active);
            let position = if was_done { QueuePosition { due: now, ..position } } else { position };
            let status = UrlStatus::Reserved { token, position, details };
            writes.push(Write::Url(queue, key.clone(), Some(UrlRow { created, whole, status })));
            taken.push((queue, key));
        }
        if taken.is_empty() {
            return taken;
        }
        let holder: Arc<str> = "".into();
        let lease = LeaseRow {
            token,
            host: queue.host,
            holder,
            granted_at: now,
            expires_at: now,
            crawl: self.queue(host, at).crawl,
            queued_at: None,
            urls: taken.clone(),
            taken_away: 0,
            request: None,
            link: Some(Link { chunk, visiting: false }),
            ended_chunk: None,
        };
        writes.push(Write::Lease(token, Some(lease.clone())));
        self.insert_lease(lease);
        self.reschedule(self.hosts[host].group, now);
        taken
    }
}
