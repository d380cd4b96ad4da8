//! The hosts of a shard by index, name and id. The two hash indexes store slab indices only and read names and ids from
//! the hosts themselves, because hosts dominate a shard's memory.

use std::collections::BTreeMap;
use std::hash::BuildHasher;
use std::ops::{Bound, Index, IndexMut};

use hashbrown::{DefaultHashBuilder, HashTable};

use super::slab::{Ix, Slab};
use super::state::Host;
use crate::ids::{HostId, ShardId};

#[derive(Default)]
pub(super) struct Hosts {
    hosts: Slab<Host>,
    by_name: HashTable<Ix>,
    by_id: HashTable<Ix>,
    hasher: DefaultHashBuilder,
    shard: ShardId,
    /// Hosts born in other shards, ordered by id; there are few.
    foreign: BTreeMap<HostId, Ix>,
}

impl Hosts {
    /// The hosts of a shard.
    pub fn of(shard: ShardId) -> Self {
        Self { shard, ..Self::default() }
    }

    /// The first host from an id on that was born in this shard. Looks at all hosts.
    pub fn own_from(&self, from: HostId) -> Option<Ix> {
        let own = self.hosts.iter().filter(|(_, host)| host.id.birth() == self.shard && host.id >= from);
        own.min_by_key(|(_, host)| host.id).map(|(ix, _)| ix)
    }

    /// The first host after an id that was born in another shard.
    pub fn foreign_after(&self, after: Option<HostId>) -> Option<Ix> {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        self.foreign.range((from, Bound::Unbounded)).next().map(|(_, ix)| *ix)
    }

    /// Reserves capacity.
    pub fn reserve(&mut self, more: usize) {
        self.hosts.reserve(more);
        let Self { hosts, by_name, by_id, hasher, .. } = self;
        by_name.reserve(more, |ix| hasher.hash_one(&*hosts[*ix].name));
        by_id.reserve(more, |ix| hasher.hash_one(hosts[*ix].id));
    }

    /// Gives memory back if most of it is unused.
    pub fn shrink(&mut self) {
        self.hosts.shrink();
        let Self { hosts, by_name, by_id, hasher, .. } = self;
        if by_name.len() < by_name.capacity() / 4 {
            by_name.shrink_to_fit(|ix| hasher.hash_one(&*hosts[*ix].name));
            by_id.shrink_to_fit(|ix| hasher.hash_one(hosts[*ix].id));
        }
    }

    /// Inserts a host with a unique name and id; returns its index.
    pub fn insert(&mut self, host: Host) -> Ix {
        let (name, id) = (self.hasher.hash_one(&*host.name), self.hasher.hash_one(host.id));
        let own_id = host.id;
        let ix = self.hosts.insert(host);
        if own_id.birth() != self.shard {
            self.foreign.insert(own_id, ix);
        }
        let Self { hosts, by_name, by_id, hasher, .. } = self;
        by_name.insert_unique(name, ix, |ix| hasher.hash_one(&*hosts[*ix].name));
        by_id.insert_unique(id, ix, |ix| hasher.hash_one(hosts[*ix].id));
        ix
    }

    /// Removes a host.
    pub fn remove(&mut self, ix: Ix) -> Option<Host> {
        let host = self.hosts.remove(ix)?;
        self.foreign.remove(&host.id);
        // Compare the index, not the name: the host is no longer where the hash index would read it.
        if let Ok(entry) = self.by_name.find_entry(self.hasher.hash_one(&*host.name), |of| *of == ix) {
            entry.remove();
        }
        if let Ok(entry) = self.by_id.find_entry(self.hasher.hash_one(host.id), |of| *of == ix) {
            entry.remove();
        }
        Some(host)
    }

    /// The index of a host by name.
    pub fn by_name(&self, name: &str) -> Option<Ix> {
        self.by_name.find(self.hasher.hash_one(name), |ix| *self.hosts[*ix].name == *name).copied()
    }

    /// The index of a host by id.
    pub fn by_id(&self, id: HostId) -> Option<Ix> {
        self.by_id.find(self.hasher.hash_one(id), |ix| self.hosts[*ix].id == id).copied()
    }

    /// Hosts in index order.
    pub fn iter(&self) -> impl Iterator<Item = (Ix, &Host)> {
        self.hosts.iter()
    }

    /// The host at an index.
    pub fn find(&self, ix: Ix) -> Option<&Host> {
        self.hosts.find(ix)
    }

    /// All indices in use.
    pub fn numbers(&self) -> Vec<Ix> {
        self.hosts.numbers()
    }

    pub fn len(&self) -> usize {
        self.hosts.len()
    }
}

impl Index<Ix> for Hosts {
    type Output = Host;
    fn index(&self, ix: Ix) -> &Host {
        &self.hosts[ix]
    }
}

impl IndexMut<Ix> for Hosts {
    fn index_mut(&mut self, ix: Ix) -> &mut Host {
        &mut self.hosts[ix]
    }
}
