//! What could not be copied: rebuilt from other rows where they tell, and named by host.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;

use wayleave_core::frontier::row::{Details, DueRow, HotRow, UrlRow, UrlStatus};
use wayleave_core::ids::{HostId, ShardId};
use wayleave_engine::rows::{Kind, due, hold, hot, key as keys, lease, log, url};
use wayleave_engine::salvage::LeftOut;
use wayleave_engine::snapshot_file::Loss;
use wayleave_engine::{Key, Row, Write};

use super::damage::read;
use super::handed_out;
use super::homes::Homes;
use super::hot::each;
use super::source::Source;

/// Rows per read.
const PAGE: usize = 1_000;
/// At most this many rows of one gap are rebuilt, because they are sorted in memory.
const REBUILT_MAX: usize = 500_000;
/// At most this many hosts of one gap are named.
pub const HOSTS_MAX: usize = 10_000;

/// Rows that could not be read.
#[derive(Debug)]
pub struct Gap {
    pub from: Key,
    pub to: Key,
    pub why: String,
    /// Rows in it that other rows told.
    pub rebuilt: usize,
}

/// All that could not be copied.
#[derive(Debug, Default)]
pub struct Losses {
    pub gaps: Vec<Gap>,
    pub left_out: Vec<LeftOut>,
    /// Those of which the hosts are known.
    pub named: Vec<Loss>,
    /// Rows that may be older than what was acknowledged.
    older: Older,
}

/// What the lost commits of a damaged journal have changed.
#[derive(Debug, Default)]
struct Older {
    /// Hosts, with their names if the commits tell.
    hosts: BTreeMap<HostId, Option<String>>,
    /// Hosts that have joined or left an alias elsewhere.
    moved: BTreeSet<String>,
    /// What else has changed: crawls and aliases by name, kinds of rows that belong to no host.
    others: BTreeSet<String>,
}

impl Older {
    fn note(&mut self, Write { key, value }: &Write) {
        let Ok(kind) = keys::kind(key) else { return };
        let changes = || value.as_deref().and_then(|value| log::decode(value).ok()).into_iter().flatten();
        match kind {
            Kind::Url | Kind::Due | Kind::Host => {
                host_of(key).into_iter().for_each(|id| _ = self.hosts.entry(id).or_default());
            }
            Kind::Hold => {
                hold::parse_key(key)
                    .into_iter()
                    .for_each(|(_, queue, _)| _ = self.hosts.entry(queue.host).or_default());
            }
            Kind::Lease => {
                let lease = value.as_deref().and_then(|value| lease::decode(value).ok());
                lease.into_iter().for_each(|lease| _ = self.hosts.entry(lease.host).or_default());
            }
            Kind::Log => changes().for_each(|change| match change {
                log::Change::Row(HotRow::Host(host)) => _ = self.hosts.insert(host.id, Some(host.name.to_string())),
                log::Change::Part(part) => _ = self.hosts.entry(part.id).or_default(),
                log::Change::Row(HotRow::HostAlias { host, .. }) => _ = self.moved.insert(host.to_string()),
                log::Change::Row(HotRow::Crawl(crawl)) => self.note_other(format!("crawl '{}'", crawl.name)),
                log::Change::Row(HotRow::Alias(alias)) => self.note_other(format!("alias '{}'", alias.name)),
                // Their rows name nothing.
                log::Change::Row(HotRow::CrawlGone(_)) => self.note_other("a deleted crawl".to_owned()),
                log::Change::Row(HotRow::AliasGone(_)) => self.note_other("a deleted alias".to_owned()),
                log::Change::Row(HotRow::HostGone(id)) => _ = self.hosts.entry(id).or_default(),
                log::Change::Row(HotRow::Shard(_)) => {}
            }),
            // The engine's, and what every commit changes.
            Kind::Fence | Kind::Shard => {}
            other => self.note_other(format!("kind {}", format!("{other:?}").to_lowercase())),
        }
    }

    fn note_other(&mut self, other: String) {
        if self.others.len() < HOSTS_MAX {
            self.others.insert(other);
        }
    }

    fn loss(self, names: &BTreeMap<HostId, String>) -> Option<Loss> {
        if self.hosts.is_empty() && self.moved.is_empty() && self.others.is_empty() {
            return None;
        }
        let others: Vec<String> = self.others.into_iter().collect();
        let others = if others.is_empty() { String::new() } else { format!(", and of {}", others.join(", ")) };
        let what = format!(
            "newer versions of rows of these hosts{others}: commits behind the damage of the journal can be read, but others between \
             them may be missing, so what was stored before is kept"
        );
        let name = |(id, name): (HostId, Option<String>)| {
            name.or_else(|| names.get(&id).cloned()).unwrap_or_else(|| unnamed(id))
        };
        let hosts: BTreeSet<String> =
            self.moved.into_iter().chain(self.hosts.into_iter().map(name)).take(HOSTS_MAX).collect();
        Some(Loss { what, hosts: hosts.into_iter().collect() })
    }
}

