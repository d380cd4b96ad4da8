//! The chunks that an index server has: packed files, which are checked, and the indexes made from them.
//!
//! `chunks/{id}.{sha256}.tar` is what was fetched, and what other servers fetch from here. `indexes/` is made from it,
//! and made again at every start, so that only the packed files must be trusted: each is read and compared with the
//! checksum in its name. A name is given only to a whole file that was checked.
//!
//! A chunk is served once it was opened and searched. One that cannot be stays on disk, with its [`Fault`], and is not served: it is
//! malformed, or the system has no descriptor, memory map or space for it. What a malformed one does to the process (an allocation that
//! cannot succeed, a stack that overflows) cannot be contained: while a chunk is tried, `{id}.{sha256}.trying` has a byte for each
//! trial that has not ended, and after some of them the chunk is not tried for a day. That says nothing of its content: whatever ended the
//! process may have had another reason. A stop that was ordered leaves no mark ([`ChunkFiles::end_trials`]). The only file that is removed unasked is one whose
//! content is not that of its name.

use std::collections::{BTreeMap, HashSet};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError, RwLock};
use std::time::{Duration, SystemTime};

use crate::digest::Digesting;
use crate::index::{self, Failed, Fault, Found, OpenIndex, OpenIndexes, Query};
use crate::store::TEMPORARY;

/// How the name of a mark ends.
const TRYING: &str = ".trying";
/// After how many trials that the process has not survived a chunk is not tried again: one may have been ended by something else.
const TRIALS: u64 = 2;
/// How long it is not tried then.
const LAPSE: Duration = Duration::from_secs(24 * 60 * 60);

/// The folder of a server cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("{0}: {1}")]
pub struct Error(PathBuf, io::Error);

/// The chunks of a server, on disk and open.
#[derive(Debug)]
pub struct ChunkFiles {
    packed: PathBuf,
    indexes: PathBuf,
    open: RwLock<OpenIndexes>,
    held: Mutex<BTreeMap<String, Held>>,
    trials: Trials,
}

/// A chunk that is on disk.
#[derive(Debug)]
struct Held {
    checksum: String,
    /// Why it is not served.
    fault: Option<Fault>,
}

impl ChunkFiles {
    /// Opens all chunks that a folder has. One whose content is not that of its name is removed.
    pub fn open(folder: &Path) -> Result<Self, Error> {
        let chunk_files = Self::create(folder)?;
        chunk_files.open_all()?;
        Ok(chunk_files)
    }

    /// Takes a folder into use. None of its chunks is open yet.
    pub fn create(folder: &Path) -> Result<Self, Error> {
        let at = |path: &Path| {
            let path = path.to_owned();
            move |error| Error(path, error)
        };
        let (packed, indexes) = (folder.join("chunks"), folder.join("indexes"));
        fs::create_dir_all(&packed).map_err(at(&packed))?;
        if indexes.exists() {
            fs::remove_dir_all(&indexes).map_err(at(&indexes))?;
        }
        fs::create_dir_all(&indexes).map_err(at(&indexes))?;
        Ok(Self { packed, indexes, open: RwLock::default(), held: Mutex::default(), trials: Trials::default() })
    }

