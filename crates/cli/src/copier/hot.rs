//! Rebuilds the hot rows of a shard that has lost some of them.
//!
//! A shard's hosts, crawls and aliases are in their rows and in a log of later changes. If part of either cannot be read, what
//! is left may be older than the queues: a cursor or a count that is out of date would hide URLs. So the shard gets a
//! checkpoint instead: every host with its queues counted anew from the URLs, and no log.

use std::collections::{BTreeMap, BTreeSet};

use wayleave_core::frontier::row::{
    AliasRow, CrawlRow, End as UrlEnd, HostRow, HotRow, Lane, QueuePosition, ShardRow, UrlStatus,
};
use wayleave_core::frontier::url_key::UrlKey;
use wayleave_core::ids::{CrawlNo, GroupId, HostId, QueueId, ShardId};
use wayleave_core::names::{Alias, HostName};
use wayleave_core::settings::CrawlSettings;
use wayleave_engine::rows::{self, Kind, deleted_queue, due, hot, key as keys, log, url};
use wayleave_engine::salvage::LeftOut;
use wayleave_engine::snapshot_file::Loss;
use wayleave_engine::{Key, Row};

use super::damage::read;
use super::homes::Homes;
use super::losses::{HOSTS_MAX, Losses, host_key};
use super::source::Source;

/// Rows per read.
const PAGE: usize = 1_000;

/// A shard whose row is lost counts on from here: far above every number that it can have given out.
const COUNTERS_LOST: ShardRow =
    ShardRow { next_host: 1 << 40, next_group: 1 << 40, next_crawl: 1 << 24, default_delay: None, active: true };

/// How far the counters of a shard may be behind, if some of its changes are lost.
const COUNTERS_BEHIND: u64 = 1 << 32;

/// Passes every readable row of some kinds to `take`; true if some were not readable.
pub fn each(source: &mut dyn Source, (mut from, to): (Key, Key), mut take: impl FnMut(&Row)) -> anyhow::Result<bool> {
    let mut damaged = false;
    while from < to {
        let step = read(source, &from, PAGE)?;
        damaged |= step.damage.is_some();
        step.rows.iter().filter(|row| row.key < to).for_each(&mut take);
        let Some(next) = step.next else { break };
        from = next;
    }
    Ok(damaged)
}

/// Shards that have lost hot rows.
pub fn damaged_shards(source: &mut dyn Source) -> anyhow::Result<BTreeSet<ShardId>> {
    let mut shards = BTreeSet::new();
    for shard in (0..source.header().shards).map(ShardId) {
        let mut damaged = false;
        for (first, last) in [(Kind::Shard, Kind::Member), (Kind::Log, Kind::Log)] {
            let mut decodes = true;
            damaged |= each(source, keys::range(shard, first, last), |row| decodes &= rows::decode(row).is_ok())?;
            damaged |= !decodes;
        }
        if damaged {
            shards.insert(shard);
        }
    }
    Ok(shards)
}

/// Whether a row is replaced by those of [`rebuild`].
pub fn is_hot(key: &[u8]) -> bool {
    let kind = key.get(2).copied().unwrap_or(0);
    (Kind::Shard as u8..=Kind::Member as u8).contains(&kind) || kind == Kind::Log as u8
}

/// The hot rows of a shard, as far as they can be read.
#[derive(Default)]
pub struct HotRows {
    shard: Option<ShardRow>,
    pub crawls: BTreeMap<CrawlNo, CrawlRow>,
    pub aliases: BTreeMap<GroupId, AliasRow>,
    pub hosts: BTreeMap<HostId, HostRow>,
    pub members: BTreeMap<HostName, Alias>,
}

impl HotRows {
    fn take(&mut self, row: HotRow) {
        match row {
            HotRow::Shard(row) => self.shard = Some(row),
            HotRow::Crawl(row) => _ = self.crawls.insert(row.no, row),
            HotRow::CrawlGone(no) => _ = self.crawls.remove(&no),
            HotRow::Alias(row) => _ = self.aliases.insert(row.id, row),
            HotRow::AliasGone(id) => _ = self.aliases.remove(&id),
            HotRow::Host(row) => _ = self.hosts.insert(row.id, row),
            HotRow::HostGone(id) => _ = self.hosts.remove(&id),
            HotRow::HostAlias { host, alias: Some(alias) } => _ = self.members.insert(host, alias),
            HotRow::HostAlias { host, alias: None } => _ = self.members.remove(&host),
        }
    }

    /// Reads rows and log of a shard.
    pub fn load(source: &mut dyn Source, shard: ShardId) -> anyhow::Result<Self> {
        let mut rows = Self::default();
        each(source, keys::range(shard, Kind::Shard, Kind::Member), |row| {
            hot::decode(&row.key, Some(&row.value)).into_iter().for_each(|row| rows.take(row));
        })?;
        each(source, keys::range(shard, Kind::Log, Kind::Log), |row| {
            for change in log::decode(&row.value).into_iter().flatten() {
                match change {
                    log::Change::Row(row) => rows.take(row),
                    // Of a host that is lost, or was removed.
                    log::Change::Part(part) => {
                        rows.hosts.get_mut(&part.id).into_iter().for_each(|host| host.take_part(part.clone()));
                    }
                }
            }
        })?;
        Ok(rows)
    }

