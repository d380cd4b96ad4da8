//! An index as one file: an uncompressed tar archive, without times, owners or anything else that could differ.

use std::fs::{self, File};
use std::io::{self, BufReader, Read, Write};
use std::path::{Path, PathBuf};

use crate::digest::Digesting;
use crate::limits::{ARTIFACT_BYTES_MAX, INDEX_FILES_MAX};

/// The file that names the segments of an index.
const META: &str = "meta.json";

/// Why an archive is no index.
#[derive(Debug, thiserror::Error)]
pub enum BadArchive {
    /// It cannot be read or written.
    #[error("cannot unpack an index: {0}")]
    Io(#[from] io::Error),
    /// Something that no packed index has.
    #[error("the archive is no packed index: it has {0}")]
    Foreign(String),
}

/// Packs the index in a folder. Files that begin with a dot are locks and notes of Tantivy, and stay behind. Fails if
/// the folder cannot be read or the archive not be written.
pub fn pack(folder: &Path, out: impl Write) -> io::Result<()> {
    let mut names = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name().into_string().unwrap_or_default();
        if entry.file_type()?.is_file() && is_name(&name) {
            names.push(name);
        }
    }
    names.sort_by(|a, b| extension(a).cmp(extension(b)).then(a.cmp(b)));
    let rename = Rename::find(folder, &names)?;
    let mut archive = tar::Builder::new(out);
    for name in &names {
        let path = folder.join(name);
        if name == META {
            let text = rename.apply(&fs::read_to_string(&path)?);
            append(&mut archive, name, text.len() as u64, text.as_bytes())?;
        } else {
            let file = File::open(&path)?;
            append(&mut archive, &rename.apply(name), file.metadata()?.len(), BufReader::new(file))?;
        }
    }
    archive.into_inner()?.flush()
}

fn append(archive: &mut tar::Builder<impl Write>, name: &str, bytes: u64, content: impl Read) -> io::Result<()> {
    let mut header = tar::Header::new_ustar();
    header.set_size(bytes);
    header.set_mode(0o644);
    header.set_entry_type(tar::EntryType::Regular);
    archive.append_data(&mut header, name, content)
}

/// The random name of an index's only segment, and the one that it gets: a digest of its files.
#[derive(Debug, Default)]
struct Rename(Option<(String, String)>);

impl Rename {
    /// An index of several segments, or of none, keeps its names.
    fn find(folder: &Path, names: &[String]) -> io::Result<Self> {
        let files: Vec<_> = names.iter().filter(|name| *name != META).collect();
        let Some(segment) = files.first().and_then(|name| name.split('.').next()) else { return Ok(Self::default()) };
        let alone = files.iter().all(|name| name.split('.').next() == Some(segment));
        if !alone || segment.len() != 32 || !segment.bytes().all(|b| b.is_ascii_hexdigit()) {
            return Ok(Self::default());
        }
        let mut digest = Digesting::new(io::sink());
        for name in files {
            io::copy(&mut File::open(folder.join(name))?, &mut digest)?;
        }
        let (_, _, checksum) = digest.finish();
        let to = checksum.get(7..39).unwrap_or(segment).to_owned();
        Ok(Self(Some((segment.to_owned(), to))))
    }

    /// Replaces the name in both of its spellings.
    fn apply(&self, text: &str) -> String {
        match &self.0 {
            None => text.to_owned(),
            Some((from, to)) => text.replace(from, to).replace(&dashed(from), &dashed(to)),
        }
    }
}

/// 32 hexadecimal digits as a UUID is written.
fn dashed(hex: &str) -> String {
    let part = |from, to| hex.get(from..to).unwrap_or_default();
    [part(0, 8), part(8, 12), part(12, 16), part(16, 20), part(20, 32)].join("-")
}

fn extension(name: &str) -> &str {
    name.split_once('.').map_or("", |(_, extension)| extension)
}

/// Letters, digits, dots, dashes and underscores, no dot in front.
fn is_name(name: &str) -> bool {
    let plain = name.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-'));
    plain && (1..=100).contains(&name.len()) && !name.starts_with('.')
}

/// Unpacks an index into a folder, which must not exist and which exists afterwards only if all went well. Fails if the
/// archive has anything but plain files with plain names, or more of them than an index can have.
pub fn unpack(archive: impl Read, folder: &Path) -> Result<(), BadArchive> {
    if folder.try_exists()? {
        return Err(io::Error::new(io::ErrorKind::AlreadyExists, format!("{} exists", folder.display())).into());
    }
    let parent = folder.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let temporary = tempfile::Builder::new().prefix(".unpack-").tempdir_in(parent)?;
    let inner: PathBuf = temporary.path().join("index");
    fs::create_dir(&inner)?;
    unpack_into(archive, &inner)?;
    // Files before names: after a power cut the folder is whole or missing.
    File::open(&inner)?.sync_all()?;
    fs::rename(&inner, folder)?;
    File::open(parent)?.sync_all()?;
    Ok(())
}

fn unpack_into(archive: impl Read, folder: &Path) -> Result<(), BadArchive> {
    let mut archive = tar::Archive::new(archive.take(ARTIFACT_BYTES_MAX));
    let mut files = 0;
    for entry in archive.entries()?.raw(true) {
        let mut entry = entry?;
        let name = String::from_utf8_lossy(&entry.path_bytes()).into_owned();
        if entry.header().entry_type() != tar::EntryType::Regular || !is_name(&name) {
            return Err(BadArchive::Foreign(format!("the entry {name:?}")));
        }
        files += 1;
        if files > INDEX_FILES_MAX {
            return Err(BadArchive::Foreign(format!("more than {INDEX_FILES_MAX} files")));
        }
        let size = entry.size();
        let mut file = File::create_new(folder.join(&name))?;
        if io::copy(&mut entry, &mut file)? != size {
            return Err(BadArchive::Foreign(format!("half of {name:?}")));
        }
        file.sync_all()?;
    }
    if !folder.join(META).is_file() {
        return Err(BadArchive::Foreign(format!("no {META}")));
    }
    Ok(())
}