    /// Opens all chunks that the folder has, or those that it comes to before trials end. Blocking.
    pub fn open_all(&self) -> Result<(), Error> {
        let mut found: BTreeMap<String, Vec<(SystemTime, String)>> = BTreeMap::new();
        let failed = |error| Error(self.packed.clone(), error);
        for entry in fs::read_dir(&self.packed).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let name = entry.file_name().into_string().unwrap_or_default();
            if name.starts_with(TEMPORARY) {
                // Of a server that was killed.
                let _ = fs::remove_file(entry.path());
                continue;
            }
            match parse(&name) {
                Some((chunk, digits)) => {
                    let made = entry.metadata().and_then(|entry| entry.modified()).unwrap_or(SystemTime::UNIX_EPOCH);
                    found.entry(chunk).or_default().push((made, format!("sha256:{digits}")));
                }
                None if name.ends_with(TRYING) => {}
                None => tracing::warn!(file = %entry.path().display(), "a file here is no chunk, and is left alone"),
            }
        }
        for (chunk, builds) in found {
            if self.trials.have_ended() {
                break;
            }
            self.open_newest(&chunk, builds);
        }
        Ok(())
    }

    /// To be called when the server stops: no further chunk is tried, and a trial that the end of the process cuts
    /// off is not taken for its cause.
    pub fn end_trials(&self) {
        let mut ongoing = self.trials.ongoing();
        ongoing.has_ended = true;
        for mark in ongoing.marks.drain() {
            let _ = fs::remove_file(mark);
        }
    }

    /// Serves the newest build of a chunk that can be served, and removes older ones: the server was killed before it did that.
    fn open_newest(&self, chunk: &str, mut builds: Vec<(SystemTime, String)>) {
        builds.sort();
        while let Some((_, checksum)) = builds.pop() {
            // If it fails, the next round of the server tries it again, or reports it.
            if self.reopen(chunk, &checksum) == Ok(true) {
                builds.drain(..).for_each(|(_, older)| self.discard(chunk, &older));
            }
        }
    }

    /// Where a chunk's packed file belongs. It must be whole when it gets this name.
    #[must_use]
    pub fn place(&self, chunk: &str, checksum: &str) -> PathBuf {
        self.packed.join(format!("{chunk}.{}.tar", digits(checksum)))
    }

    /// Serves a chunk whose packed file is here. False if it is not here, or is damaged, and must be fetched. Blocking.
    /// Fails if it cannot be served; that of a malformed one is remembered.
    pub fn reopen(&self, chunk: &str, checksum: &str) -> Result<bool, Fault> {
        if let Some(fault) = self.fault(chunk, checksum).filter(|fault| !fault.is_of_system()) {
            return Err(fault);
        }
        let packed = self.place(chunk, checksum);
        let found = match digest(&packed) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
            // A bad block: what is fetched takes the place of this file.
            Err(error) if is_bad_block(&error) => {
                tracing::warn!(file = %packed.display(), error = %error, "the disk cannot read a chunk: it is fetched again");
                return Ok(false);
            }
            found => found.map_err(Fault::from).inspect_err(|fault| self.not_served(chunk, checksum, fault))?,
        };
        if found != checksum {
            tracing::warn!(file = %packed.display(), "removing a chunk that the disk has damaged");
            fs::remove_file(&packed)?;
            return Ok(false);
        }
        self.keep(chunk, checksum).map(|()| true)
    }

    /// Serves a chunk whose packed file is in its place and was checked, instead of another build of it. Blocking.
    /// Fails if it cannot be opened and searched. Then what was served before still is.
    pub fn keep(&self, chunk: &str, checksum: &str) -> Result<(), Fault> {
        let folder = self.folder(chunk, checksum);
        let opened = index::contained(|| {
            let _trying = self.trials.begin(self.trying(chunk, checksum))?;
            if !folder.try_exists()? {
                index::unpack(File::open(self.place(chunk, checksum))?, &folder)?;
            }
            OpenIndex::open(chunk, &folder)
        });
        let opened = opened.inspect_err(|fault| {
            let _ = fs::remove_dir_all(&folder);
            self.not_served(chunk, checksum, fault);
        })?;
        let served = Held { checksum: checksum.to_owned(), fault: None };
        let before = {
            let mut held = self.held();
            self.opened(|open| open.add(opened));
            held.insert(chunk.to_owned(), served)
        };
        if let Some(before) = before.filter(|before| before.checksum != checksum) {
            let _ = fs::remove_dir_all(self.folder(chunk, &before.checksum));
        }
        Ok(())
    }

    /// Notes why a chunk is not served, unless another build of it is.
    fn not_served(&self, chunk: &str, checksum: &str, fault: &Fault) {
        tracing::warn!(chunk.id = chunk, reason = %fault, "a chunk cannot be served; its file is kept");
        let mut held = self.held();
        if held.get(chunk).is_some_and(|held| held.checksum != checksum && held.fault.is_none()) {
            return;
        }
        held.insert(chunk.to_owned(), Held { checksum: checksum.to_owned(), fault: Some(fault.clone()) });
    }

    /// Removes a chunk. Searches in progress keep its files open. Blocking.
    pub fn remove(&self, chunk: &str) {
        let held = {
            let mut held = self.held();
            self.opened(|open| open.close(chunk));
            held.remove(chunk)
        };
        if let Some(Held { checksum, .. }) = held {
            let _ = fs::remove_dir_all(self.folder(chunk, &checksum));
            self.discard(chunk, &checksum);
        }
    }

    /// Removes the packed file of a build of a chunk. Blocking.
    pub fn discard(&self, chunk: &str, checksum: &str) {
        let _ = fs::remove_file(self.place(chunk, checksum));
        let _ = fs::remove_file(self.trying(chunk, checksum));
    }

    fn trying(&self, chunk: &str, checksum: &str) -> PathBuf {
        self.packed.join(format!("{chunk}.{}{TRYING}", digits(checksum)))
    }

    /// Where the index of a chunk is unpacked.
    fn folder(&self, chunk: &str, checksum: &str) -> PathBuf {
        self.indexes.join(format!("{chunk}.{}", digits(checksum)))
    }

    /// The packed file of a chunk that is served.
    #[must_use]
    pub fn packed(&self, chunk: &str) -> Option<PathBuf> {
        let checksum = self.held().get(chunk).filter(|held| held.fault.is_none())?.checksum.clone();
        Some(self.place(chunk, &checksum))
    }

    /// The checksum of a chunk that is on disk, served or not.
    #[must_use]
    pub fn checksum(&self, chunk: &str) -> Option<String> {
        Some(self.held().get(chunk)?.checksum.clone())
    }

    /// The checksum of a chunk that is on disk and is not known to be malformed, served or not.
    #[must_use]
    pub fn sound(&self, chunk: &str) -> Option<String> {
        let held = self.held();
        let held = held.get(chunk).filter(|held| held.fault.as_ref().is_none_or(Fault::is_of_system))?;
        Some(held.checksum.clone())
    }

    /// Whether a chunk is served with this content.
    #[must_use]
    pub fn has(&self, chunk: &str, checksum: &str) -> bool {
        self.held().get(chunk).is_some_and(|held| held.checksum == checksum && held.fault.is_none())
    }

    fn fault(&self, chunk: &str, checksum: &str) -> Option<Fault> {
        self.held().get(chunk).filter(|held| held.checksum == checksum)?.fault.clone()
    }

    /// The ids of all chunks that are on disk, served or not.
    #[must_use]
    pub fn chunks(&self) -> Vec<String> {
        self.held().keys().cloned().collect()
    }

    /// The chunks that are served, and their pages.
    #[must_use]
    pub fn served(&self) -> (u64, u64) {
        let open = self.open.read().unwrap_or_else(PoisonError::into_inner);
        (open.len() as u64, open.pages())
    }

    /// The best pages, and the chunks that could not be searched or are not served. A malformed one is not served from then on.
    /// Blocking.
    #[must_use]
    pub fn search(
        &self,
        query: &Query,
        only: Option<&HashSet<String>>,
        limit: usize,
    ) -> (Vec<index::Hit>, Vec<String>) {
        let Found { hits, failed } =
            self.open.read().unwrap_or_else(PoisonError::into_inner).search(query, only, limit);
        let mut missing: Vec<String> = {
            let held = self.held();
            let is_served = |chunk: &String| held.get(chunk).is_some_and(|held| held.fault.is_none());
            match only {
                Some(only) => only.iter().filter(|chunk| !is_served(chunk)).cloned().collect(),
                None => held.keys().filter(|chunk| !is_served(chunk)).cloned().collect(),
            }
        };
        for Failed { chunk, folder, fault } in failed {
            tracing::warn!(chunk.id = chunk, reason = %fault, "a chunk could not be searched");
            if !fault.is_of_system() {
                self.take_down(&chunk, &folder, fault);
            }
            missing.push(chunk);
        }
        missing.sort();
        missing.dedup();
        (hits, missing)
    }

    /// Serves a malformed chunk no more, unless another build of it is in its place by now.
    fn take_down(&self, chunk: &str, folder: &Path, fault: Fault) {
        let mut held = self.held();
        let Some(held) = held.get_mut(chunk).filter(|held| self.folder(chunk, &held.checksum) == folder) else {
            return;
        };
        held.fault = Some(fault);
        self.opened(|open| open.close(chunk));
    }

    fn opened<T>(&self, change: impl FnOnce(&mut OpenIndexes) -> T) -> T {
        change(&mut self.open.write().unwrap_or_else(PoisonError::into_inner))
    }

    fn held(&self) -> std::sync::MutexGuard<'_, BTreeMap<String, Held>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The trials of this process. Their marks are not synced: they are for processes that die, not for machines that do.
