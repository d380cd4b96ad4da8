//! Checks fjall's own journal. Our batches go to our journal and reach fjall as ingested SSTables, so only folders of
//! the first format have rows in fjall's journal. A database that has lost it is damaged all the same.

use std::fs::File;
use std::io::{ErrorKind, Result};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

const SUFFIX: &str = "jnl";
/// Journals are read backwards in chunks of this size.
const PIECE_BYTES: usize = 1 << 20;

/// The number of the newest journal.
fn newest(folder: &Path) -> Result<Option<u64>> {
    let mut newest = None;
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        let id = path.file_stem().and_then(|stem| stem.to_str()?.parse::<u64>().ok());
        if path.extension().is_some_and(|suffix| suffix == SUFFIX) {
            newest = newest.max(id);
        }
    }
    Ok(newest)
}

/// A journal and the length of its content; the rest was only preallocated.
pub(crate) struct Content {
    pub path: PathBuf,
    pub bytes: u64,
}

/// The content of the newest journal before the database opens it; `None` if there is no journal.
///
/// # Errors
/// If it cannot be read.
pub(crate) fn newest_content(folder: &Path) -> Result<Option<Content>> {
    let Some(id) = newest(folder)? else { return Ok(None) };
    let path = folder.join(format!("{id}.{SUFFIX}"));
    let file = File::open(&path)?;
    let mut end = file.metadata()?.len();
    let mut piece = vec![0; PIECE_BYTES];
    while end > 0 {
        let start = end.saturating_sub(PIECE_BYTES as u64);
        let piece = piece.get_mut(..(end - start) as usize).unwrap_or_default();
        file.read_exact_at(piece, start)?;
        if let Some(last) = piece.iter().rposition(|byte| *byte != 0) {
            return Ok(Some(Content { path, bytes: start + last as u64 + 1 }));
        }
        end = start;
    }
    Ok(Some(Content { path, bytes: 0 }))
}

/// The length of a journal; `u64::MAX` if the database has removed it since, because then it kept all of it.
///
/// # Errors
/// If the operating system reports an error.
pub(crate) fn length(path: &Path) -> Result<u64> {
    match std::fs::metadata(path) {
        Ok(data) => Ok(data.len()),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(u64::MAX),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_journal_is_the_one_that_is_read() {
        let folder = tempfile::tempdir().unwrap();
        assert!(newest_content(folder.path()).unwrap().is_none());
        for id in [2, 10, 9] {
            std::fs::write(folder.path().join(format!("{id}.jnl")), "x").unwrap();
        }
        std::fs::write(folder.path().join("11.tmp"), "x").unwrap();
        assert_eq!(newest_content(folder.path()).unwrap().unwrap().path, folder.path().join("10.jnl"));
    }

    #[test]
    fn what_was_written_ends_before_the_room_set_aside() {
        let folder = tempfile::tempdir().unwrap();
        assert!(newest_content(folder.path()).unwrap().is_none());
        let mut bytes = b"batches".to_vec();
        bytes.resize(3 * PIECE_BYTES + 5, 0);
        std::fs::write(folder.path().join("4.jnl"), bytes).unwrap();
        assert_eq!(newest_content(folder.path()).unwrap().map(|content| content.bytes), Some(7));
    }
}
