//! Looking at URLs: one by name, pages of many, and purging old ones, a slice at a time.

use wayleave_core::frontier::row::{Details, Place, UrlRow};
use wayleave_core::frontier::url_key::UrlKey;
use wayleave_core::frontier::view::{UrlFilter, UrlView};
use wayleave_core::ids::QueueId;
use wayleave_core::limits::SLICE_ROWS;
use wayleave_core::names::{CrawlName, HostName};
use wayleave_core::time::Time;
use wayleave_engine::rows::{due, key, url};
use wayleave_engine::{Error, Key, Scan};

use crate::ask::{UrlPage, UrlPlace};
use crate::facts;
use crate::open::damaged;
use crate::owner::Owner;

impl Owner {
    pub async fn lookup(&mut self, crawl: &CrawlName, host: &HostName, text: &str) -> Result<Option<UrlView>, Error> {
        let Some(queue) = self.state.queue_id(host, crawl) else { return Ok(None) };
        let target = [(queue, UrlKey::new(host, text))];
        let row = facts::url_rows(&*self.engine, &target).await?.pop().flatten();
        let [(queue, key)] = target;
        // A key that was cut may be another URL's.
        let Some(row) = row.filter(|row| row.whole.as_deref().is_none_or(|whole| whole == text)) else {
            return Ok(None);
        };
        Ok(self.views(vec![(queue, key, row)]).await?.pop())
    }

    /// Reads at most a slice of rows after a place, in the order of hosts, queues and URLs.
    pub async fn url_page(
        &mut self,
        filter: &UrlFilter,
        after: Option<UrlPlace>,
        limit: usize,
    ) -> Result<UrlPage, Error> {
        let mut queue = after.as_ref().map(|place| place.queue);
        let mut from = after.map(|place| place.key);
        let mut views = Vec::new();
        let mut left = SLICE_ROWS;
        while left > 0 && views.len() < limit {
            let at = match from.take() {
                Some(key) => queue.zip(Some(key)),
                None => self.state.queue_after(queue, filter).map(|next| (next, url::prefix(next))),
            };
            let Some((current, start)) = at else { return Ok((views, None)) };
            queue = Some(current);
            let most = left.min((limit - views.len()).max(64));
            let scan = Scan { from: start, to: key::after_prefix(&url::prefix(current)), limit: most };
            let rows = self.engine.scan_many(std::slice::from_ref(&scan)).await?.pop().unwrap_or_default();
            left = left.saturating_sub(rows.len() + 1);
            let more = rows.len() == most;
            let mut last = None;
            let mut found = Vec::new();
            for row in rows {
                let (id, key) = url::parse_key(&row.key).map_err(damaged)?;
                last = Some(row.key);
                let row = url::decode(&row.value).map_err(damaged)?;
                if self.matches(filter, id, &key, &row) {
                    found.push((id, key, row));
                    if views.len() + found.len() == limit {
                        break;
                    }
                }
            }
            let cut = views.len() + found.len() == limit;
            views.extend(self.views(found).await?);
            from = last.filter(|_| more || cut).map(|mut key| {
                key.push(0);
                key
            });
        }
        let next = match (from, queue) {
            (Some(key), Some(queue)) => Some(UrlPlace { queue, key }),
            (None, queue) => {
                self.state.queue_after(queue, filter).map(|queue| UrlPlace { queue, key: url::prefix(queue) })
            }
            _ => None,
        };
        Ok((views, next))
    }

    pub fn matches(&self, filter: &UrlFilter, queue: QueueId, key: &UrlKey, row: &UrlRow) -> bool {
        if filter.state.is_some_and(|state| state != row.place.state()) {
            return false;
        }
        let Some(text) = filter.contains.as_deref().filter(|text| !text.trim().is_empty()) else { return true };
        let Some((host, _)) = self.state.queue_names(queue) else { return false };
        let url = key.url(&host, row.whole.as_deref());
        if filter.ignore_case { url.to_lowercase().contains(&text.to_lowercase()) } else { url.contains(text) }
    }

    pub async fn views(&mut self, rows: Vec<(QueueId, UrlKey, UrlRow)>) -> Result<Vec<UrlView>, Error> {
        let queued = |(queue, key, row): &(QueueId, UrlKey, UrlRow)| match &row.place {
            Place::Queued(turn) => Some(due::key(*queue, *turn, &key.0)),
            _ => None,
        };
        let keys: Vec<Key> = rows.iter().filter_map(queued).collect();
        let mut details = facts::due_rows(&*self.engine, &keys).await?.into_iter();
        let view = |(queue, key, row): (QueueId, UrlKey, UrlRow)| {
            let queued = matches!(row.place, Place::Queued(_)).then(|| details.next().flatten()).flatten();
            self.state.url_view(queue, &key, row, queued.map_or_else(Details::default, |row| row.details))
        };
        Ok(rows.into_iter().filter_map(view).collect())
    }

    /// Removes URLs of a slice of a queue's rows that were stored before a time.
    pub async fn purge(
        &mut self,
        queue: QueueId,
        before: Time,
        after: Option<Key>,
    ) -> Result<(u64, Option<Key>), Error> {
        let prefix = url::prefix(queue);
        let to = key::after_prefix(&prefix);
        let scan = Scan { from: after.unwrap_or(prefix), to, limit: SLICE_ROWS };
        let rows = self.engine.scan_many(std::slice::from_ref(&scan)).await?.pop().unwrap_or_default();
        let full = rows.len() == SLICE_ROWS;
        let mut next = None;
        let mut urls = Vec::with_capacity(rows.len());
        for row in rows {
            let (_, key) = url::parse_key(&row.key).map_err(damaged)?;
            urls.push((key, url::decode(&row.value).map_err(damaged)?));
            next = Some(row.key);
        }
        let now = self.now();
        let mut writes = Vec::new();
        let count = self.state.purge(queue, urls, before, now, &mut writes);
        self.commit(writes);
        let next = next.filter(|_| full).map(|mut key| {
            key.push(0);
            key
        });
        Ok((count, next))
    }
}
