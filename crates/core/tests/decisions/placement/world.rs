//! Placement in a store made of maps, and servers that do as ordered.

use wayleave_core::placement::{BuiltRow, LedgerRow, PlacementView, ReturnRow, State};

use super::*;

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Store {
    pub ledger: Option<LedgerRow>,
    pub servers: BTreeMap<MachineId, ServerRow>,
    pub chunks: BTreeMap<ChunkId, BuiltRow>,
    pub returns: BTreeMap<ChunkId, ReturnRow>,
    pub placements: BTreeMap<(ChunkId, MachineId), PlacementRow>,
}

impl Store {
    pub fn apply(&mut self, writes: Vec<Write>) {
        for write in writes {
            match write {
                Write::Ledger(row) => self.ledger = Some(row),
                Write::Server(id, Some(row)) => drop(self.servers.insert(id, row)),
                Write::Server(id, None) => drop(self.servers.remove(&id)),
                Write::Chunk(id, Some(row)) => drop(self.chunks.insert(id, row)),
                Write::Chunk(id, None) => drop(self.chunks.remove(&id)),
                Write::Return(id, Some(row)) => drop(self.returns.insert(id, row)),
                Write::Return(id, None) => drop(self.returns.remove(&id)),
                Write::Placement(chunk, id, Some(row)) => drop(self.placements.insert((chunk, id), row)),
                Write::Placement(chunk, id, None) => drop(self.placements.remove(&(chunk, id))),
            }
        }
    }

    pub fn load(&self, config: Config) -> State {
        let copies = self.placements.iter().map(|((chunk, id), row)| (*chunk, id.clone(), *row));
        State::load(config, self.ledger, self.servers.clone(), self.chunks.clone(), self.returns.clone(), copies)
            .unwrap()
    }
}

pub struct World {
    pub state: State,
    pub store: Store,
    pub config: Config,
    pub now: Time,
    pub fleet: BTreeMap<String, ServerRow>,
    pub frozen: bool,
    /// The number of each chunk's index.
    pub indexes: BTreeMap<u64, u32>,
    /// Decided and not committed yet.
    pub out: Vec<Write>,
}

pub fn artifact(chunk: u64, bytes: u64) -> Artifact {
    let mut checksum = [7; 32];
    checksum[..8].copy_from_slice(&chunk.to_be_bytes());
    Artifact { location: format!("http://store/{chunk}").into(), bytes, checksum, from: None }
}

impl World {
    pub fn new(config: Config) -> Self {
        let (store, now) = (Store::default(), Time(1_000_000));
        Self {
            state: State::new(config),
            store,
            config,
            now,
            fleet: BTreeMap::new(),
            frozen: false,
            indexes: BTreeMap::new(),
            out: Vec::new(),
        }
    }

    /// A world with servers of capacity 1 in row 0.
    pub fn with_servers(count: usize) -> Self {
        let mut world = Self::new(Config::default());
        for i in 0..count {
            world.join(&format!("s{i}"), 0, 1);
        }
        world
    }

    pub fn join(&mut self, id: &str, row: u8, capacity: u32) {
        let facts = ServerRow {
            row: RowNo(row),
            capacity,
            address: format!("{id}:80").into(),
            judged: Judged::Healthy,
            since: self.now,
            desired: Desired::Online,
            accepts: true,
            unanswered: false,
            removed: false,
        };
        self.fleet.insert(id.into(), facts);
        self.publish_to_servers();
    }

    /// Passes the fleet to placement, as after each of its changes.
    pub fn publish_to_servers(&mut self) {
        let servers: Vec<_> = self.fleet.iter().map(|(id, facts)| (id.as_str().into(), facts.clone())).collect();
        self.state.servers(&servers, self.frozen, self.now, &mut self.out);
    }

    pub fn judge(&mut self, id: &str, judged: Judged) {
        let now = self.now;
        if let Some(server) = self.fleet.get_mut(id).filter(|server| server.judged != judged) {
            (server.judged, server.since, server.unanswered) = (judged, now, false);
        }
        self.publish_to_servers();
    }

    /// It reports, and misses its probes.
    pub fn suspect(&mut self, id: &str) {
        let now = self.now;
        if let Some(server) = self.fleet.get_mut(id).filter(|server| !server.unanswered) {
            (server.judged, server.since, server.unanswered) = (Judged::Suspect, now, true);
        }
        self.publish_to_servers();
    }

    pub fn gone(&mut self, chunk: u64) {
        if self.state.chunk_gone(ChunkId(chunk), self.now, &mut self.out).is_ok() {
            self.given_up(chunk);
        }
    }

    /// The number of a chunk's index; it grows when one is given up.
    pub fn index(&self, chunk: u64) -> u32 {
        self.indexes.get(&chunk).copied().unwrap_or_default()
    }

    pub fn given_up(&mut self, chunk: u64) {
        *self.indexes.entry(chunk).or_default() += 1;
    }

    pub fn desire(&mut self, id: &str, desired: Desired) {
        if let Some(server) = self.fleet.get_mut(id) {
            server.desired = desired;
        }
        self.publish_to_servers();
    }

