//! A worker's output: a file that it appends to, and the one before. No pipe, so that a worker neither blocks nor ends
//! when the server does.
//!
//! A file that is above its bound is cut: its end is copied to the file before, then it is truncated. The worker's
//! descriptor appends, so it continues at the new end. What the worker writes between copy and truncation is lost. A server
//! looks four times a second; while none runs the file grows, and the next server cuts it.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;

use wayleave_core::redact;

use crate::limits::OUTPUT_BYTES_MAX;
use crate::private;

pub const FILE: &str = "log";
pub const BEFORE: &str = "log.before";

/// Opens the file for a worker to write to.
pub fn open(folder: &Path) -> io::Result<File> {
    private::options().append(true).open(folder.join(FILE))
}

/// Cuts the file if it is above its bound.
pub fn bound(folder: &Path) -> io::Result<()> {
    let path = folder.join(FILE);
    if fs::metadata(&path)?.len() <= OUTPUT_BYTES_MAX {
        return Ok(());
    }
    let tail = tail(&path, OUTPUT_BYTES_MAX)?;
    let new = folder.join("log.new");
    private::write(&new, tail)?;
    fs::rename(&new, folder.join(BEFORE))?;
    OpenOptions::new().write(true).open(&path)?.set_len(0)
}

/// Whether a worker wrote anything.
pub fn is_there(folder: &Path) -> bool {
    [FILE, BEFORE].iter().any(|file| fs::metadata(folder.join(file)).is_ok_and(|found| found.len() > 0))
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
    let plain = redact::reason(line, 200);
    (!plain.is_empty()).then_some(plain)
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

    use super::*;

    #[test]
    fn a_long_output_is_cut_and_its_writer_continues_at_the_new_end() {
        let folder = tempfile::tempdir().unwrap();
        let mut worker = open(folder.path()).unwrap();
        let line = |n: u64| format!("{n:015}\n");
        let lines = 3 * OUTPUT_BYTES_MAX / 16;
        (0..lines).for_each(|n| worker.write_all(line(n).as_bytes()).unwrap());
        bound(folder.path()).unwrap();
        worker.write_all(b"after\n").unwrap();
        assert_eq!(fs::read_to_string(folder.path().join(FILE)).unwrap(), "after\n");
        let text = read(folder.path(), usize::MAX).unwrap();
        assert_eq!(text.len() as u64, OUTPUT_BYTES_MAX + 6);
        assert!(text.ends_with(&format!("{}after\n", line(lines - 1))), "the tail is kept");
        assert_eq!(last_line(folder.path()).as_deref(), Some("after"));
        bound(folder.path()).unwrap();
        assert_eq!(read(folder.path(), 3).unwrap(), "er\n", "what is within the bound stays");
    }
}
