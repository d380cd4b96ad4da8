//! Fleet and placement together, as their owner runs them: reports every 5 s, ticks, and the fleet's servers passed on
//! when they changed.

use wayleave_core::fleet::{self, Kind, Report, Reported};
use wayleave_core::ids::{ShardId, Token};
use wayleave_core::placement;

use super::world::Store;
use super::*;

struct Owner {
    fleet: fleet::State,
    placement: placement::State,
    machines: BTreeMap<String, fleet::MachineRow>,
    store: Store,
    now: Time,
    tokens: BTreeMap<String, Token>,
}

const CHUNKS: u64 = 40;

impl Owner {
    /// Servers `a0`, `a1`, … in row 0 and `b0`, … in row 1, with all chunks ready.
    fn filled(each: usize) -> Self {
        let now = Time(1_000_000);
        let (fleet, placement) =
            (fleet::State::load(fleet::Config::default(), Vec::new(), now), placement::State::new(Config::default()));
        let (machines, tokens) = (BTreeMap::new(), BTreeMap::new());
        let mut owner = Self { fleet, placement, machines, store: Store::default(), now, tokens };
        for i in 0..each {
            owner.tokens.insert(format!("a{i}"), Token([0; 16]));
            owner.tokens.insert(format!("b{i}"), Token([0; 16]));
        }
        owner.round(&[]);
        let mut out = Vec::new();
        for chunk in 0..CHUNKS {
            owner.placement.chunk_built(ChunkId(chunk), &artifact(chunk, 100), 0, now, &mut out).unwrap();
        }
        owner.store.apply(out);
        (0..3).for_each(|_| owner.round(&[]));
        assert_eq!(owner.placement.map().missing_count, 0);
        owner
    }

    /// Five seconds: all machines report but the dead ones, do their work, and the owner ticks.
    fn round(&mut self, dead: &[&str]) {
        self.now = self.now.after(Millis(5_000));
        let (mut machines, mut out) = (Vec::new(), Vec::new());
        let names: Vec<String> = self.tokens.keys().cloned().collect();
        for id in names.iter().filter(|id| !dead.contains(&id.as_str())) {
            let known = self.machines.contains_key(id);
            let report = Report {
                kind: Kind::Server,
                address: format!("{id}:80").into(),
                from: None,
                capacity: 1,
                row: Some(u64::from(id.starts_with('b'))),
                state: Reported::Online,
                version: None,
                token: self.tokens.get(id).copied().filter(|_| known),
            };
            let secret = (ShardId(0), 1);
            let answer = self.fleet.report(&id.as_str().into(), &report, secret, self.now, &mut machines).unwrap();
            self.tokens.insert(id.clone(), answer.token);
        }
        self.fleet.tick(self.now, &mut machines);
        self.pass_on(&mut out);
        while self.placement.tick(self.now, &mut out).more {}
        self.fleet.write_off(&self.placement.replaced(self.now), &mut machines);
        self.pass_on(&mut out);
        for id in names.iter().filter(|id| !dead.contains(&id.as_str())) {
            self.work(id, &mut out);
        }
        for fleet::Write::Machine(id, row) in machines {
            match row {
                Some(row) => self.machines.insert(id.to_string(), row),
                None => self.machines.remove(&*id),
            };
        }
        self.store.apply(out);
    }

    fn pass_on(&mut self, out: &mut Vec<Write>) {
        if self.fleet.take_servers_changed() {
            let frozen = self.fleet.frozen(Kind::Server).is_some();
            self.placement.servers(&self.fleet.servers(), frozen, self.now, out);
        }
    }

    fn work(&mut self, id: &str, out: &mut Vec<Write>) {
        let copies = self.placement.rows().into_iter().filter_map(|row| match row {
            Write::Placement(chunk, server, Some(copy)) if &*server == id => Some((chunk, copy.state)),
            _ => None,
        });
        for (chunk, state) in copies.collect::<Vec<_>>() {
            let reported = match state {
                PlacementState::Assigned | PlacementState::Fetching => CopyReport::Ready,
                PlacementState::Ready => continue,
                PlacementState::Draining => CopyReport::Gone,
            };
            self.placement.report(chunk, &id.into(), reported, self.now, out).unwrap();
        }
    }

    /// Another node takes over: only rows survive.
    fn takeover(&mut self) {
        let rows = self.machines.iter().map(|(id, row)| (id.as_str().into(), row.clone()));
        self.fleet = fleet::State::load(fleet::Config::default(), rows, self.now);
        self.placement = self.store.load(Config::default());
    }

    fn homes(&self) -> BTreeMap<(u64, u8), String> {
        let rows = self.placement.map().rows;
        let servers = rows.iter().flat_map(|row| row.servers.iter().map(|server| (row.row.0, server)));
        servers.flat_map(|(row, s)| s.chunks.iter().map(move |c| ((c.0, row), s.server.to_string()))).collect()
    }
}

