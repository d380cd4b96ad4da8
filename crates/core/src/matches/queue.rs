//! Requests that wait, in their order, with the position of each.

use std::collections::{BTreeMap, BTreeSet};

use crate::names::ClientName;

/// Turns per bucket: a position is counted in buckets, then within one.
const BUCKET: u64 = 256;

/// Requests that wait.
#[derive(Clone, Debug, Default)]
pub(super) struct Queue {
    turns: BTreeMap<u64, ClientName>,
    buckets: BTreeMap<u64, usize>,
    /// Those that may be tried at once. Others cool down, or wait for an earlier reservation to be given back.
    ready: BTreeSet<u64>,
}

impl Queue {
    pub fn len(&self) -> usize {
        self.turns.len()
    }

    pub fn is_empty(&self) -> bool {
        self.turns.is_empty()
    }

    pub fn insert(&mut self, turn: u64, client: ClientName) {
        if self.turns.insert(turn, client).is_none() {
            *self.buckets.entry(turn / BUCKET).or_default() += 1;
        }
    }

    pub fn remove(&mut self, turn: u64) {
        self.ready.remove(&turn);
        if self.turns.remove(&turn).is_some()
            && let Some(count) = self.buckets.get_mut(&(turn / BUCKET))
        {
            *count -= 1;
            if *count == 0 {
                self.buckets.remove(&(turn / BUCKET));
            }
        }
    }

    pub fn set_ready(&mut self, turn: u64, ready: bool) {
        if ready && self.turns.contains_key(&turn) {
            self.ready.insert(turn);
        } else {
            self.ready.remove(&turn);
        }
    }

    /// The first that may be tried.
    pub fn first_ready(&self) -> Option<(u64, ClientName)> {
        let turn = self.ready.first()?;
        self.turns.get(turn).map(|client| (*turn, client.clone()))
    }

    /// The first that waits.
    pub fn first(&self) -> Option<ClientName> {
        self.turns.first_key_value().map(|(_, client)| client.clone())
    }

    /// How many wait before this one.
    pub fn ahead(&self, turn: u64) -> usize {
        let before: usize = self.buckets.range(..turn / BUCKET).map(|(_, count)| count).sum();
        before + self.turns.range(turn / BUCKET * BUCKET..turn).count()
    }

    /// Everything that waits, in order.
    pub fn iter(&self) -> impl Iterator<Item = (u64, &ClientName)> {
        self.turns.iter().map(|(turn, client)| (*turn, client))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    proptest::proptest! {
        #[test]
        fn a_position_is_the_number_of_those_before(turns in proptest::collection::btree_set(0u64..2_000, 0..300), gone in 0u64..2_000) {
            let mut queue = Queue::default();
            for turn in &turns {
                queue.insert(*turn, turn.to_string().into());
            }
            queue.remove(gone);
            let left: Vec<u64> = turns.iter().copied().filter(|turn| *turn != gone).collect();
            for (place, turn) in left.iter().enumerate() {
                proptest::prop_assert_eq!(queue.ahead(*turn), place);
            }
            proptest::prop_assert_eq!(queue.len(), left.len());
        }
    }
}