#[derive(Debug, Default)]
struct Trials(Mutex<Ongoing>);

#[derive(Debug, Default)]
struct Ongoing {
    marks: HashSet<PathBuf>,
    /// Whether no further one begins.
    has_ended: bool,
}

impl Trials {
    fn ongoing(&self) -> std::sync::MutexGuard<'_, Ongoing> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn have_ended(&self) -> bool {
        self.ongoing().has_ended
    }

    fn begin(&self, mark: PathBuf) -> Result<Trying<'_>, Fault> {
        let mut ongoing = self.ongoing();
        if ongoing.has_ended {
            return Err(Fault::of_server("the server stops"));
        }
        let mut file = OpenOptions::new().append(true).create(true).open(&mark)?;
        let found = file.metadata()?;
        if found.len() >= TRIALS {
            if found.modified()?.elapsed().is_ok_and(|age| age < LAPSE) {
                let mark = mark.display();
                return Err(Fault::of_server(format!(
                    "the server ended {TRIALS} times while it tried this index; it tries again a day later, or once {mark} is removed"
                )));
            }
            file.set_len(0)?;
        }
        file.write_all(b"x")?;
        ongoing.marks.insert(mark.clone());
        Ok(Trying { mark, trials: self })
    }
}

/// A trial that has not ended. Its end, also by a panic, removes the mark.
struct Trying<'a> {
    mark: PathBuf,
    trials: &'a Trials,
}

impl Drop for Trying<'_> {
    fn drop(&mut self) {
        self.trials.ongoing().marks.remove(&self.mark);
        let _ = fs::remove_file(&self.mark);
    }
}

fn digits(checksum: &str) -> &str {
    checksum.strip_prefix("sha256:").unwrap_or_default()
}

/// Chunk and digits of a packed file's name.
fn parse(name: &str) -> Option<(String, String)> {
    let (chunk, digits) = name.strip_suffix(".tar")?.split_once('.')?;
    let good = chunk.bytes().all(|b| b.is_ascii_digit()) && !chunk.is_empty() && digits.len() == 64;
    good.then(|| (chunk.to_owned(), digits.to_owned()))
}

/// Whether the disk cannot read what it has, which further attempts will not change.
pub(super) fn is_bad_block(error: &io::Error) -> bool {
    error.raw_os_error() == Some(rustix::io::Errno::IO.raw_os_error())
}

fn digest(path: &Path) -> io::Result<String> {
    let mut digest = Digesting::new(io::sink());
    io::copy(&mut File::open(path)?, &mut digest)?;
    Ok(digest.finish().2)
}

#[cfg(test)]
#[path = "chunk_files_tests.rs"]
mod tests;
