//! The thread that watches the store's own progress: whether the disk answers, tables are merged, batches find room, and
//! enough of the disk is free. What it finds is the store's health.
//!
//! A disk that is nearly full refuses batches before they change anything, so reads go on and batches are taken again when
//! there is room. What is kept in reserve is for rows that are in memory already and for merges.

use std::path::PathBuf;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use wayleave_engine::{Error, Health};

use crate::disk::Disk;
use crate::store::Store;
use crate::tables::Tables;

/// How often it looks.
const LOOK: Duration = Duration::from_millis(250);
/// A sync, or a batch that waits for room, is worth a word after this time.
const SLOW: Duration = Duration::from_secs(5);
/// A sync that takes this long has failed.
const DEAD: Duration = Duration::from_secs(60);
/// The least that is kept free: more than can be written between two looks, and to merge what is there with that.
const RESERVE_BYTES_MIN: u64 = 64 << 20;

/// What is kept free: for the rows in memory, which go to a table, and to merge that one with others.
pub(crate) const fn reserve_bytes(memtable_bytes: usize) -> u64 {
    let reserve = (memtable_bytes as u64).saturating_mul(4);
    if reserve > RESERVE_BYTES_MIN { reserve } else { RESERVE_BYTES_MIN }
}

/// What the watchdog sees at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Signs {
    /// How long the disk has had something to do and nothing has ended.
    syncing: Option<Duration>,
    /// How long batches have waited for room in memory.
    stalled: Option<Duration>,
    /// What is free of the disk, if the machine can say.
    free_bytes: Option<u64>,
    /// Why nothing is merged any more.
    merges: Option<String>,
}

/// What follows from it.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Verdict {
    Well,
    /// Batches are refused, for this reason.
    Refuse(String),
    /// Batches are taken but wait, for this reason.
    Slow(String),
    Fail(String),
}

/// Judges what is seen; `refusing` says whether batches are refused already.
fn judge(signs: &Signs, reserve: u64, refusing: bool) -> Verdict {
    if let Some(why) = &signs.merges {
        return Verdict::Fail(why.clone());
    }
    let seconds = |span: Duration| span.as_secs();
    if let Some(span) = signs.syncing.filter(|span| *span >= DEAD) {
        return Verdict::Fail(format!("the disk has not answered for {} s: check it, then start again", seconds(span)));
    }
    // A little more than the reserve must be free before batches are taken again, or it would go back and forth.
    let wanted = if refusing { reserve.saturating_add(reserve / 4) } else { reserve };
    if let Some(free) = signs.free_bytes.filter(|free| *free < wanted) {
        let mib = |bytes: u64| bytes >> 20;
        return Verdict::Refuse(format!(
            "no space left for the data folder ({} MiB free, {} MiB are kept in reserve): free some space; nothing was \
             changed, and writes are taken again by themselves",
            mib(free),
            mib(wanted)
        ));
    }
    if let Some(span) = signs.syncing.filter(|span| *span >= SLOW) {
        return Verdict::Slow(format!("the disk has not answered for {} s: check it", seconds(span)));
    }
    if let Some(span) = signs.stalled.filter(|span| *span >= SLOW) {
        return Verdict::Slow(format!(
            "writes have waited {} s for tables to be merged: check the disk",
            seconds(span)
        ));
    }
    Verdict::Well
}

/// The thread. Dropping it ends the thread.
pub(crate) struct Watchdog {
    end: Option<Sender<()>>,
    health: Arc<Mutex<Health>>,
    thread: Option<JoinHandle<()>>,
}

/// What is watched besides the store itself.
pub(crate) struct Watched {
    pub(crate) disk: Arc<dyn Disk>,
    pub(crate) folder: PathBuf,
    pub(crate) reserve_bytes: u64,
}

impl Watchdog {
    /// Starts to watch a store; looks once before it returns.
    ///
    /// # Errors
    /// If the machine gives no thread.
    pub(crate) fn start<T: Tables>(store: Arc<Store<T>>, watched: Watched) -> std::io::Result<Self> {
        let (end, ended) = channel::<()>();
        let health = Arc::new(Mutex::new(look(&store, &watched, &Health::Ok)));
        let told = Arc::clone(&health);
        let thread = std::thread::Builder::new().name("wayleave-watch".into()).spawn(move || {
            while ended.recv_timeout(LOOK) == Err(RecvTimeoutError::Timeout) {
                let before = told.lock().unwrap_or_else(PoisonError::into_inner).clone();
                let now = look(&store, &watched, &before);
                *told.lock().unwrap_or_else(PoisonError::into_inner) = now;
            }
        })?;
        Ok(Self { end: Some(end), health, thread: Some(thread) })
    }

