//! A simulated disk that loses, reorders and tears unsynced writes, and fails at any operation.
//!
//! A power cut keeps what was synced and any part of the rest: each sector of a write and each name independently. A
//! killed process loses nothing that was written. After a failed sync, part of the unsynced data is silently lost: the
//! page cache still shows it, but no later sync writes it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::io::{Error, ErrorKind, Result};
use std::path::{Component, Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::io::Errno;

use crate::disk::{Disk, DiskFile};

use super::node::{Id, NameOp, Node, Write, apply_name, put};

/// The unit that a disk writes atomically.
const SECTOR: usize = 512;

/// How an operation fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// No space left; part of the data may have been written.
    NoSpace,
    /// An I/O error; anything may have happened.
    Io,
    /// The file system has become read-only; nothing was changed.
    ReadOnly,
    /// The power is cut: this operation and all later ones have no effect.
    PowerCut,
}

/// A sync call: the phase it was made in, what was synced, and how many times before in that phase.
pub type SyncPoint = (&'static str, String, u64);

struct State {
    nodes: BTreeMap<Id, Node>,
    next: Id,
    random: u64,
    /// The number of changing operations so far.
    operations: u64,
    fault: Option<(u64, Fault)>,
    power: bool,
    locked: BTreeSet<PathBuf>,
    refuse_direct: bool,
    free_bytes: u64,
    phase: &'static str,
    /// How often each path was synced in this phase.
    synced: BTreeMap<String, u64>,
    seen: BTreeSet<SyncPoint>,
    /// A sync that silently does nothing.
    lie: Option<SyncPoint>,
}

/// The disk. Clones share it.
#[derive(Clone)]
pub struct SimDisk(Arc<Mutex<State>>);

impl Debug for SimDisk {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str("SimDisk")
    }
}

const ROOT: Id = 0;

fn not_found() -> Error {
    ErrorKind::NotFound.into()
}

impl SimDisk {
    /// An empty disk; the seed decides what it loses.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        let root = Node::Dir { names: BTreeMap::new(), durable: BTreeMap::new(), unsynced: Vec::new() };
        Self(Arc::new(Mutex::new(State {
            nodes: BTreeMap::from([(ROOT, root)]),
            next: 1,
            random: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x5851_f42d_4c95_7f2d,
            operations: 0,
            fault: None,
            power: true,
            locked: BTreeSet::new(),
            refuse_direct: seed.is_multiple_of(2),
            free_bytes: u64::MAX,
            phase: "",
            synced: BTreeMap::new(),
            seen: BTreeSet::new(),
            lie: None,
        })))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes the operation after `after` others fail.
    pub fn fail_after(&self, after: u64, fault: Fault) {
        let mut state = self.state();
        state.fault = Some((state.operations + after, fault));
    }

    /// Removes a fault that has not struck yet.
    pub fn heal(&self) {
        self.state().fault = None;
    }

    /// Whether the power is on; see [`Fault::PowerCut`].
    #[must_use]
    pub fn has_power(&self) -> bool {
        self.state().power
    }

    /// The number of changing operations.
    #[must_use]
    pub fn operations(&self) -> u64 {
        self.state().operations
    }

    /// Ends the process: its locks are released, its writes stay.
    pub fn kill(&self) {
        self.state().locked.clear();
    }

    /// Cuts the power: keeps what was synced and any part of the rest. The disk works again afterwards.
    pub fn power_cut(&self) {
        let mut state = self.state();
        state.lose_unsynced();
        state.forget_removed();
        state.locked.clear();
        (state.power, state.fault) = (true, None);
    }

    /// Sets the free space.
    pub fn set_free_bytes(&self, bytes: u64) {
        self.state().free_bytes = bytes;
    }

    /// Names the current phase, for [`SyncPoint`]s.
    pub fn set_phase(&self, phase: &'static str) {
        let mut state = self.state();
        (state.phase, state.synced) = (phase, BTreeMap::new());
    }

    /// All sync calls so far.
    #[must_use]
    pub fn sync_points(&self) -> BTreeSet<SyncPoint> {
        self.state().seen.clone()
    }

