//! An exhaustive model: every order of calls, effects, outcomes and timers within bounds, with a crash at every point.
//! From every state that is reached, the world turns kind; then no client may be stranded.
//!
//! A crash comes before a commit (the decision is lost), between a commit and its effects (they are never carried out),
//! or between an effect and its outcome (which is never heard). Effects and outcomes that are on their way survive,
//! because another node may carry them; they arrive in any order, after the crash as well.

use std::hash::{DefaultHasher, Hash, Hasher};

use super::*;

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Budget {
    crashes: u8,
    puts: u8,
    ticks: u8,
    exits: u8,
    cancels: u8,
    looks: u8,
}

#[derive(Clone)]
struct Node {
    world: World,
    left: Budget,
}

/// How a step ends.
#[derive(Clone, Copy)]
enum End {
    Well,
    /// The owner dies before the commit.
    InVain,
    /// The owner dies after the commit, before the effects.
    Silent,
}

impl Node {
    fn key(&self) -> u64 {
        let world = &self.world;
        let mut hasher = DefaultHasher::new();
        let text = format!("{:?} {:?} {:?} {:?}", world.state, world.effects, world.outcomes, world.granted);
        // Versions count writes; they decide nothing.
        for part in text.split("version: ") {
            part.trim_start_matches(|c: char| c.is_ascii_digit()).hash(&mut hasher);
        }
        (world.now, &world.runtime, self.left).hash(&mut hasher);
        hasher.finish()
    }

    fn apply(&self, input: &Input, end: End, out: &mut Vec<Self>, before: impl Fn(&mut Self)) {
        let mut node = self.clone();
        before(&mut node);
        let sent = node.world.effects.len();
        match end {
            End::Well => _ = node.world.apply(input.clone()),
            End::InVain => node.world.apply_in_vain(input.clone()),
            End::Silent => {
                node.world.apply(input.clone());
                node.world.effects.truncate(sent);
                node.world.reload();
            }
        }
        if !matches!(end, End::Well) {
            node.left.crashes -= 1;
        }
        out.push(node);
    }

    fn next(&self, clients: &[&str]) -> Vec<Self> {
        let mut out = Vec::new();
        let ends = if self.left.crashes > 0 { vec![End::Well, End::InVain, End::Silent] } else { vec![End::Well] };
        for end in ends {
            for (i, client) in clients.iter().enumerate() {
                let asker = super::world::asker(client);
                if self.left.puts > 0 {
                    // The budget is shared: which client uses it is a choice of its own.
                    self.apply(&Input::Put(asker.clone()), end, &mut out, |node| node.left.puts -= 1);
                }
                if self.left.looks > 0 && i == 0 {
                    self.apply(&Input::Look(asker.clone()), end, &mut out, |node| node.left.looks -= 1);
                }
                if self.left.cancels > 0 && i == 0 {
                    self.apply(&Input::Cancel { asker, token: None }, end, &mut out, |node| node.left.cancels -= 1);
                }
            }
            for (i, outcome) in self.world.outcomes.iter().enumerate() {
                self.apply(outcome, end, &mut out, |node| _ = node.world.outcomes.remove(i));
            }
            let wake = self.world.last.as_ref().and_then(|last| last.wake_at);
            if let Some(wake) = wake.filter(|_| self.left.ticks > 0) {
                self.apply(&Input::Tick, end, &mut out, |node| {
                    node.world.now = wake.max(node.world.now);
                    node.left.ticks -= 1;
                });
            }
        }
        for (i, effect) in self.world.effects.iter().enumerate() {
            let mut node = self.clone();
            node.world.effects.remove(i);
            let outcome = node.world.run(effect);
            if self.left.crashes > 0 {
                let mut dies = node.clone();
                dies.left.crashes -= 1;
                dies.world.reload();
                out.push(dies);
            }
            node.world.outcomes.extend(outcome);
            out.push(node);
        }
        if self.left.exits > 0 {
            for no in self.world.runtime.containers.keys().copied().collect::<Vec<WorkerNo>>() {
                let mut node = self.clone();
                node.left.exits -= 1;
                let container = node.world.runtime.containers.get_mut(&no).unwrap();
                (container.running, container.exit) = (false, Exit::Clean);
                container.held.clear();
                let ended = container.ended(no);
                node.world.outcomes.push(ended);
                out.push(node);
            }
        }
        out
    }

    /// The world is kind: everything arrives, and the clients keep asking. Is any client not served?
    fn stranded(&self, clients: &[&str]) -> Option<String> {
        let mut world = self.world.clone();
        world.announce();
        let served = |world: &mut World| {
            clients.iter().all(|client| match world.put(client) {
                Answer::Match(view) => view.stage == MatchStage::Matched && view.verified,
                _ => false,
            })
        };
        for round in 0..200 {
            world.deliver();
            if served(&mut world) {
                return None;
            }
            if round % 5 == 4 {
                world.announce();
            }
            let wake = world.last.as_ref().and_then(|last| last.wake_at).unwrap_or(world.now);
            world.now = wake.min(world.now.after(Millis(1_000))).max(world.now.after(Millis(1)));
            world.apply(Input::Tick);
        }
        Some(format!("{:#?}", world.store))
    }
}

/// Explores everything; the number of states.
fn explore(settings: PoolSpec, clients: &[&str], left: Budget) -> usize {
    let mut world = World::new(settings.check().unwrap());
    world.values = 3;
    world.deliver();
    let (mut seen, mut open) = (BTreeSet::new(), vec![Node { world, left }]);
    while let Some(node) = open.pop() {
        if !seen.insert(node.key()) {
            continue;
        }
        if let Some(store) = node.stranded(clients) {
            panic!("a client is stranded: {store}");
        }
        open.extend(node.next(clients));
    }
    seen.len()
}

fn small() -> PoolSpec {
    PoolSpec { slots: Some(1), max: Some(1), idle_ms: Some(60_000), ..spec() }
}

/// Explores, and sees that the search is not empty.
fn never_stranded(settings: PoolSpec, clients: &[&str], left: Budget) {
    let states = explore(settings, clients, left);
    println!("{states} states");
    assert!(states > 1_000, "{states} states are too few to mean anything");
}

#[test]
fn one_client_and_one_worker_are_never_stranded_with_two_crashes() {
    never_stranded(small(), &["a"], Budget { crashes: 2, puts: 2, ticks: 2, exits: 0, cancels: 0, looks: 0 });
}

#[test]
fn one_client_is_never_stranded_if_its_worker_exits() {
    never_stranded(small(), &["a"], Budget { crashes: 1, puts: 1, ticks: 1, exits: 1, cancels: 0, looks: 0 });
}

#[test]
fn one_client_is_never_stranded_if_it_cancels_and_asks_again() {
    never_stranded(small(), &["a"], Budget { crashes: 1, puts: 2, ticks: 1, exits: 0, cancels: 1, looks: 0 });
}

#[test]
fn a_client_that_polls_and_cancels_during_a_check_is_never_stranded() {
    let left = Budget { crashes: 1, puts: 1, ticks: 2, exits: 0, cancels: 1, looks: 1 };
    never_stranded(small(), &["a"], left);
}

#[test]
fn two_clients_and_two_workers_are_never_stranded() {
    let left = Budget { crashes: 1, puts: 2, ticks: 0, exits: 0, cancels: 0, looks: 0 };
    never_stranded(PoolSpec { max: Some(2), ..small() }, &["a", "b"], left);
}
