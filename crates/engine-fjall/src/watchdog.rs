//! The watchdog thread: monitors whether the disk responds, merges progress, commits find room, and enough space is
//! free. Its verdict is the store's health.
//!
//! Space is refused in two steps. While there is no more room than the next merge may need, callers should add nothing:
//! renewals, releases and deletions continue, and merges give space back. Below the floor, which flushes need, every batch
//! is refused before it changes anything; reads continue. Both end by themselves when space is freed.

use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use wayleave_engine::{Error, Health};

use crate::damage::DamageLog;
use crate::disk::Disk;
use crate::merger::Room;
use crate::store::Store;
use crate::tables::{Tables, YOUNG_TABLES_LIMIT, YOUNG_TABLES_MANY};

/// The polling interval.
const LOOK: Duration = Duration::from_millis(250);
/// A sync, or a commit waiting for room, that takes this long is reported as slow.
const SLOW: Duration = Duration::from_secs(5);
/// A sync that takes this long has failed.
const DEAD: Duration = Duration::from_secs(60);
/// The minimum floor: more than can be written between two polls.
const FLOOR_BYTES_MIN: u64 = 64 << 20;

/// The free space that only flushes may use: for the journal and the tables of two memtables.
pub(crate) const fn floor_bytes(memtable_bytes: usize) -> u64 {
    let floor = (memtable_bytes as u64).saturating_mul(4);
    if floor > FLOOR_BYTES_MIN { floor } else { FLOOR_BYTES_MIN }
}

/// The signs that the watchdog observes at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Signs {
    /// How long the disk has been busy without completing anything.
    syncing: Option<Duration>,
    /// How long commits have been waiting for room in memory.
    stalled: Option<Duration>,
    /// The free space, if known.
    free_bytes: Option<u64>,
    /// The most bytes that the next merge can write.
    next_merge: u64,
    /// The number of L0 tables.
    young: usize,
    /// Why merging pauses.
    paused: Option<String>,
    /// What is damaged.
    damage: Option<String>,
}

/// How much may be appended to the journal until the next look without using the room of the next merge. Each byte of it is written
/// to a table too, and makes the next merge larger.
fn growth_budget(signs: &Signs, floor: u64) -> u64 {
    let room = |free: u64| free.saturating_sub(Room::needed(floor, signs.next_merge)) / 3;
    signs.free_bytes.map_or(u64::MAX, room)
}

/// Why callers should add nothing, if so; `refusing` says whether that is so already.
fn judge_growth(signs: &Signs, floor: u64, refusing: bool) -> Option<String> {
    let needed = Room::needed(floor, signs.next_merge);
    let wanted = if refusing { needed.saturating_add(floor / 4) } else { needed };
    if let Some(free) = signs.free_bytes.filter(|free| *free < wanted) {
        return Some(format!(
            "the disk of the data folder is filling up ({} MiB free, merging needs up to {}): free some space, or delete \
             crawls or URLs; nothing was added, and new URLs are accepted again automatically",
            mib(free),
            mib(wanted)
        ));
    }
    let why = signs.paused.as_ref().filter(|_| signs.young > YOUNG_TABLES_MANY)?;
    Some(format!("{} tables wait to be merged, and merging pauses ({why}); nothing was added", signs.young))
}

const fn mib(bytes: u64) -> u64 {
    bytes >> 20
}

/// The verdict on the signs.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Verdict {
    Well,
    /// Batches are refused, for this reason.
    Refuse(String),
    /// Batches are accepted but delayed, for this reason.
    Slow(String),
    /// Batches are accepted, but an operator should look.
    Impaired(String),
    Fail(String),
}

