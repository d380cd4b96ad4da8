//! Read-only views of hosts, groups, crawls, URLs and totals. Listings go from shard to shard, slice by slice.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use wayleave_core::frontier::listing::{QueueNames, Room, Weigh};
use wayleave_core::frontier::refusal::Refusal;
use wayleave_core::frontier::view::{
    Counts, CrawlView, GroupView, HostFilter, HostView, Page, ReservationView, Stats, UrlFilter, UrlView,
};
use wayleave_core::ids::{HostId, ShardId};
use wayleave_core::limits;
use wayleave_core::names::{CrawlName, HostName};

use crate::ask::{Ask, Response, RowQuery, Slice, Sliced, StateQuery, UrlPage};
use crate::handle::cursor;
use crate::handle::frontier::Frontier;
use crate::owner::frontier::jobs::tell_of_requeue;
use crate::routing::router::CallResult;

impl Frontier {
    /// One URL; `None` if it is unknown.
    pub async fn lookup(&self, crawl: CrawlName, host: HostName, url: &str) -> CallResult<Option<UrlView>> {
        let ask = RowQuery::Lookup { crawl, host: host.clone(), url: url.into() };
        self.at_host(&host, ask.clone()).await
    }

    /// A page of URLs. A page may hold fewer than `limit` URLs and still have a successor, when a filter skips many.
    /// Fails if the cursor cannot be read, too many listings are queued, or the store cannot be reached.
    pub async fn urls(&self, filter: &UrlFilter, after: Option<&str>, limit: usize) -> CallResult<Page<UrlView>> {
        let from = cursor::read(after)?;
        let slice = |after, room| RowQuery::Urls { filter: filter.clone(), after, room };
        let Some(host) = &filter.host else {
            return self.page::<_, _, _, UrlPage>(from, limit, slice, cursor::write).await;
        };
        let _permit = self.listings.acquire().await?;
        let mut page = Paged::new(limit);
        let (_, mut at) = from;
        loop {
            let slice: UrlPage = self.at_host(host, slice(at.take(), page.room)).await?;
            match page.add(slice) {
                Some(place) if page.is_done() => {
                    return Ok(page.end(Some(cursor::write(self.router.shard_of(host), Some(&place)))));
                }
                Some(place) => at = Some(place),
                None => return Ok(page.end(None)),
            }
        }
    }

    /// One host.
    pub async fn host(&self, host: HostName) -> CallResult<HostView> {
        self.at_host(&host, StateQuery::Host(host.clone())).await
    }

    /// A page of hosts. Fails if the cursor cannot be read, too many listings are queued, or the store cannot be
    /// reached.
    pub async fn hosts(&self, filter: &HostFilter, after: Option<&str>, limit: usize) -> CallResult<Page<HostView>> {
        let slice = |after, room| StateQuery::Hosts { filter: filter.clone(), after, room };
        self.page::<_, _, _, Slice<_, _>>(cursor::read(after)?, limit, slice, cursor::write).await
    }

    /// A page of groups: aliases, and hosts that are groups of their own. Fails if the cursor cannot be read, too many
    /// listings are queued, or the store cannot be reached.
    pub async fn groups(&self, filter: &HostFilter, after: Option<&str>, limit: usize) -> CallResult<Page<GroupView>> {
        let slice = |after, room| StateQuery::Groups { filter: filter.clone(), after, room };
        self.page::<_, _, _, Slice<_, _>>(cursor::read(after)?, limit, slice, cursor::write).await
    }

    /// A group, by alias or by the name of the host that is a group of its own.
    pub async fn group(&self, name: &str) -> CallResult<GroupView> {
        self.refresh_hints(std::time::Duration::ZERO).await;
        let unknown = || Refusal::UnknownGroup(name.to_owned());
        let home = crate::routing::router::home(name, self.shards());
        if let Some(view) = self.router.ask(home, StateQuery::Group(name.into())).await? {
            return Ok(view);
        }
        let alias = self.router.moved.alias_of(name).ok_or_else(unknown)?;
        let shard = crate::routing::router::home(&alias, self.shards());
        self.router.ask::<Option<GroupView>>(shard, StateQuery::Group(alias.into())).await?.ok_or_else(unknown)
    }

