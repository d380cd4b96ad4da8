//! Reading URLs: single lookups, listings, and purges of old URLs, one slice at a time.

use wayleave_core::frontier::listing::{Next, Room, Weigh};
use wayleave_core::frontier::row::{Details, UrlRow, UrlStatus};
use wayleave_core::frontier::url_key::UrlKey;
use wayleave_core::frontier::view::{UrlFilter, UrlView};
use wayleave_core::ids::{HostId, QueueId};
use wayleave_core::limits::{LISTING_LOOKS, SLICE_ROWS};
use wayleave_core::names::{CrawlName, HostName};
use wayleave_core::time::Time;
use wayleave_engine::rows::{Kind, due, key, url};
use wayleave_engine::{Error, Key, Scan};

use crate::ask::{Purged, UrlCursor, UrlPage};
use crate::owner::frontier::Frontier;
use crate::owner::open::damaged;
use crate::owner::port::{Decided, Port};
use crate::owner::read_facts::{self, Fact, Found};

/// Cost of a scan in addition to its rows, in units of the slice budget.
const SCAN_LOOKS: usize = 2;

/// A contiguous key range.
struct Range {
    from: Key,
    to: Key,
    /// The next range starts after this queue.
    queue: QueueId,
}

impl UrlCursor {
    fn after_key(queue: QueueId, mut key: Key) -> Self {
        key.push(0);
        Self { queue, key }
    }

    fn after_host(host: HostId) -> Self {
        Self { queue: QueueId { host, no: u32::MAX }, key: Vec::new() }
    }
}

impl Frontier {
    pub async fn lookup(
        &mut self,
        crawl: &CrawlName,
        host: &HostName,
        text: &str,
        port: &mut Port,
    ) -> Decided<Option<UrlView>> {
        let Some(queue) = self.state.queue_id(host, crawl) else { return Ok(Ok(None)) };
        let target = [(queue, UrlKey::new(host, text))];
        let row = match self.url_rows(&target, port).await? {
            Ok(mut rows) => rows.pop().flatten(),
            Err(refusal) => return Ok(Err(refusal)),
        };
        let [(queue, key)] = target;
        // A truncated key may belong to another URL.
        let Some(row) = row.filter(|row| row.whole.as_deref().is_none_or(|whole| whole == text)) else {
            return Ok(Ok(None));
        };
        Ok(self.views(vec![(queue, key, row)], port).await?.map(|mut views| views.pop()))
    }

    /// Reads one slice of rows after a resume key, ordered by host, queue and URL. It may return fewer items than there
    /// is room for, even none, and still have a next key. Rows that cannot be read are left out, and their hosts named.
    pub async fn url_page(
        &mut self,
        filter: &UrlFilter,
        mut after: Option<UrlCursor>,
        mut room: Room,
        port: &mut Port,
    ) -> Decided<UrlPage> {
        let (mut urls, mut looks, mut damaged_hosts) = (Vec::new(), LISTING_LOOKS, Vec::new());
        loop {
            let range = match self.range_after(filter, after.as_ref(), &mut looks, port) {
                Next::Found(range) => range,
                Next::Later(host) => return Ok(Ok((urls, Some(UrlCursor::after_host(host)), damaged_hosts))),
                Next::End => return Ok(Ok((urls, None, damaged_hosts))),
            };
            let scan = Scan { from: range.from, to: range.to, limit: looks.max(1) };
            let Found { rows, gaps, next } = read_facts::scan_past_damage(&*port.engine, &scan).await?;
            looks = looks.saturating_sub(rows.len() + SCAN_LOOKS);
            let mut next = next
                .map(|key| UrlCursor { queue: url::parse_place(&key).map_or(range.queue, |(queue, _)| queue), key });
            let mut reached = after.as_ref().map_or(range.queue, |place| place.queue);
            let (mut found, mut places) = (Vec::new(), Vec::new());
            for (at, row) in rows.into_iter().enumerate() {
                if found.len() >= room.items {
                    next = places.last().cloned();
                    break;
                }
                let (queue, key) = url::parse_key(&row.key).map_err(damaged)?;
                if let Some(gaps) = gaps.as_ref().filter(|gaps| gaps.first == at) {
                    // Of the hosts on both sides: which of them it concerns cannot be told.
                    self.leave_out(reached, &gaps.cause, &mut damaged_hosts, port);
                    self.leave_out(queue, &gaps.cause, &mut damaged_hosts, port);
                }
                reached = queue;
                match url::decode(&row.value) {
                    Ok(value) if self.matches(filter, queue, &key, &value) => {
                        found.push((queue, key, value));
                        places.push(UrlCursor::after_key(queue, row.key));
                    }
                    Ok(_) => {}
                    Err(damage) => self.leave_out(queue, &damage.to_string(), &mut damaged_hosts, port),
                }
            }
            if let Some(gaps) = &gaps {
                self.leave_out(reached, &gaps.cause, &mut damaged_hosts, port);
            }
            for (view, place) in self.readable_views(found, port).await?.into_iter().zip(places) {
                match view {
                    Ok(Some(view)) => {
                        room.take(view.weight());
                        urls.push(view);
                    }
                    Ok(None) => {}
                    Err(cause) => self.leave_out(place.queue, &cause, &mut damaged_hosts, port),
                }
                if room.is_full() {
                    return Ok(Ok((urls, Some(place), damaged_hosts)));
                }
            }
            let next = next.unwrap_or_else(|| UrlCursor { queue: range.queue, key: Vec::new() });
            if looks == 0 {
                return Ok(Ok((urls, Some(next), damaged_hosts)));
            }
            after = Some(next);
        }
    }