/// Judges the signs; `refusing` says whether batches are already refused.
fn judge(signs: &Signs, reserve: u64, refusing: bool) -> Verdict {
    let seconds = |span: Duration| span.as_secs();
    if let Some(span) = signs.syncing.filter(|span| *span >= DEAD) {
        return Verdict::Fail(format!("the disk has not answered for {} s: check it, then restart", seconds(span)));
    }
    // Hysteresis: a little more than the reserve must be free before batches are accepted again.
    let wanted = if refusing { reserve.saturating_add(reserve / 4) } else { reserve };
    if let Some(free) = signs.free_bytes.filter(|free| *free < wanted) {
        return Verdict::Refuse(format!(
            "no space left for the data folder ({} MiB free, {} MiB are kept in reserve): free some space; nothing was \
             changed, and writes resume automatically",
            mib(free),
            mib(wanted)
        ));
    }
    if let Some(why) = signs.paused.as_ref().filter(|_| signs.young >= YOUNG_TABLES_LIMIT) {
        return Verdict::Refuse(format!("{} tables wait to be merged, and merging pauses: {why}", signs.young));
    }
    if let Some(span) = signs.syncing.filter(|span| *span >= SLOW) {
        return Verdict::Slow(format!("the disk has not answered for {} s: check it", seconds(span)));
    }
    if let Some(span) = signs.stalled.filter(|span| *span >= SLOW) {
        return Verdict::Slow(format!("writes have waited {} s for a merge: check the disk", seconds(span)));
    }
    if let Some(damage) = &signs.damage {
        return Verdict::Impaired(damage.clone());
    }
    if let Some(why) = &signs.paused {
        return Verdict::Impaired(format!("merging of tables pauses: {why}"));
    }
    Verdict::Well
}

/// The watchdog thread. Dropping this ends it.
pub(crate) struct Watchdog {
    end: Option<Sender<()>>,
    health: Arc<Mutex<Health>>,
    thread: Option<JoinHandle<()>>,
}

/// What is watched besides the store.
pub(crate) struct Watched {
    pub(crate) disk: Arc<dyn Disk>,
    pub(crate) folder: PathBuf,
    /// What reads and the scrub have found damaged.
    pub(crate) damage: Arc<DamageLog>,
    pub(crate) floor_bytes: u64,
}

impl Watchdog {
    /// Starts to watch a store; polls once before it returns.
    pub(crate) fn start<T: Tables>(store: Arc<Store<T>>, watched: Watched) -> std::io::Result<Self> {
        let (end, ended) = channel::<()>();
        let health = Arc::new(Mutex::new(look(&store, &watched, &Health::Ok)));
        let published = Arc::clone(&health);
        let thread = std::thread::Builder::new().name("wayleave-watch".into()).spawn(move || {
            while ended.recv_timeout(LOOK) == Err(RecvTimeoutError::Timeout) {
                let before = published.lock().unwrap_or_else(PoisonError::into_inner).clone();
                let now = look(&store, &watched, &before);
                *published.lock().unwrap_or_else(PoisonError::into_inner) = now;
            }
        })?;
        Ok(Self { end: Some(end), health, thread: Some(thread) })
    }