    /// Live reservations, shard by shard, in the order they were granted. Fails if the cursor cannot be read, too many
    /// listings are queued, or the store cannot be reached.
    pub async fn reservations(&self, after: Option<&str>, limit: usize) -> CallResult<Page<ReservationView>> {
        let slice = |after, room| StateQuery::Reservations { after, room };
        self.page::<_, _, _, Slice<_, _>>(cursor::read(after)?, limit, slice, cursor::write).await
    }

    /// Fills one page over all shards, resuming at a key of one of them. `slice` fetches what follows a key; its answer
    /// names the next key if there may be more. Between two slices the owner serves everything else that is queued.
    async fn page<T: Weigh, P, A: Into<Ask>, S>(
        &self,
        (shard, mut after): (ShardId, Option<P>),
        limit: usize,
        slice: impl Fn(Option<P>, Room) -> A,
        cursor: impl Fn(ShardId, Option<&P>) -> String,
    ) -> CallResult<Page<T>>
    where
        S: Sliced<T, P> + TryFrom<Response, Error = Refusal>,
    {
        let _permit = self.listings.acquire().await?;
        let scope: Vec<ShardId> = self.scope().into_iter().filter(|one| *one >= shard).collect();
        let mut page = Paged::new(limit);
        for (i, one) in scope.iter().enumerate() {
            // A resume key is only valid for the shard that the cursor names; later shards start at their beginning.
            let mut at = after.take().filter(|_| *one == shard);
            loop {
                let slice: S = self.router.ask(*one, slice(at.take(), page.room)).await?;
                match page.add(slice) {
                    Some(place) if page.is_done() => return Ok(page.end(Some(cursor(*one, Some(&place))))),
                    Some(place) => at = Some(place),
                    None => break,
                }
            }
            if let Some(next) = scope.get(i + 1)
                && page.is_done()
            {
                return Ok(page.end(Some(cursor(*next, None))));
            }
        }
        Ok(page.end(None))
    }

    /// A page of crawls, by name. The cursor is the last name, so that creating or deleting a crawl shifts nothing.
    /// Fails if too many listings are queued, or the store cannot be reached.
    pub async fn crawls_page(&self, after: Option<&str>, limit: usize) -> CallResult<Page<CrawlView>> {
        let _permit = self.listings.acquire().await?;
        let limit = limit.clamp(1, limits::PAGE_MAX);
        let mut after: Option<CrawlName> = after.map(CrawlName::from);
        let mut items: Vec<CrawlView> = Vec::new();
        let unheard = self.unheard_requeues().await?;
        loop {
            let ask = StateQuery::Crawls { after: after.clone(), most: limit - items.len() };
            let parts: Vec<(Vec<CrawlView>, bool)> = self.router.ask_all(&self.scope(), ask.clone()).await?;
            // Each shard has returned all its crawls up to the last one it named, or all it has. Sums are complete up
            // to the smallest of these last names.
            let ends = parts.iter().filter(|(_, more)| *more).filter_map(|(views, _)| views.last());
            let end: Option<CrawlName> = ends.map(|view| view.crawl.clone()).min();
            let mut sums: BTreeMap<CrawlName, CrawlView> = BTreeMap::new();
            for view in parts.into_iter().flat_map(|(views, _)| views) {
                if end.as_ref().is_some_and(|end| view.crawl > *end) {
                    continue;
                }
                match sums.entry(view.crawl.clone()) {
                    Entry::Vacant(place) => _ = place.insert(view),
                    Entry::Occupied(mut place) => merge(place.get_mut(), &view),
                }
            }
            let more = end.is_some() || sums.len() > limit - items.len();
            items.extend(sums.into_values().take(limit - items.len()));
            after = end;
            if !more || items.len() >= limit {
                let next = items.last().filter(|_| more).map(|view| view.crawl.to_string());
                for view in &mut items {
                    tell_of_requeue(view, unheard.iter());
                    tell_of_no_urls(view);
                }
                return Ok(Page { items, next, damaged: Vec::new() });
            }
        }
    }