    /// How the store was at the last look.
    pub(crate) fn health(&self) -> Health {
        self.health.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        self.end = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Looks once: lets the store refuse, take again or fail, and says how it is. A change is logged once.
pub(crate) fn look<T: Tables>(store: &Store<T>, watched: &Watched, before: &Health) -> Health {
    if let Err(Error::Unavailable(why)) = store.syncer.check() {
        return Health::Failed(why);
    }
    let stalled = store.flush.lock().unwrap_or_else(PoisonError::into_inner).stalled_since;
    let syncing = store.syncer.busy_since().map(|since| since.elapsed());
    // A disk that is dead may hang these two as well.
    let dead = syncing.is_some_and(|span| span >= DEAD);
    let signs = Signs {
        syncing,
        stalled: stalled.map(|since| since.elapsed()),
        free_bytes: if dead { None } else { watched.disk.free_bytes(&watched.folder).ok() },
        merges: if dead { None } else { store.tables.check().err() },
    };
    let refusing = store.refuses.lock().unwrap_or_else(PoisonError::into_inner).is_some();
    let verdict = judge(&signs, watched.reserve_bytes, refusing);
    let refuses = if let Verdict::Refuse(why) = &verdict { Some(why.clone()) } else { None };
    *store.refuses.lock().unwrap_or_else(PoisonError::into_inner) = refuses;
    let now = match verdict {
        Verdict::Well => Health::Ok,
        Verdict::Refuse(why) | Verdict::Slow(why) => Health::Degraded(why),
        Verdict::Fail(why) => {
            store.syncer.fail(why.clone());
            store.tell_flush();
            Health::Failed(why)
        }
    };
    match (&now, before) {
        (Health::Ok, Health::Degraded(_)) => tracing::info!("the store is well again"),
        (Health::Degraded(why), Health::Ok) => tracing::warn!(reason = %why, "the store is degraded"),
        (Health::Failed(why), Health::Ok | Health::Degraded(_)) => {
            tracing::error!(reason = %why, "the store has failed")
        }
        _ => {}
    }
    now
}

#[cfg(test)]
mod tests {
    use super::*;

    const RESERVE: u64 = 100 << 20;

    fn seconds(count: u64) -> Option<Duration> {
        Some(Duration::from_secs(count))
    }

    fn check(signs: Signs, refusing: bool, expected: &str) {
        let verdict = match judge(&signs, RESERVE, refusing) {
            Verdict::Well => "well".to_owned(),
            Verdict::Refuse(why) => format!("refuse: {why}"),
            Verdict::Slow(why) => format!("slow: {why}"),
            Verdict::Fail(why) => format!("fail: {why}"),
        };
        assert!(verdict.starts_with(expected), "{signs:?}: {verdict}, not {expected}");
    }

    #[test]
    fn a_store_that_moves_is_well() {
        check(Signs::default(), false, "well");
        check(Signs { syncing: seconds(4), stalled: seconds(4), ..Signs::default() }, false, "well");
    }

    #[test]
    fn a_disk_that_does_not_answer_is_slow_and_then_dead() {
        check(Signs { syncing: seconds(5), ..Signs::default() }, false, "slow: the disk has not answered for 5 s");
        check(Signs { syncing: seconds(60), ..Signs::default() }, false, "fail: the disk has not answered for 60 s");
        check(Signs { stalled: seconds(9), ..Signs::default() }, false, "slow: writes have waited 9 s");
    }

    #[test]
    fn merges_that_have_ended_fail_the_store_at_once() {
        check(Signs { merges: Some("a thread died".into()), ..Signs::default() }, false, "fail: a thread died");
    }

    #[test]
    fn a_disk_that_is_nearly_full_refuses_until_there_is_more_than_the_reserve() {
        let free = |mib: u64| Signs { free_bytes: Some(mib << 20), ..Signs::default() };
        check(free(100), false, "well");
        check(free(99), false, "refuse: no space left for the data folder (99 MiB free, 100 MiB");
        check(free(110), true, "refuse: no space left for the data folder (110 MiB free, 125 MiB");
        check(free(125), true, "well");
    }
}
