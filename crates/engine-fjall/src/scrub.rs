//! The scrub: reads every table slowly in the background and compares its checksum, so that damage is found while a
//! backup is still young, not when the row is needed.

use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::background;
use crate::damage::DamageLog;
use crate::lsm::FjallTables;
use crate::manifest;
use crate::store::Store;

/// The time between two passes over all tables.
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

impl Scrub {
    /// Starts to read the tables of a store.
    ///
    /// # Errors
    /// If no thread can be spawned.
    pub(crate) fn start(store: &Arc<Store<FjallTables>>, damage: Arc<DamageLog>) -> std::io::Result<Self> {
        let (end, ended) = channel::<()>();
        let store = Arc::downgrade(store);
        let thread = std::thread::Builder::new().name("wayleave-scrub".into()).spawn(move || {
            background::give_way();
            let waits = |span: Duration| ended.recv_timeout(span) == Err(RecvTimeoutError::Timeout);
            let mut pause = FIRST_AFTER;
            while waits(pause) && pass(&store, &damage, |_| waits(PAUSE)) {
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

/// Reads all tables once; false if it was told to end.
pub(crate) fn pass(store: &Weak<Store<FjallTables>>, damage: &DamageLog, mut waits: impl FnMut(u64) -> bool) -> bool {
    let Some(files) = store.upgrade().map(|store| store.tables.files()) else { return false };
    damage.keep(|path| files.iter().any(|file| file.path == path));
    let mut goes_on = true;
    for file in files {
        let checked = manifest::verify(&file.path, file.checksum, |bytes| {
            goes_on = waits(bytes);
            goes_on
        });
        if checked.is_ok() && goes_on {
            damage.remove(&file.path);
        }
        if let Err(bad) = checked
            && bad.is_damage
        {
            // A merge may have removed the table meanwhile.
            let tables = store.upgrade().map(|store| store.tables.files()).unwrap_or_default();
            let current = tables.iter().any(|table| table.path == file.path);
            if current {
                damage.tell(&file, &bad.what);
            }
        }
        if !goes_on {
            return false;
        }
    }
    true
}
