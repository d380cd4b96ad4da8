//! The scrub: reads every file slowly in the background and compares its checksum, so that damage is found while a backup is
//! still young, not when the row is needed or the next start is refused.
//!
//! The newest file of the journal is left out: it is being written, and its rows are in memory.

use std::path::{Path, PathBuf};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

use lsm_tree::AbstractTree;

use crate::background;
use crate::damage::DamageLog;
use crate::disk::Disk;
use crate::flusher;
use crate::folder::{At, DB, FORMAT, JOURNAL};
use crate::journal;
use crate::lsm::FjallTables;
use crate::manifest::{self, BadFile};
use crate::open_error::OpenError;
use crate::replay::{Inspected, Replay};
use crate::store::Store;

/// The time between two passes over all files.
const PASS_EVERY: Duration = Duration::from_secs(24 * 3600);
/// The pause before the first pass: a start has other things to do.
const FIRST_AFTER: Duration = Duration::from_secs(60);
/// The pause after each mebibyte: about 8 MiB a second.
const PAUSE: Duration = Duration::from_millis(125);

/// The scrub thread. Dropping this ends it.
pub(crate) struct Scrub {
    end: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// A data folder that is in use.
pub(crate) struct OpenFolder {
    pub(crate) disk: Arc<dyn Disk>,
    pub(crate) path: PathBuf,
}

impl Scrub {
    /// Starts to read the files of a store.
    pub(crate) fn start(
        store: &Arc<Store<FjallTables>>,
        folder: OpenFolder,
        damage: Arc<DamageLog>,
    ) -> std::io::Result<Self> {
        let (end, ended) = channel::<()>();
        let store = Arc::downgrade(store);
        let thread = std::thread::Builder::new().name("wayleave-scrub".into()).spawn(move || {
            background::give_way();
            let waits = |span: Duration| ended.recv_timeout(span) == Err(RecvTimeoutError::Timeout);
            let mut pause = FIRST_AFTER;
            while waits(pause) && pass(&store, &folder, &damage, |_| waits(PAUSE)) {
                pause = PASS_EVERY;
            }
        })?;
        Ok(Self { end: Some(end), thread: Some(thread) })
    }
}

impl Drop for Scrub {
    fn drop(&mut self) {
        self.end = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Reads all files once; false if it was asked to stop.
pub(crate) fn pass(
    store: &Weak<Store<FjallTables>>,
    folder: &OpenFolder,
    damage: &DamageLog,
    mut waits: impl FnMut(u64) -> bool,
) -> bool {
    let Some(files) = store.upgrade().map(|store| store.tables.files()) else { return false };
    if let Some(store) = store.upgrade() {
        damage.set_of_start(&damaged_for_start(&store, folder));
    }
    damage.keep_tables(|path| files.iter().any(|file| file.path == path));
    let mut keep_going = true;
    for file in files {
        let checked = manifest::verify(&file.path, file.checksum, |bytes| {
            keep_going = waits(bytes);
            keep_going
        });
        if checked.is_ok() && keep_going {
            damage.remove(&file.path);
        }
        if let Err(bad) = checked
            && bad.is_damage
        {
            // A merge may have removed the table meanwhile.
            let tables = store.upgrade().map(|store| store.tables.files()).unwrap_or_default();
            let current = tables.iter().any(|table| table.path == file.path);
            if current {
                damage.on_read_failure(&file, &bad.what);
            }
        }
        if !keep_going {
            return false;
        }
    }
    true
}

/// What is damaged of the files that a start reads besides the tables.
fn damaged_for_start(store: &Store<FjallTables>, folder: &OpenFolder) -> Vec<BadFile> {
    let manifest = damaged_manifest(&store.tables, &folder.path.join(DB));
    damaged_format(folder).into_iter().chain(manifest).chain(damaged_journal(store, folder)).collect()
}

fn damaged_format(OpenFolder { disk, path }: &OpenFolder) -> Option<BadFile> {
    let file = path.join(FORMAT);
    let what = match (At { disk: &**disk, path }).read_format() {
        Err(OpenError::Damaged { what, .. }) => what,
        Err(_) if matches!(disk.exists(&file), Ok(false)) => "it is missing".into(),
        Ok(_) | Err(_) => return None,
    };
    Some(BadFile::damaged(&file, &what))
}

fn damaged_manifest(tables: &FjallTables, database: &Path) -> Option<BadFile> {
    loop {
        let version = tables.tree.current_version().id();
        let bad = manifest::list(database).err().filter(|bad| bad.is_damage)?;
        // It may have been replaced and removed since it was read.
        if tables.tree.current_version().id() == version {
            return Some(bad);
        }
    }
}

/// The damaged ones of the journal files that are complete.
fn damaged_journal(store: &Store<FjallTables>, folder: &OpenFolder) -> Vec<BadFile> {
    let journal = folder.path.join(JOURNAL);
    let numbers = || journal::numbers(&*folder.disk, &journal).unwrap_or_default();
    let known = numbers();
    let (Some(first), Some(newest)) = (known.first(), known.last().filter(|_| known.len() > 1)) else {
        return Vec::new();
    };
    // The newest one exists, so the one before it is complete once everything that was begun has ended.
    if flusher::settle(store).is_err() {
        return Vec::new();
    }
    let replay = Replay { disk: &folder.disk, folder: &journal, done: first.saturating_sub(1), repair: false };
    let inspected = replay.inspect().unwrap_or_default();
    let complete: Vec<PathBuf> = (*first..*newest).map(|number| journal::path(&journal, number)).collect();
    let bad = |(path, verdict): Inspected| {
        // A flush may have removed it.
        let is_there = complete.contains(&path) && matches!(folder.disk.exists(&path), Ok(true));
        verdict.err().filter(|_| is_there).map(|what| BadFile::damaged(&path, &what))
    };
    inspected.into_iter().filter_map(bad).collect()
}

#[cfg(test)]
#[path = "scrub_tests.rs"]
mod tests;
