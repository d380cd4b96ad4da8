//! Opens a damaged folder read-only to save what can be read of it. New files go to a folder of their own, the
//! *scratch*.
//!
//! The number of shards is in FORMAT and in the tables; one of them is enough. [`crate::versions`] chooses the tables,
//! [`crate::rebuilt_tables`] reads those that cannot be opened, and the journal is replayed up to its damage.

use std::fs;
use std::path::{Path, PathBuf};

use crate::disk::{Disk, OsDisk};
use crate::folder::{At, DB, FORMAT, Folder, LOCK, Lock};
use crate::loading::LostCommits;
use crate::lsm::{FjallTables, TableOptions};
use crate::manifest::BadFile;
use crate::open_error::OpenError;
use crate::own_rows;
use crate::private;
use crate::rebuilt_tables::RebuiltTables;
use crate::versions;

/// What the scratch has, besides its lock: no data folder is called so.
const PART: &str = "salvage.part";

/// A damaged folder.
pub(crate) struct Salvaged {
    /// Tables that could not be opened, and whether rows are missing in them.
    pub(crate) rebuilt: Vec<(PathBuf, bool)>,
    /// What is missing besides rows of tables.
    pub(crate) lost: LostCommits,
    _scratch: Scratch,
}

/// A folder of what is made for a salvage, which is removed when this is dropped.
struct Scratch {
    path: PathBuf,
    _lock: Lock,
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // What is left is removed by the next salvage with this scratch.
        _ = fs::remove_dir_all(&self.path);
    }
}

impl Scratch {
    /// Creates and locks the folder. What a killed salvage has left in it is removed.
    fn make(path: &Path) -> Result<Self, OpenError> {
        let io = |error| OpenError::io(path, error);
        crate::folder::make_folder(&OsDisk, path)?;
        let names = OsDisk.list(path).map_err(io)?;
        if let Some(found) = names.into_iter().find(|name| ![LOCK, PART].contains(&name.as_str())) {
            return Err(OpenError::Foreign { path: path.into(), found });
        }
        let lock = OsDisk.lock(&path.join(LOCK)).map_err(|error| match error.kind() {
            std::io::ErrorKind::WouldBlock => OpenError::InUse { path: path.into() },
            _ => io(error),
        })?;
        let scratch = Self { path: path.into(), _lock: lock };
        let part = scratch.part();
        if part.exists() {
            fs::remove_dir_all(&part).map_err(io)?;
        }
        // Fails if another salvage has just removed the folder.
        private::create_dir(&part).map_err(io)?;
        Ok(scratch)
    }

    fn part(&self) -> PathBuf {
        self.path.join(PART)
    }
}

/// Opens a damaged folder and its tables. The journal remains to be read. Fails if another process uses it, it cannot
/// be read at the moment, it belongs to a newer program, or no version of its tables is known.
pub(crate) fn open(
    path: &Path,
    scratch: &Path,
    options: TableOptions,
) -> Result<(Salvaged, Folder, FjallTables), OpenError> {
    let at = At { disk: &OsDisk, path };
    let lock = at.lock_to_read()?;
    let format = match at.read_format() {
        Err(OpenError::Damaged { what, .. }) => Err(what),
        read => Ok(read?.1),
    };
    let chosen = versions::choose(&path.join(DB), &path.join(crate::folder::JOURNAL));
    let chosen = chosen.map_err(|bad| OpenError::bad_file(path, &needed(bad)))?;
    let scratch = Scratch::make(scratch)?;
    let database = scratch.part().join(DB);
    let RebuiltTables { holes, tables: rebuilt } = RebuiltTables::make(path, &chosen, &database)?;
    private::keep_inside(&scratch.path);
    let tables = FjallTables::open(&database, options).map_err(|error| OpenError::tables(path, error))?;
    let tables = tables.with_holes(&holes);
    let shards = match (format, own_rows::shards(&tables)) {
        (Ok(format), Ok(stored)) if format != stored => {
            let unlike = own_rows::unlike(format, stored);
            tracing::warn!("{unlike}: the rows were written for {stored}");
            stored
        }
        (_, Ok(stored)) => stored,
        (Ok(format), Err(_)) => format,
        (Err(format), Err(stored)) => {
            let what = format!(
                "the number of shards is lost: {format}, and {stored}; copy the file {FORMAT} of any backup of this store"
            );
            return Err(OpenError::Damaged { path: path.into(), what });
        }
    };
    let folder = Folder::salvaged(path, &scratch.part(), shards, lock);
    Ok((Salvaged { rebuilt, lost: LostCommits::default(), _scratch: scratch }, folder, tables))
}

/// Without a version it is not known which tables are in use.
fn needed(bad: BadFile) -> BadFile {
    let what = if bad.is_damage {
        format!("{}; no version of the manifest is whole, so it is not known which tables are in use", bad.what)
    } else {
        bad.what
    };
    BadFile { what, ..bad }
}
