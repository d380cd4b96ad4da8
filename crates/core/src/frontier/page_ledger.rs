//! The ledger of one crawl's page limit, where several nodes share a store: how many pages each shard is granted.
//!
//! Counts that nodes report to each other are late, so no shard may rely on them. Instead a shard uses only pages that
//! the ledger grants it, and the ledger, one row in the store, is changed by compare-and-swap. Two rules make the limit
//! hold: a shard never uses more than its grant, and pages are drawn only while all grants together stay below the
//! limit. A crawl without a ledger grants nothing. It is opened once every shard knows the limit and has reported
//! what it had used by then ([`PageLedger::open`]); a shard that is not in it had used nothing.
//!
//! Asking costs a synced write, so it must be rare, whatever the number of crawls. While there are many pages, every shard is
//! given some as soon as the limit is set ([`PageLedger::spread`]), and one that asks is given as many as it has used so far.
//!
//! What could break the rules:
//!
//! 0. *A ledger is opened with what shards had used before they could use more*: a shard that knows the limit uses no
//!    page without a grant, so its report holds until the ledger is open. Removing the limit and setting it again
//!    lets it use more, so only the answers to the last setting may open a ledger; see `owner::frontier::page_grants`.
//! 1. *Two shards draw at once*: the second compare-and-swap fails and is decided again.
//! 2. *An old owner of a shard returns pages that the new owner counts on*: its write carries the fence of its shard and is
//!    refused, so a new owner only reads what its shard has. Once it has changed the grant, the grant carries its epoch, and
//!    an older epoch changes nothing.
//! 3. *A shard uses fewer pages than before and returns the difference, then that commit fails*: the caller returns
//!    pages only once everything it has decided is durable.
//! 4. *A host moves with pages that count*: the grant moves in the same commit ([`PageLedger::transfer`]).
//! 5. *The limit is lowered below what is granted*: a shard that hears of it, which it does before the limit is confirmed,
//!    uses no page before it has asked the ledger with the new limit. It is left what the grants of all others leave of
//!    the limit, so once one shard has unused pages, all grants together are within it.
//! 6. *A share arrives for pages that the shard has returned or moved meanwhile*: it is ignored; see `owner::frontier::page_grants`.
//! 7. *An old owner that was paused decides again after the new one has used pages*: its write carries the fence of
//!    its shard and is refused.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::ids::{Epoch, ShardId};

/// A shard that needs pages draws this fraction of its even share of what is left, or as many as it has used, if that is not
/// more than this fraction of all that is left. So it does not ask for every visit while there are many pages, and the last
/// pages do not sit in shards that do not need them.
const SHARE_PARTS: u64 = 4;

/// All shards together are given this fraction of what is left when a limit is set.
const SPREAD_PARTS: u64 = 16;

/// A shard draws at most this many pages beyond its share, even for a large visit.
const DRAW_MAX: u64 = 100;

/// The grants of a crawl's page limit, of the shards that have used or may use pages.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PageLedger(pub BTreeMap<ShardId, PageGrant>);

/// The grant of a shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
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
    /// Whether the ledger is open. Until then nothing can be drawn.
    pub open: bool,
}

impl PageShare {
    /// Pages that the shard may still use. Of a grant above the limit, which was used before the limit was lowered, nothing
    /// can be used again that comes back.
    #[must_use]
    pub const fn free(&self, used: u64, limit: u64) -> u64 {
        let left = limit.saturating_sub(self.others);
        let most = if self.granted < left { self.granted } else { left };
        if self.open { most.saturating_sub(used) } else { 0 }
    }
}

impl PageLedger {
    /// The ledger of a limit that has just been set, from the pages that shards have used.
    #[must_use]
    pub fn open(used: impl IntoIterator<Item = (ShardId, u64)>) -> Self {
        let used = used.into_iter().filter(|(_, pages)| *pages > 0);
        Self(used.map(|(shard, pages)| (shard, PageGrant { epoch: Epoch(0), pages })).collect())
    }

    /// A limit was set, and shards have said what they had used: gives all of them unused pages, if there are many. The
    /// pages are theirs, whether they hear of them or not. Returns whether all grants are within the limit: only then
    /// may a shard use what it has without asking.
    pub fn spread(&mut self, used: &[(ShardId, u64)], limit: u64) -> bool {
        let had = |ledger: &Self, shard: &ShardId| ledger.0.get(shard).map_or(0, |grant| grant.pages);
        // Pages that a shard has used may not be registered yet.
        let late = used.iter().map(|(shard, used)| used.saturating_sub(had(self, shard)));
        let all = late.fold(self.total(), u64::saturating_add);
        let part = limit.saturating_sub(all) / (SPREAD_PARTS * (used.len() as u64).max(1));
        for (shard, used) in used.iter().filter(|_| part > 0) {
            let grant = self.0.entry(*shard).or_insert(PageGrant { epoch: Epoch(0), pages: 0 });
            grant.pages = grant.pages.max(used.saturating_add(part));
        }
        self.total() <= limit
    }