    /// Turns one of them into a no-op, as if it were missing from the code.
    pub fn lie_about(&self, point: SyncPoint) {
        self.state().lie = Some(point);
    }

    /// Flips bits of one byte of a file on disk; false if there is no such byte.
    #[must_use]
    pub fn flip(&self, path: &Path, at: usize, bits: u8) -> bool {
        let mut state = self.state();
        let Ok(Node::File { bytes, durable, .. }) = state.node_mut(path) else { return false };
        let flipped = [bytes, durable].map(|bytes| bytes.get_mut(at).map(|byte| *byte ^= bits).is_some());
        flipped == [true; 2]
    }

    /// A number below `bound` from the disk's seed.
    #[must_use]
    pub fn below(&self, bound: u64) -> u64 {
        self.state().below(bound)
    }
}

impl State {
    fn below(&mut self, bound: u64) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let n = (self.random ^ (self.random >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let n = (n ^ (n >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (n ^ (n >> 31)) % bound.max(1)
    }

    fn names(path: &Path) -> impl Iterator<Item = &str> {
        path.components().filter_map(|part| match part {
            Component::Normal(name) => name.to_str(),
            _ => None,
        })
    }

    fn find(&self, path: &Path) -> Result<Id> {
        Self::names(path).try_fold(ROOT, |id, name| match self.nodes.get(&id) {
            Some(Node::Dir { names, .. }) => names.get(name).copied().ok_or_else(not_found),
            _ => Err(not_found()),
        })
    }

    fn node(&self, path: &Path) -> Result<&Node> {
        self.nodes.get(&self.find(path)?).ok_or_else(not_found)
    }

    fn node_mut(&mut self, path: &Path) -> Result<&mut Node> {
        let id = self.find(path)?;
        self.nodes.get_mut(&id).ok_or_else(not_found)
    }

    /// Counts an operation; returns its fault, if it has one.
    fn operation(&mut self) -> Option<Fault> {
        if !self.power {
            return Some(Fault::PowerCut);
        }
        let number = self.operations;
        self.operations += 1;
        let (_, fault) = self.fault.filter(|(at, _)| *at == number)?;
        self.fault = None;
        self.power = fault != Fault::PowerCut;
        Some(fault)
    }

    /// An operation that happens entirely or not at all.
    fn whole(&mut self) -> Result<()> {
        self.operation().map_or(Ok(()), |fault| Err(error(fault)))
    }

    fn change_names(&mut self, folder: &Path, op: NameOp) -> Result<()> {
        let Node::Dir { names, unsynced, .. } = self.node_mut(folder)? else {
            return Err(ErrorKind::NotADirectory.into());
        };
        apply_name(names, &op);
        unsynced.push(op);
        Ok(())
    }

    fn add(&mut self, path: &Path, node: Node) -> Result<()> {
        self.whole()?;
        if self.find(path).is_ok() {
            return Err(ErrorKind::AlreadyExists.into());
        }
        let (folder, name) = split(path)?;
        let id = self.next;
        self.next += 1;
        self.nodes.insert(id, node);
        self.change_names(folder, NameOp::Add(name, id))
    }

    /// Whether a sync is to be carried out.
    fn sync_point(&mut self, path: &Path) -> bool {
        let name = path.file_name().map_or_else(|| "/".into(), |name| name.to_string_lossy().into_owned());
        let name = name.trim_start_matches(|c: char| c.is_ascii_digit()).to_owned();
        let count = self.synced.entry(name.clone()).or_default();
        *count += 1;
        // In the run phase every sync of a kind is the same line of code, and so are those of the files replayed at an
        // open.
        let count = if self.phase == "run" || name.ends_with(".journal") { 0 } else { *count };
        let point = (self.phase, name, count);
        let lies = self.lie.as_ref() == Some(&point);
        self.seen.insert(point);
        !lies
    }

    fn lose_unsynced(&mut self) {
        let ids: Vec<Id> = self.nodes.keys().copied().collect();
        for id in ids {
            let Some(mut node) = self.nodes.remove(&id) else { continue };
            match &mut node {
                Node::File { bytes, durable, unsynced } => {
                    for write in std::mem::take(unsynced) {
                        self.keep_some(durable, &write);
                    }
                    bytes.clone_from(durable);
                }
                Node::Dir { names, durable, unsynced } => {
                    for op in std::mem::take(unsynced) {
                        if self.below(2) == 0 {
                            apply_name(durable, &op);
                        }
                    }
                    names.clone_from(durable);
                }
            }
            self.nodes.insert(id, node);
        }
    }

    /// Drops files that no name reaches any more, neither now nor after a power cut.
    fn forget_removed(&mut self) {
        let (mut kept, mut next) = (BTreeSet::new(), vec![ROOT]);
        while let Some(id) = next.pop() {
            if kept.insert(id)
                && let Some(Node::Dir { names, durable, unsynced }) = self.nodes.get(&id)
            {
                let added = unsynced.iter().filter_map(|op| if let NameOp::Add(_, id) = op { Some(id) } else { None });
                next.extend(names.values().chain(durable.values()).chain(added));
            }
        }
        self.nodes.retain(|id, _| kept.contains(id));
    }

    /// Keeps all of a write, none of it, or some of its sectors.
    fn keep_some(&mut self, durable: &mut Vec<u8>, write: &Write) {
        let kind = self.below(4);
        for (number, sector) in write.bytes.chunks(SECTOR).enumerate() {
            if kind == 0 || kind > 1 && self.below(2) == 0 {
                put(durable, write.at + number * SECTOR, sector);
            }
        }
    }
}

fn error(fault: Fault) -> Error {
    match fault {
        Fault::NoSpace => Error::from_raw_os_error(Errno::NOSPC.raw_os_error()),
        Fault::Io | Fault::PowerCut => Error::from_raw_os_error(Errno::IO.raw_os_error()),
        Fault::ReadOnly => Error::from_raw_os_error(Errno::ROFS.raw_os_error()),
    }
}

fn split(path: &Path) -> Result<(&Path, String)> {
    let (folder, name) = path.parent().zip(path.file_name()).ok_or_else(not_found)?;
    Ok((folder, name.to_string_lossy().into_owned()))
}

/// A file lock, released on drop.
struct Lock {
    disk: SimDisk,
    path: PathBuf,
}

impl Debug for Lock {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "Lock({})", self.path.display())
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        self.disk.state().locked.remove(&self.path);
    }
}

impl Disk for SimDisk {
    fn exists(&self, path: &Path) -> Result<bool> {
        Ok(self.state().find(path).is_ok())
    }

