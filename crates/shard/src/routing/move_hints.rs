//! Hints where moved hosts live: which alias each of them is with. Only a hint: an owner refuses a host that is not its own.
//!
//! They are learned by asking every shard, which takes a while, and hosts may move meanwhile. So a learner remembers what was
//! changed since it began, and what it was told does not undo that. Of two learners the one that began later knows more.
//! Neither waits for a group change, nor a group change for them.

use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use hashbrown::HashMap;
use wayleave_core::names::{Alias, HostName};

/// The hints of a process.
#[derive(Default)]
pub(crate) struct MoveHints(RwLock<Hints>);

#[derive(Default)]
struct Hints {
    aliases: HashMap<HostName, Alias>,
    /// Changes since the first of the present learners began.
    changes: Vec<(HostName, Option<Alias>)>,
    learners: usize,
    /// The number of the last learner that began, and of that whose answers are in use.
    begun: u64,
    learned: u64,
}

impl Hints {
    fn set(&mut self, host: HostName, alias: Option<Alias>) {
        match alias {
            Some(alias) => self.aliases.insert(host, alias),
            None => self.aliases.remove(&host),
        };
    }
}

/// Learns the hints anew.
pub(crate) struct Learner<'a> {
    hints: &'a MoveHints,
    /// Learners are numbered from 1.
    pub number: u64,
    /// How many changes there were when it began.
    from: usize,
}

impl MoveHints {
    fn read(&self) -> RwLockReadGuard<'_, Hints> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Hints> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether no host lives away from home.
    pub fn is_empty(&self) -> bool {
        self.read().aliases.is_empty()
    }

    /// The alias that a host lives with.
    pub fn alias_of(&self, host: &str) -> Option<Alias> {
        self.read().aliases.get(host).cloned()
    }

    /// The name by which the shard of a host is found.
    pub fn with_place<T>(&self, host: &str, place: impl FnOnce(&str) -> T) -> T {
        let hints = self.read();
        let alias = if hints.aliases.is_empty() { None } else { hints.aliases.get(host) };
        place(alias.map_or(host, |alias| alias))
    }

    /// A host has moved.
    pub fn set(&self, host: &HostName, alias: Option<&Alias>) {
        let mut hints = self.write();
        if hints.learners > 0 {
            hints.changes.push((host.clone(), alias.cloned()));
        }
        hints.set(host.clone(), alias.cloned());
    }

    /// Begins to learn: shards are asked after this.
    pub fn learn(&self) -> Learner<'_> {
        let mut hints = self.write();
        hints.learners += 1;
        hints.begun += 1;
        Learner { hints: self, number: hints.begun, from: hints.changes.len() }
    }
}

impl Learner<'_> {
    /// Replaces all hints with the shards' answers.
    pub fn finish(self, told: HashMap<HostName, Alias>) {
        let mut hints = self.hints.write();
        if hints.learned > self.number {
            return;
        }
        hints.learned = self.number;
        hints.aliases = told;
        let changes: Vec<_> = hints.changes.get(self.from..).unwrap_or_default().to_vec();
        changes.into_iter().for_each(|(host, alias)| hints.set(host, alias));
    }
}

impl Drop for Learner<'_> {
    fn drop(&mut self) {
        let mut hints = self.hints.write();
        hints.learners -= 1;
        if hints.learners == 0 {
            hints.changes = Vec::new();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(pairs: &[(&str, &str)]) -> HashMap<HostName, Alias> {
        pairs.iter().map(|(host, alias)| ((*host).into(), (*alias).into())).collect()
    }

    #[test]
    fn what_moves_while_shards_are_asked_is_not_undone_by_their_answers() {
        let hints = MoveHints::default();
        hints.set(&"left".into(), Some(&"old".into()));
        let learner = hints.learn();
        hints.set(&"joined".into(), Some(&"new".into()));
        hints.set(&"left".into(), None);
        learner.finish(told(&[("left", "old"), ("other", "a")]));
        let alias = |host| hints.alias_of(host);
        assert_eq!((alias("joined"), alias("left"), alias("other")), (Some("new".into()), None, Some("a".into())));
        assert!(hints.read().changes.is_empty(), "no learner is left");
    }

    #[test]
    fn of_two_learners_the_one_that_began_later_knows_more() {
        let hints = MoveHints::default();
        let (first, second) = (hints.learn(), hints.learn());
        second.finish(told(&[("h", "new")]));
        first.finish(told(&[("h", "old")]));
        assert_eq!(hints.alias_of("h"), Some("new".into()));
        drop(hints.learn());
        assert_eq!(hints.read().learners, 0, "one that is cancelled counts no longer");
    }
}