#[test]
fn a_killed_server_is_missed_after_30_s_and_replaced_60_s_later() {
    let mut owner = Owner::filled(3);
    let killed = owner.now;
    let (mut missed, mut whole) = (None, None);
    for _ in 0..60 {
        owner.round(&["a1"]);
        let complete = owner.placement.map().missing_count == 0;
        if !complete {
            missed = missed.or(Some(owner.now.since(killed).0));
        } else if missed.is_some() {
            whole = whole.or(Some(owner.now.since(killed).0));
        }
    }
    println!("killed: missing in the map after {missed:?} ms, complete again after {whole:?} ms");
    assert_eq!((missed, whole), (Some(30_000), Some(90_000)));
    assert!(owner.homes().values().all(|home| home != "a1"));
}

#[test]
fn a_takeover_neither_restarts_nor_forgets_a_death() {
    // Before the verdict: the new owner must see the silence itself.
    let mut owner = Owner::filled(3);
    let killed = owner.now;
    (0..5).for_each(|_| owner.round(&["a1"]));
    owner.takeover();
    (0..5).for_each(|_| owner.round(&["a1"]));
    assert_eq!(owner.placement.map().missing_count, 0, "no machine fails before it could report to the new owner");
    owner.round(&["a1"]);
    assert_ne!(owner.placement.map().missing_count, 0);
    // After the verdict: the delay continues where it was.
    let failed = owner.now;
    (0..6).for_each(|_| owner.round(&["a1"]));
    let map = owner.placement.map();
    owner.takeover();
    assert_eq!(owner.placement.map(), map);
    let rounds = (0..100).take_while(|_| {
        let missing = owner.placement.map().missing_count > 0;
        if missing {
            owner.round(&["a1"]);
        }
        missing
    });
    assert_eq!(rounds.count(), 6);
    assert_eq!((owner.now.since(failed).0, failed.since(killed).0), (60_000, 55_000));
}

#[test]
fn a_partition_that_hides_most_servers_moves_nothing() {
    let mut owner = Owner::filled(4);
    let homes = owner.homes();
    let hidden = ["a0", "a1", "a2", "b0", "b1"];
    (0..100).for_each(|_| owner.round(&hidden));
    let frozen = owner.fleet.frozen(Kind::Server).unwrap();
    assert_eq!((frozen.dead, frozen.of), (5, 8));
    // They come back one after the other; the freeze ends before the last one is there.
    for left in (0..hidden.len()).rev() {
        owner.round(&hidden[..left]);
        owner.round(&hidden[..left]);
    }
    assert_eq!(owner.fleet.frozen(Kind::Server), None);
    (0..100).for_each(|_| owner.round(&[]));
    assert_eq!(owner.homes(), homes);
}

/// Over months one server after the other dies for good, and its chunks are placed again each time.
#[test]
fn servers_that_were_replaced_long_ago_freeze_nothing() {
    let mut owner = Owner::filled(5);
    let mut dead = Vec::new();
    for next in ["a0", "b0", "a1", "b1", "a2", "b2"] {
        dead.push(next);
        (0..40).for_each(|_| owner.round(&dead));
        owner.takeover();
        assert_eq!(owner.fleet.frozen(Kind::Server), None, "after {next}");
        assert_eq!(owner.placement.map().missing_count, 0, "after {next}");
    }
    // A partition hides three of the four that are left: that is more than half of them at once.
    let homes = owner.homes();
    let hidden: Vec<&str> = dead.iter().copied().chain(["a3", "a4", "b3"]).collect();
    (0..100).for_each(|_| owner.round(&hidden));
    owner.takeover();
    (0..100).for_each(|_| owner.round(&hidden));
    let frozen = owner.fleet.frozen(Kind::Server).unwrap();
    assert_eq!((frozen.dead, frozen.of), (3, 4));
    (0..100).for_each(|_| owner.round(&dead));
    assert_eq!((owner.fleet.frozen(Kind::Server), owner.homes()), (None, homes));
    // One of the dead comes back, and counts again.
    (0..100).for_each(|_| owner.round(&dead[1..]));
    (0..20).for_each(|_| owner.round(&[&dead[1..], &["a0", "a3", "a4"]].concat()));
    assert_eq!(owner.fleet.frozen(Kind::Server).map(|frozen| (frozen.dead, frozen.of)), Some((3, 5)));
}

#[test]
fn a_replaced_server_is_forgotten_after_a_day_unless_it_has_copies() {
    let mut owner = Owner::filled(2);
    let mut dead = Vec::new();
    // The last one of row 1 dies with its copies: there is no other place for them.
    for next in ["a0", "b0", "b1"] {
        dead.push(next);
        (0..40).for_each(|_| owner.round(&dead));
    }
    assert_eq!((owner.fleet.frozen(Kind::Server), owner.fleet.len()), (None, 4));
    (0..24 * 720).for_each(|_| owner.round(&dead));
    let left: Vec<String> = owner.fleet.rows().map(|(id, _)| id.to_string()).collect();
    assert_eq!(left, ["a1", "b1"]);
    assert_eq!(owner.placement.map().rows.len(), 2);
    owner.takeover();
    owner.round(&dead);
    assert_eq!(owner.placement.self_check(), Ok(()));
}