    /// The health of the store at the last poll.
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

/// Polls once: makes the store refuse, accept again or fail, and returns its health. A change is logged once.
pub(crate) fn look<T: Tables>(store: &Store<T>, watched: &Watched, before: &Health) -> Health {
    if let Err(Error::Unavailable(why)) = store.syncer.check() {
        return Health::Failed(why);
    }
    let stalled = store.flush.lock().unwrap_or_else(PoisonError::into_inner).stalled_since;
    let syncing = store.syncer.busy_since().map(|since| since.elapsed());
    // On a dead disk this call might hang as well.
    let dead = syncing.is_some_and(|span| span >= DEAD);
    // Before the free space is known: what is appended meanwhile may count twice, but never not at all.
    let appended = store.appended.load(Ordering::Relaxed);
    let signs = Signs {
        syncing,
        stalled: stalled.map(|since| since.elapsed()),
        free_bytes: if dead { None } else { watched.disk.free_bytes(&watched.folder).ok() },
        next_merge: store.tables.sizes().next_merge,
        young: store.tables.young(),
        paused: store.merging.lock().unwrap_or_else(PoisonError::into_inner).paused.clone(),
        damage: watched.damage.summary(),
    };
    let mut growth = store.refuses_growth.lock().unwrap_or_else(PoisonError::into_inner);
    let refusing = growth.is_some() || appended > store.growth_until.load(Ordering::Relaxed);
    let refused = judge_growth(&signs, watched.floor_bytes, refusing);
    match (&refused, &*growth) {
        (Some(why), None) => tracing::warn!(reason = %why, "new URLs are refused"),
        (None, Some(_)) => tracing::info!("new URLs are accepted again"),
        _ => {}
    }
    *growth = refused;
    drop(growth);
    let until = appended.saturating_add(growth_budget(&signs, watched.floor_bytes));
    store.growth_until.store(until, Ordering::Relaxed);
    // Whatever fills the disk: a merge that runs must not take the space that flushes need. A merge of everything must not
    // keep those back that new tables need.
    let all = store.merging.lock().unwrap_or_else(PoisonError::into_inner).all;
    let full = signs.free_bytes.is_some_and(|free| free < watched.floor_bytes / 2);
    store.tables.stop_merging(full || all && signs.young > YOUNG_TABLES_MANY);
    let refusing = store.refuses.lock().unwrap_or_else(PoisonError::into_inner).is_some();
    let verdict = judge(&signs, watched.floor_bytes, refusing);
    let refuses = if let Verdict::Refuse(why) = &verdict { Some(why.clone()) } else { None };
    *store.refuses.lock().unwrap_or_else(PoisonError::into_inner) = refuses;
    // Commits that wait for room are refused too.
    store.notify_flush();
    let now = match verdict {
        Verdict::Well => Health::Ok,
        Verdict::Impaired(why) => Health::Impaired(why),
        Verdict::Refuse(why) | Verdict::Slow(why) => Health::Degraded(why),
        Verdict::Fail(why) => {
            store.syncer.fail(why.clone());
            store.notify_flush();
            Health::Failed(why)
        }
    };
    match (&now, before) {
        (Health::Ok | Health::Impaired(_), Health::Degraded(_)) => tracing::info!("the store has recovered"),
        (Health::Degraded(why), Health::Ok | Health::Impaired(_)) => {
            tracing::warn!(reason = %why, "the store is degraded")
        }
        (Health::Failed(why), Health::Ok | Health::Impaired(_) | Health::Degraded(_)) => {
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
            Verdict::Impaired(why) => format!("impaired: {why}"),
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
    fn merges_that_pause_degrade_the_store_and_do_not_end_it() {
        check(
            Signs { paused: Some("a table is damaged".into()), ..Signs::default() },
            false,
            "impaired: merging of tables pauses: a",
        );
    }

    #[test]
    fn what_is_added_between_two_looks_never_takes_the_room_of_a_merge() {
        let budget = |free: u64| {
            let signs = Signs { free_bytes: Some(free << 20), next_merge: 600 << 20, ..Signs::default() };
            growth_budget(&signs, RESERVE) >> 20
        };
        assert_eq!([budget(700), budget(750), budget(780), budget(1_050)], [0, 0, 10, 100]);
        assert_eq!(growth_budget(&Signs::default(), RESERVE), u64::MAX, "the free space is not known");
    }

    #[test]
    fn growth_is_refused_while_the_next_merge_has_no_room() {
        let signs =
            |free: u64, next: u64| Signs { free_bytes: Some(free << 20), next_merge: next << 20, ..Signs::default() };
        assert_eq!(judge_growth(&signs(750, 600), RESERVE, false), None);
        let refused = judge_growth(&signs(749, 600), RESERVE, false).unwrap();
        assert!(refused.contains("749 MiB free, merging needs up to 750"), "{refused}");
        assert!(judge_growth(&signs(774, 600), RESERVE, true).is_some(), "a little more must be free");
        assert_eq!(judge_growth(&signs(775, 600), RESERVE, true), None);
        let tables = Signs { young: 100, paused: Some("why".into()), ..Signs::default() };
        assert!(judge_growth(&tables, RESERVE, false).unwrap().starts_with("100 tables wait"));
        check(Signs { young: YOUNG_TABLES_LIMIT, ..tables }, false, "refuse: 160 tables wait to be merged");
    }

    #[test]
    fn a_nearly_full_disk_refuses_writes_until_the_reserve_is_free_again() {
        let free = |mib: u64| Signs { free_bytes: Some(mib << 20), ..Signs::default() };
        check(free(100), false, "well");
        check(free(99), false, "refuse: no space left for the data folder (99 MiB free, 100 MiB");
        check(free(110), true, "refuse: no space left for the data folder (110 MiB free, 125 MiB");
        check(free(125), true, "well");
    }
}