    /// What a shard knows that has read the ledger.
    #[must_use]
    pub fn share(&self, shard: ShardId) -> PageShare {
        let granted = self.0.get(&shard).map_or(0, |grant| grant.pages);
        PageShare { granted, others: self.total().saturating_sub(granted), open: true }
    }

    fn total(&self) -> u64 {
        self.0.values().fold(0, |sum, grant| sum.saturating_add(grant.pages))
    }

    /// Registers a shard, returns the pages it does not keep, and draws those it wants, if there are any left. Nothing
    /// changes if it has what it wants, as the next owner of a shard does. `None` if the shard has a newer owner.
    pub fn grant(&mut self, shard: ShardId, epoch: Epoch, need: PageNeed, shards: u16) -> Option<PageShare> {
        let PageNeed { used, free, keep, limit } = need;
        let known = self.0.get(&shard).copied();
        if known.is_some_and(|grant| grant.epoch > epoch) {
            return None;
        }
        let others = self.0.iter().filter(|(one, _)| **one != shard);
        let others = others.fold(0u64, |sum, (_, grant)| sum.saturating_add(grant.pages));
        // Unused pages are void after the limit was lowered.
        let most = used.saturating_add(limit.saturating_sub(others.saturating_add(used)));
        let own = known.map_or(used, |grant| grant.pages);
        let own = own.min(used.saturating_add(keep.max(free))).max(used).min(most);
        let left = limit.saturating_sub(others.saturating_add(own));
        let missing = free.saturating_sub(own - used).min(DRAW_MAX);
        let part = left / (SHARE_PARTS * u64::from(shards.max(1)));
        let more = used.min(left / SHARE_PARTS).max(part);
        let drawn = if missing == 0 { 0 } else { missing.max(more).min(left) };
        let pages = own + drawn;
        if known.map_or(0, |grant| grant.pages) != pages {
            self.0.insert(shard, PageGrant { epoch, pages });
        }
        Some(PageShare { granted: pages, others, open: true })
    }

    /// Moves used pages with their host.
    pub fn transfer(&mut self, from: ShardId, to: ShardId, pages: u64) {
        if let Some(grant) = self.0.get_mut(&from) {
            grant.pages = grant.pages.saturating_sub(pages);
        }
        let grant = self.0.entry(to).or_insert(PageGrant { epoch: Epoch(0), pages: 0 });
        grant.pages = grant.pages.saturating_add(pages);
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
        /// Its owner hands out up to this many pages.
        Use(u16, u64),
        /// Pages are deleted.
        Delete(u16, u64),
        /// Its owner keeps at most this many unused pages.
        Return(u16, u64),
        /// Another owner takes over, with the durable count alone.
        TakeOver(u16),
        /// The limit changes; every shard hears of it before it is confirmed.
        Limit(u64),
        /// The limit is removed, pages are used without one, and it is set again.
        Unlimited(u16, u64),
        /// The limit is set again, and every shard is given pages; this one is not told.
        Spread(u16),
        /// A host with up to this many pages moves.
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
            1 => prop_oneof![0..40u64, 0..600u64].prop_map(Step::Limit),
            1 => (shard.clone(), pages.clone()).prop_map(|(shard, pages)| Step::Unlimited(shard, pages)),
            1 => shard.clone().prop_map(Step::Spread),
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
        /// What each shard knows of its grant; `None` if it must ask the ledger first.
        known: [Option<PageShare>; SHARDS as usize],
    }

    impl Model {
        fn grant(&mut self, shard: u16, free: u64, keep: u64) -> PageShare {
            let at = usize::from(shard);
            let need = PageNeed { used: self.used[at], free, keep, limit: self.limit };
            let share = self.ledger.grant(ShardId(shard), Epoch(self.epochs[at]), need, SHARDS).unwrap();
            self.known[at] = Some(share);
            share
        }

        /// Every shard says what it has used.
        fn open(&mut self) {
            self.ledger = PageLedger::open((0..SHARDS).map(ShardId).zip(self.used));
            self.known = Default::default();
        }

