//! The ledger of one crawl's page limit, where several nodes share a store: how many pages each shard is granted.
//!
//! Counts that nodes report to each other are late, so no shard may rely on them. Instead a shard uses only pages that
//! the ledger grants it, and the ledger, one row in the store, is changed by compare-and-swap. Two rules make the limit
//! hold: a shard never uses more than its grant, and pages are drawn only while all grants together stay below the
//! limit. Before anything is drawn, every shard has registered what it had used when the limit was set.
//!
//! What could break the rules:
//!
//! 1. *Two shards draw at once*: the second compare-and-swap fails and is decided again.
//! 2. *An old owner of a shard returns pages that the new owner counts on*: a grant carries its owner's epoch, and an
//!    older epoch changes nothing. A request of the old owner that is still on its way expects a row that the new
//!    owner's registration has changed.
//! 3. *A shard uses fewer pages than before and returns the difference, then that commit fails*: the caller returns
//!    pages only once everything it has decided is durable.
//! 4. *A host moves with pages that count*: the grant moves in the same commit ([`PageLedger::transfer`]).
//! 5. *The limit is lowered below what is granted*: a shard gives up its unused pages when it hears of the new limit,
//!    before it confirms it.
//! 6. *An old owner that was paused decides again after the new one has used pages*: its write carries the fence of its
//!    shard and is refused, whatever it decided.

use std::collections::BTreeMap;

use crate::ids::{Epoch, ShardId};

/// A shard that needs pages draws this part of its even share of what is left, so that it does not ask for every visit
/// while there are many pages, and the last ones are not spread over shards that do not need them.
const SHARE_PARTS: u64 = 4;

/// A shard draws at most this many pages more than its part, however many a visit may want.
const DRAW_MAX: u64 = 100;

/// The grants of a crawl's page limit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PageLedger(pub BTreeMap<ShardId, PageGrant>);

/// The grant of a shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageGrant {
    /// The epoch of the owner that registered it.
    pub epoch: Epoch,
    /// Pages that the shard has used or may use.
    pub pages: u64,
}

/// What the owner of a shard wants of the ledger.
#[derive(Clone, Copy, Debug)]
pub struct PageNeed {
    /// Pages used by the shard.
    pub used: u64,
    /// Unused pages that it wants at least.
    pub free: u64,
    /// Unused pages that it keeps at most; the rest is returned.
    pub keep: u64,
    /// The crawl's limit.
    pub limit: u64,
}

/// What the owner of a shard is granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageShare {
    /// Pages that the shard has used or may use.
    pub granted: u64,
    /// Pages that other shards have used or may use.
    pub others: u64,
    /// Whether every shard is registered. Until then nothing can be drawn.
    pub complete: bool,
}

impl PageLedger {
    /// Registers a shard, returns the pages it does not keep, and draws those it wants, if there are any left. `None`
    /// if the shard has a newer owner.
    pub fn grant(&mut self, shard: ShardId, epoch: Epoch, need: PageNeed, shards: u16) -> Option<PageShare> {
        let PageNeed { used, free, keep, limit } = need;
        let grant = self.0.entry(shard).or_insert(PageGrant { epoch, pages: used });
        if grant.epoch > epoch {
            return None;
        }
        grant.epoch = epoch;
        grant.pages = grant.pages.min(used.saturating_add(keep.max(free))).max(used);
        let others = self.0.iter().filter(|(one, _)| **one != shard);
        let others = others.fold(0u64, |sum, (_, grant)| sum.saturating_add(grant.pages));
        let complete = self.0.len() >= usize::from(shards);
        // Unused pages are void after the limit was lowered, and while others may have used more than is known.
        let unused = if complete { limit.saturating_sub(others.saturating_add(used)) } else { 0 };
        let most = used.saturating_add(unused);
        let grant = self.0.get_mut(&shard)?;
        grant.pages = grant.pages.min(most);
        let own = grant.pages;
        let left = if complete { limit.saturating_sub(others.saturating_add(own)) } else { 0 };
        let missing = free.saturating_sub(own - used).min(DRAW_MAX);
        let part = left / (SHARE_PARTS * u64::from(shards.max(1)));
        let drawn = if missing == 0 { 0 } else { missing.max(part).min(left) };
        if let Some(grant) = self.0.get_mut(&shard) {
            grant.pages += drawn;
        }
        Some(PageShare { granted: own + drawn, others, complete })
    }

    /// Removes a shard whose crawl has no limit any more.
    pub fn leave(&mut self, shard: ShardId, epoch: Epoch) {
        if self.0.get(&shard).is_some_and(|grant| grant.epoch <= epoch) {
            self.0.remove(&shard);
        }
    }

    /// Moves used pages with their host. A shard that is not registered yet will register what it uses after the move.
    pub fn transfer(&mut self, from: ShardId, to: ShardId, pages: u64) {
        if let Some(grant) = self.0.get_mut(&from) {
            grant.pages = grant.pages.saturating_sub(pages);
        }
        if let Some(grant) = self.0.get_mut(&to) {
            grant.pages = grant.pages.saturating_add(pages);
        }
    }

