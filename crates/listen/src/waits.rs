//! Calls that wait: the long polls of all connections, each charged to the memory budget.
//!
//! While there is room, any client may wait. Room is half of the memory budget, and most of the connections: the rest
//! is for calls that do not wait. Without room, addresses share it equally, and so do the connections of one address.
//! A call whose address or connection has less than its share takes the place of the longest wait of the one with the
//! most; any other call is refused. A wait that loses its place is *hurried*: its call answers with what it has.
//!
//! It must not know what is waited for.
//!
//! Interleavings that could go wrong:
//!
//! 1. A wait is hurried when what it waits for arrives: a call is hurried only while it sleeps, and looks once more
//!    before it answers.
//! 2. A wait is hurried twice, or ends while it is hurried: a hurried wait is removed at once, and its end then finds
//!    nothing to remove.
//! 3. The client of a hurried call waits again at once: by then its address has its share, so it is refused until
//!    another wait ends. Places do not go back and forth.
//! 4. A call begins to wait on a connection that was asked to leave: it is hurried at once.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio_util::sync::CancellationToken;

use crate::budget::{Budget, Share};

/// What a call that waits costs of the memory budget: a request of a few hundred bytes on an HTTP/2 connection, with its
/// task, measured.
pub const WAIT_BYTES: usize = 12 << 10;

/// Where a request comes from; an extension of the request.
#[derive(Clone, Debug)]
pub struct Caller {
    pub(crate) address: IpAddr,
    pub(crate) connection: u64,
    /// The requests in flight on the connection.
    pub(crate) busy: Arc<AtomicUsize>,
    /// Cancelled when the connection is to end after the responses to its requests.
    pub(crate) leave: CancellationToken,
}

impl Caller {
    /// The caller of a request outside any connection. Its waits end with `stopping`.
    #[must_use]
    pub fn alone(stopping: &CancellationToken) -> Self {
        let (address, leave) = (Ipv4Addr::UNSPECIFIED.into(), stopping.child_token());
        Self { address, connection: u64::MAX, busy: Arc::default(), leave }
    }
}

/// The waits of a port.
pub struct Waits {
    budget: Arc<Budget>,
    waits_max: usize,
    connections_max: usize,
    refused: AtomicU64,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Numbers are in order of arrival.
    next: u64,
    waits: usize,
    connections: usize,
    addresses: HashMap<IpAddr, Address>,
}

#[derive(Default)]
struct Address {
    waits: usize,
    connections: HashMap<u64, Connection>,
}

struct Connection {
    busy: Arc<AtomicUsize>,
    waits: BTreeMap<u64, Entry>,
}

struct Entry {
    hurry: CancellationToken,
    share: Share,
}

/// A call's place among those that wait; given back on drop.
pub struct Wait {
    waits: Arc<Waits>,
    caller: Caller,
    number: u64,
    hurry: CancellationToken,
}

impl Wait {
    /// Cancelled when the call is to answer with what it has.
    #[must_use]
    pub const fn hurry(&self) -> &CancellationToken {
        &self.hurry
    }
}

impl Drop for Wait {
    fn drop(&mut self) {
        drop(self.waits.state().remove(self.caller.address, self.caller.connection, self.number));
    }
}

impl Waits {
    /// The waits of a port with this memory budget and a limit of connections.
    #[must_use]
    pub fn new(budget: &Arc<Budget>, connections_max: usize) -> Self {
        let reserve = (connections_max / 64).max(64).min(connections_max / 4);
        Self {
            budget: Arc::clone(budget),
            waits_max: budget.limit() / 2 / WAIT_BYTES,
            connections_max: connections_max - reserve,
            refused: AtomicU64::new(0),
            state: Mutex::default(),
        }
    }

    /// How many calls wait.
    #[must_use]
    pub fn count(&self) -> usize {
        self.state().waits
    }

    /// How many calls were refused because too many waited.
    #[must_use]
    pub fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    /// A place for a call that is about to wait. None if there is no room, and its address and connection have their
    /// share.
    #[must_use]
    pub fn join(self: &Arc<Self>, caller: &Caller) -> Option<Wait> {
        let hurry = caller.leave.child_token();
        let mut state = self.state();
        let Some(share) = self.place(&mut state, caller) else {
            self.refused.fetch_add(1, Ordering::Relaxed);
            return None;
        };
        let number = state.add(caller, Entry { hurry: hurry.clone(), share });
        drop(state);
        Some(Wait { waits: Arc::clone(self), caller: caller.clone(), number, hurry })
    }