        fn take(&mut self, step: &Step) {
            match *step {
                Step::Use(shard, pages) => {
                    let at = usize::from(shard);
                    // It asks only if it must: what it knows may be older than what others have drawn since.
                    let known = self.known[at].filter(|share| share.free(self.used[at], self.limit) >= pages);
                    let share = known.unwrap_or_else(|| self.grant(shard, pages, u64::MAX));
                    self.used[at] += pages.min(share.free(self.used[at], self.limit));
                }
                Step::Delete(shard, pages) => {
                    let used = &mut self.used[usize::from(shard)];
                    *used = used.saturating_sub(pages);
                }
                Step::Return(shard, keep) => _ = self.grant(shard, 0, keep),
                Step::TakeOver(shard) => {
                    self.epochs[usize::from(shard)] += 1;
                    self.known[usize::from(shard)] = None;
                }
                Step::Limit(limit) => {
                    self.limit = limit;
                    self.known = Default::default();
                }
                Step::Unlimited(shard, pages) => {
                    self.used[usize::from(shard)] += pages;
                    self.open();
                }
                Step::Spread(untold) => {
                    let used: Vec<_> = (0..SHARDS).map(ShardId).zip(self.used).collect();
                    let within = self.ledger.spread(&used, self.limit);
                    for (shard, known) in self.known.iter_mut().enumerate() {
                        let told = within && shard != usize::from(untold);
                        *known = told.then(|| self.ledger.share(ShardId(shard as u16)));
                    }
                }
                Step::Move(from, to, pages) => {
                    let pages = pages.min(self.used[usize::from(from)]);
                    self.used[usize::from(from)] -= pages;
                    self.used[usize::from(to)] += pages;
                    self.ledger.transfer(ShardId(from), ShardId(to), pages);
                    (self.known[usize::from(from)], self.known[usize::from(to)]) = (None, None);
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
        /// Under every order of events, the pages used beyond the first counts stay within the limit.
        #[test]
        fn a_limit_is_never_passed(
            start in prop::array::uniform4(0..4u64),
            limit in prop_oneof![0..40u64, 0..600u64],
            steps in prop::collection::vec(step(), 0..60),
        ) {
            let first: u64 = start.iter().sum();
            let mut model = Model { used: start, limit, ..Model::default() };
            model.open();
            let mut before = first;
            for step in &steps {
                model.take(step);
                before = if matches!(step, Step::Unlimited(..)) { model.used.iter().sum() } else { before };
                let (used, limit) = (model.used.iter().sum::<u64>(), model.limit);
                // A limit that was set below what is used is not passed any further.
                prop_assert!(used <= limit.max(before), "{used} pages of {limit} after {step:?}");
                before = used;
                for (shard, used) in model.used.iter().enumerate() {
                    let grant = model.ledger.0.get(&ShardId(shard as u16)).map_or(0, |grant| grant.pages);
                    prop_assert!(*used <= grant, "shard {shard} uses {used} of {grant}");
                }
            }
        }
    }

    #[test]
    fn what_shards_had_used_before_the_limit_counts() {
        let mut model = Model { used: [3, 0, 0, 2], limit: 10, ..Model::default() };
        model.open();
        assert_eq!(model.ledger.0.len(), 2, "those that have used nothing need no place");
        let share = model.grant(0, 5, 5);
        assert_eq!((share.granted, share.others), (8, 2));
        assert_eq!(model.grant(1, 5, 5).granted, 0, "nothing is left");
        assert_eq!(model.ledger.0.len(), 2, "a shard that gets nothing writes nothing");
        model.grant(0, 0, 2);
        assert_eq!(model.grant(1, 5, 5).granted, 3, "what a shard returns is there for the others");
    }
    /// Asking costs a synced write.
    #[test]
    fn a_shard_that_uses_many_pages_asks_ever_more_rarely() {
        for limit in [1_000, 100_000] {
            let (mut model, mut asked) = (Model { limit, ..Model::default() }, 0);
            model.open();
            while model.used[0] < limit {
                if model.known[0].is_none_or(|share| share.free(model.used[0], limit) == 0) {
                    asked += 1;
                    assert!(model.grant(0, 1, u64::MAX).free(model.used[0], limit) > 0);
                }
                model.used[0] += 1;
            }
            assert!(asked <= 50, "asked {asked} times for {limit} pages");
        }
    }

    #[test]
    fn every_shard_is_given_pages_of_a_large_limit_that_is_set() {
        let used = [(ShardId(0), 30), (ShardId(1), 0), (ShardId(2), 6), (ShardId(3), 0)];
        let mut ledger = PageLedger::open(used);
        assert!(ledger.spread(&used, 99) && ledger.0.len() == 2, "too few to be spread");
        assert!(ledger.spread(&used, 36 + 640));
        let free = |shard| ledger.share(ShardId(shard)).free(used[usize::from(shard)].1, 676);
        assert_eq!([free(0), free(1), free(2), free(3)], [10; 4]);
        let before = ledger.clone();
        assert!(ledger.spread(&used, 676) && ledger == before, "once");
        assert!(!ledger.spread(&used, 75), "more is granted than the new limit allows");
        assert_eq!(ledger, before);
    }
}
