//! A worker's output: a file that it appends to, and the one before. No pipe, so that a worker neither blocks nor ends
//! when the server does.
//!
//! A file that is above its bound is cut: its end is copied to the file before, then it is truncated. The worker's
//! descriptor appends, so it goes on at the new end. What the worker writes between copy and truncation is lost. A server
//! looks four times a second; while none runs the file grows, and the next server cuts it.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use crate::runtime::WorkerKey;

const FILE: &str = "log";
const BEFORE: &str = "log.before";
/// The bound of each of the two files.
pub const BYTES_MAX: u64 = 256 * 1024;
/// Removed workers of a pool whose output is kept.
const KEPT_PER_POOL_MAX: usize = 8;
/// Removed workers whose output is kept, of all pools, also of those that are gone.
const KEPT_MAX: usize = 128;
/// How long it is kept.
const KEPT_FOR: Duration = Duration::from_secs(7 * 24 * 60 * 60);
/// Where it is kept, by pool.
const ENDED: &str = "ended";

/// Opens the file for a worker to write to.
pub fn open(folder: &Path) -> io::Result<File> {
    OpenOptions::new().create(true).append(true).open(folder.join(FILE))
}

/// Cuts the file if it is above its bound.
pub fn bound(folder: &Path) -> io::Result<()> {
    let path = folder.join(FILE);
    if fs::metadata(&path)?.len() <= BYTES_MAX {
        return Ok(());
    }
    let tail = tail(&path, BYTES_MAX)?;
    let new = folder.join("log.new");
    fs::write(&new, tail)?;
    fs::rename(&new, folder.join(BEFORE))?;
    OpenOptions::new().write(true).open(&path)?.set_len(0)
}

/// The end of the output.
pub fn read(folder: &Path, bytes_max: usize) -> io::Result<String> {
    let bytes_max = bytes_max as u64;
    let mut text = tail(&folder.join(FILE), bytes_max)?;
    let room = bytes_max.saturating_sub(text.len() as u64);
    if room > 0 {
        let mut before = tail(&folder.join(BEFORE), room)?;
        before.append(&mut text);
        text = before;
    }
    Ok(String::from_utf8_lossy(&text).into_owned())
}

/// The last line that is not blank, bounded: mostly the reason of an exit.
pub fn last_line(folder: &Path) -> Option<String> {
    let text = read(folder, 4 * 1024).ok()?;
    let line = text.lines().rev().map(str::trim).find(|line| !line.is_empty())?;
    let plain: String = line.chars().filter(|c| !c.is_control()).take(200).collect();
    (!plain.is_empty()).then_some(plain)
}

/// Keeps the output of a worker that is removed: a worker that fails is removed at once, and its output says why. What
/// cannot be kept is not missed. One at a time may do this, or [`forget_old`].
pub fn keep(state: &Path, worker: &WorkerKey, folder: &Path, now: SystemTime) {
    let kept = kept(state, worker);
    _ = bound(folder);
    if fs::create_dir_all(&kept).is_ok() {
        for file in [FILE, BEFORE] {
            _ = fs::rename(folder.join(file), kept.join(file));
        }
    }
    forget_old(state, now);
}

/// Forgets output that is old, or more than is kept, and pools without any.
pub fn forget_old(state: &Path, now: SystemTime) {
    let mut rest = Vec::new();
    let pools: Vec<_> = entries(&state.join(ENDED)).map(|(_, pool)| pool).collect();
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

/// What is in a folder, with the time of its last change.
fn entries(folder: &Path) -> impl Iterator<Item = (SystemTime, PathBuf)> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.filter_map(|entry| Some((entry.metadata().ok()?.modified().ok()?, entry.path())))
}

/// Where the output of a removed worker is kept.
pub fn kept(state: &Path, worker: &WorkerKey) -> PathBuf {
    state.join(ENDED).join(&*worker.pool).join(format!("{:016x}-{}", worker.generation, worker.worker.0))
}

fn tail(path: &Path, bytes_max: u64) -> io::Result<Vec<u8>> {
    let mut file = match File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        other => other?,
    };
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(bytes_max)))?;
    let mut bytes = Vec::new();
    file.take(bytes_max).read_to_end(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use wayleave_core::matches::WorkerNo;

    use super::*;

    #[test]
    fn a_long_output_is_cut_and_its_writer_goes_on_at_the_new_end() {
        let folder = tempfile::tempdir().unwrap();
        let mut worker = open(folder.path()).unwrap();
        let line = |n: u64| format!("{n:015}\n");
        let lines = 3 * BYTES_MAX / 16;
        (0..lines).for_each(|n| worker.write_all(line(n).as_bytes()).unwrap());
        bound(folder.path()).unwrap();
        worker.write_all(b"after\n").unwrap();
        assert_eq!(fs::read_to_string(folder.path().join(FILE)).unwrap(), "after\n");
        let text = read(folder.path(), usize::MAX).unwrap();
        assert_eq!(text.len() as u64, BYTES_MAX + 6);
        assert!(text.ends_with(&format!("{}after\n", line(lines - 1))), "the tail is kept");
        assert_eq!(last_line(folder.path()).as_deref(), Some("after"));
        bound(folder.path()).unwrap();
        assert_eq!(read(folder.path(), 3).unwrap(), "er\n", "what is within the bound stays");
    }

    /// As a server does that removes a worker of a pool.
    fn remove(state: &Path, pool: &str, no: u64, now: SystemTime) {
        let folder = state.join("worker");
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join(FILE), format!("{pool} {no}")).unwrap();
        let worker = WorkerKey { owner: "o".into(), pool: pool.into(), generation: 1, worker: WorkerNo(no) };
        keep(state, &worker, &folder, now);
        File::open(kept(state, &worker)).unwrap().set_modified(now).unwrap();
    }

    fn count(state: &Path) -> (usize, usize) {
        let pools: Vec<_> = entries(&state.join(ENDED)).map(|(_, pool)| pool).collect();
        (pools.len(), pools.iter().map(|pool| entries(pool).count()).sum())
    }

    #[test]
    fn output_of_removed_workers_is_bounded_in_a_pool_in_all_and_by_age() {
        let state = tempfile::tempdir().unwrap();
        let at = |seconds| SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
        (1..=12).for_each(|no| remove(state.path(), "busy", no, at(no)));
        assert_eq!(count(state.path()), (1, KEPT_PER_POOL_MAX));
        // Pools that come and go, with a worker each.
        (1..=200).for_each(|no| remove(state.path(), &format!("pool-{no}"), 1, at(100 + no)));
        assert_eq!(count(state.path()), (KEPT_MAX, KEPT_MAX), "the last ones, and no folders without any");
        let last = WorkerKey { owner: "o".into(), pool: "pool-200".into(), generation: 1, worker: WorkerNo(1) };
        assert_eq!(read(&kept(state.path(), &last), 100).unwrap(), "pool-200 1");
        forget_old(state.path(), at(250) + KEPT_FOR);
        assert_eq!(count(state.path()), (51, 51), "those that ended at 250 or later");
        forget_old(state.path(), at(301) + KEPT_FOR);
        assert_eq!(count(state.path()), (0, 0));
    }
}
