//! Which hosts the operators' changes of aliases may have moved, and when.
//!
//! A change that is acknowledged has moved the hosts that were members and are not, and vice versa. One that is refused has
//! moved none. One whose outcome is unknown may have moved any host of its alias; between nodes also later, because a node
//! that stood still continues with it, but not for longer than [`LINGERS_MS`].
//!
//! Two changes of an alias at a time, or one while an unknown one lingers, leave its members unknown: either may be the last.

use std::collections::{BTreeMap, BTreeSet};

use wayleave_core::invariants::{Span, Visit};
use wayleave_core::time::Time;

/// How long a change may continue between nodes after its answer was lost: nodes pause for up to 7 s, calls are up to 3
/// s late, and each of the few hosts of an alias is moved by a call of its own.
const LINGERS_MS: u64 = 30_000;

/// What is known of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moved {
    /// It is made.
    Done,
    /// Nothing was changed, and nothing will be.
    Nothing,
    /// It may have been made, in part, and is over.
    Perhaps,
    /// The same, and it may still continue.
    Lingers,
}

struct Change {
    alias: String,
    wanted: BTreeSet<String>,
    /// Hosts that it may have moved.
    hosts: BTreeSet<String>,
    /// By the store's time.
    span: Span,
    /// In milliseconds of the run, which never goes back.
    began: u64,
    ended: u64,
    void: bool,
}

/// All changes of aliases.
#[derive(Default)]
pub struct MoveOracle {
    changes: Vec<Change>,
    /// The members of aliases that were changed; `None` if they are not certain.
    members: BTreeMap<String, Option<BTreeSet<String>>>,
}

impl MoveOracle {
    /// An alias is to have these of the hosts that it may have. Returns the number of the change.
    pub fn begin(
        &mut self,
        alias: &str,
        (all, wanted): (BTreeSet<String>, BTreeSet<String>),
        (start, began): (Time, u64),
    ) -> usize {
        let span = Span { start, end: Time(u64::MAX) };
        let alias = alias.to_owned();
        self.changes.push(Change { alias, wanted, hosts: all, span, began, ended: u64::MAX, void: false });
        self.changes.len() - 1
    }

    /// A change was answered, or its answer was lost.
    pub fn end(&mut self, number: usize, moved: Moved, (now, elapsed): (Time, u64)) {
        self.settle(now, elapsed);
        let alone = self.is_alone(number);
        let Some(change) = self.changes.get_mut(number) else { return };
        let members = self.members.entry(change.alias.clone()).or_insert_with(|| Some(BTreeSet::new()));
        (change.span.end, change.ended) = (now, elapsed);
        match moved {
            Moved::Done => {
                if let Some(before) = members.take().filter(|_| alone) {
                    change.hosts = &before ^ &change.wanted;
                }
                *members = alone.then(|| change.wanted.clone());
            }
            Moved::Nothing => change.void = true,
            Moved::Perhaps => *members = None,
            Moved::Lingers => {
                *members = None;
                (change.span.end, change.ended) = (Time(u64::MAX), elapsed + LINGERS_MS);
            }
        }
    }

    /// The members of an alias if a host came, or left if it is one; `None` if they are not certain.
    pub fn toggled(&self, alias: &str, host: &str) -> Option<BTreeSet<String>> {
        let members = self.members.get(alias).map_or_else(|| Some(BTreeSet::new()), Clone::clone)?;
        Some(&members ^ &BTreeSet::from([host.to_owned()]))
    }

    /// Changes that lingered are over by now.
    pub fn settle(&mut self, now: Time, elapsed: u64) {
        for change in self.changes.iter_mut().filter(|change| change.ended < elapsed) {
            change.span.end = change.span.end.min(now);
        }
    }

    fn is_alone(&self, number: usize) -> bool {
        let Some(own) = self.changes.get(number) else { return false };
        let others = self.changes.iter().enumerate().filter(|(at, other)| *at != number && other.alias == own.alias);
        !others.into_iter().any(|(_, other)| !other.void && other.ended >= own.began)
    }

