//! Tells the waiting readers of this process that the map has changed.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::fleet::known_map::KnownMap;
use crate::shared::broadcast::{Broadcast, Subscriber};

/// The version of the map, as the owner in this process has it. It may not be durable yet, and is never answered: who is
/// woken asks the owner, whose answer waits for the commit.
#[derive(Default)]
pub(crate) struct MapNews {
    version: AtomicU64,
    news: Broadcast,
    /// The map as the readers of this process last had it.
    pub known: KnownMap,
}

impl MapNews {
    /// The owner publishes the version.
    pub fn tell(&self, version: u64) {
        if self.version.swap(version, Ordering::AcqRel) != version {
            self.news.notify();
        }
    }

    /// The version, for other nodes.
    pub fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    /// The owner on another node has another version.
    pub fn hear(&self) {
        self.news.notify();
    }

    /// Subscribes to changes from now on.
    pub fn subscribe(&self) -> Subscriber {
        self.news.subscribe()
    }
}
