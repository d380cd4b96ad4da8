//! One chunk as callers see it, with its links.
//!
//! The rows of the links are read one after the other, and visits go on meanwhile only in other shards: this owner decides
//! nothing between its reads. A commit that is in flight may be missing from them, so a status may be one report old.

use wayleave_core::frontier::row::{DueRow, UrlRow, UrlStatus};
use wayleave_core::ids::ChunkId;
use wayleave_core::pipeline::link_view::LinkView;
use wayleave_core::pipeline::row::{ChunkRow, LinkRow};
use wayleave_core::pipeline::view::ChunkView;
use wayleave_engine::rows::due;
use wayleave_engine::{Error, Key};

use crate::owner::owner_loop::Owner;
use crate::owner::read_facts;

impl Owner {
    /// A chunk with its links; `None` if there is none.
    pub(super) async fn view_chunk(&mut self, id: ChunkId) -> Result<Option<Box<ChunkView>>, Error> {
        let Some(row) = self.chunk_row(id).await? else { return Ok(None) };
        let (shown, links_more) = row.shown_links();
        let links: Vec<&LinkRow> = shown.iter().filter_map(|at| row.links.get(*at)).collect();
        let link_list = Some(self.view_links(&row, &links).await?);
        let now = self.now();
        Ok(Some(Box::new(ChunkView { link_list, links_more, ..row.view(&self.state, now) })))
    }

    async fn view_links(&mut self, chunk: &ChunkRow, links: &[&LinkRow]) -> Result<Vec<LinkView>, Error> {
        let urls: Vec<_> = links.iter().map(|link| link.url.clone()).collect();
        let rows = read_facts::url_rows(&*self.engine, &urls).await?;
        let due_key = |(link, row): (&&LinkRow, &Option<UrlRow>)| match row.as_ref().map(|row| &row.status) {
            Some(UrlStatus::Queued(position)) => Some(due::key(link.url.0, *position, &link.url.1.0)),
            _ => None,
        };
        let keys: Vec<Option<Key>> = links.iter().zip(&rows).map(due_key).collect();
        let wanted: Vec<Key> = keys.iter().flatten().cloned().collect();
        let mut found = read_facts::due_rows(&*self.engine, &wanted).await?.into_iter();
        let queued: Vec<Option<DueRow>> =
            keys.iter().map(|key| key.as_ref().and_then(|_| found.next().flatten())).collect();
        let view = |((link, row), due): ((&&LinkRow, &Option<UrlRow>), &Option<DueRow>)| {
            let whole = row.as_ref().and_then(|row| row.whole.as_deref());
            // A row of a deleted queue, or of a host that has moved to another shard, may still be there.
            let row = row.as_ref().filter(|_| self.state.has_queue(link.url.0));
            chunk.view_link(link, whole, row, due.as_ref().map(|due| &due.details))
        };
        Ok(links.iter().zip(&rows).zip(&queued).map(view).collect())
    }
}
