//! The output of workers that were removed: a worker that fails is removed at once, and its output says why.
//!
//! It is bounded by number and age here, and in bytes by its writer. What cannot be kept is not missed: nothing fails
//! because of it. The folder is also the list of removed workers, which a pool forgets when its owner ends.

use std::cmp::Reverse;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use tokio::task::spawn_blocking;
use tokio::time::{Instant, timeout_at};
use wayleave_core::matches::{WorkerNo, worker_suffix};
use wayleave_core::names::PoolName;

use super::{Failure, Removed, WorkerKey, bounded, worker_folder};
use crate::limits::{KEPT_FOR, KEPT_MAX, KEPT_PER_POOL_MAX};
use crate::private;

/// The file that says how a removed worker ended.
const END_FILE: &str = "end";

/// The output of removed workers, in a folder: one folder per pool, and one per worker in it.
#[derive(Debug)]
pub struct RemovedOutput {
    folder: PathBuf,
    /// Locked while output is moved or forgotten.
    lock: Mutex<()>,
}

impl RemovedOutput {
    /// In this folder, which is created when there is something to keep.
    pub fn new(folder: PathBuf) -> Self {
        Self { folder, lock: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, ()> {
        self.lock.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Where the output of a removed worker is kept.
    pub fn of(&self, worker: &WorkerKey) -> PathBuf {
        worker_folder(&self.folder, worker)
    }

    /// Keeps files of a worker's folder, and how it ended.
    pub fn keep_files(&self, worker: &WorkerKey, folder: &Path, files: &[&str], end: &str, now: SystemTime) {
        self.keep(worker, end, now, |kept| {
            files.iter().for_each(|file| _ = fs::rename(folder.join(file), kept.join(file)));
        });
    }

    /// Keeps a text as a file, and how the worker ended.
    pub fn keep_text(&self, worker: &WorkerKey, file: &str, text: &str, end: &str, now: SystemTime) {
        self.keep(worker, end, now, |kept| _ = private::write(&kept.join(file), text));
    }

    fn keep(&self, worker: &WorkerKey, end: &str, now: SystemTime, fill: impl FnOnce(&Path)) {
        let _lock = self.lock();
        let kept = self.of(worker);
        if private::create_dir_all(&kept).is_ok() {
            fill(&kept);
            _ = private::write(&kept.join(END_FILE), end);
        }
        self.forget(now);
    }

    /// The removed workers of a pool whose output is kept, the last one first.
    pub fn list(&self, pool: &PoolName) -> Vec<Removed> {
        let mut found: Vec<_> = entries(&self.folder.join(&**pool)).filter_map(removed).collect();
        found.sort_by_key(|removed| Reverse(removed.at));
        found
    }

    /// The same, by a deadline: the disk may hang.
    pub async fn list_by(self: &Arc<Self>, pool: &PoolName, deadline: Instant) -> Result<Vec<Removed>, Failure> {
        let (kept, pool) = (Arc::clone(self), pool.clone());
        match timeout_at(deadline, spawn_blocking(move || kept.list(&pool))).await {
            Ok(Ok(list)) => Ok(list),
            Ok(Err(error)) => Err(Failure::new(format!("a task broke: {error}"))),
            Err(_) => Err(Failure::new("the disk did not answer in time")),
        }
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
            let surplus = workers.len().saturating_sub(KEPT_PER_POOL_MAX);
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

/// A removed worker, by the folder of its output; `None` if that is none of ours.
fn removed((at, folder): (SystemTime, PathBuf)) -> Option<Removed> {
    let name = folder.file_name()?.to_str()?;
    let (generation, worker) = name.split_once('-')?;
    let (generation, worker) = (u64::from_str_radix(generation, 16).ok()?, WorkerNo(worker.parse().ok()?));
    if worker_suffix(generation, worker) != name {
        return None;
    }
    let end = fs::read(folder.join(END_FILE)).unwrap_or_default();
    let end = bounded(&String::from_utf8_lossy(&end));
    let reason = if end.is_empty() { "how it ended is not known".to_owned() } else { end };
    Some(Removed { generation, worker, reason, at, folder })
}

/// What is in a folder, with the time of its last change.
fn entries(folder: &Path) -> impl Iterator<Item = (SystemTime, PathBuf)> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.filter_map(|entry| Some((entry.metadata().ok()?.modified().ok()?, entry.path())))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn key(pool: &str, no: u64) -> WorkerKey {
        WorkerKey { owner: "o".into(), pool: pool.into(), generation: 1, worker: WorkerNo(no) }
    }

    /// As a runtime does that removes a worker of a pool.
    fn remove(kept: &RemovedOutput, pool: &str, no: u64, now: SystemTime) {
        let worker = key(pool, no);
        kept.keep_text(&worker, "log", &format!("{pool} {no}"), &format!("end {no}"), now);
        fs::File::open(kept.of(&worker)).unwrap().set_modified(now).unwrap();
    }

    fn count(kept: &RemovedOutput) -> (usize, usize) {
        let pools: Vec<_> = entries(&kept.folder).map(|(_, pool)| pool).collect();
        (pools.len(), pools.iter().map(|pool| entries(pool).count()).sum())
    }

    #[test]
    fn a_generation_with_leading_zeros_is_the_same_in_names_folders_and_lists() {
        let state = tempfile::tempdir().unwrap();
        let kept = RemovedOutput::new(state.path().join("ended"));
        for (generation, name) in [(0xabc, "p-0000000000000abc-3"), (u64::MAX, "p-ffffffffffffffff-3")] {
            let worker = WorkerKey { generation, ..key("p", 3) };
            assert_eq!(worker.to_string(), name);
            kept.keep_text(&worker, "log", "text", "end", SystemTime::now());
            let listed = kept.list(&"p".into()).into_iter().find(|gone| gone.generation == generation).unwrap();
            assert_eq!((listed.worker, &listed.folder), (worker.worker, &kept.of(&worker)));
            assert!(name.ends_with(listed.folder.file_name().unwrap().to_str().unwrap()), "{listed:?}");
        }
        fs::create_dir(state.path().join("ended/p/abc-3")).unwrap();
        assert_eq!(kept.list(&"p".into()).len(), 2, "another form is none of ours");
    }

    #[test]
    fn output_of_removed_workers_is_bounded_in_a_pool_in_all_and_by_age() {
        let state = tempfile::tempdir().unwrap();
        let kept = RemovedOutput::new(state.path().join("ended"));
        let at = |seconds| SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
        (1..=12).for_each(|no| remove(&kept, "busy", no, at(no)));
        assert_eq!(count(&kept), (1, KEPT_PER_POOL_MAX));
        let listed = kept.list(&"busy".into());
        let shown: Vec<_> = listed.iter().map(|gone| (gone.worker.0, gone.reason.as_str(), gone.at)).collect();
        assert_eq!(
            (shown.len(), shown[0], shown[7]),
            (8, (12, "end 12", at(12)), (5, "end 5", at(5))),
            "the last one first"
        );
        assert!(kept.list(&"other".into()).is_empty());
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
