//! Requests that wait, in their order, with the position of each.

use std::collections::{BTreeMap, BTreeSet};

use crate::names::ClientName;

/// Numbers per bucket: a position is counted in buckets, then within one.
const BUCKET: u64 = 256;

/// Requests that wait.
#[derive(Clone, Debug, Default)]
pub(super) struct Queue {
    clients: BTreeMap<u64, ClientName>,
    buckets: BTreeMap<u64, usize>,
    /// Those that may be tried at once. Others cool down, or wait for an earlier reservation to be given back.
    ready: BTreeSet<u64>,
}

impl Queue {
    pub fn len(&self) -> usize {
        self.clients.len()
    }

    pub fn is_empty(&self) -> bool {
        self.clients.is_empty()
    }

    pub fn insert(&mut self, number: u64, client: ClientName) {
        if self.clients.insert(number, client).is_none() {
            *self.buckets.entry(number / BUCKET).or_default() += 1;
        }
    }

    pub fn remove(&mut self, number: u64) {
        self.ready.remove(&number);
        if self.clients.remove(&number).is_some()
            && let Some(count) = self.buckets.get_mut(&(number / BUCKET))
        {
            *count -= 1;
            if *count == 0 {
                self.buckets.remove(&(number / BUCKET));
            }
        }
    }

    pub fn set_ready(&mut self, number: u64, ready: bool) {
        if ready && self.clients.contains_key(&number) {
            self.ready.insert(number);
        } else {
            self.ready.remove(&number);
        }
    }

    /// The first that may be tried.
    pub fn first_ready(&self) -> Option<(u64, ClientName)> {
        let number = self.ready.first()?;
        self.clients.get(number).map(|client| (*number, client.clone()))
    }

    /// The first that waits.
    pub fn first(&self) -> Option<ClientName> {
        self.clients.first_key_value().map(|(_, client)| client.clone())
    }

    /// How many wait before this one.
    pub fn ahead(&self, number: u64) -> usize {
        let before: usize = self.buckets.range(..number / BUCKET).map(|(_, count)| count).sum();
        before + self.clients.range(number / BUCKET * BUCKET..number).count()
    }

    /// Everything that waits, in order.
    pub fn iter(&self) -> impl Iterator<Item = (u64, &ClientName)> {
        self.clients.iter().map(|(number, client)| (*number, client))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    proptest::proptest! {
        #[test]
        fn a_position_is_the_number_of_those_before(clients in proptest::collection::btree_set(0u64..2_000, 0..300), gone in 0u64..2_000) {
            let mut queue = Queue::default();
            for number in &clients {
                queue.insert(*number, number.to_string().into());
            }
            queue.remove(gone);
            let left: Vec<u64> = clients.iter().copied().filter(|number| *number != gone).collect();
            for (place, number) in left.iter().enumerate() {
                proptest::prop_assert_eq!(queue.ahead(*number), place);
            }
            proptest::prop_assert_eq!(queue.len(), left.len());
        }
    }
}
