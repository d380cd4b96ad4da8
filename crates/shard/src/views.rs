//! The handle, continued: looking at hosts, groups, crawls, URLs and totals. Lists go from shard to shard.

use wayleave_core::frontier::refusal::Refusal;
use wayleave_core::frontier::view::{
    CrawlView, GroupView, HostFilter, HostView, Page, ReservationView, Stats, UrlFilter, UrlView,
};
use wayleave_core::ids::ShardId;
use wayleave_core::limits;
use wayleave_core::names::{CrawlName, HostName};

use crate::ask::{Ask, Slice, Told, UrlPage, UrlPlace};
use crate::cursor;
use crate::frontier::Frontier;
use crate::router::Answer;

impl Frontier {
    /// One URL; none if it is not known.
    ///
    /// # Errors
    /// If the store cannot be reached.
    pub async fn lookup(&self, crawl: CrawlName, host: HostName, url: &str) -> Answer<Option<UrlView>> {
        let ask = Ask::Lookup { crawl, host: host.clone(), url: url.into() };
        self.at_host(&host, &ask).await
    }

    /// A page of URLs. It may hold fewer than `limit` and still have a next one, where a filter passes many over.
    ///
    /// # Errors
    /// If the cursor cannot be read or the store not be reached.
    pub async fn urls(&self, filter: &UrlFilter, after: Option<&str>, limit: usize) -> Answer<Page<UrlView>> {
        let limit = limit.clamp(1, limits::PAGE_MAX);
        let (shard, mut after) = cursor::read_url(after)?;
        if let Some(host) = &filter.host {
            return self.urls_of_host(host, filter, after, limit).await;
        }
        let mut items = Vec::new();
        let scope: Vec<ShardId> = self.scope().into_iter().filter(|one| *one >= shard).collect();
        for (i, one) in scope.iter().enumerate() {
            // A place is one of the shard that the cursor names; the shards after it start at their beginning.
            let from = after.take().filter(|_| *one == shard);
            let ask = Ask::Urls { filter: filter.clone(), after: from, limit: limit - items.len() };
            let (views, next): UrlPage = self.router.ask(*one, ask).await?;
            items.extend(views);
            if next.is_some() {
                // A slice was read: rather a short page than a long wait.
                return Ok(Page { items, next: Some(cursor::write_url(*one, next.as_ref())) });
            }
            if let Some(next) = scope.get(i + 1)
                && items.len() >= limit
            {
                return Ok(Page { items, next: Some(cursor::write_url(*next, None)) });
            }
        }
        Ok(Page { items, next: None })
    }

    async fn urls_of_host(
        &self,
        host: &HostName,
        filter: &UrlFilter,
        after: Option<UrlPlace>,
        limit: usize,
    ) -> Answer<Page<UrlView>> {
        let ask = Ask::Urls { filter: filter.clone(), after, limit };
        let (items, next): UrlPage = self.at_host(host, &ask).await?;
        let shard = self.router.shard_of(host);
        Ok(Page { items, next: next.map(|next| cursor::write_url(shard, Some(&next))) })
    }

    /// A host.
    ///
    /// # Errors
    /// If it is not known.
    pub async fn host(&self, host: HostName) -> Answer<HostView> {
        self.at_host(&host, &Ask::Host(host.clone())).await
    }

    /// A page of hosts.
    ///
    /// # Errors
    /// If the cursor cannot be read or the store not be reached.
    pub async fn hosts(&self, filter: &HostFilter, after: Option<&str>, limit: usize) -> Answer<Page<HostView>> {
        self.page(after, limit, |start, most| Ask::Hosts { filter: filter.clone(), start, most }).await
    }

    /// A page of groups: aliases and hosts that are groups of their own.
    ///
    /// # Errors
    /// If the cursor cannot be read or the store not be reached.
    pub async fn groups(&self, filter: &HostFilter, after: Option<&str>, limit: usize) -> Answer<Page<GroupView>> {
        self.page(after, limit, |start, most| Ask::Groups { filter: filter.clone(), start, most }).await
    }

