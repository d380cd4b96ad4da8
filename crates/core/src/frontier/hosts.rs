//! The hosts of a shard, found by number, by name and by id. The two indexes keep numbers alone and read names and ids
//! where the hosts lie: of all that a shard keeps in memory there is most of hosts.

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
    /// Those that were born in other shards, of which there are few, in order of id.
    foreign: BTreeMap<HostId, Ix>,
}

impl Hosts {
    /// Of a shard.
    pub fn of(shard: ShardId) -> Self {
        Self { shard, ..Self::default() }
    }

    /// The first host after an id that was born in another shard.
    pub fn foreign_after(&self, after: Option<HostId>) -> Option<Ix> {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        self.foreign.range((from, Bound::Unbounded)).next().map(|(_, ix)| *ix)
    }

    /// Makes room for so many more.
    pub fn reserve(&mut self, more: usize) {
        self.hosts.reserve(more);
        let Self { hosts, by_name, by_id, hasher, .. } = self;
        by_name.reserve(more, |ix| hasher.hash_one(&*hosts[*ix].name));
        by_id.reserve(more, |ix| hasher.hash_one(hosts[*ix].id));
    }

    /// Keeps a host whose name and id no other has, and says its number.
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

    /// Takes a host out.
    pub fn remove(&mut self, ix: Ix) -> Option<Host> {
        let host = self.hosts.remove(ix)?;
        self.foreign.remove(&host.id);
        // The number is compared, not the name: the host is no longer where the index would look.
        if let Ok(entry) = self.by_name.find_entry(self.hasher.hash_one(&*host.name), |of| *of == ix) {
            entry.remove();
        }
        if let Ok(entry) = self.by_id.find_entry(self.hasher.hash_one(host.id), |of| *of == ix) {
            entry.remove();
        }
        Some(host)
    }

    /// The number of the host of a name.
    pub fn by_name(&self, name: &str) -> Option<Ix> {
        self.by_name.find(self.hasher.hash_one(name), |ix| *self.hosts[*ix].name == *name).copied()
    }

    /// The number of the host of an id.
    pub fn by_id(&self, id: HostId) -> Option<Ix> {
        self.by_id.find(self.hasher.hash_one(id), |ix| self.hosts[*ix].id == id).copied()
    }

    /// The hosts with their numbers, in order of number, from `start` on.
    pub fn iter_from(&self, start: Ix) -> impl Iterator<Item = (Ix, &Host)> {
        self.hosts.iter_from(start)
    }

    /// The host, if it is there.
    pub fn find(&self, ix: Ix) -> Option<&Host> {
        self.hosts.find(ix)
    }

    /// All numbers in use.
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
