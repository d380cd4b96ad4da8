//! What the shards of this process know to be damaged, for health reports and metrics.

use std::collections::BTreeMap;
use std::sync::Mutex;

use wayleave_core::ids::ShardId;
use wayleave_core::names::HostName;

use crate::shared::readiness::lock;

/// Damage in the shards of this process, as far as it was met.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DamageReport {
    /// Hosts of which rows cannot be read.
    pub hosts: u64,
    /// URLs that were handed out and cannot be returned to their queues.
    pub stranded_urls: u64,
    /// Shards that are closed, because rows that they need cannot be read.
    pub shards_closed: u64,
    /// Shards without a filter of known URLs: each put of them reads the store.
    pub shards_unfiltered: u64,
    /// The names of some of the hosts.
    pub named: Vec<HostName>,
}

impl DamageReport {
    /// A sentence about the hosts; `None` if there are none.
    #[must_use]
    pub fn told(&self) -> Option<String> {
        let names = self.named.iter().map(|host| format!("'{host}'")).collect::<Vec<_>>().join(", ");
        (self.hosts > 0).then(|| format!("rows of {} hosts cannot be read, among them {names}", self.hosts))
    }
}

/// The damage of one shard: the number of its hosts and of their stranded URLs, and some names.
pub(crate) type ShardDamage = (u64, u64, Vec<HostName>);

/// The damage of each shard.
#[derive(Default)]
pub(crate) struct DamageBoard(Mutex<BTreeMap<ShardId, ShardDamage>>);

impl DamageBoard {
    /// A shard publishes its damage; `None` if there is none.
    pub fn set(&self, shard: ShardId, damage: Option<ShardDamage>) {
        let mut shards = lock(&self.0);
        match damage {
            Some(damage) => shards.insert(shard, damage),
            None => shards.remove(&shard),
        };
    }

    /// The damage of all shards.
    pub fn report(&self, named_max: usize) -> DamageReport {
        let mut report = DamageReport::default();
        for (hosts, stranded, named) in lock(&self.0).values() {
            report.hosts += hosts;
            report.stranded_urls += stranded;
            report.named.extend(named.iter().cloned());
        }
        report.named.truncate(named_max);
        report
    }
}
