//! Which version of the manifest a salvage reads.
//!
//! Normally the one that `current` names. If that is damaged, or a table of it, another one may be there and whole: a kill
//! before the end of a flush or merge leaves the files of two. A version is complete if all of its tables are whole and the
//! journal goes on where they end: what the next version had besides is in the journal too, or is the same in fewer tables.
//!
//! The checksum of a version file is in `current` alone. Without it the content vouches for itself: the file is divided by a
//! table with a checksum, every table that it names has the checksum that it names, and the sequence numbers that it adds keep
//! the tables in order. A flipped bit breaks one of these, or changes nothing that matters.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use lsm_tree::Table;

use crate::flusher::{DONE_KEY, Done};
use crate::journal;
use crate::lsm::TABLES;
use crate::manifest::{self, BadFile, Version};
use crate::own_rows;
use crate::rebuilt_tables;

/// The version to read.
#[derive(Debug)]
pub(crate) struct Chosen {
    pub(crate) version: Version,
    /// The tables whose checksum matches.
    pub(crate) sound: Sound,
}

/// Files of tables, each with the checksum that matches.
pub(crate) type Sound = BTreeSet<(PathBuf, u128)>;

/// Chooses a version of a database, whose journal is in a folder.
///
/// # Errors
/// What is wrong with the newest version, if no other is complete either; or the first file that cannot be read at the moment.
pub(crate) fn choose(database: &Path, journal: &Path) -> Result<Chosen, BadFile> {
    let mut sound = BTreeSet::new();
    let newest = named_by_current(database);
    match &newest {
        Ok(version) if are_whole(version, &mut sound)? => return newest.map(|version| Chosen { version, sound }),
        Err(bad) if !bad.is_damage => return newest.map(|version| Chosen { version, sound }),
        _ => {}
    }
    let is_newest = |number: &u64| newest.as_ref().is_ok_and(|newest| newest.number == *number);
    let others = manifest::versions(database).into_iter().filter(|number| !is_newest(number));
    for version in others.filter_map(|number| manifest::version(database, number).ok()) {
        let is_whole = are_whole(&version, &mut sound)? && are_ordered(&version) == Some(true);
        if is_whole && goes_on(&version, database, journal) {
            tracing::warn!(
                manifest.path = %version.path.display(),
                "the newest version of the tables is damaged; another one is whole, and the journal goes on where it ends"
            );
            return Ok(Chosen { version, sound });
        }
    }
    newest.map(|version| Chosen { version, sound })
}

fn named_by_current(database: &Path) -> Result<Version, BadFile> {
    let (number, _) = manifest::read_current(database)?;
    manifest::list(database)?;
    manifest::version(database, number)
}

/// Whether the checksum of every table matches; all are noted that do.
fn are_whole(version: &Version, sound: &mut Sound) -> Result<bool, BadFile> {
    let mut are_whole = true;
    for table in &version.tables {
        let noted = (table.path.clone(), table.checksum);
        if sound.contains(&noted) {
            continue;
        }
        match manifest::verify(&table.path, table.checksum, |_| true) {
            Ok(()) => _ = sound.insert(noted),
            Err(bad) if !bad.is_damage => return Err(bad),
            Err(_) => are_whole = false,
        }
    }
    Ok(are_whole)
}

/// Whether the journal goes on where the tables of a version end. A version without the row that counts journal files may be from
/// before the rows of a copied store: then every table must be in use.
fn goes_on(version: &Version, database: &Path, journal: &Path) -> bool {
    let Ok(found) = own_rows::newest(&version.tables, DONE_KEY) else { return false };
    let is_counted = found.is_some();
    let Some(done) = found.map_or_else(|| Some(Done::default()), |value| Done::decode(&value)) else { return false };
    let mut files = std::fs::read_dir(database.join(TABLES)).into_iter().flatten().flatten();
    let is_listed = |path: &Path| version.tables.iter().any(|table| table.path == path);
    let are_all_used = is_counted || files.all(|file| is_listed(&file.path()));
    are_all_used && journal::path(journal, done.file + 1).exists()
}

/// The sequence numbers of a table's rows.
struct Seqnos {
    table: Table,
    lowest: u64,
    highest: u64,
    /// Whether the version gives all of its rows one number.
    is_given: bool,
}

/// Whether the sequence numbers that a version gives put no table before one with newer rows of the same keys. Merged tables have
/// their own.
fn are_ordered(version: &Version) -> Option<bool> {
    let mut seqnos = Vec::new();
    for listed in &version.tables {
        let table = listed.open().ok()?;
        let (given, highest) = (listed.seqno, table.get_highest_seqno());
        let lowest = given.checked_add(rebuilt_tables::lowest_seqno(&listed.path)?)?;
        if given > 0 && (lowest, highest) != (given, given) {
            return Some(false);
        }
        seqnos.push(Seqnos { table, lowest, highest, is_given: given > 0 });
    }
    let overlap = |a: &Table, b: &Table| a.metadata.key_range.overlaps_with_key_range(&b.metadata.key_range);
    let is_right = |upper: &Seqnos, lower: &Seqnos| {
        let is_known = !upper.is_given && !lower.is_given;
        is_known || upper.lowest > lower.highest || !overlap(&upper.table, &lower.table)
    };
    let below = |at: usize| seqnos.get(at + 1..).unwrap_or_default();
    Some(seqnos.iter().enumerate().all(|(at, upper)| below(at).iter().all(|lower| is_right(upper, lower))))
}