    pub fn leave(&mut self, id: &str) {
        self.fleet.remove(id);
        self.publish_to_servers();
    }

    pub fn freeze(&mut self, frozen: bool) {
        self.frozen = frozen;
        self.publish_to_servers();
    }

    pub fn build(&mut self, chunk: u64, bytes: u64) {
        let index = self.index(chunk);
        self.state.chunk_built(ChunkId(chunk), &artifact(chunk, bytes), index, self.now, &mut self.out).unwrap();
    }

    pub fn report(&mut self, chunk: u64, id: &str, reported: CopyReport) -> Result<Option<PlacementState>, Refusal> {
        self.state.report(ChunkId(chunk), &id.into(), reported, self.now, &mut self.out)
    }

    /// Passes time and ticks until nothing is left; how many ticks that took.
    pub fn pass(&mut self, ms: u64) -> usize {
        self.now = self.now.after(Millis(ms));
        (1..1_000).find(|_| !self.state.tick(self.now, &mut self.out).more).expect("ticks come to an end")
    }

    /// Pipelines take what is given up.
    pub fn report_to_pipeline(&mut self) {
        for (chunk, index, _) in self.state.returns(None, usize::MAX) {
            if self.index(chunk.0) == index {
                self.given_up(chunk.0);
            }
            self.state.returned(&[(chunk, index)], &mut self.out);
        }
    }

    /// Commits what was decided.
    pub fn commit(&mut self) {
        self.store.apply(std::mem::take(&mut self.out));
    }

    /// The copies of a server, or all.
    pub fn list(&self, server: Option<&str>) -> Vec<PlacementView> {
        let filter = Filter { server: server.map(Into::into), ..Filter::default() };
        let (mut after, mut all) = (None, Vec::new());
        loop {
            let page = self.state.list(&filter, after.as_ref(), 100, self.now).unwrap();
            all.extend(page.placements);
            after = page.next;
            if after.is_none() {
                return all;
            }
        }
    }

    /// A server does all that its copies ask of it.
    pub fn work(&mut self, id: &str) -> bool {
        let mut worked = false;
        for copy in self.list(Some(id)) {
            let reported = match copy.state {
                PlacementState::Assigned => CopyReport::Fetching,
                PlacementState::Fetching => CopyReport::Ready,
                PlacementState::Ready => continue,
                PlacementState::Draining => CopyReport::Gone,
            };
            match self.report(copy.chunk.0, id, reported) {
                // Its name was deleted and registered again, and the old copies are not forgotten yet.
                Err(Refusal::UnknownServer(_)) => {}
                // An earlier report of this loop cannot have changed this copy, so it is taken.
                result => worked |= result.map(|_| true).unwrap(),
            }
        }
        worked
    }

    /// Servers do what they are told, which is committed.
    pub fn settled(&mut self) {
        self.settle();
        self.commit();
    }

    /// Servers that have not failed work until nothing is left to do at this time.
    pub fn settle(&mut self) {
        for _ in 0..100 {
            self.pass(0);
            let mut worked = false;
            let alive = self.fleet.iter().filter(|(_, server)| server.judged != Judged::Failed);
            for id in alive.map(|(id, _)| id.clone()).collect::<Vec<_>>() {
                worked |= self.work(&id);
            }
            if !worked {
                return;
            }
        }
        panic!("the servers are given work without end");
    }

    /// Bytes per capacity of the servers of a row that have copies, by what is chosen.
    pub fn fullness(&self, row: u8) -> Vec<f64> {
        let mut bytes: BTreeMap<&str, f64> =
            self.fleet.iter().filter(|(_, s)| s.row == RowNo(row)).map(|(id, _)| (id.as_str(), 0.0)).collect();
        for ((chunk, id), row) in &self.store.placements {
            if row.role == CopyRole::Chosen
                && row.state != PlacementState::Draining
                && let Some(sum) = bytes.get_mut(&**id)
            {
                *sum += self.store.chunks[chunk].artifact.bytes as f64 / f64::from(self.fleet[&**id].capacity);
            }
        }
        bytes.into_values().collect()
    }

    /// The fullest server's load over the emptiest one's.
    pub fn spread(&self, row: u8) -> f64 {
        let loads = self.fullness(row);
        loads.iter().copied().fold(0.0, f64::max) / loads.iter().copied().fold(f64::INFINITY, f64::min)
    }

    /// Where the chosen copy of each chunk is, in a row.
    pub fn homes(&self, row: u8) -> BTreeMap<ChunkId, MachineId> {
        let chosen = self.store.placements.iter().filter(|(_, copy)| {
            copy.row == RowNo(row) && copy.role == CopyRole::Chosen && copy.state != PlacementState::Draining
        });
        chosen.map(|((chunk, id), _)| (*chunk, id.clone())).collect()
    }

    /// The map without its version.
    pub fn unversioned(&self) -> Map {
        Map { version: 0, ..self.state.map() }
    }
}