fn unnamed(id: HostId) -> String {
    format!("host {} (its row is lost)", id.0)
}

/// Rebuilds rows in a gap. A queued URL has two rows, and each tells the other: the entry in the queue has all that the URL's
/// row says, and the row has all but the details of earlier visits. A reservation or hold is told by the rows of its URLs, and
/// tells them.
pub fn rebuild(source: &mut dyn Source, homes: &Homes, from: &[u8], to: &[u8]) -> anyhow::Result<Vec<Row>> {
    let (mut rows, shards) = (Vec::new(), source.header().shards);
    for (lost, other) in [(Kind::Url, Kind::Due), (Kind::Due, Kind::Url)] {
        for (shard, first, last) in hosts_between(from, to, lost, shards) {
            let (mut at, end) = (host_key(shard, other, first), host_key(shard, other, last.saturating_add(1)));
            while at < end && rows.len() < REBUILT_MAX {
                let step = read(source, &at, PAGE)?;
                let twins = step.rows.iter().filter(|row| row.key < end).filter_map(twin);
                rows.extend(twins.filter(|row| from <= row.key.as_slice() && row.key.as_slice() < to));
                let Some(next) = step.next else { break };
                at = next;
            }
        }
    }
    for shard in (0..shards).map(ShardId) {
        rows.extend(handed_out::rebuild(source, homes, shard, from, to)?);
        if !hosts_between(from, to, Kind::Url, shards).is_empty() {
            rows.extend(handed_out::rebuild_urls(source, shard, from, to)?);
        }
    }
    rows.sort_by(|a, b| a.key.cmp(&b.key));
    rows.dedup_by(|a, b| a.key == b.key);
    Ok(rows)
}

/// The other row of a queued URL.
fn twin(row: &Row) -> Option<Row> {
    if row.key.get(2) == Some(&(Kind::Due as u8)) {
        let (queue, position, key) = due::parse_key(&row.key).ok()?;
        let DueRow { created, whole, .. } = due::decode(&row.value).ok()?;
        let twin = UrlRow { created, whole, status: UrlStatus::Queued(position) };
        return Some(Row { key: url::key(queue, &key.0), value: url::encode(&twin) });
    }
    let (queue, key) = url::parse_key(&row.key).ok()?;
    let UrlRow { created, whole, status } = url::decode(&row.value).ok()?;
    let UrlStatus::Queued(position) = status else { return None };
    let twin = DueRow { created, whole, details: Details::default() };
    Some(Row { key: due::key(queue, position, &key.0), value: due::encode(&twin) })
}

/// Each shard of a store with the first and last host number whose rows of a kind may be between two keys. A gap of unknown end
/// reaches past the last shard.
fn hosts_between(from: &[u8], to: &[u8], kind: Kind, shards: u16) -> Vec<(ShardId, u64, u64)> {
    let shard = |key: &[u8]| u16::from_be_bytes([key.first().copied().unwrap_or(0), key.get(1).copied().unwrap_or(0)]);
    let number = |key: &[u8]| key.get(3..9).map(|bytes| bytes.iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte)));
    let mut found = Vec::new();
    for shard in (shard(from)..=shard(to)).take_while(|shard| *shard < shards) {
        let (first, end) = keys::range(ShardId(shard), kind, kind);
        if from < end.as_slice() && first.as_slice() < to {
            let begin = if from.starts_with(&first) { number(from).unwrap_or(0) } else { 0 };
            let last = if to.starts_with(&first) { number(to).unwrap_or(0) } else { (1 << 48) - 2 };
            found.push((ShardId(shard), begin, last));
        }
    }
    found
}

/// The first key of a host's rows.
pub fn host_key(shard: ShardId, kind: Kind, number: u64) -> Key {
    keys::of(shard, kind, &[&keys::host(HostId::new(shard, number))])
}

impl Losses {
    /// Adds a gap, or makes the last one longer if it ends here.
    pub fn add_gap(&mut self, gap: Gap) {
        match self.gaps.last_mut().filter(|last| last.to == gap.from) {
            Some(last) => (last.to, last.rebuilt) = (gap.to, last.rebuilt + gap.rebuilt),
            None => self.gaps.push(gap),
        }
    }

