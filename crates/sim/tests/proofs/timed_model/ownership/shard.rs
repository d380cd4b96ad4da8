//! An owner's decisions: the core's own, on nothing but the rows that it has in memory.

use wayleave_core::frontier::State;
use wayleave_core::frontier::load::Loader;
use wayleave_core::frontier::request::Release;
use wayleave_core::frontier::reserve::Grant;
use wayleave_core::frontier::visit::Want;
use wayleave_core::names::{Alias, HostName};
use wayleave_core::settings::PaceChanges;
use wayleave_engine::Key;
use wayleave_engine::rows::{self, Kind, hot, key, lease};

use super::engine::{NOON, Rows, after};
use crate::prelude::*;

/// A decision, as rows and as the laws see it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Deed {
    /// A reservation: its token, its host's birth shard, its start and end.
    pub granted: Option<(Token, u16, Time, Time)>,
    /// Reservations that are over: since then, or since their deadline.
    pub ended: Vec<(Token, Option<Time>)>,
    /// Whether a host changed shards.
    pub moved: bool,
}

/// The host that is born in a shard.
pub fn host(shard: ShardId) -> HostName {
    format!("h{}.example", shard.0).as_str().into()
}

/// The rows of a shard with one host that may be visited from the beginning.
pub fn first_rows(shard: ShardId) -> Rows {
    let mut state = State::new(shard);
    let pace = PaceChanges { delay: Change::Set(Millis(0)), ..PaceChanges::default() };
    state.set_host(&host(shard), &pace, false, Some(Time(NOON)), Time(NOON)).unwrap();
    after(&Rows::new(), &seal(shard, &mut state, &[]))
}

/// As [`wayleave_core::frontier::load::Loader`] finds a shard.
fn load(shard: ShardId, memory: &Rows, now: Time) -> State {
    let mut loader = Loader::default();
    let (from, to) = key::range(shard, Kind::Shard, Kind::Member);
    for (key, value) in memory.range(from..to) {
        loader.take(hot::decode(key, Some(value)).expect("a row of this model"));
    }
    let leases = leases(shard, memory).map(|(_, value)| lease::decode(value).expect("a row of this model"));
    let mut state = loader.finish(shard, leases.collect(), now);
    state.wake(now);
    state
}

fn leases(shard: ShardId, rows: &Rows) -> impl Iterator<Item = (&Key, &Vec<u8>)> {
    let (from, to) = key::range(shard, Kind::Lease, Kind::Lease);
    rows.range(from..to)
}

/// The rows without the reservations: what an owner that opens a shard reads first.
pub fn without_leases(shard: ShardId, rows: &Rows) -> Rows {
    let (from, to) = key::range(shard, Kind::Lease, Kind::Lease);
    rows.iter()
        .filter(|(key, _)| **key < from || **key >= to)
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect()
}

/// Adds the reservations, which an owner that opens a shard reads later.
pub fn with_leases(shard: ShardId, rows: &Rows, from: &Rows) -> Rows {
    let mut rows = rows.clone();
    rows.extend(leases(shard, from).map(|(key, value)| (key.clone(), value.clone())));
    rows
}

/// Whether a reservation is among the rows of a shard.
pub fn has_lease(shard: ShardId, rows: &Rows, token: Token) -> bool {
    rows.contains_key(&lease::key(shard, token))
}

fn seal(shard: ShardId, state: &mut State, writes: &[wayleave_core::frontier::row::Write]) -> Vec<Write> {
    let mut sealed: Vec<Write> = writes.iter().map(|write| rows::encode(shard, write)).collect();
    let changes = state.take_changes();
    sealed.extend(changes.rows.iter().map(|row| hot::encode(shard, row)));
    let hosts = state.changed_hosts(&changes).filter_map(|host| state.host_by_id(host.id()));
    sealed.extend(hosts.map(|host| hot::encode_host(shard, host)));
    sealed
}

/// What an owner does next: it returns what expired, otherwise grants what is ready, otherwise releases a reservation
/// that a client knows of. `None` if there is nothing to do.
pub fn decide(
    shard: ShardId,
    memory: &Rows,
    now: Time,
    granted_tokens: impl Iterator<Item = Token>,
    grant: (u128, Millis),
) -> Option<(Vec<Write>, Deed)> {
    let mut state = load(shard, memory, now);
    let (mut writes, mut deed) = (Vec::new(), Deed::default());
    let expired = state.expired_leases(now, 8);
    let want = Want { crawl: None, urls: 0, held_below: None, bare_hosts: true };
    if !expired.is_empty() {
        for (token, _) in expired {
            state.expire_lease(token, Vec::new(), now, &mut writes);
            deed.ended.push((token, None));
        }
    } else if let Some(visit) = state.plan_visits(&want, 1, now).pop() {
        let grant =
            Grant { holder: "client".into(), urls: 0, lease: grant.1, entropy: grant.0, request: None, chunk: None };
        let granted = state.reserve(&visit, Vec::new(), &grant, now, &mut writes)?;
        let born = if granted.host == host(ShardId(0)) { 0 } else { 1 };
        deed.granted = Some((granted.token, born, granted.granted_at, granted.expires_at));
    } else {
        let token = granted_tokens.into_iter().find(|token| state.release_targets(*token, now).is_ok())?;
        let release = Release { token, results: Vec::new(), ready_at: Some(now) };
        state.release(&release, Vec::new(), now, 0, &mut writes).ok()?;
        deed.ended.push((token, Some(now)));
    }
    Some((seal(shard, &mut state, &writes), deed))
}

/// The giver's side of a move: its host goes to an alias of another shard. None if the host is not here.
pub fn export(from: ShardId, memory: &Rows, now: Time) -> Option<Vec<Write>> {
    let mut state = load(from, memory, now);
    state.host_id(&host(from))?;
    let mut writes = Vec::new();
    state.export(&host(from), Vec::new(), now, &mut writes);
    state.set_moved(&host(from), Some(&alias()));
    Some(seal(from, &mut state, &writes))
}

/// The taker's side: takes in what the giver exports from its memory.
pub fn adopt(to: ShardId, memory: &Rows, now: Time, (from, theirs, at): (ShardId, &Rows, Time)) -> Vec<Write> {
    let moving = load(from, theirs, at).export(&host(from), Vec::new(), at, &mut Vec::new());
    let mut state = load(to, memory, now);
    let mut writes = Vec::new();
    state.adopt(moving, Some(&alias()), now, &mut writes);
    seal(to, &mut state, &writes)
}

fn alias() -> Alias {
    "village".into()
}