    fn into_rows(self, shard: ShardId) -> Vec<Row> {
        let rows = self.shard.map(HotRow::Shard).into_iter();
        let rows = rows.chain(self.crawls.into_values().map(HotRow::Crawl));
        let rows = rows.chain(self.aliases.into_values().map(HotRow::Alias));
        let rows = rows.chain(self.hosts.into_values().map(HotRow::Host));
        let members = self.members.into_iter().map(|(host, alias)| HotRow::HostAlias { host, alias: Some(alias) });
        let writes = rows.chain(members).map(|row| hot::encode(shard, &row));
        let mut rows: Vec<Row> = writes.filter_map(|write| Some(Row { key: write.key, value: write.value? })).collect();
        rows.sort_by(|a, b| a.key.cmp(&b.key));
        rows
    }
}

/// The hot rows of a shard that has lost some, in key order, without a log.
pub fn rebuild(
    source: &mut dyn Source,
    shard: ShardId,
    homes: &Homes,
    losses: &mut Losses,
) -> anyhow::Result<Vec<Row>> {
    let mut rows = HotRows::load(source, shard)?;
    homes.settle(shard, source.header().shards, &mut rows, &mut losses.left_out);
    let mut of_shard = rows.shard.map_or(COUNTERS_LOST, |row| ShardRow {
        next_host: row.next_host.saturating_add(COUNTERS_BEHIND),
        next_group: row.next_group.saturating_add(COUNTERS_BEHIND),
        next_crawl: row.next_crawl.saturating_add(1 << 16),
        ..row
    });
    homes.settle_crawls(&mut rows.crawls, &mut of_shard);
    rows.shard = Some(of_shard);
    let deleted = deleted_queues(source, shard)?;
    for host in rows.hosts.values_mut() {
        // What says that they were deleted may be lost, and their URLs are still being removed.
        host.queues.retain(|queue| !deleted.contains(&QueueId { host: host.id, no: queue.no }));
        let above = deleted.iter().filter(|queue| queue.host == host.id).map(|queue| queue.no + 1).max();
        host.next_queue = host.next_queue.max(above.unwrap_or(0));
        recount(source, host, shard, &mut losses.left_out)?;
    }
    let wanted: BTreeSet<CrawlNo> =
        rows.hosts.values().flat_map(|host| &host.queues).map(|queue| queue.crawl).collect();
    for no in wanted {
        // Its name and settings are lost, its URLs are not.
        rows.crawls.entry(no).or_insert_with(|| {
            let name = format!("salvaged-{}-{}", shard.0, no.0);
            let of_crawl = rows.hosts.values().filter(|host| host.queues.iter().any(|queue| queue.crawl == no));
            losses.named.push(Loss {
                what: format!("shard {}: name and settings of a crawl, which is called {name} now", shard.0),
                hosts: of_crawl.take(HOSTS_MAX).map(|host| host.name.to_string()).collect(),
            });
            CrawlRow { no, name: name.as_str().into(), settings: CrawlSettings::default(), kept: true, version: 0 }
        });
    }
    Ok(rows.into_rows(shard))
}

/// The queues of a shard whose rows remain to be removed.
fn deleted_queues(source: &mut dyn Source, shard: ShardId) -> anyhow::Result<BTreeSet<QueueId>> {
    let mut deleted = BTreeSet::new();
    each(source, keys::range(shard, Kind::DeletedQueue, Kind::DeletedQueue), |row| {
        deleted.extend(deleted_queue::parse_key(&row.key))
    })?;
    Ok(deleted)
}

/// What the rows of a host's URLs say of one of its queues.
#[derive(Default)]
struct Counted {
    /// Lanes by the entries of the queue.
    by_entries: BTreeMap<u8, Lane>,
    /// Lanes by the rows of its queued URLs.
    by_urls: BTreeMap<u8, Lane>,
    reserved: u32,
    fetched: u32,
    gone: u32,
    failed: u32,
}

/// Counts a queued URL.
fn add(lanes: &mut BTreeMap<u8, Lane>, position: QueuePosition, key: &UrlKey) {
    let QueuePosition { lane, due } = position;
    let from = (due, key.0.to_vec().into_boxed_slice());
    let counted = lanes.entry(lane).or_insert_with(|| Lane { lane, count: 0, head: due, from: from.clone() });
    counted.count = counted.count.saturating_add(1);
    counted.head = counted.head.min(due);
    if from < counted.from {
        counted.from = from;
    }
}

