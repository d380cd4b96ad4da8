//! Where the hosts of a damaged store live, each in one shard.
//!
//! A host that joins or leaves an alias may move to another shard. If the change that removed it from the first one is lost,
//! both have a row of it, and two could visit it at once. A shard without damage is right; of damaged ones, the shard of the
//! alias is, or else the shard that the host's name hashes to.
//!
//! Every shard knows the settings of every crawl, so a damaged one gets those that it has lost from the others. Otherwise the next
//! change of such a crawl would lose them everywhere: where the shard is the crawl's home, it decides on the change, by what
//! it knows, and the others follow.

use std::collections::{BTreeMap, BTreeSet};

use wayleave_core::frontier::row::{CrawlRow, ShardRow};
use wayleave_core::ids::{CrawlNo, HostId, ShardId};
use wayleave_core::names::{Alias, CrawlName, HostName};
use wayleave_engine::rows::hot;
use wayleave_engine::salvage::LeftOut;
use wayleave_shard::home;

use super::hot::HotRows;
use super::source::Source;

/// What damaged shards must not take from their older rows.
#[derive(Debug, Default)]
pub struct Homes {
    /// Rows of hosts that are out of date, and where the host lives.
    elsewhere: BTreeMap<(ShardId, HostId), ShardId>,
    /// Hosts whose names hash to a damaged shard: with which alias they live elsewhere, if they do.
    aliases: BTreeMap<HostName, Option<Alias>>,
    /// The newest settings of each crawl.
    crawls: BTreeMap<CrawlName, CrawlRow>,
}

/// A row of a host.
struct Found {
    shard: ShardId,
    id: HostId,
    alias: Option<Alias>,
}

impl Homes {
    /// Compares the hosts of all shards.
    pub fn find(source: &mut dyn Source, damaged: &BTreeSet<ShardId>) -> anyhow::Result<Self> {
        let (mut homes, shards) = (Self::default(), source.header().shards);
        if damaged.is_empty() {
            return Ok(homes);
        }
        let mut hosts: BTreeMap<HostName, Vec<Found>> = BTreeMap::new();
        let mut members: BTreeMap<HostName, Alias> = BTreeMap::new();
        for shard in (0..shards).map(ShardId) {
            let rows = HotRows::load(source, shard)?;
            // A damaged shard may still have a crawl that was deleted.
            if !damaged.contains(&shard) || damaged.len() == usize::from(shards) {
                homes.note_crawls(rows.crawls.into_values());
            }
            members.extend(rows.members.into_iter().filter(|(name, _)| home(name, shards) == shard));
            for (id, host) in rows.hosts {
                let alias = host.group.and_then(|group| rows.aliases.get(&group)).map(|row| row.name.clone());
                hosts.entry(host.name).or_default().push(Found { shard, id, alias });
            }
        }
        for (name, found) in hosts {
            let by_name = home(&name, shards);
            let by_alias = members.get(&name).map(|alias| home(alias, shards));
            let rank = |row: &Found| {
                let (is_sound, has_alias) = (!damaged.contains(&row.shard), by_alias == Some(row.shard));
                (is_sound, has_alias, row.shard == by_name, row.id)
            };
            let Some(lives) = found.iter().max_by_key(|row| rank(row)) else { continue };
            let old = found.iter().filter(|row| (row.shard, row.id) != (lives.shard, lives.id));
            let old = old.filter(|row| damaged.contains(&row.shard));
            homes.elsewhere.extend(old.map(|row| ((row.shard, row.id), lives.shard)));
            if !damaged.contains(&by_name) {
                continue;
            }
            let is_home = lives.shard == by_name;
            let alias = lives.alias.clone().filter(|alias| home(alias, shards) == lives.shard);
            // The shard of its name says where it is: what it says may be lost or out of date.
            if (is_home && by_alias.is_some_and(|shard| shard != by_name)) || (!is_home && alias.is_some()) {
                homes.aliases.insert(name, alias.filter(|_| !is_home));
            }
        }
        Ok(homes)
    }

    fn note_crawls(&mut self, rows: impl Iterator<Item = CrawlRow>) {
        for row in rows.filter(|row| row.kept) {
            let newest = self.crawls.entry(row.name.clone()).or_insert_with(|| row.clone());
            if newest.version < row.version {
                *newest = row;
            }
        }
    }

    /// Gives a damaged shard the settings of crawls that it has lost.
    pub fn settle_crawls(&self, crawls: &mut BTreeMap<CrawlNo, CrawlRow>, shard: &mut ShardRow) {
        let known: BTreeMap<CrawlName, CrawlNo> = crawls.values().map(|row| (row.name.clone(), row.no)).collect();
        for newest in self.crawls.values() {
            let no = known.get(&newest.name).copied().unwrap_or_else(|| {
                let no = CrawlNo(shard.next_crawl);
                shard.next_crawl += 1;
                no
            });
            let row = crawls.entry(no).or_insert_with(|| newest.clone());
            if row.version <= newest.version {
                *row = CrawlRow { no, ..newest.clone() };
            }
        }
    }

    /// Removes from the rows of a damaged shard what lives elsewhere.
    pub fn settle(&self, shard: ShardId, shards: u16, rows: &mut HotRows, left_out: &mut Vec<LeftOut>) {
        for (&(_, id), lives) in self.elsewhere.range((shard, HostId(0))..=(shard, HostId(u64::MAX))) {
            if let Some(host) = rows.hosts.remove(&id) {
                let why = format!("an older row of {}, which lives in shard {}", host.name, lives.0);
                left_out.push(LeftOut { key: hot::host_key(shard, id), why });
            }
        }
        for (name, alias) in self.aliases.iter().filter(|(name, _)| home(name, shards) == shard) {
            match alias {
                Some(alias) => _ = rows.members.insert(name.clone(), alias.clone()),
                None => _ = rows.members.remove(name),
            }
        }
    }
}

#[cfg(test)]
#[path = "homes_tests.rs"]
mod tests;