    fn list(&self, folder: &Path) -> Result<Vec<String>> {
        match self.state().node(folder)? {
            Node::Dir { names, .. } => Ok(names.keys().cloned().collect()),
            Node::File { .. } => Err(ErrorKind::NotADirectory.into()),
        }
    }

    fn create_dir(&self, folder: &Path) -> Result<()> {
        let node = Node::Dir { names: BTreeMap::new(), durable: BTreeMap::new(), unsynced: Vec::new() };
        self.state().add(folder, node)
    }

    fn remove_dir_all(&self, folder: &Path) -> Result<()> {
        self.remove(folder)
    }

    fn create(&self, path: &Path) -> Result<()> {
        self.state().add(path, Node::File { bytes: Vec::new(), durable: Vec::new(), unsynced: Vec::new() })
    }

    fn read(&self, path: &Path) -> Result<Vec<u8>> {
        match self.state().node(path)? {
            Node::File { bytes, .. } => Ok(bytes.clone()),
            Node::Dir { .. } => Err(ErrorKind::IsADirectory.into()),
        }
    }

    fn len(&self, path: &Path) -> Result<u64> {
        Ok(self.read(path)?.len() as u64)
    }

    fn read_at(&self, path: &Path, offset: u64, bytes: usize) -> Result<Vec<u8>> {
        let all = self.read(path)?;
        let from = usize::try_from(offset).unwrap_or(usize::MAX).min(all.len());
        Ok(all.get(from..from.saturating_add(bytes).min(all.len())).unwrap_or_default().to_vec())
    }