    /// A group by alias, or the group of one host by that host's name.
    ///
    /// # Errors
    /// If there is no such group.
    pub async fn group(&self, name: &str) -> Answer<GroupView> {
        self.settle_hints(std::time::Duration::ZERO).await;
        let unknown = || Refusal::UnknownGroup(name.to_owned());
        let wanted: HostName = name.into();
        let home = crate::router::home(name, self.shards());
        if let Some(view) = self.router.ask(home, Ask::Group(wanted)).await? {
            return Ok(view);
        }
        let alias = self.router.alias_of(name).ok_or_else(unknown)?;
        let shard = crate::router::home(&alias, self.shards());
        self.router.ask::<Option<GroupView>>(shard, Ask::Group(alias)).await?.ok_or_else(unknown)
    }

    /// Live reservations, by token.
    ///
    /// # Errors
    /// If the cursor cannot be read or the store not be reached.
    pub async fn reservations(&self, after: Option<&str>, limit: usize) -> Answer<Page<ReservationView>> {
        self.page(after, limit, |start, most| Ask::Reservations { start, most }).await
    }

    /// One page over all shards: `slice` asks for up to so many items from a place on; the answer says the next place,
    /// if any.
    async fn page<T>(&self, after: Option<&str>, limit: usize, slice: impl Fn(u32, usize) -> Ask) -> Answer<Page<T>>
    where
        Slice<T>: TryFrom<Told, Error = Refusal>,
    {
        let limit = limit.clamp(1, limits::PAGE_MAX);
        let (shard, start) = cursor::read(after)?;
        let scope: Vec<ShardId> = self.scope().into_iter().filter(|one| one.0 >= shard).collect();
        let mut items = Vec::new();
        for (i, one) in scope.iter().enumerate() {
            let start = if one.0 == shard { start } else { 0 };
            let (more, next): Slice<T> = self.router.ask(*one, slice(start, limit - items.len())).await?;
            items.extend(more);
            if let Some(next) = next {
                return Ok(Page { items, next: Some(cursor::write(one.0, next)) });
            }
            if let Some(next) = scope.get(i + 1)
                && items.len() >= limit
            {
                return Ok(Page { items, next: Some(cursor::write(next.0, 0)) });
            }
        }
        Ok(Page { items, next: None })
    }

    /// A crawl, over all shards.
    ///
    /// # Errors
    /// If it is not known.
    pub async fn crawl(&self, crawl: CrawlName) -> Answer<CrawlView> {
        let first = self.crawl_once(&crawl).await?;
        if first.waits_for.is_some() {
            return Ok(first);
        }
        // Shards are asked one after the other, and links found on a page of one that was not asked yet may have gone to
        // one that was: they are stored before the page is released, so that a second look finds them or what they led to.
        let mut second = self.crawl_once(&crawl).await?;
        if second.counts != first.counts && second.waits_for.is_none() {
            second.waits_for = Some("its URLs are changing just now".to_owned());
        }
        Ok(second)
    }

    async fn crawl_once(&self, crawl: &CrawlName) -> Answer<CrawlView> {
        let parts: Vec<Option<CrawlView>> = self.router.ask_all(&self.scope(), &Ask::Crawl(crawl.clone())).await?;
        let mut views = parts.into_iter().flatten();
        let mut sum = views.next().ok_or_else(|| Refusal::UnknownCrawl(crawl.to_string()))?;
        views.for_each(|view| merge(&mut sum, &view));
        if sum.waits_for.is_some() {
            sum.over_limit = 0;
        }
        Ok(sum)
    }

    /// All crawls, by name.
    ///
    /// # Errors
    /// If the store cannot be reached.
    pub async fn crawls(&self) -> Answer<Vec<CrawlView>> {
        let parts: Vec<Vec<CrawlView>> = self.router.ask_all(&self.scope(), &Ask::Crawls).await?;
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
        for shard in self.scope() {
            let room = size - names.len();
            if room == 0 {
                break;
            }
            let ask = Ask::Queues { crawl: crawl.clone(), skip, most: room, inactive };
            let (found, passed): (Vec<HostName>, usize) = self.router.ask(shard, ask).await?;
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
        let parts: Vec<(Stats, Vec<CrawlName>)> = self.router.ask_all(&self.scope(), &Ask::Stats).await?;
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

fn merge(sum: &mut CrawlView, part: &CrawlView) {
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
