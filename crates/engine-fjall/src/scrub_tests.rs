//! Each kind of file is flipped, found and named by the next pass, and forgotten by the pass after it is mended.

use std::fs;

use wayleave_core::time::Time;
use wayleave_engine::Health;
use wayleave_engine::suite::harness::put;

use super::*;
use crate::disk::OsDisk;
use crate::engine::make_tables;
use crate::folder::Folder;
use crate::loading::{self, Loading};
use crate::lsm::{TABLES, TableOptions};
use crate::syncer::Drive;
use crate::watchdog::{self, Watched};

struct Stage {
    store: Arc<Store<FjallTables>>,
    folder: OpenFolder,
    damage: Arc<DamageLog>,
    _locked: Folder,
    above: tempfile::TempDir,
}

impl Stage {
    /// A store with two tables, a complete file of the journal, and a newest one.
    fn new() -> Self {
        let above = tempfile::tempdir().unwrap();
        let disk: Arc<dyn Disk> = Arc::new(OsDisk);
        let locked = Folder::open(&disk, above.path(), 4, |db| make_tables(db, 4)).unwrap();
        let options = TableOptions { cache_bytes: 1 << 20, files_max: 100 };
        let tables = FjallTables::open(&locked.database(), options).unwrap();
        let damage = Arc::clone(&tables.damage);
        let loading = Loading { freeze_bytes: 1 << 20, repair: false, drive: Drive::Threads, life: 1 };
        let store = Arc::new(loading::load(&locked, tables, loading, |_| Ok(())).unwrap());
        for round in 0..2 {
            let writes: Vec<_> = (0..500).map(|n| put(1, &format!("{round} {n:03}"), "v")).collect();
            drop(store.commit(&[], &[], &writes, Time(1)).unwrap());
            // As a flush that ends before it removes the journal.
            let frozen = flusher::freeze(&store);
            flusher::settle(&store).unwrap();
            flusher::write_table(&store, &frozen).unwrap();
        }
        let folder = OpenFolder { disk, path: above.path().into() };
        Self { store, folder, damage, _locked: locked, above }
    }

    fn pass(&self) -> Health {
        assert!(pass(&Arc::downgrade(&self.store), &self.folder, &self.damage, |_| true));
        let (disk, damage) = (Arc::clone(&self.folder.disk), Arc::clone(&self.damage));
        let watched = Watched { disk, folder: self.folder.path.clone(), damage, floor_bytes: 1 };
        watchdog::look(&self.store, &watched, &Health::Ok)
    }

    /// Everything but the lock and the newest file of the journal.
    fn files(&self) -> Vec<PathBuf> {
        let root = self.above.path();
        let journal = root.join(JOURNAL);
        let numbers = journal::numbers(&*self.folder.disk, &journal).unwrap();
        let complete = numbers[..numbers.len() - 1].iter().map(|number| journal::path(&journal, *number));
        let within = |folder: PathBuf| fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
        let manifest = within(root.join(DB)).filter(|path| path.is_file());
        let tables = within(root.join(DB).join(TABLES));
        std::iter::once(root.join(FORMAT)).chain(manifest).chain(tables).chain(complete).collect()
    }
}

#[test]
fn a_pass_names_each_damaged_file_and_the_next_one_drops_repaired_ones() {
    let stage = Stage::new();
    let files = stage.files();
    let count = |part: &str| files.iter().filter(|path| path.display().to_string().contains(part)).count();
    assert_eq!((count(FORMAT), count("current"), count(TABLES), count(JOURNAL)), (1, 1, 3, 2), "{files:?}");
    assert_eq!(stage.pass(), Health::Ok);
    for file in files {
        let whole = fs::read(&file).unwrap();
        let mut flipped = whole.clone();
        flipped[10] ^= 4;
        fs::write(&file, flipped).unwrap();
        let Health::Impaired(why) = stage.pass() else { panic!("{} is not missed", file.display()) };
        // A damaged `current` names a version that does not exist, or has another checksum.
        let name = if file.ends_with(manifest::CURRENT) { format!("{DB}/") } else { file.display().to_string() };
        assert!(why.contains(&name), "{}: {why}", file.display());
        assert_eq!(stage.damage.count(), 1, "{why}");
        fs::write(&file, whole).unwrap();
        assert_eq!(stage.pass(), Health::Ok, "{} is mended", file.display());
    }
}

#[test]
fn a_file_that_is_missing_is_damaged() {
    let stage = Stage::new();
    for file in stage.files() {
        let away = file.with_extension("away");
        fs::rename(&file, &away).unwrap();
        let health = stage.pass();
        // A gap in the journal is reported for a file that exists.
        let is_journal = file.parent().is_some_and(|above| above.ends_with(JOURNAL));
        assert!(is_journal || matches!(&health, Health::Impaired(_)), "{}: {health:?}", file.display());
        fs::rename(&away, &file).unwrap();
        assert_eq!(stage.pass(), Health::Ok, "{}", file.display());
    }
}

#[test]
fn a_pass_stops_on_request() {
    let stage = Stage::new();
    assert!(!pass(&Arc::downgrade(&stage.store), &stage.folder, &stage.damage, |_| false));
    assert_eq!(stage.damage.count(), 0);
}
