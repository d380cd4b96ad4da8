//! The chunks that an index server has: packed files, which are checked, and the indexes made from them.
//!
//! `chunks/{id}.{sha256}.tar` is what was fetched, and what other servers fetch from here. `indexes/` is made from it,
//! and made again at every start, so that only the packed files must be trusted: each is read and compared with the
//! checksum in its name. A name is given only to a whole file that was checked.

use std::collections::{BTreeMap, HashSet};
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError, RwLock};

use crate::digest::Digesting;
use crate::index::{self, BadArchive, Hit, OpenIndexes, Query};

/// Why a chunk cannot be kept or searched.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file.
    #[error("{0}: {1}")]
    File(PathBuf, io::Error),
    /// The fetched file is no index.
    #[error(transparent)]
    Archive(#[from] BadArchive),
    /// Tantivy.
    #[error(transparent)]
    Index(#[from] index::Error),
}

/// The chunks of a server, on disk and open.
#[derive(Debug)]
pub struct ChunkFiles {
    packed: PathBuf,
    indexes: PathBuf,
    open: RwLock<OpenIndexes>,
    /// The checksum of every open chunk.
    held: Mutex<BTreeMap<String, String>>,
}

impl ChunkFiles {
    /// Opens all chunks that a folder has. What is damaged is removed.
    ///
    /// # Errors
    /// If the folder cannot be used.
    pub fn open(folder: &Path) -> Result<Self, Error> {
        let at = |path: &Path| {
            let path = path.to_owned();
            move |error| Error::File(path, error)
        };
        let (packed, indexes) = (folder.join("chunks"), folder.join("indexes"));
        fs::create_dir_all(&packed).map_err(at(&packed))?;
        if indexes.exists() {
            fs::remove_dir_all(&indexes).map_err(at(&indexes))?;
        }
        fs::create_dir_all(&indexes).map_err(at(&indexes))?;
        let chunk_files = Self { packed, indexes, open: RwLock::default(), held: Mutex::default() };
        for entry in fs::read_dir(&chunk_files.packed).map_err(at(&chunk_files.packed))? {
            let path = entry.map_err(at(&chunk_files.packed))?.path();
            let name = path.file_name().and_then(|name| name.to_str()).and_then(parse);
            let whole = name.as_ref().is_some_and(|(_, digits)| {
                checksum(&path).is_ok_and(|found| found.strip_prefix("sha256:") == Some(digits))
            });
            let opened = match name.filter(|_| whole) {
                Some((chunk, digits)) => chunk_files.keep(&chunk, &format!("sha256:{digits}")).is_ok(),
                None => false,
            };
            if !opened {
                // Temporary files of a killed server, and what the disk has damaged.
                tracing::warn!(file = %path.display(), "removing a file that is no whole chunk");
                fs::remove_file(&path).map_err(at(&path))?;
            }
        }
        Ok(chunk_files)
    }

    /// Where a chunk's packed file belongs. It must be whole when it gets this name.
    #[must_use]
    pub fn place(&self, chunk: &str, checksum: &str) -> PathBuf {
        self.packed.join(format!("{chunk}.{}.tar", checksum.strip_prefix("sha256:").unwrap_or_default()))
    }

    /// Opens a chunk whose packed file is in its place. Blocking.
    ///
    /// # Errors
    /// If it is no index.
    pub fn keep(&self, chunk: &str, checksum: &str) -> Result<(), Error> {
        let packed = self.place(chunk, checksum);
        let folder = self.indexes.join(chunk);
        let at = |path: &Path| {
            let path = path.to_owned();
            move |error| Error::File(path, error)
        };
        if folder.exists() {
            self.take_down(chunk);
            fs::remove_dir_all(&folder).map_err(at(&folder))?;
        }
        index::unpack(File::open(&packed).map_err(at(&packed))?, &folder)?;
        self.open.write().unwrap_or_else(PoisonError::into_inner).open(chunk, &folder)?;
        self.held().insert(chunk.to_owned(), checksum.to_owned());
        Ok(())
    }

    /// Removes a chunk. Searches that go on keep its files open. Blocking.
    pub fn remove(&self, chunk: &str) {
        let checksum = self.take_down(chunk);
        let folder = self.indexes.join(chunk);
        let _ = fs::remove_dir_all(folder);
        if let Some(checksum) = checksum {
            let _ = fs::remove_file(self.place(chunk, &checksum));
        }
    }

    fn take_down(&self, chunk: &str) -> Option<String> {
        self.open.write().unwrap_or_else(PoisonError::into_inner).close(chunk);
        self.held().remove(chunk)
    }

    /// The packed file of a chunk.
    #[must_use]
    pub fn packed(&self, chunk: &str) -> Option<PathBuf> {
        let checksum = self.held().get(chunk).cloned()?;
        Some(self.place(chunk, &checksum))
    }

    /// Whether a chunk is here with this content.
    #[must_use]
    pub fn has(&self, chunk: &str, checksum: &str) -> bool {
        self.held().get(chunk).is_some_and(|held| held == checksum)
    }

    /// The ids of all chunks.
    #[must_use]
    pub fn chunks(&self) -> Vec<String> {
        self.held().keys().cloned().collect()
    }

    /// The pages of all chunks.
    #[must_use]
    pub fn pages(&self) -> u64 {
        self.open.read().unwrap_or_else(PoisonError::into_inner).pages()
    }

    /// The best pages. Blocking.
    ///
    /// # Errors
    /// If an index cannot be read.
    pub fn search(&self, query: &Query, only: Option<&HashSet<String>>, limit: usize) -> Result<Vec<Hit>, Error> {
        Ok(self.open.read().unwrap_or_else(PoisonError::into_inner).search(query, only, limit)?)
    }

    fn held(&self) -> std::sync::MutexGuard<'_, BTreeMap<String, String>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Chunk and digits of a packed file's name.
fn parse(name: &str) -> Option<(String, String)> {
    let (chunk, digits) = name.strip_suffix(".tar")?.split_once('.')?;
    let good = chunk.bytes().all(|b| b.is_ascii_digit()) && !chunk.is_empty() && digits.len() == 64;
    good.then(|| (chunk.to_owned(), digits.to_owned()))
}

fn checksum(path: &Path) -> io::Result<String> {
    let mut digest = Digesting::new(io::sink());
    io::copy(&mut File::open(path)?, &mut digest)?;
    Ok(digest.finish().2)
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;

    use super::*;
    use crate::digest::sha256;
    use crate::index::{Builder, Page};

    /// A packed index with one page.
    fn packed(word: &str) -> Vec<u8> {
        let folder = TempDir::new().unwrap();
        let mut builder = Builder::create(folder.path()).unwrap();
        builder.add(&Page { url: "http://a.example/", title: "", body: word, crawl: "c" }).unwrap();
        builder.finish().unwrap();
        let mut packed = Vec::new();
        index::pack(folder.path(), &mut packed).unwrap();
        packed
    }

    fn add(chunk_files: &ChunkFiles, chunk: &str, word: &str) -> PathBuf {
        let content = packed(word);
        let place = chunk_files.place(chunk, &sha256(&content));
        fs::write(&place, &content).unwrap();
        chunk_files.keep(chunk, &sha256(&content)).unwrap();
        place
    }

    fn hits(chunk_files: &ChunkFiles, word: &str) -> usize {
        chunk_files.search(&word.parse().unwrap(), None, 10).unwrap().len()
    }

    #[test]
    fn chunks_outlast_a_restart_if_they_are_whole() {
        let folder = TempDir::new().unwrap();
        let chunk_files = ChunkFiles::open(folder.path()).unwrap();
        add(&chunk_files, "1", "river");
        let damaged = add(&chunk_files, "2", "otter");
        assert_eq!((hits(&chunk_files, "river"), hits(&chunk_files, "otter"), chunk_files.pages()), (1, 1, 2));
        drop(chunk_files);
        let mut content = fs::read(&damaged).unwrap();
        let middle = content.len() / 2;
        content[middle] ^= 1;
        fs::write(&damaged, &content).unwrap();
        fs::write(folder.path().join("chunks/.part-x"), "half").unwrap();
        let chunk_files = ChunkFiles::open(folder.path()).unwrap();
        assert_eq!(chunk_files.chunks(), ["1"]);
        assert_eq!((hits(&chunk_files, "river"), hits(&chunk_files, "otter")), (1, 0));
        assert_eq!(fs::read_dir(folder.path().join("chunks")).unwrap().count(), 1);
    }

    #[test]
    fn a_chunk_is_replaced_by_another_build_of_it_and_removed() {
        let folder = TempDir::new().unwrap();
        let chunk_files = ChunkFiles::open(folder.path()).unwrap();
        add(&chunk_files, "1", "river");
        let second = add(&chunk_files, "1", "otter");
        assert_eq!((hits(&chunk_files, "river"), hits(&chunk_files, "otter")), (0, 1));
        assert!(chunk_files.has("1", &sha256(&packed("otter"))) && !chunk_files.has("1", &sha256(&packed("river"))));
        assert_eq!(chunk_files.packed("1"), Some(second.clone()));
        chunk_files.remove("1");
        assert_eq!((hits(&chunk_files, "otter"), chunk_files.packed("1"), second.exists()), (0, None, false));
    }
}
