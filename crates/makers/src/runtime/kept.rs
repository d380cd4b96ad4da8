//! The output of workers that were removed: a worker that fails is removed at once, and its output says why.
//!
//! It is bounded by number and age here, and in bytes by whoever wrote it. What cannot be kept is not missed: nothing fails
//! because of it.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use super::WorkerKey;

/// Removed workers of a pool whose output is kept.
const PER_POOL_MAX: usize = 8;
/// Removed workers whose output is kept, of all pools, also of those that are gone.
const KEPT_MAX: usize = 128;
/// How long it is kept.
const KEPT_FOR: Duration = Duration::from_secs(7 * 24 * 60 * 60);

/// The output of removed workers, in a folder: one folder per pool, and one per worker in it.
#[derive(Debug)]
pub struct Kept {
    folder: PathBuf,
    /// Locked while output is moved or forgotten.
    lock: Mutex<()>,
}

impl Kept {
    /// In this folder, which is created when there is something to keep.
    pub fn new(folder: PathBuf) -> Self {
        Self { folder, lock: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, ()> {
        self.lock.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Where the output of a removed worker is kept.
    pub fn of(&self, worker: &WorkerKey) -> PathBuf {
        self.folder.join(&*worker.pool).join(format!("{:016x}-{}", worker.generation, worker.worker.0))
    }

    /// Keeps files of a worker's folder.
    pub fn keep_files(&self, worker: &WorkerKey, folder: &Path, files: &[&str], now: SystemTime) {
        self.keep(worker, now, |kept| {
            files.iter().for_each(|file| _ = fs::rename(folder.join(file), kept.join(file)));
        });
    }

    /// Keeps a text as a file.
    pub fn keep_text(&self, worker: &WorkerKey, file: &str, text: &str, now: SystemTime) {
        self.keep(worker, now, |kept| _ = fs::write(kept.join(file), text));
    }

    fn keep(&self, worker: &WorkerKey, now: SystemTime, fill: impl FnOnce(&Path)) {
        let _lock = self.lock();
        let kept = self.of(worker);
        if fs::create_dir_all(&kept).is_ok() {
            fill(&kept);
        }
        self.forget(now);
    }

    /// Forgets output that is old, or more than is kept, and pools without any.
    pub fn forget_old(&self, now: SystemTime) {
        let _lock = self.lock();
        self.forget(now);
    }

    fn forget(&self, now: SystemTime) {
        let mut rest = Vec::new();
        let pools: Vec<_> = entries(&self.folder).map(|(_, pool)| pool).collect();
        for pool in &pools {
            let mut workers: Vec<_> = entries(pool).collect();
            workers.sort();
            let surplus = workers.len().saturating_sub(PER_POOL_MAX);
            workers.drain(..surplus).for_each(|(_, folder)| _ = fs::remove_dir_all(folder));
            rest.append(&mut workers);
        }
        rest.sort();
        let surplus = rest.len().saturating_sub(KEPT_MAX);
        for (no, (ended, folder)) in rest.iter().enumerate() {
            if no < surplus || now.duration_since(*ended).is_ok_and(|age| age > KEPT_FOR) {
                _ = fs::remove_dir_all(folder);
            }
        }
        // Fails for one that is not empty.
        pools.iter().for_each(|pool| _ = fs::remove_dir(pool));
    }
}

/// What is in a folder, with the time of its last change.
fn entries(folder: &Path) -> impl Iterator<Item = (SystemTime, PathBuf)> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.filter_map(|entry| Some((entry.metadata().ok()?.modified().ok()?, entry.path())))
}

#[cfg(test)]
mod tests {
    use wayleave_core::matches::WorkerNo;

    use super::*;

    fn key(pool: &str, no: u64) -> WorkerKey {
        WorkerKey { owner: "o".into(), pool: pool.into(), generation: 1, worker: WorkerNo(no) }
    }

    /// As a runtime does that removes a worker of a pool.
    fn remove(kept: &Kept, pool: &str, no: u64, now: SystemTime) {
        let worker = key(pool, no);
        kept.keep_text(&worker, "log", &format!("{pool} {no}"), now);
        fs::File::open(kept.of(&worker)).unwrap().set_modified(now).unwrap();
    }

    fn count(kept: &Kept) -> (usize, usize) {
        let pools: Vec<_> = entries(&kept.folder).map(|(_, pool)| pool).collect();
        (pools.len(), pools.iter().map(|pool| entries(pool).count()).sum())
    }

    #[test]
    fn output_of_removed_workers_is_bounded_in_a_pool_in_all_and_by_age() {
        let state = tempfile::tempdir().unwrap();
        let kept = Kept::new(state.path().join("ended"));
        let at = |seconds| SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
        (1..=12).for_each(|no| remove(&kept, "busy", no, at(no)));
        assert_eq!(count(&kept), (1, PER_POOL_MAX));
        // Pools that come and go, with a worker each.
        (1..=200).for_each(|no| remove(&kept, &format!("pool-{no}"), 1, at(100 + no)));
        assert_eq!(count(&kept), (KEPT_MAX, KEPT_MAX), "the last ones, and no folders without any");
        let last = kept.of(&key("pool-200", 1));
        assert_eq!(fs::read_to_string(last.join("log")).unwrap(), "pool-200 1");
        kept.forget_old(at(250) + KEPT_FOR);
        assert_eq!(count(&kept), (51, 51), "those that ended at 250 or later");
        kept.forget_old(at(301) + KEPT_FOR);
        assert_eq!(count(&kept), (0, 0));
    }
}
