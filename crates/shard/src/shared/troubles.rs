//! Why shards of this process cannot be opened, or refuse changes. It knows nothing of what a shard does.

use std::collections::BTreeMap;
use std::sync::Mutex;

use wayleave_core::ids::ShardId;

use crate::shared::readiness::lock;

/// The troubles of the shards that have one.
#[derive(Default)]
pub(crate) struct Troubles(Mutex<BTreeMap<ShardId, Trouble>>);

struct Trouble {
    why: String,
    /// Rows that it needs cannot be read.
    damage: bool,
    /// How often it could not be opened, in a row.
    openings: u32,
}

/// A shard that could not be opened so often in a row should go to another node.
const OPENINGS_MAX: u32 = 5;

impl Troubles {
    /// Records why a shard refuses changes; `None` clears it.
    pub fn set(&self, shard: ShardId, why: Option<String>) {
        let mut troubles = lock(&self.0);
        match why {
            Some(why) => troubles.insert(shard, Trouble { why, damage: false, openings: 0 }),
            None => troubles.remove(&shard),
        };
    }

    /// Records that a shard is closed because it could not be opened, perhaps since rows that it needs cannot be read.
    pub fn set_closed(&self, shard: ShardId, why: String, damage: bool) {
        let mut troubles = lock(&self.0);
        let openings = troubles.get(&shard).map_or(0, |trouble| trouble.openings).saturating_add(1);
        troubles.insert(shard, Trouble { why, damage, openings });
    }

    /// The shards that could not be opened several times in a row.
    pub fn unopened(&self) -> Vec<ShardId> {
        let troubles = lock(&self.0);
        troubles.iter().filter(|(_, trouble)| trouble.openings >= OPENINGS_MAX).map(|(shard, _)| *shard).collect()
    }

    /// Counts anew how often shards could not be opened.
    pub fn forgive_openings(&self) {
        lock(&self.0).values_mut().for_each(|trouble| trouble.openings = 0);
    }

    /// Whether a shard is closed because rows that it needs cannot be read.
    pub fn is_damaged(&self, shard: ShardId) -> bool {
        lock(&self.0).get(&shard).is_some_and(|trouble| trouble.damage)
    }

    /// How many shards are closed for that.
    pub fn damaged(&self) -> u64 {
        lock(&self.0).values().filter(|trouble| trouble.damage).count() as u64
    }

    /// Why a shard cannot be opened.
    pub fn of(&self, shard: ShardId) -> Option<String> {
        lock(&self.0).get(&shard).map(|trouble| trouble.why.clone())
    }

    /// Why the frontier is not ready, if shards cannot be opened: the first one's reason, and which others there are.
    pub fn all(&self) -> Option<String> {
        let troubles = lock(&self.0);
        let mut all = troubles.iter();
        let (_, first) = all.next()?;
        let others: Vec<String> = all.map(|(shard, _)| shard.0.to_string()).collect();
        Some(match others.len() {
            0 => first.why.clone(),
            _ => format!("{}; also in trouble: shards {}", first.why, others.join(", ")),
        })
    }
}