    /// The losses for people, by host. Names are read from the source again.
    pub fn named(self, source: &mut dyn Source) -> anyhow::Result<Vec<Loss>> {
        let mut losses = self.named.clone();
        if self.gaps.is_empty() && self.left_out.is_empty() && self.older.hosts.is_empty() {
            losses.extend(self.older.loss(&BTreeMap::new()));
            return Ok(losses);
        }
        let names = if source.seeks() { host_names(source, &self)? } else { BTreeMap::new() };
        let name = |id: HostId| names.get(&id).cloned().unwrap_or_else(|| unnamed(id));
        for gap in self.gaps {
            let mut hosts: BTreeSet<String> = BTreeSet::new();
            for (shard, first, last) in gap.hosts(source.header().shards) {
                let between = names.range(HostId::new(shard, first)..=HostId::new(shard, last));
                hosts.extend(between.take(HOSTS_MAX).map(|(_, name)| name.clone()));
            }
            let (kinds, rebuilt) = (kinds_between(&gap.from, &gap.to), gap.rebuilt);
            let saved =
                if rebuilt == 0 { String::new() } else { format!("; {rebuilt} of them were rebuilt from others") };
            let what = format!("rows that cannot be read ({kinds}){saved}: {}", gap.why);
            losses.push(Loss { what, hosts: hosts.into_iter().collect() });
        }
        for LeftOut { key, why } in self.left_out {
            let hosts = host_of(&key).map(name).into_iter().collect();
            losses.push(Loss { what: format!("{}: {why}", describe(&key)), hosts });
        }
        losses.extend(self.older.loss(&names));
        Ok(losses)
    }

    /// Notes writes of lost commits.
    pub fn note_lost_writes(&mut self, writes: &[Write]) {
        writes.iter().for_each(|write| self.older.note(write));
    }

    /// The hosts that may have lost rows: ranges of them, and single ones.
    fn concerned(&self, shards: u16) -> (Vec<RangeInclusive<HostId>>, BTreeSet<HostId>) {
        let ranges = self.gaps.iter().flat_map(|gap| gap.hosts(shards));
        let ranges = ranges.map(|(shard, first, last)| HostId::new(shard, first)..=HostId::new(shard, last)).collect();
        let left_out = self.left_out.iter().filter_map(|left| host_of(&left.key));
        (ranges, left_out.chain(self.older.hosts.keys().copied()).collect())
    }
}

impl Gap {
    /// Each shard with the first and last number of the hosts whose URLs it may concern.
    fn hosts(&self, shards: u16) -> impl Iterator<Item = (ShardId, u64, u64)> {
        [Kind::Url, Kind::Due].into_iter().flat_map(move |kind| hosts_between(&self.from, &self.to, kind, shards))
    }
}

/// The host that a row of a URL belongs to.
fn host_of(key: &[u8]) -> Option<HostId> {
    match keys::kind(key).ok()? {
        Kind::Url => url::parse_key(key).ok().map(|(queue, _)| queue.host),
        Kind::Due => due::parse_key(key).ok().map(|(queue, ..)| queue.host),
        Kind::Host => hot::parse_host_key(key).ok(),
        _ => None,
    }
}

fn describe(key: &[u8]) -> String {
    let shard = match key {
        [0xff, 0xff, ..] => "outside the shards".to_owned(),
        [high, low, ..] => format!("shard {}", u16::from_be_bytes([*high, *low])),
        _ => "nowhere".to_owned(),
    };
    let kind = keys::kind(key).map_or_else(|_| "unknown".to_owned(), |kind| format!("{kind:?}").to_lowercase());
    let rest: String =
        key.get(keys::PREFIX_BYTES..).unwrap_or_default().iter().take(64).map(|b| format!("{b:02x}")).collect();
    format!("{shard}, {kind} row {rest}")
}

/// Which kinds of rows may be between two keys.
fn kinds_between(from: &[u8], to: &[u8]) -> String {
    let kind = |key: &[u8]| keys::kind(key).map_or_else(|_| "…".to_owned(), |kind| format!("{kind:?}").to_lowercase());
    let shard = |key: &[u8]| u16::from_be_bytes([key.first().copied().unwrap_or(0), key.get(1).copied().unwrap_or(0)]);
    match (shard(from) == shard(to), kind(from) == kind(to)) {
        (true, true) => format!("{} of shard {}", kind(from), shard(from)),
        (true, false) => format!("{} to {} of shard {}", kind(from), kind(to), shard(from)),
        (false, _) => format!("{} of shard {} to {} of shard {}", kind(from), shard(from), kind(to), shard(to)),
    }
}

/// The names of the hosts that may have lost rows, as far as they can be read.
fn host_names(source: &mut dyn Source, losses: &Losses) -> anyhow::Result<BTreeMap<HostId, String>> {
    let mut names = BTreeMap::new();
    let (ranges, single) = losses.concerned(source.header().shards);
    let mut note = |row: HotRow| {
        if let HotRow::Host(host) = row
            && (single.contains(&host.id) || ranges.iter().any(|range| range.contains(&host.id)))
        {
            names.insert(host.id, host.name.to_string());
        }
    };
    for shard in (0..source.header().shards).map(ShardId) {
        for kind in [Kind::Host, Kind::Log] {
            each(source, keys::range(shard, kind, kind), |row| match kind {
                Kind::Host => hot::decode(&row.key, Some(&row.value)).into_iter().for_each(&mut note),
                _ => log::decode(&row.value).into_iter().flatten().for_each(|change| {
                    if let log::Change::Row(row) = change {
                        note(row);
                    }
                }),
            })?;
        }
    }
    Ok(names)
}

#[cfg(test)]
#[path = "losses_tests.rs"]
mod tests;