    /// Memory and a connection for one more wait, free ones or those of others.
    fn place(&self, state: &mut State, caller: &Caller) -> Option<Share> {
        if state.connections >= self.connections_max && !state.has(caller) {
            let (address, connection) = state.in_excess_of_connections(caller)?;
            // With the memory of one of them, which others might take otherwise.
            let share = state.hurry_longest(address, connection);
            state.hurry_all(address, connection);
            return share;
        }
        if state.waits < self.waits_max
            && let Some(share) = self.budget.large_share(WAIT_BYTES)
        {
            return Some(share);
        }
        let (address, connection) = state.in_excess_of_waits(caller)?;
        state.hurry_longest(address, connection)
    }

    /// The connection with the longest wait, among those whose requests all wait and that `may_leave`.
    pub(crate) fn longest(&self, may_leave: impl Fn(u64) -> bool) -> Option<u64> {
        let state = self.state();
        let all = state.addresses.values().flat_map(|address| &address.connections);
        let idle = all.filter(|(number, connection)| {
            connection.busy.load(Ordering::Relaxed) == connection.waits.len() && may_leave(**number)
        });
        idle.min_by_key(|(_, connection)| connection.first()).map(|(number, _)| *number)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Connection {
    /// The number of its longest wait.
    fn first(&self) -> Option<u64> {
        self.waits.keys().next().copied()
    }
}

impl State {
    fn has(&self, caller: &Caller) -> bool {
        self.addresses.get(&caller.address).is_some_and(|own| own.connections.contains_key(&caller.connection))
    }

    fn add(&mut self, caller: &Caller, entry: Entry) -> u64 {
        let number = self.next;
        self.next += 1;
        self.waits += 1;
        let address = self.addresses.entry(caller.address).or_default();
        address.waits += 1;
        let connection = address.connections.entry(caller.connection).or_insert_with(|| {
            self.connections += 1;
            Connection { busy: Arc::clone(&caller.busy), waits: BTreeMap::new() }
        });
        connection.waits.insert(number, entry);
        number
    }

    fn remove(&mut self, ip: IpAddr, number: u64, wait: u64) -> Option<Entry> {
        let address = self.addresses.get_mut(&ip)?;
        let connection = address.connections.get_mut(&number)?;
        let entry = connection.waits.remove(&wait)?;
        address.waits -= 1;
        self.waits -= 1;
        if connection.waits.is_empty() {
            address.connections.remove(&number);
            self.connections -= 1;
        }
        if address.connections.is_empty() {
            self.addresses.remove(&ip);
        }
        Some(entry)
    }

    /// Hurries the longest wait of a connection; returns its share.
    fn hurry_longest(&mut self, address: IpAddr, connection: u64) -> Option<Share> {
        let longest = self.addresses.get(&address)?.connections.get(&connection)?.first()?;
        let Entry { hurry, share } = self.remove(address, connection, longest)?;
        hurry.cancel();
        Some(share)
    }

    fn hurry_all(&mut self, address: IpAddr, connection: u64) {
        while self.hurry_longest(address, connection).is_some() {}
    }

    /// The connection with the longest wait of the address on most connections, if the caller's address has less than
    /// its share of them.
    fn in_excess_of_connections(&self, caller: &Caller) -> Option<(IpAddr, u64)> {
        let own = self.addresses.get(&caller.address).map_or(0, |own| own.connections.len());
        let sharers = self.addresses.len() + usize::from(own == 0);
        if (own + 1) * sharers >= self.connections {
            return None;
        }
        let (ip, most) = self.addresses.iter().max_by_key(|(_, address)| address.connections.len())?;
        let (number, _) = most.connections.iter().min_by_key(|(_, connection)| connection.first())?;
        Some((*ip, *number))
    }

    /// The connection with most waits of the address with most waits, if the caller's address has less than its share;
    /// of its own address, if its connection has.
    fn in_excess_of_waits(&self, caller: &Caller) -> Option<(IpAddr, u64)> {
        let own = self.addresses.get(&caller.address);
        let waits = own.map_or(0, |own| own.waits);
        let sharers = self.addresses.len() + usize::from(own.is_none());
        let (ip, from) = if (waits + 1) * sharers < self.waits {
            self.addresses.iter().max_by_key(|(_, address)| address.waits)?
        } else {
            let own = own?;
            let connection = own.connections.get(&caller.connection);
            let sharers = own.connections.len() + usize::from(connection.is_none());
            if (connection.map_or(0, |connection| connection.waits.len()) + 1) * sharers >= own.waits {
                return None;
            }
            (&caller.address, own)
        };
        let order = |connection: &Connection| (connection.waits.len(), Reverse(connection.first()));
        let (number, _) = from.connections.iter().max_by_key(|(_, connection)| order(connection))?;
        Some((*ip, *number))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Room for this many waits, and as many connections.
    fn room(waits: usize) -> (Arc<Budget>, Arc<Waits>) {
        let budget = Arc::new(Budget::new(waits * 2 * WAIT_BYTES));
        let waits = Arc::new(Waits::new(&budget, usize::MAX));
        (budget, waits)
    }

    fn caller(address: u8, connection: u64) -> Caller {
        let alone = Caller::alone(&CancellationToken::new());
        Caller { address: Ipv4Addr::new(10, 0, 0, address).into(), connection, ..alone }
    }

    fn join(waits: &Arc<Waits>, caller: &Caller, count: usize) -> Vec<Wait> {
        (0..count).map_while(|_| waits.join(caller)).collect()
    }

    fn hurried(waits: &[Wait]) -> Vec<bool> {
        waits.iter().map(|wait| wait.hurry().is_cancelled()).collect()
    }

    #[test]
    fn one_caller_may_have_all_the_room_and_no_more() {
        let (budget, waits) = room(10);
        let all = join(&waits, &caller(1, 1), 11);
        assert_eq!((all.len(), waits.count(), waits.refused()), (10, 10, 1));
        assert_eq!(budget.held(), 10 * WAIT_BYTES);
        assert!(budget.large_share(WAIT_BYTES).is_some(), "half of the budget is for others");
        assert_eq!(hurried(&all), [false; 10], "no one else waits");
        drop(all);
        assert_eq!((budget.held(), waits.count()), (0, 0));
        assert!(waits.state().addresses.is_empty() && waits.state().connections == 0);
    }

    #[test]
    fn without_room_the_longest_wait_of_the_largest_address_ends() {
        let (budget, waits) = room(10);
        let large = join(&waits, &caller(1, 1), 10);
        let small = join(&waits, &caller(2, 2), 10);
        assert_eq!(small.len(), 4, "a fifth would only swap places");
        assert_eq!(hurried(&large), [[true; 4].as_slice(), &[false; 6]].concat());
        assert_eq!(hurried(&small), [false; 4]);
        assert!(waits.join(&caller(1, 1)).is_none() && waits.join(&caller(1, 3)).is_some());
        assert_eq!(hurried(&small), [false; 4], "only its own address made room");
        assert_eq!((waits.count(), budget.held()), (9, 9 * WAIT_BYTES), "that one has ended");
        drop((large, small));
        assert_eq!((waits.count(), budget.held()), (0, 0));
    }

    #[test]
    fn connections_of_one_address_share_what_it_has() {
        let (_, waits) = room(10);
        let large = join(&waits, &caller(1, 1), 10);
        let small = join(&waits, &caller(1, 2), 10);
        assert_eq!((small.len(), hurried(&large).iter().filter(|hurried| **hurried).count()), (4, 4));
        assert_eq!(hurried(&small), [false; 4]);
    }

    #[test]
    fn some_connections_are_kept_for_calls_that_do_not_wait() {
        let budget = Arc::new(Budget::new(1 << 30));
        let waits = Arc::new(Waits::new(&budget, 8));
        let one_each = |address| -> Vec<Wait> { (0..8).filter_map(|n| waits.join(&caller(address, n))).collect() };
        let large = one_each(1);
        assert_eq!(large.len(), 6);
        assert!(waits.join(&caller(1, 0)).is_some(), "this connection waits already");
        let small: Vec<Wait> = (10..18).filter_map(|n| waits.join(&caller(2, n))).collect();
        assert_eq!(small.len(), 2);
        assert_eq!(hurried(&large), [true, true, false, false, false, false]);
        let (few, none) = (Waits::new(&budget, 1), Waits::new(&budget, 10_240));
        assert_eq!((few.connections_max, none.connections_max), (1, 10_080));
    }

    #[test]
    fn bodies_in_memory_leave_less_room_for_waits() {
        let (budget, waits) = room(10);
        let bodies = budget.large_share(12 * WAIT_BYTES);
        assert_eq!(join(&waits, &caller(1, 1), 9).len(), 3, "the last quarter is for small requests");
        drop(bodies);
    }

    #[test]
    fn a_connection_that_leaves_hurries_what_waits_on_it_now_and_later() {
        let (_, waits) = room(10);
        let [first, second] = [1, 2].map(|n| caller(1, n));
        let all = [&second, &first, &second].map(|caller| waits.join(caller).unwrap());
        assert_eq!(waits.longest(|_| true), None, "no request is in flight, as far as is known");
        first.busy.store(1, Ordering::Relaxed);
        second.busy.store(3, Ordering::Relaxed);
        assert_eq!(waits.longest(|_| true), Some(1), "the other one has a request that does not wait");
        second.busy.store(2, Ordering::Relaxed);
        assert_eq!((waits.longest(|_| true), waits.longest(|number| number != 2)), (Some(2), Some(1)));
        second.leave.cancel();
        assert_eq!(hurried(&all), [true, false, true]);
        assert!(waits.join(&second).unwrap().hurry().is_cancelled());
    }
}
