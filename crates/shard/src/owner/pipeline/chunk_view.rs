//! One chunk as callers see it, with its links.
//!
//! The rows of the links are read one after the other, and visits go on meanwhile only in other shards: this owner decides
//! nothing between its reads. A commit that is in flight may be missing from them, so a status may be one report old.

use wayleave_core::frontier::row::{DueRow, UrlRow, UrlStatus};
use wayleave_core::ids::{ChunkId, QueueId};
use wayleave_core::pipeline::link_view::LinkView;
use wayleave_core::pipeline::row::{ChunkRow, LinkRow};
use wayleave_core::pipeline::view::ChunkView;
use wayleave_engine::Key;
use wayleave_engine::rows::due;

use crate::owner::pipeline::{Links, Pipeline};
use crate::owner::port::Decided;
use crate::owner::read_facts;

impl Pipeline {
    /// A chunk with its links; `None` if there is none.
    pub(super) async fn view_chunk(&mut self, id: ChunkId, with: &mut Links<'_>) -> Decided<Option<Box<ChunkView>>> {
        let row = match self.chunk_row(id, with).await? {
            Ok(Some(row)) => row,
            Ok(None) => return Ok(Ok(None)),
            Err(refusal) => return Ok(Err(refusal)),
        };
        let (shown, links_more) = row.shown_links();
        let links: Vec<&LinkRow> = shown.iter().filter_map(|at| row.links.get(*at)).collect();
        let link_list = match with.view_links(&row, &links).await? {
            Ok(links) => Some(links),
            Err(refusal) => return Ok(Err(refusal)),
        };
        let now = with.now();
        Ok(Ok(Some(Box::new(ChunkView { link_list, links_more, ..row.view(&with.frontier.state, now) }))))
    }
}

impl Links<'_> {
    async fn view_links(&mut self, chunk: &ChunkRow, links: &[&LinkRow]) -> Decided<Vec<LinkView>> {
        let urls: Vec<_> = links.iter().map(|link| link.url.clone()).collect();
        let rows = match self.frontier.url_rows(&urls, self.port).await? {
            Ok(rows) => rows,
            Err(refusal) => return Ok(Err(refusal)),
        };
        let due_key = |(link, row): (&&LinkRow, &Option<UrlRow>)| match row.as_ref().map(|row| &row.status) {
            Some(UrlStatus::Queued(position)) => Some(due::key(link.url.0, *position, &link.url.1.0)),
            _ => None,
        };
        let keys: Vec<Option<Key>> = links.iter().zip(&rows).map(due_key).collect();
        let (queues, wanted): (Vec<QueueId>, Vec<Key>) =
            links.iter().zip(&keys).filter_map(|(link, key)| Some((link.url.0, key.clone()?))).unzip();
        let found = read_facts::due_rows(&*self.port.engine, &wanted).await?;
        let mut found = match self.frontier.all_read(found, |at| queues.get(at).copied(), self.port) {
            Ok(found) => found.into_iter(),
            Err(refusal) => return Ok(Err(refusal)),
        };
        let queued: Vec<Option<DueRow>> =
            keys.iter().map(|key| key.as_ref().and_then(|_| found.next().flatten())).collect();
        let view = |((link, row), due): ((&&LinkRow, &Option<UrlRow>), &Option<DueRow>)| {
            let whole = row.as_ref().and_then(|row| row.whole.as_deref());
            // A row of a deleted queue, or of a host that has moved to another shard, may still be there.
            let row = row.as_ref().filter(|_| self.frontier.state.has_queue(link.url.0));
            chunk.view_link(link, whole, row, due.as_ref().map(|due| &due.details))
        };
        Ok(Ok(links.iter().zip(&rows).zip(&queued).map(view).collect()))
    }
}