    fn open(&self, path: &Path, direct: bool) -> Result<Arc<dyn DiskFile>> {
        let state = self.state();
        if direct && state.refuse_direct {
            return Err(Error::from_raw_os_error(Errno::INVAL.raw_os_error()));
        }
        let id = state.find(path)?;
        Ok(Arc::new(SimFile { disk: self.clone(), id, path: path.into(), direct }))
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        let mut state = self.state();
        state.whole()?;
        state.find(from)?;
        let ((folder, old), (_, new)) = (split(from)?, split(to)?);
        state.change_names(folder, NameOp::Rename(old, new))
    }

    fn remove(&self, path: &Path) -> Result<()> {
        let mut state = self.state();
        state.whole()?;
        state.find(path)?;
        let (folder, name) = split(path)?;
        state.change_names(folder, NameOp::Remove(name))
    }

    fn sync_dir(&self, folder: &Path) -> Result<()> {
        let mut state = self.state();
        state.whole()?;
        let honest = state.sync_point(folder);
        if let Node::Dir { durable, unsynced, .. } = state.node_mut(folder)?
            && honest
        {
            unsynced.drain(..).for_each(|op| apply_name(durable, &op));
        }
        state.forget_removed();
        Ok(())
    }

    fn lock(&self, path: &Path) -> Result<Box<dyn Debug + Send + Sync>> {
        let mut state = self.state();
        if state.find(path).is_err() {
            state.add(path, Node::File { bytes: Vec::new(), durable: Vec::new(), unsynced: Vec::new() })?;
        }
        if !state.locked.insert(path.into()) {
            return Err(ErrorKind::WouldBlock.into());
        }
        drop(state);
        Ok(Box::new(Lock { disk: self.clone(), path: path.into() }))
    }

    fn free_bytes(&self, _: &Path) -> Result<u64> {
        Ok(self.state().free_bytes)
    }
}

struct SimFile {
    disk: SimDisk,
    id: Id,
    path: PathBuf,
    direct: bool,
}

impl DiskFile for SimFile {
    fn write_all_at(&self, bytes: &[u8], offset: u64) -> Result<()> {
        let mut state = self.disk.state();
        let fault = state.operation();
        let (at, direct) = (usize::try_from(offset).map_err(Error::other)?, self.direct);
        let written = match fault {
            None => bytes.len(),
            Some(Fault::ReadOnly | Fault::PowerCut) => 0,
            Some(Fault::NoSpace | Fault::Io) => state.below(bytes.len() as u64 + 1) as usize,
        };
        let new = bytes.get(..written).unwrap_or_default();
        if let Some(Node::File { bytes, unsynced, .. }) = state.nodes.get_mut(&self.id) {
            put(bytes, at, new);
            unsynced.push(Write { at, bytes: new.to_vec(), direct });
        }
        fault.map_or(Ok(()), |fault| Err(error(fault)))
    }

    fn sync(&self) -> Result<()> {
        let mut state = self.disk.state();
        let fault = state.operation();
        if fault.is_none() && !state.sync_point(&self.path) {
            return Ok(());
        }
        let Some(Node::File { mut bytes, mut durable, mut unsynced }) = state.nodes.remove(&self.id) else {
            return Err(not_found());
        };
        match fault {
            Some(Fault::PowerCut) => {}
            None => unsynced.drain(..).for_each(|write| put(&mut durable, write.at, &write.bytes)),
            Some(_) => {
                // What is lost now is never written again. The page cache still shows it, unless it was bypassed.
                let writes = std::mem::take(&mut unsynced);
                writes.iter().for_each(|write| state.keep_some(&mut durable, write));
                if writes.iter().all(|write| write.direct) {
                    bytes.clone_from(&durable);
                }
            }
        }
        state.nodes.insert(self.id, Node::File { bytes, durable, unsynced });
        fault.map_or(Ok(()), |fault| Err(error(fault)))
    }
}