    /// Whether a host may have moved since then, in milliseconds of the run.
    pub fn may_have_moved(&self, host: &str, since: u64) -> bool {
        self.changes.iter().any(|change| !change.void && change.ended >= since && change.hosts.contains(host))
    }

    /// A visit of an alias between changes of its members: each such period is a place of its own.
    pub fn settled(&self, visit: &Visit) -> Option<Visit> {
        let changes = || self.changes.iter().filter(|change| !change.void && *change.alias == *visit.place);
        let at = visit.span.start;
        if changes().any(|change| change.span.start <= at && at <= change.span.end) {
            return None;
        }
        let age = changes().filter(|change| change.span.end < at).count();
        Some(Visit { place: format!("{} after {age} moves", visit.place).into(), ..visit.clone() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(hosts: &[&str]) -> BTreeSet<String> {
        hosts.iter().map(|host| (*host).to_owned()).collect()
    }

    fn change(moves: &mut MoveOracle, wanted: &[&str], moved: Moved, at: u64) {
        let number = moves.begin("left", (set(&["a", "b", "c"]), set(wanted)), (Time(at), at));
        assert!(moves.may_have_moved("c", at), "it goes on");
        moves.end(number, moved, (Time(at + 1), at + 1));
    }

    fn moved(moves: &MoveOracle, since: u64) -> Vec<&'static str> {
        ["a", "b", "c"].into_iter().filter(|host| moves.may_have_moved(host, since)).collect()
    }

    #[test]
    fn a_change_moves_only_those_that_come_or_go() {
        let mut moves = MoveOracle::default();
        change(&mut moves, &["a", "b"], Moved::Done, 10);
        assert_eq!(moved(&moves, 0), ["a", "b"]);
        change(&mut moves, &["b", "c"], Moved::Done, 20);
        assert_eq!(moved(&moves, 15), ["a", "c"]);
        change(&mut moves, &["a"], Moved::Nothing, 30);
        assert_eq!(moved(&moves, 25), [""; 0]);
        change(&mut moves, &["b", "c"], Moved::Done, 40);
        assert_eq!(moved(&moves, 25), [""; 0], "its members were still certain");
    }

    #[test]
    fn an_unknown_outcome_is_one_for_as_long_as_it_may_linger() {
        let mut moves = MoveOracle::default();
        change(&mut moves, &["a"], Moved::Lingers, 10);
        change(&mut moves, &["a"], Moved::Done, 20);
        assert_eq!(moved(&moves, 25), ["a", "b", "c"], "the first one may still be made");
        assert_eq!(moved(&moves, 12 + LINGERS_MS), [""; 0]);
        change(&mut moves, &["b"], Moved::Done, 20 + LINGERS_MS);
        assert_eq!(moved(&moves, 20 + LINGERS_MS), ["a", "b", "c"], "what it was before is unknown");
        change(&mut moves, &["b", "c"], Moved::Done, 30 + LINGERS_MS);
        assert_eq!(moved(&moves, 30 + LINGERS_MS), ["c"]);
    }

    #[test]
    fn two_changes_at_a_time_may_move_any_host() {
        let mut moves = MoveOracle::default();
        let one = moves.begin("left", (set(&["a", "b"]), set(&["a"])), (Time(1), 1));
        let other = moves.begin("left", (set(&["a", "b"]), set(&["b"])), (Time(2), 2));
        moves.end(one, Moved::Done, (Time(3), 3));
        moves.end(other, Moved::Done, (Time(4), 4));
        assert_eq!(moved(&moves, 4), ["a", "b"]);
        let last = moves.begin("left", (set(&["a", "b"]), set(&["b"])), (Time(5), 5));
        moves.end(last, Moved::Done, (Time(6), 6));
        assert_eq!(moved(&moves, 5), ["a", "b"]);
    }
}
