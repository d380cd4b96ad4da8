//! The handle, continued: looking at hosts, groups, crawls, URLs and totals. Lists go from shard to shard.

use wayleave_core::frontier::State;
use wayleave_core::frontier::refusal::Refusal;
use wayleave_core::frontier::view::{
    CrawlView, GroupView, HostFilter, HostView, Page, ReservationView, Stats, UrlFilter, UrlView,
};
use wayleave_core::ids::ShardId;
use wayleave_core::limits;
use wayleave_core::names::{CrawlName, HostName};
use wayleave_core::time::Time;

use crate::cursor;
use crate::frontier::Frontier;
use crate::message::Message;
use crate::router::Answer;

impl Frontier {
    /// One URL; none if it is not known.
    ///
    /// # Errors
    /// If the store cannot be reached.
    pub async fn lookup(&self, crawl: CrawlName, host: HostName, url: &str) -> Answer<Option<UrlView>> {
        self.at_host(&host, |shard| {
            let (crawl, host, url) = (crawl.clone(), host.clone(), url.into());
            self.router.ask(shard, |reply| Message::Lookup { crawl, host, url, reply })
        })
        .await
    }

    /// A page of URLs. It may hold fewer than `limit` and still have a next one, where a filter passes many over.
    ///
    /// # Errors
    /// If the cursor cannot be read or the store not be reached.
    pub async fn urls(&self, filter: &UrlFilter, after: Option<&str>, limit: usize) -> Answer<Page<UrlView>> {
        let limit = limit.clamp(1, limits::PAGE_MAX);
        let (mut shard, mut after) = cursor::read_url(after)?;
        if let Some(host) = &filter.host {
            return self.urls_of_host(host, filter, after, limit).await;
        }
        let mut items = Vec::new();
        while shard.0 < self.shards() {
            let (from, most, asked) = (after.take(), limit - items.len(), filter.clone());
            let ask = self.router.ask(shard, |reply| Message::Urls { filter: asked, after: from, limit: most, reply });
            let (views, next) = ask.await?;
            items.extend(views);
            if next.is_some() {
                // A slice was read: rather a short page than a long wait.
                return Ok(Page { items, next: Some(cursor::write_url(shard, next.as_ref())) });
            }
            shard.0 += 1;
            if items.len() >= limit && shard.0 < self.shards() {
                return Ok(Page { items, next: Some(cursor::write_url(shard, None)) });
            }
        }
        Ok(Page { items, next: None })
    }

    async fn urls_of_host(
        &self,
        host: &HostName,
        filter: &UrlFilter,
        after: Option<crate::message::UrlPlace>,
        limit: usize,
    ) -> Answer<Page<UrlView>> {
        let ask = |shard| {
            let (filter, after) = (filter.clone(), after.clone());
            self.router.ask(shard, |reply| Message::Urls { filter, after, limit, reply })
        };
        let (items, next) = self.at_host(host, ask).await?;
        let shard = self.router.shard_of(host);
        Ok(Page { items, next: next.map(|next| cursor::write_url(shard, Some(&next))) })
    }

    /// A host.
    ///
    /// # Errors
    /// If it is not known.
    pub async fn host(&self, host: HostName) -> Answer<HostView> {
        let name = host.clone();
        self.decide_at(&host, move |state, now, _| {
            state.host_view(&name, now).ok_or_else(|| Refusal::UnknownHost(name.to_string()))
        })
        .await
    }

    /// A page of hosts.
    ///
    /// # Errors
    /// If the cursor cannot be read or the store not be reached.
    pub async fn hosts(&self, filter: &HostFilter, after: Option<&str>, limit: usize) -> Answer<Page<HostView>> {
        let filter = filter.clone();
        let fits = move |view: &HostView| {
            filter.state.is_none_or(|state| view.standing.state == state)
                && filter.crawl.as_ref().is_none_or(|crawl| view.queues.iter().any(|q| q.crawl == *crawl))
        };
        self.page(after, limit, move |state, start, most, now| take(state.host_views(start, now), most, &fits)).await
    }

    /// A page of groups: aliases and hosts that are groups of their own.
    ///
    /// # Errors
    /// If the cursor cannot be read or the store not be reached.
    pub async fn groups(&self, filter: &HostFilter, after: Option<&str>, limit: usize) -> Answer<Page<GroupView>> {
        let state = filter.state;
        let fits = move |view: &GroupView| state.is_none_or(|state| view.standing.state == state);
        self.page(after, limit, move |state, start, most, now| take(state.group_views(start, now), most, &fits)).await
    }

    /// A group by alias, or the group of one host by that host's name.
    ///
    /// # Errors
    /// If there is no such group.
    pub async fn group(&self, name: &str) -> Answer<GroupView> {
        self.settle_hints().await;
        let unknown = || Refusal::UnknownGroup(name.to_owned());
        let by_alias = crate::router::home(name, self.shards());
        let wanted: HostName = name.into();
        let found = self.decide(by_alias, move |state, now, _| Ok(state.group_view(&wanted, now))).await?;
        if let Some(view) = found {
            return Ok(view);
        }
        let alias = self.router.alias_of(name).ok_or_else(unknown)?;
        let shard = crate::router::home(&alias, self.shards());
        self.decide(shard, move |state, now, _| Ok(state.group_view(&alias, now))).await?.ok_or_else(unknown)
    }