    /// Notes the host of rows that a listing leaves out, because they cannot be read.
    fn leave_out(&self, queue: QueueId, cause: &str, hosts: &mut Vec<HostName>, port: &Port) {
        if let Some((host, _)) = self.state.queue_names(queue).filter(|(host, _)| !hosts.contains(host)) {
            self.damaged(Some(queue), cause, port);
            hosts.push(host);
        }
    }

    /// The key range that follows a resume key: that of one queue or, where the filter names neither host nor crawl, of
    /// all hosts born in this shard. The latter is one contiguous range, so no queue has to be looked up.
    fn range_after(
        &self,
        filter: &UrlFilter,
        after: Option<&UrlCursor>,
        looks: &mut usize,
        port: &Port,
    ) -> Next<Range> {
        let (first, end) = key::range(port.shard, Kind::Url, Kind::Url);
        let all_born_here = QueueId { host: HostId::new(port.shard, u64::MAX), no: u32::MAX };
        let whole = filter.host.is_none() && filter.crawl.is_none();
        let is_here = |place: &UrlCursor| place.queue.host.birth() == port.shard && place.queue != all_born_here;
        let in_queue = |queue, from: Option<&Key>| {
            let start = url::prefix(queue);
            let to = key::after_prefix(&start);
            // A forged resume key must not lead to rows of another kind.
            Next::Found(Range {
                from: from.map_or_else(|| start.clone(), |from| start.clone().max(from.clone())),
                to,
                queue,
            })
        };
        match after {
            None if whole => Next::Found(Range { from: first, to: end, queue: all_born_here }),
            Some(place) if whole && is_here(place) => {
                let from =
                    if place.key.is_empty() { key::after_prefix(&url::prefix(place.queue)) } else { place.key.clone() };
                Next::Found(Range { from: from.max(first), to: end, queue: all_born_here })
            }
            Some(place) if !place.key.is_empty() => in_queue(place.queue, Some(&place.key)),
            place => match self.state.next_queue(place.map(|place| place.queue), filter, looks) {
                Next::Found(queue) => in_queue(queue, None),
                Next::Later(host) => Next::Later(host),
                Next::End => Next::End,
            },
        }
    }

    pub fn matches(&self, filter: &UrlFilter, queue: QueueId, key: &UrlKey, row: &UrlRow) -> bool {
        if !self.state.has_queue(queue) {
            // A row of a deleted queue, or of a host that has moved to another shard.
            return false;
        }
        if filter.state.is_some_and(|state| state != row.status.state()) {
            return false;
        }
        let Some(text) = filter.contains.as_deref().filter(|text| !text.trim().is_empty()) else { return true };
        let Some((host, _)) = self.state.queue_names(queue) else { return false };
        let url = key.url(&host, row.whole.as_deref());
        if filter.ignore_case { url.to_lowercase().contains(&text.to_lowercase()) } else { url.contains(text) }
    }

    pub async fn views(&mut self, rows: Vec<(QueueId, UrlKey, UrlRow)>, port: &mut Port) -> Decided<Vec<UrlView>> {
        let queues: Vec<QueueId> = rows.iter().map(|(queue, ..)| *queue).collect();
        let views = self.readable_views(rows, port).await?;
        let views = self.all_read(views, |at| queues.get(at).copied(), port);
        Ok(views.map(|views| views.into_iter().flatten().collect()))
    }

    /// The URLs of some rows, as far as what is kept elsewhere of those that are queued can be read.
    pub(super) async fn readable_views(
        &mut self,
        rows: Vec<(QueueId, UrlKey, UrlRow)>,
        port: &mut Port,
    ) -> Result<Vec<Fact<UrlView>>, Error> {
        let queued = |(queue, key, row): &(QueueId, UrlKey, UrlRow)| match &row.status {
            UrlStatus::Queued(position) => Some(due::key(*queue, *position, &key.0)),
            _ => None,
        };
        let keys: Vec<Key> = rows.iter().filter_map(queued).collect();
        let mut details = read_facts::due_rows(&*port.engine, &keys).await?.into_iter();
        let view = |(queue, key, row): (QueueId, UrlKey, UrlRow)| {
            let is_queued = matches!(row.status, UrlStatus::Queued(_));
            let queued = if is_queued { details.next().unwrap_or(Ok(None))? } else { None };
            Ok(self.state.url_view(queue, &key, row, queued.map_or_else(Details::default, |row| row.details)))
        };
        Ok(rows.into_iter().map(view).collect())
    }

    /// Removes the URLs in one slice of a queue that were stored before a time. Those that cannot be read stay.
    pub async fn purge(
        &mut self,
        queue: QueueId,
        before: Time,
        after: Option<Key>,
        port: &mut Port,
    ) -> Result<Purged, Error> {
        let prefix = url::prefix(queue);
        let to = key::after_prefix(&prefix);
        let scan = Scan { from: after.unwrap_or(prefix), to, limit: SLICE_ROWS };
        let Found { rows, gaps, next } = read_facts::scan_past_damage(&*port.engine, &scan).await?;
        let mut damage = gaps.map(|gaps| gaps.cause);
        let mut urls = Vec::with_capacity(rows.len());
        for row in rows {
            let (_, key) = url::parse_key(&row.key).map_err(damaged)?;
            match url::decode(&row.value) {
                Ok(value) => urls.push((key, value)),
                Err(unread) => damage = Some(unread.to_string()),
            }
        }
        let now = self.now(port);
        let mut writes = Vec::new();
        let count = self.state.purge(queue, urls, before, now, &mut writes);
        self.commit(writes, port);
        Ok((count, next, damage.map(|cause| self.damaged(Some(queue), &cause, port))))
    }
}