/// Counts queued URLs of a host that have lost their entry, where the rows of other URLs are lost.
fn add_lost_entries(
    source: &mut dyn Source,
    entries: (Key, Key),
    urls: (Key, Key),
    queues: &mut BTreeMap<u32, Counted>,
) -> anyhow::Result<()> {
    let mut counted = BTreeSet::new();
    each(source, entries, |row| counted.extend(due::parse_key(&row.key).map(|(id, at, key)| (id.no, at, key))))?;
    each(source, urls, |row| {
        let (Ok((id, key)), Ok(found)) = (url::parse_key(&row.key), url::decode(&row.value)) else { return };
        let UrlStatus::Queued(position) = found.status else { return };
        let entry = (id.no, position, key);
        if !counted.contains(&entry) {
            add(&mut queues.entry(id.no).or_default().by_entries, position, &entry.2);
        }
    })?;
    Ok(())
}

/// Counts the queues of a host anew.
fn recount(
    source: &mut dyn Source,
    host: &mut HostRow,
    shard: ShardId,
    left_out: &mut Vec<LeftOut>,
) -> anyhow::Result<()> {
    let (birth, number) = (host.id.birth(), host.id.counter());
    let range = |kind| (host_key(birth, kind, number), host_key(birth, kind, number + 1));
    let mut queues: BTreeMap<u32, Counted> = BTreeMap::new();
    let entries_lost = each(source, range(Kind::Due), |row| {
        if let Ok((id, position, key)) = due::parse_key(&row.key) {
            add(&mut queues.entry(id.no).or_default().by_entries, position, &key);
        }
    })?;
    let mut decodes = true;
    let urls_lost = each(source, range(Kind::Url), |row| {
        let (Ok((id, key)), Ok(found)) = (url::parse_key(&row.key), url::decode(&row.value)) else {
            decodes = false;
            return;
        };
        let counted = queues.entry(id.no).or_default();
        match found.status {
            UrlStatus::Queued(position) => add(&mut counted.by_urls, position, &key),
            UrlStatus::Held { .. } | UrlStatus::Reserved { .. } => counted.reserved += 1,
            UrlStatus::Done { end: UrlEnd::Fetched, .. } => counted.fetched += 1,
            UrlStatus::Done { end: UrlEnd::Gone, .. } => counted.gone += 1,
            UrlStatus::Done { end: UrlEnd::Failed, .. } => counted.failed += 1,
        }
    })?;
    // Entries that cannot be read are rebuilt from the rows of their URLs.
    let urls_lost = urls_lost || !decodes;
    let by_urls = entries_lost && !urls_lost;
    if entries_lost && urls_lost {
        add_lost_entries(source, range(Kind::Due), range(Kind::Url), &mut queues)?;
    }
    for queue in &mut host.queues {
        let counted = queues.remove(&queue.no).unwrap_or_default();
        let lanes = if by_urls { counted.by_urls } else { counted.by_entries };
        queue.lanes = lanes.into_values().collect();
        (queue.reserved, queue.fetched) = (counted.reserved, counted.fetched);
        (queue.gone, queue.failed) = (counted.gone, counted.failed);
        queue.pages = queue.pages.max(queue.fetched.saturating_add(queue.gone).saturating_add(queue.failed));
    }
    host.next_queue = host.next_queue.max(queues.keys().last().map_or(0, |no| no + 1));
    let key = hot::host_key(shard, host.id);
    left_out.extend(queues.into_keys().map(|no| LeftOut {
        key: key.clone(),
        why: format!("queue {no} of {}, of which it is not known to which crawl it belongs", host.name),
    }));
    Ok(())
}

/// Names the hosts of shards that have URLs but no row any more.
pub fn name_orphans(
    source: &mut dyn Source,
    shards: &BTreeSet<ShardId>,
    left_out: &mut Vec<LeftOut>,
) -> anyhow::Result<()> {
    if shards.is_empty() {
        return Ok(());
    }
    let mut known = BTreeSet::new();
    for shard in (0..source.header().shards).map(ShardId) {
        known.extend(HotRows::load(source, shard)?.hosts.into_keys());
    }
    for shard in shards {
        let (mut from, to) = keys::range(*shard, Kind::Url, Kind::Url);
        while from < to {
            let step = read(source, &from, 1)?;
            let mut next = step.next;
            for row in step.rows.iter().filter(|row| row.key < to) {
                let Ok((queue, _)) = url::parse_key(&row.key) else { continue };
                if known.insert(queue.host) {
                    let why = "the row of its host is lost, so its URLs are not visited".to_owned();
                    left_out.push(LeftOut { key: hot::host_key(*shard, queue.host), why });
                }
                next = Some(host_key(*shard, Kind::Url, queue.host.counter() + 1)).max(next);
            }
            let Some(next) = next else { break };
            from = next;
        }
    }
    Ok(())
}

#[cfg(test)]
#[path = "hot_tests.rs"]
mod tests;