    /// Live reservations, by token.
    ///
    /// # Errors
    /// If the cursor cannot be read or the store not be reached.
    pub async fn reservations(&self, after: Option<&str>, limit: usize) -> Answer<Page<ReservationView>> {
        self.page(after, limit, |state, start, most, _| {
            let views = state.reservation_views().into_iter().enumerate().skip(start as usize);
            let mut items: Vec<_> = views.map(|(i, view)| (i as u32 + 1, view)).take(most + 1).collect();
            let more = items.len() > most;
            items.truncate(most);
            let next = items.last().map(|(next, _)| *next).filter(|_| more);
            (items.into_iter().map(|(_, view)| view).collect(), next)
        })
        .await
    }

    /// One page over all shards: `slice` takes up to so many items from a place on and says the next place, if any.
    async fn page<T: Send + 'static>(
        &self,
        after: Option<&str>,
        limit: usize,
        slice: impl Fn(&State, u32, usize, Time) -> (Vec<T>, Option<u32>) + Clone + Send + 'static,
    ) -> Answer<Page<T>> {
        let limit = limit.clamp(1, limits::PAGE_MAX);
        let (mut shard, mut start) = cursor::read(after)?;
        let mut items = Vec::new();
        while shard < self.shards() {
            let (most, slice) = (limit - items.len(), slice.clone());
            let ask = self.decide(ShardId(shard), move |state, now, _| Ok(slice(state, start, most, now)));
            let (more, next) = ask.await?;
            items.extend(more);
            match next {
                Some(next) => return Ok(Page { items, next: Some(cursor::write(shard, next)) }),
                None => (shard, start) = (shard + 1, 0),
            }
            if items.len() >= limit && shard < self.shards() {
                return Ok(Page { items, next: Some(cursor::write(shard, 0)) });
            }
        }
        Ok(Page { items, next: None })
    }

    /// A crawl, over all shards.
    ///
    /// # Errors
    /// If it is not known.
    pub async fn crawl(&self, crawl: CrawlName) -> Answer<CrawlView> {
        let name = crawl.clone();
        let parts = self.router.decide_all(move |state, _, _| state.crawl_view(&name)).await?;
        let mut views = parts.into_iter().flatten();
        let mut sum = views.next().ok_or_else(|| Refusal::UnknownCrawl(crawl.to_string()))?;
        views.for_each(|view| merge(&mut sum, &view));
        Ok(sum)
    }

    /// All crawls, by name.
    ///
    /// # Errors
    /// If the store cannot be reached.
    pub async fn crawls(&self) -> Answer<Vec<CrawlView>> {
        let parts = self.router.decide_all(|state, _, _| state.crawl_views()).await?;
        let mut sums: std::collections::BTreeMap<CrawlName, CrawlView> = std::collections::BTreeMap::new();
        for view in parts.into_iter().flatten() {
            match sums.entry(view.crawl.clone()) {
                std::collections::btree_map::Entry::Vacant(place) => _ = place.insert(view),
                std::collections::btree_map::Entry::Occupied(mut place) => merge(place.get_mut(), &view),
            }
        }
        Ok(sums.into_values().collect())
    }

    /// Names of the queues of a crawl in a stable order; `start` matches are passed over. Without `inactive`, queues
    /// with no scheduled URL and queues of blocked hosts are left out.
    ///
    /// # Errors
    /// If the store cannot be reached.
    pub async fn queues(&self, crawl: CrawlName, start: usize, size: usize, inactive: bool) -> Answer<Vec<HostName>> {
        let (mut skip, mut names) = (start, Vec::new());
        for shard in (0..self.shards()).map(ShardId) {
            let room = size - names.len();
            if room == 0 {
                break;
            }
            let crawl = crawl.clone();
            let ask =
                self.decide(shard, move |state, now, _| Ok(state.queue_names_of(&crawl, skip, room, inactive, now)));
            let (found, passed) = ask.await?;
            skip -= passed;
            names.extend(found);
        }
        Ok(names)
    }

    /// Totals, at the same cost at any size.
    ///
    /// # Errors
    /// If the store cannot be reached.
    pub async fn stats(&self) -> Answer<Stats> {
        let parts = self.router.decide_all(|state, _, _| (state.stats(), state.crawl_names())).await?;
        let mut sum = Stats::default();
        let mut crawls = hashbrown::HashSet::new();
        for (part, names) in parts {
            sum.hosts += part.hosts;
            sum.aliases += part.aliases;
            sum.queues += part.queues;
            sum.reservations += part.reservations;
            sum.holds += part.holds;
            sum.ready += part.ready;
            sum.waiting += part.waiting;
            sum.urls.add(&part.urls);
            crawls.extend(names);
        }
        sum.crawls = crawls.len() as u64;
        Ok(sum)
    }
}

fn take<T>(views: impl Iterator<Item = (u32, T)>, most: usize, fits: &impl Fn(&T) -> bool) -> (Vec<T>, Option<u32>) {
    let mut items = Vec::new();
    let mut views = views.peekable();
    while let Some((next, view)) = views.next() {
        if fits(&view) {
            items.push(view);
        }
        if items.len() == most {
            return (items, views.peek().is_some().then_some(next));
        }
    }
    (items, None)
}

fn merge(sum: &mut CrawlView, part: &CrawlView) {
    sum.counts.add(&part.counts);
    sum.queues += part.queues;
    sum.active_queues += part.active_queues;
}