    /// All crawls, by name. Fails if too many listings are queued, or the store cannot be reached.
    pub async fn crawls(&self) -> CallResult<Vec<CrawlView>> {
        let (mut all, mut after) = (Vec::new(), None::<String>);
        loop {
            let page = self.crawls_page(after.as_deref(), limits::PAGE_MAX).await?;
            all.extend(page.items);
            after = page.next;
            if after.is_none() {
                return Ok(all);
            }
        }
    }

    /// Names of the queues of a crawl in a stable order, skipping the first `start` matches. Without `inactive`, queues
    /// with no scheduled URL and queues of blocked hosts are left out. Fails if too many listings are queued, or the
    /// store cannot be reached.
    pub async fn queues(
        &self,
        crawl: CrawlName,
        start: usize,
        size: usize,
        inactive: bool,
    ) -> CallResult<Vec<HostName>> {
        let _permit = self.listings.acquire().await?;
        let (mut skip, mut names) = (start, Vec::new());
        for shard in self.scope() {
            let mut after = None;
            while names.len() < size {
                let most = size - names.len();
                let ask = StateQuery::Queues { crawl: crawl.clone(), inactive, after, skip, most };
                let ((found, passed), next): (QueueNames, Option<HostId>) = self.router.ask(shard, ask).await?;
                skip -= passed;
                names.extend(found);
                after = next;
                if after.is_none() {
                    break;
                }
            }
        }
        Ok(names)
    }

    /// Totals, in constant time. Crawls that other nodes have made or deleted within their last beat are not counted yet.
    pub async fn stats(&self) -> CallResult<Stats> {
        let parts: Vec<Stats> = self.router.ask_all(&self.scope(), StateQuery::Stats).await?;
        let mut sum = Stats::default();
        for part in parts {
            sum.hosts += part.hosts;
            sum.aliases += part.aliases;
            sum.queues += part.queues;
            sum.reservations += part.reservations;
            sum.holds += part.holds;
            sum.ready += part.ready;
            sum.waiting += part.waiting;
            sum.urls.add(&part.urls);
        }
        sum.crawls = self.readiness.crawl_count.len(self.only_here);
        Ok(sum)
    }
}

/// A crawl that never received a URL is not finished: its first one may still come. One whose URLs were deleted has queues left.
pub(crate) fn tell_of_no_urls(view: &mut CrawlView) {
    if view.waits_for.is_none() && view.queues == 0 && view.counts == Counts::default() {
        view.waits_for = Some("it has received no URLs yet, or its queues were deleted".to_owned());
    }
}

/// Adds another shard's part of a crawl.
pub(crate) fn merge(sum: &mut CrawlView, part: &CrawlView) {
    sum.counts.add(&part.counts);
    sum.queues += part.queues;
    sum.active_queues += part.active_queues;
    sum.last_visit_at = sum.last_visit_at.max(part.last_visit_at);
    sum.over_limit += part.over_limit;
    if sum.limit_reached.is_none() {
        sum.limit_reached.clone_from(&part.limit_reached);
    }
    if sum.waits_for.is_none() {
        sum.waits_for.clone_from(&part.waits_for);
    }
}

/// A page being filled.
struct Paged<T> {
    items: Vec<T>,
    room: Room,
    slices_left: usize,
    damaged: Vec<HostName>,
}

impl<T: Weigh> Paged<T> {
    fn new(limit: usize) -> Self {
        let room = Room { items: limit.clamp(1, limits::PAGE_MAX), bytes: limits::PAGE_BYTES_MAX };
        Self { items: Vec::new(), room, slices_left: limits::PAGE_SLICES_MAX, damaged: Vec::new() }
    }

    /// Adds a slice; returns where the next one starts.
    fn add<P>(&mut self, slice: impl Sliced<T, P>) -> Option<P> {
        let (items, next, damaged) = slice.parts();
        items.iter().for_each(|item| self.room.take(item.weight()));
        self.items.extend(items);
        self.slices_left = self.slices_left.saturating_sub(1);
        for host in damaged {
            if !self.damaged.contains(&host) {
                self.damaged.push(host);
            }
        }
        next
    }

    fn end(self, next: Option<String>) -> Page<T> {
        Page { items: self.items, next, damaged: self.damaged }
    }

    /// Whether the page is full, or has taken so many slices that a short page is better.
    fn is_done(&self) -> bool {
        self.room.is_full() || self.slices_left == 0
    }
}