    /// All pages granted.
    #[cfg(test)]
    fn granted(&self) -> u64 {
        self.0.values().fold(0, |sum, grant| sum.saturating_add(grant.pages))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SHARDS: u16 = 4;

    /// What may happen to one of the shards.
    #[derive(Clone, Debug)]
    enum Step {
        /// Its owner hands out up to so many pages.
        Use(u16, u64),
        /// Pages are deleted.
        Delete(u16, u64),
        /// Its owner keeps at most so many unused pages.
        Return(u16, u64),
        /// Another owner takes over, with the durable count alone.
        TakeOver(u16),
        /// The limit changes; every shard hears of it before it is confirmed.
        Limit(u64),
        /// A host with up to so many pages moves.
        Move(u16, u16, u64),
        /// The owner before the present one returns everything it believes unused.
        Zombie(u16),
    }

    fn step() -> impl Strategy<Value = Step> {
        let (shard, pages) = (0..SHARDS, 0..6u64);
        prop_oneof![
            4 => (shard.clone(), pages.clone()).prop_map(|(shard, pages)| Step::Use(shard, pages)),
            1 => (shard.clone(), pages.clone()).prop_map(|(shard, pages)| Step::Delete(shard, pages)),
            1 => (shard.clone(), pages.clone()).prop_map(|(shard, pages)| Step::Return(shard, pages)),
            1 => shard.clone().prop_map(Step::TakeOver),
            1 => (0..40u64).prop_map(Step::Limit),
            1 => (shard.clone(), shard.clone(), pages).prop_map(|(from, to, pages)| Step::Move(from, to, pages)),
            1 => shard.prop_map(Step::Zombie),
        ]
    }

    #[derive(Default)]
    struct Model {
        ledger: PageLedger,
        used: [u64; SHARDS as usize],
        epochs: [u64; SHARDS as usize],
        limit: u64,
    }

    impl Model {
        fn grant(&mut self, shard: u16, free: u64, keep: u64) -> PageShare {
            let at = usize::from(shard);
            let need = PageNeed { used: self.used[at], free, keep, limit: self.limit };
            self.ledger.grant(ShardId(shard), Epoch(self.epochs[at]), need, SHARDS).unwrap()
        }

        fn take(&mut self, step: &Step) {
            match *step {
                Step::Use(shard, pages) => {
                    let share = self.grant(shard, pages, u64::MAX);
                    let at = usize::from(shard);
                    self.used[at] += pages.min(share.granted - self.used[at]);
                }
                Step::Delete(shard, pages) => {
                    let used = &mut self.used[usize::from(shard)];
                    *used = used.saturating_sub(pages);
                }
                Step::Return(shard, keep) => _ = self.grant(shard, 0, keep),
                Step::TakeOver(shard) => {
                    self.epochs[usize::from(shard)] += 1;
                    self.grant(shard, 0, u64::MAX);
                }
                Step::Limit(limit) => {
                    self.limit = limit;
                    (0..SHARDS).for_each(|shard| _ = self.grant(shard, 0, u64::MAX));
                }
                Step::Move(from, to, pages) => {
                    let pages = pages.min(self.used[usize::from(from)]);
                    self.used[usize::from(from)] -= pages;
                    self.used[usize::from(to)] += pages;
                    self.ledger.transfer(ShardId(from), ShardId(to), pages);
                }
                Step::Zombie(shard) => {
                    let Some(old) = self.epochs[usize::from(shard)].checked_sub(1) else { return };
                    let need = PageNeed { used: 0, free: 0, keep: 0, limit: self.limit };
                    let before = self.ledger.clone();
                    if before.0.get(&ShardId(shard)).is_some_and(|grant| grant.epoch.0 > old) {
                        assert_eq!(self.ledger.grant(ShardId(shard), Epoch(old), need, SHARDS), None);
                        assert_eq!(self.ledger, before);
                    }
                }
            }
        }
    }

    proptest! {
        /// Whatever happens, in whatever order: what is used beyond the first counts stays within the limit.
        #[test]
        fn a_limit_is_never_passed(
            start in prop::array::uniform4(0..4u64),
            limit in 0..40u64,
            steps in prop::collection::vec(step(), 0..60),
        ) {
            let first: u64 = start.iter().sum();
            let mut model = Model { used: start, limit, ..Model::default() };
            let mut before = first;
            for step in &steps {
                model.take(step);
                let (used, limit) = (model.used.iter().sum::<u64>(), model.limit);
                // A limit that was set below what is used is not passed any further.
                prop_assert!(used <= limit.max(before), "{used} pages of {limit} after {step:?}");
                before = used;
                for (shard, grant) in &model.ledger.0 {
                    let used = model.used[usize::from(shard.0)];
                    prop_assert!(used <= grant.pages, "shard {} uses {used} of {grant:?}", shard.0);
                }
            }
        }
    }

    #[test]
    fn nothing_is_drawn_before_every_shard_is_registered() {
        let mut model = Model { used: [3, 0, 0, 2], limit: 10, ..Model::default() };
        for shard in 0..3 {
            assert_eq!(model.grant(shard, 5, 5).granted, model.used[usize::from(shard)]);
        }
        model.grant(3, 0, 0);
        let share = model.grant(0, 5, 5);
        assert_eq!((share.granted, share.others, share.complete), (8, 2, true));
        assert_eq!(model.grant(1, 5, 5).granted, 0, "nothing is left");
        model.grant(0, 0, 2);
        assert_eq!(model.grant(1, 5, 5).granted, 3, "what a shard returns is there for the others");
    }

    #[test]
    fn a_shard_that_has_left_counts_no_more() {
        let mut model = Model { used: [9, 0, 0, 0], limit: 9, ..Model::default() };
        (0..SHARDS).for_each(|shard| _ = model.grant(shard, 1, 1));
        model.ledger.leave(ShardId(0), Epoch(0));
        assert_eq!(model.ledger.granted(), 0);
    }
}
