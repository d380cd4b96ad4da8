//! Chooses the version of the manifest that a salvage reads.
//!
//! Normally the one that `current` names. If that is damaged, or a table of it, another one may be there and whole: a kill
//! before the end of a flush or merge leaves the files of two. A version is complete if all of its tables are whole and the
//! journal continues where they end: what the next version had besides is in the journal too, or is the same in fewer tables. Where
//! the journal is damaged there, only some blocks are missing of the newest version, but all later commits of another one; so that is
//! read only if the newest one is lost.
//!
//! The checksum of a version file is in `current` alone. Without it the content vouches for itself: the file is divided by a
//! table with a checksum, every table that it names has the checksum that it names, and the sequence numbers that it adds put
//! no row before a newer one. A flipped bit breaks one of these, or changes nothing that matters.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use lsm_tree::Table;

use crate::disk::{Disk, OsDisk};
use crate::flusher::{DONE_KEY, Done};
use crate::journal;
use crate::lsm::TABLES;
use crate::manifest::{self, BadFile, Version};
use crate::own_rows;
use crate::rebuilt_tables;
use crate::replay::Replay;

/// The version to read.
#[derive(Debug)]
pub(crate) struct Chosen {
    pub(crate) version: Version,
    /// The tables whose checksum matches.
    pub(crate) sound: Sound,
}

/// Files of tables, each with the checksum that matches.
pub(crate) type Sound = BTreeSet<(PathBuf, u128)>;

/// Chooses a version of a database, whose journal is in a folder. The error says what is wrong with the newest version,
/// if no other is complete either; or the first file that cannot be read at the moment.
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
        let Some(first) = journal_continues(&version, database, journal).filter(|_| is_whole) else { continue };
        if newest.is_err() || is_journal_whole(journal, first) {
            tracing::warn!(
                manifest.path = %version.path.display(),
                "the newest version of the tables is damaged; another one is whole, and the journal goes on where it ends"
            );
            return Ok(Chosen { version, sound });
        }
    }
    newest.map(|version| Chosen { version, sound })
}

/// Whether [`choose`] may find a version of which every table is there. No table is read for that but for a single row.
pub(crate) fn may_choose(database: &Path, journal: &Path) -> bool {
    let newest = named_by_current(database).ok().map(|version| version.number);
    let versions =
        manifest::versions(database).into_iter().filter_map(|number| manifest::version(database, number).ok());
    let mut complete = versions.filter(|version| version.tables.iter().all(|table| table.path.exists()));
    complete.any(|found| newest == Some(found.number) || journal_continues(&found, database, journal).is_some())
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

/// The file in which the journal continues where the tables of a version end, if it is there. A version without the row that counts
/// journal files may be from before the rows of a copied store: then every table must be in use.
fn journal_continues(version: &Version, database: &Path, journal: &Path) -> Option<u64> {
    let found = own_rows::newest(&version.tables, DONE_KEY).ok()?;
    let is_counted = found.is_some();
    let done = found.map_or_else(|| Some(Done::default()), |value| Done::decode(&value))?;
    let mut files = std::fs::read_dir(database.join(TABLES)).into_iter().flatten().flatten();
    let is_listed = |path: &Path| version.tables.iter().any(|table| table.path == path);
    let are_all_used = is_counted || files.all(|file| is_listed(&file.path()));
    let first = done.file + 1;
    (are_all_used && journal::path(journal, first).exists()).then_some(first)
}

/// Whether no file of a journal from this one on is damaged.
fn is_journal_whole(journal: &Path, first: u64) -> bool {
    let disk: Arc<dyn Disk> = Arc::new(OsDisk);
    let replay = Replay { disk: &disk, folder: journal, done: first - 1, repair: false };
    replay.inspect().is_ok_and(|files| files.iter().all(|(_, verdict)| verdict.is_ok()))
}

/// The sequence numbers of a table's rows.
struct Seqnos {
    table: Table,
    lowest: u64,
    highest: u64,
    /// Whether the version gives all of its rows one number.
    is_given: bool,
}

/// Whether the sequence numbers that a version gives put no row before a newer one of the same key. Merged tables have their own.
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
    let below = |at: usize| seqnos.get(at + 1..).unwrap_or_default();
    for (upper, lower) in
        seqnos.iter().enumerate().flat_map(|(at, upper)| below(at).iter().map(move |lower| (upper, lower)))
    {
        let is_known = !upper.is_given && !lower.is_given;
        if !is_known && upper.lowest <= lower.highest && !are_rows_ordered(&upper.table, &lower.table)? {
            return Some(false);
        }
    }
    Some(true)
}

/// The same for the rows of two tables. A merged one may have old rows besides those that replace rows of the other.
fn are_rows_ordered(upper: &Table, lower: &Table) -> Option<bool> {
    let (a, b) = (&upper.metadata.key_range, &lower.metadata.key_range);
    let (from, to) = (a.min().max(b.min()).clone(), a.max().min(b.max()).clone());
    if from > to {
        return Some(true);
    }
    let mut below = lower.range(from.clone()..=to.clone()).peekable();
    for row in upper.range(from..=to) {
        let key = row.ok()?.key;
        while below.next_if(|row| row.as_ref().is_ok_and(|row| row.key.user_key < key.user_key)).is_some() {}
        match below.peek() {
            Some(Err(_)) => return None,
            Some(Ok(row)) if row.key.user_key == key.user_key && row.key.seqno >= key.seqno => return Some(false),
            _ => {}
        }
    }
    Some(true)
}

#[cfg(test)]
mod tests {
    use std::ops::RangeInclusive;

    use lsm_tree::AbstractTree;
    use lsm_tree::compaction::{CompactionStrategy, MoveDown, PullDown};

    use super::*;
    use crate::lsm::{FjallTables, TableOptions};
    use crate::memtable::Memtable;
    use crate::tables::Tables;

    /// A merged table may have rows that are older than all of a table below it, if they are others.
    #[test]
    fn tables_are_in_order_if_no_row_is_above_a_newer_one() {
        let folder = tempfile::tempdir().unwrap();
        let tables = FjallTables::open(folder.path(), TableOptions { cache_bytes: 1 << 20, files_max: 100 }).unwrap();
        let add = |rows: RangeInclusive<u8>, then: Option<Arc<dyn CompactionStrategy>>| {
            let mut table = Memtable::default();
            rows.for_each(|row| table.put(&[row], Some(&[7])));
            tables.add(&[Arc::new(table)]).unwrap();
            then.into_iter().for_each(|step| tables.tree.compact(step, 100).unwrap());
        };
        add(1..=3, Some(Arc::new(MoveDown(0, 1))));
        add(10..=13, Some(Arc::new(MoveDown(0, 2))));
        add(3..=5, None);
        add(20..=21, Some(Arc::new(PullDown(0, 1))));
        let listed = || manifest::version(folder.path(), manifest::newest(folder.path()).unwrap()).unwrap();
        let version = listed();
        assert_eq!(version.tables.iter().map(|table| table.seqno > 0).collect::<Vec<_>>(), [false, true]);
        assert_eq!(are_ordered(&version), Some(true));
        add(12..=12, None);
        let mut version = listed();
        assert_eq!(are_ordered(&version), Some(true));
        version.tables.swap(0, 2);
        assert_eq!(are_ordered(&version), Some(false), "a row of the last one is newer");
    }
}
